"""A BERT encoder of a few thousand random weights, in the files of a checkpoint."""

import json

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from hgmem_core.encoding import EncoderIdentity
from pipelines.bert_encoder import CONFIG, TOKENIZER, WEIGHTS, BertFolder
from pipelines.files import file_sha256

SIZE, INNER, POSITIONS = 16, 32, 64
WORDS = [f"{kind}{number}" for kind in ("ask", "say") for number in range(24)]


def tiny_bert(path, layers=2, seed=1):
    """Write the files; a word of the list is a token, any other one is unknown."""
    path.mkdir(parents=True, exist_ok=True)
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {token: number for number, token in enumerate([*marks, *WORDS, ">>", "(", ")", ":"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(path / TOKENIZER))
    config = {
        "model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute", "hidden_size": SIZE,
        "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": INNER, "layer_norm_eps": 1e-12,
    }  # fmt: skip
    (path / CONFIG).write_text(json.dumps(config))
    save_file(_weights(np.random.default_rng(seed), len(vocabulary), layers), path / WEIGHTS)
    digest = file_sha256(path / WEIGHTS)
    return BertFolder(path, EncoderIdentity("tiny", digest, SIZE, POSITIONS, "", "mean", True, "fp32"))


def _weights(rng, words, layers):
    shapes = {
        "embeddings.word_embeddings.weight": (words, SIZE),
        "embeddings.position_embeddings.weight": (POSITIONS, SIZE),
        "embeddings.token_type_embeddings.weight": (2, SIZE),
        "pooler.dense.weight": (SIZE, SIZE),
        "pooler.dense.bias": (SIZE,),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes |= {f"{prefix}{name}.weight": (SIZE, SIZE), f"{prefix}{name}.bias": (SIZE,)}
        shapes |= {f"{prefix}intermediate.dense.weight": (INNER, SIZE), f"{prefix}intermediate.dense.bias": (INNER,)}
        shapes |= {f"{prefix}output.dense.weight": (SIZE, INNER), f"{prefix}output.dense.bias": (SIZE,)}
        norms += [f"{prefix}attention.output.LayerNorm", f"{prefix}output.LayerNorm"]
    drawn = {name: 0.3 * rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    for norm in norms:
        drawn[f"{norm}.weight"] = np.ones(SIZE, np.float32) + 0.1 * rng.standard_normal(SIZE, np.float32)
        drawn[f"{norm}.bias"] = 0.1 * rng.standard_normal(SIZE, np.float32)
    return {name: array.astype(np.float32) for name, array in drawn.items()}
