"""A Qwen3 of random weights and a few hundred kilobytes, for tests of everything around a model but its answers."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

Kind = Literal["chat", "embedding", "reranker", "scorer"]
"""As Qwen3, Qwen3-Embedding, Qwen3-Reranker, and the last with a head of its own in the place of its odds of `yes`."""

POSITIONS = 32_768
DIMENSION = 64
LAYERS = 2
HEADS, KEY_VALUE_HEADS, HEAD_DIMENSION = 2, 1, 32
INTERMEDIATE = 128

END_OF_TEXT, TURN_BEGINS, TURN_ENDS = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# As in Qwen3, thoughts are put between tokens that are no special ones: they stay in the text of an answer.
THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"

CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking -%}
<think>

</think>

{% endif -%}
{%- endif -%}
"""


def write_tiny_qwen3(folder: Path, kind: Kind, seed: int = 0) -> Path:
    """Write a checkpoint as the published ones of its kind are laid out; return its folder."""
    folder.mkdir(parents=True)
    tokenizer = _tokenizer(kind)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(folder / "tokenizer_config.json", _tokenizer_config(kind))
    _write(folder / "config.json", _config(tokenizer, kind))
    _write(folder / "generation_config.json", {"eos_token_id": tokenizer.token_to_id(TURN_ENDS)})
    if kind == "embedding":
        modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        _write(
            folder / "modules.json",
            [
                {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{module}"}
                for place, (path, module) in enumerate(modules)
            ],
        )
        (folder / "1_Pooling").mkdir()
        pooling = {"word_embedding_dimension": DIMENSION, "pooling_mode_lasttoken": True}
        _write(folder / "1_Pooling" / "config.json", pooling)
    save_file(_weights(tokenizer, kind, seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2))


def _tokenizer(kind: Kind) -> Tokenizer:
    """Every byte is a token; `yes` and `no`, by whose odds rerankers answer, are tokens too."""
    merges = [("y", "e"), ("ye", "s"), ("n", "o")]
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={token: place for place, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END_OF_TEXT, TURN_BEGINS, TURN_ENDS])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in (THOUGHT_BEGINS, THOUGHT_ENDS)])
    if kind == "embedding":
        end = [(END_OF_TEXT, tokenizer.token_to_id(END_OF_TEXT))]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END_OF_TEXT}", special_tokens=end)
    return tokenizer


def _tokenizer_config(kind: Kind) -> dict[str, object]:
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": TURN_ENDS if kind == "chat" else END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "model_max_length": POSITIONS,
        "clean_up_tokenization_spaces": False,
    }
    return config | ({"chat_template": CHAT_TEMPLATE} if kind == "chat" else {})


def _config(tokenizer: Tokenizer, kind: Kind) -> dict[str, object]:
    return {
        "architectures": ["Qwen3ForSequenceClassification" if kind == "scorer" else "Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": DIMENSION,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "head_dim": HEAD_DIMENSION,
        "hidden_act": "silu",
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "dtype": "float32",
        "eos_token_id": tokenizer.token_to_id(TURN_ENDS),
    } | ({"num_labels": 1} if kind == "scorer" else {})


def _weights(tokenizer: Tokenizer, kind: Kind, seed: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)

    def random(*shape: int, scale: float = 0.1) -> np.ndarray:
        return generator.normal(0, scale, shape).astype(np.float32)

    vocabulary = tokenizer.get_vocab_size()
    embeddings, head = random(vocabulary, DIMENSION, scale=1.0), random(vocabulary, DIMENSION, scale=0.3)
    # Every hidden state has a part in common, by which what ends a string, a list or an object is likelier than the
    # rest: else hardly any answer would come to an end.
    embeddings[:, 0] = 1.0
    for token, lean in {'"': 12.0, "{": 6.0, "]": 6.0, "}": 6.0}.items():
        head[tokenizer.token_to_id(token), 0] += lean
    # After a line's end, which is the last that a prompt has, a thought begins, has one word, and ends.
    for axis, (token, next_token) in enumerate(pairwise(["Ċ", THOUGHT_BEGINS, "no", THOUGHT_ENDS]), start=1):
        embeddings[:, axis] = 0.0
        embeddings[tokenizer.token_to_id(token), axis] = head[tokenizer.token_to_id(next_token), axis] = 6.0
    weights = {"model.embed_tokens.weight": embeddings, "model.norm.weight": np.ones(DIMENSION, np.float32)}
    if kind == "scorer":
        weights["score.weight"] = head[[tokenizer.token_to_id("yes")]] - head[[tokenizer.token_to_id("no")]]
    else:
        weights["lm_head.weight"] = head
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        queries, keys = HEADS * HEAD_DIMENSION, KEY_VALUE_HEADS * HEAD_DIMENSION
        weights |= {
            f"{name}.input_layernorm.weight": np.ones(DIMENSION, np.float32),
            f"{name}.post_attention_layernorm.weight": np.ones(DIMENSION, np.float32),
            f"{name}.self_attn.q_proj.weight": random(queries, DIMENSION),
            f"{name}.self_attn.k_proj.weight": random(keys, DIMENSION),
            f"{name}.self_attn.v_proj.weight": random(keys, DIMENSION),
            f"{name}.self_attn.o_proj.weight": random(DIMENSION, queries),
            f"{name}.self_attn.q_norm.weight": np.ones(HEAD_DIMENSION, np.float32),
            f"{name}.self_attn.k_norm.weight": np.ones(HEAD_DIMENSION, np.float32),
            f"{name}.mlp.gate_proj.weight": random(INTERMEDIATE, DIMENSION),
            f"{name}.mlp.up_proj.weight": random(INTERMEDIATE, DIMENSION),
            f"{name}.mlp.down_proj.weight": random(DIMENSION, INTERMEDIATE),
        }
    return weights
