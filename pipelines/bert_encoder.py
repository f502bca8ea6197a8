"""Encoders of the BERT kind on ONNX Runtime: a folder of a checkpoint, exported once, run a text at a time."""

import hashlib
import json
import os
import secrets
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from hgmem_core.encoding import EncoderIdentity, Vectors
from pipelines.bert_onnx import EXPORTER_REVISION, Array, write_bert
from pipelines.files import file_sha256
from pipelines.weights import EncoderError

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"

RUN_TOKENS = 512
"""Tokens that a model is run on at once; more would not fit in a core's cache and take some 10 % longer."""


_MOST_FOREIGN = 0.5
"""Questions in languages that MiniLM was trained on have at most 0.2, in others 0.75 and more."""


@dataclass(frozen=True, slots=True)
class BertFolder:
    """A checkpoint: a folder with `model.safetensors`, `config.json` and `tokenizer.json`, and which encoder it is."""

    path: Path
    identity: EncoderIdentity

    def weights(self) -> dict[str, Array]:
        """Read the tensors, by their names in a `BertModel`."""
        weights: dict[str, Array] = load_file(self.path / WEIGHTS)
        return weights

    def config(self) -> dict[str, Any]:
        """Read the configuration."""
        config: dict[str, Any] = json.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        return config

    def tokenizer(self) -> Tokenizer:
        """Read the tokeniser, which cuts and pads nothing."""
        tokenizer = Tokenizer.from_file(str(self.path / TOKENIZER))
        # Such files ask for texts to be cut and padded to what a model was trained on.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # a text that says "[SEP]" means those letters
        return tokenizer


def ends(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the ids of the tokens that stand before and after a text.

    Raises:
        EncoderError: The tokeniser has none.
    """
    before, after = (tokenizer.token_to_id(mark) for mark in ("[CLS]", "[SEP]"))
    if before is None or after is None:
        raise EncoderError("the tokeniser has no [CLS] or no [SEP]: it is not that of a BERT")
    return before, after


def _foreign(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Say of each token id whether it is the unknown one, or a single letter or mark beyond ASCII: bool `[ids]`."""
    foreign = np.zeros(tokenizer.get_vocab_size(), bool)
    for piece, number in tokenizer.get_vocab().items():
        sign = piece.removeprefix("##")
        foreign[number] = piece == "[UNK]" or (
            len(sign) == 1 and not sign.isascii() and unicodedata.category(sign)[0] in "LM"
        )
    return foreign


class BertEncoder:
    """A sentence encoder whose vectors are the means of its token vectors.

    An instance may be used by several threads at once. Encoding stays on the calling thread; tokenising, under a
    hundredth of the work, may use every core.
    """

    makes_batches = False

    def __init__(self, folder: BertFolder, model: Path) -> None:
        """Load the tokeniser of a folder and the model that was exported from it; see `kept_model`."""
        self._identity = folder.identity
        self._tokenizer = folder.tokenizer()
        self._before, self._after = ends(self._tokenizer)
        self._is_foreign = _foreign(self._tokenizer)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    @property
    def identity(self) -> EncoderIdentity:
        """Which encoder this is."""
        return self._identity

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, whole, without special tokens."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def understands(self, tokens: Sequence[int]) -> bool:
        """Say whether at most half of a text's tokens are unknown or a single sign of another script than Latin."""
        return not len(tokens) or bool(self._is_foreign[list(tokens)].mean() <= _MOST_FOREIGN)

    def encode_batch(self, pieces: Sequence[Sequence[int]]) -> Vectors:
        """Return the mean of each piece's token vectors: float32 `[len(pieces), dimension]`, not normalised.

        Raises:
            ValueError: A piece has more ids than the encoder takes.
        """
        rows_by_length: dict[int, list[int]] = defaultdict(list)
        for row, piece in enumerate(pieces):
            rows_by_length[len(piece)].append(row)
        vectors = np.zeros((len(pieces), self._identity.dimension), dtype=np.float32)
        most = self._identity.max_tokens - 2
        # Pieces of one length need no padding. That costs nothing when pieces come sorted, and a piece's vector is the
        # same to the last bit whatever it is encoded with: padding would change the order in which floats are added.
        for length, rows in rows_by_length.items():
            if length > most:
                raise ValueError(f"a piece has {length} ids; the most is {most}")
            run_rows = max(1, RUN_TOKENS // (length + 2))
            for start in range(0, len(rows) if length else 0, run_rows):
                run = rows[start : start + run_rows]
                token_ids = np.array([[self._before, *pieces[row], self._after] for row in run], dtype=np.int64)
                vectors[run] = self._session.run(["hidden"], {"input_ids": token_ids})[0].mean(axis=1)
        return vectors


def kept_model(identity: EncoderIdentity, cache_dir: Path, find: Callable[[], BertFolder]) -> Path:
    """Return the path of an encoder's exported model, exporting it unless a sound copy is kept.

    The copy's name ends in its own digest, so a damaged file is noticed and replaced, and a file is complete from the
    moment that it has its name: any number of processes may do this at once.

    Args:
        identity: Of the encoder.
        cache_dir: Where copies are kept.
        find: Gives the folder to export from, checked.
    """
    stem = f"{identity.name}-{identity.weights_sha256[:16]}-r{EXPORTER_REVISION}-"
    for path in sorted(cache_dir.glob(f"{stem}*.onnx")):
        if path.stem == stem + file_sha256(path):
            return path

    folder = find()
    model = write_bert(folder.weights(), folder.config())
    cache_dir.mkdir(parents=True, exist_ok=True)
    path = cache_dir / f"{stem}{hashlib.sha256(model).hexdigest()}.onnx"
    unfinished = cache_dir / f".{path.name}.{secrets.token_hex(8)}"
    try:
        unfinished.write_bytes(model)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path
