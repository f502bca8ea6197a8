"""A BERT encoder in torch, to be trained: a function of the tensors of a `BertModel` checkpoint, by their names there.

The same encoder as `pipelines.bert_onnx` writes. There is no dropout, in training neither.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pipelines.bert_onnx import Array, check_config

WORDS = "embeddings.word_embeddings.weight"

_NO_TOKEN = -1e4
"""Added to the attention that padding gets: its share of a softmax is 0 then."""


def load_bert(weights: Mapping[str, Array], config: Mapping[str, Any], device: str) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint that `bert_vectors` reads, by name, float32, on a device.

    Raises:
        ValueError: The configuration asks for another kind of BERT, or the checkpoint lacks a tensor.
    """
    check_config(config)
    names = _names(config["num_hidden_layers"])
    missing = [name for name in names if name not in weights]
    if missing:
        raise ValueError(
            f"the checkpoint has no tensor {missing[0]!r} ({len(missing)} are missing): is it a BertModel?"
        )
    return {name: torch.tensor(weights[name], dtype=torch.float32, device=device) for name in names}


def bert_vectors(tensors: Mapping[str, Tensor], config: Mapping[str, Any], token_ids: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of each text's token vectors, float32 `[batch, hidden_size]`.

    Args:
        tensors: Of `load_bert`.
        config: Of the checkpoint.
        token_ids: `[batch, length]`, with those around a text.
        mask: Which of them are tokens and no padding, bool `[batch, length]`.
    """
    hidden = functional.embedding(token_ids, tensors[WORDS])
    # Every token is of type 0 in a single text.
    hidden = hidden + tensors["embeddings.position_embeddings.weight"][: token_ids.shape[1]]
    hidden = hidden + tensors["embeddings.token_type_embeddings.weight"][0]
    hidden = _layer_norm(tensors, config, "embeddings.LayerNorm", hidden)
    bias = torch.where(mask, 0.0, _NO_TOKEN)[:, None, None, :]
    for layer in range(config["num_hidden_layers"]):
        hidden = _layer(tensors, config, f"encoder.layer.{layer}.", hidden, bias)
    return (hidden.float() * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)


def _names(layers: int) -> list[str]:
    embeddings = [f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")]
    parts = [f"attention.self.{name}" for name in ("query", "key", "value")]
    parts += ["attention.output.dense", "attention.output.LayerNorm"]
    parts += ["intermediate.dense", "output.dense", "output.LayerNorm"]
    modules = ["embeddings.LayerNorm", *(f"encoder.layer.{layer}.{part}" for layer in range(layers) for part in parts)]
    return [*embeddings, *(f"{module}.{kind}" for module in modules for kind in ("weight", "bias"))]


def _layer(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], prefix: str, hidden: Tensor, bias: Tensor
) -> Tensor:
    heads = config["num_attention_heads"]
    query, key, value = (
        _dense(tensors, f"{prefix}attention.self.{name}", hidden).view(*hidden.shape[:2], heads, -1).transpose(1, 2)
        for name in ("query", "key", "value")
    )
    # Written out: on a processor the gradient of torch's fused attention takes twice as long.
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    attended = ((scores + bias).softmax(-1).to(value.dtype) @ value).transpose(1, 2).flatten(2)
    attended = _dense(tensors, f"{prefix}attention.output.dense", attended)
    hidden = _layer_norm(tensors, config, f"{prefix}attention.output.LayerNorm", hidden + attended)
    inner = functional.gelu(_dense(tensors, f"{prefix}intermediate.dense", hidden))
    outer = _dense(tensors, f"{prefix}output.dense", inner)
    return _layer_norm(tensors, config, f"{prefix}output.LayerNorm", hidden + outer)


def _dense(tensors: Mapping[str, Tensor], name: str, value: Tensor) -> Tensor:
    return functional.linear(value, tensors[f"{name}.weight"], tensors[f"{name}.bias"])


def _layer_norm(tensors: Mapping[str, Tensor], config: Mapping[str, Any], name: str, value: Tensor) -> Tensor:
    weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    return functional.layer_norm(value, weight.shape, weight, bias, config["layer_norm_eps"])
