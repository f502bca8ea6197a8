"""Models of a few thousand random weights, as transformers and sentence-transformers save them; nothing is fetched."""

import string

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

WORDS = "the red bicycle harbour lisbon tea with lemon violin lesson sister garden query passage : ana bo".split()


def _tokenizer():
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [*string.ascii_lowercase, *string.digits, *".,?()'\n"]
    bits = dict.fromkeys([*marks, *letters, *(f"##{one}" for one in letters), *WORDS])
    return BertTokenizerFast(vocab={bit: number for number, bit in enumerate(bits)}, model_max_length=64)


def _config(tokenizer, **fields):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, initializer_range=0.5, **sizes, **fields)


def tiny_encoder(folder, prompts=None, default=None, include_prompt=True):
    """Save a sentence encoder of 16 floats and 64 tokens; return its folder as a string."""
    tokenizer = _tokenizer()
    torch.manual_seed(1)
    BertModel(_config(tokenizer)).eval().save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert")), Pooling(16, "mean", include_prompt=include_prompt)]
    model = SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name=default, device="cpu")
    model.save(str(folder / "model"))
    return str(folder / "model")


def tiny_cross_encoder(folder, labels=1):
    """Save a cross-encoder; return its folder as a string."""
    tokenizer = _tokenizer()
    torch.manual_seed(2)
    BertForSequenceClassification(_config(tokenizer, num_labels=labels)).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
