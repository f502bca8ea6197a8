"""A BERT encoder as an ONNX graph, written node by node from its weights.

Writing it by hand needs neither torch nor transformers. The graph holds standard operators only: ONNX Runtime fuses
them when it loads the model, and on one core that was as fast as naming its fused attention operators outright.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper, numpy_helper

EXPORTER_REVISION = 1
"""Raised whenever the same weights would give another graph, so that a kept one is not used again."""

OPSET = 20  # the first with Gelu
IR_VERSION = 10

Array = npt.NDArray[Any]


class _Graph:
    """Nodes and constants in the order in which they are added; a value is known by its name."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}

    def constant(self, name: str, array: Array) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def integers(self, name: str, *values: int) -> str:
        return self.constant(name, np.array(values, dtype=np.int64))

    def scalar(self, name: str, value: float) -> str:
        return self.constant(name, np.array(value, dtype=np.float32))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401
        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output


def write_bert(weights: Mapping[str, Array], config: Mapping[str, Any]) -> bytes:
    """Return a serialised ONNX model of a BERT encoder.

    The model takes `input_ids`, int64 `[batch, length]`, texts of one length without padding, so it needs no mask. It
    gives `hidden`, the last layer's vectors of the tokens, float32 `[batch, length, hidden_size]`.

    Args:
        weights: Tensors by their names in a `BertModel` checkpoint.
        config: The checkpoint's configuration: sizes, heads and epsilon are read from it.

    Raises:
        ValueError: The configuration asks for a kind of BERT that the graph does not cover.
    """
    check_config(config)
    graph = _Graph()
    hidden = _embeddings(graph, weights, config)
    for layer in range(config["num_hidden_layers"]):
        hidden = _layer(graph, weights, config, f"encoder.layer.{layer}.", hidden)
    return _serialise(graph, hidden, config["hidden_size"])


def check_config(config: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another kind than is written here.

    Raises:
        ValueError: Names the setting.
    """
    for key, known in (("model_type", "bert"), ("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if config[key] != known:
            raise ValueError(f"{key} is {config[key]!r}; only {known!r} can be written")


def _embeddings(graph: _Graph, weights: Mapping[str, Array], config: Mapping[str, Any]) -> str:
    words = graph.constant("words", weights["embeddings.word_embeddings.weight"])
    # Every token is of type 0 in a single text, so that type's vector is added to the positions once and for all.
    positions = graph.constant(
        "positions",
        weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0],
    )
    length = graph.node("Shape", "input_ids", start=1, end=2)
    positions = graph.node("Slice", positions, graph.integers("first", 0), length)
    summed = graph.node("Add", graph.node("Gather", words, "input_ids"), positions)
    return _layer_norm(graph, weights, config, "embeddings.LayerNorm", summed)


def _layer(graph: _Graph, weights: Mapping[str, Array], config: Mapping[str, Any], prefix: str, hidden: str) -> str:
    heads, size = config["num_attention_heads"], config["hidden_size"]
    split = graph.integers("heads_shape", 0, 0, heads, size // heads)  # 0 keeps that dimension as it is
    joined = graph.integers("hidden_shape", 0, 0, size)

    def heads_of(name: str, order: list[int]) -> str:
        projected = _dense(graph, weights, f"{prefix}attention.self.{name}", hidden)
        return graph.node("Transpose", graph.node("Reshape", projected, split), perm=order)

    query, key, value = heads_of("query", [0, 2, 1, 3]), heads_of("key", [0, 2, 3, 1]), heads_of("value", [0, 2, 1, 3])
    scores = graph.node("MatMul", query, key)
    scores = graph.node("Mul", scores, graph.scalar("scale", (size // heads) ** -0.5))
    shares = graph.node("Softmax", scores, axis=-1)
    context = graph.node("Transpose", graph.node("MatMul", shares, value), perm=[0, 2, 1, 3])
    attended = _dense(graph, weights, f"{prefix}attention.output.dense", graph.node("Reshape", context, joined))
    hidden = _layer_norm(
        graph, weights, config, f"{prefix}attention.output.LayerNorm", graph.node("Add", attended, hidden)
    )
    inner = graph.node("Gelu", _dense(graph, weights, f"{prefix}intermediate.dense", hidden))
    outer = _dense(graph, weights, f"{prefix}output.dense", inner)
    return _layer_norm(graph, weights, config, f"{prefix}output.LayerNorm", graph.node("Add", outer, hidden))


def _dense(graph: _Graph, weights: Mapping[str, Array], name: str, value: str) -> str:
    # A checkpoint keeps [out, in]; MatMul wants [in, out].
    product = graph.node("MatMul", value, graph.constant(f"{name}.weight", weights[f"{name}.weight"].T))
    return graph.node("Add", product, graph.constant(f"{name}.bias", weights[f"{name}.bias"]))


def _layer_norm(graph: _Graph, weights: Mapping[str, Array], config: Mapping[str, Any], name: str, value: str) -> str:
    scale = graph.constant(f"{name}.weight", weights[f"{name}.weight"])
    bias = graph.constant(f"{name}.bias", weights[f"{name}.bias"])
    return graph.node("LayerNormalization", value, scale, bias, axis=-1, epsilon=config["layer_norm_eps"])


def _serialise(graph: _Graph, output: str, hidden_size: int) -> bytes:
    graph.nodes.append(helper.make_node("Identity", [output], ["hidden"], name="hidden"))
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])]
    outputs = [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, ["batch", "length", hidden_size])]
    proto = helper.make_graph(graph.nodes, "bert", inputs, outputs, list(graph.constants.values()))
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    serialised: bytes = model.SerializeToString(deterministic=True)
    return serialised
