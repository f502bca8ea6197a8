"""Tuned encoders on disk: a checkpoint like the one that tuning began with, for texts with their context."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from hgmem_core.embeddings import CONTEXT_FORM
from hgmem_core.encoding import EncoderIdentity
from pipelines.bert_encoder import CONFIG, TOKENIZER, WEIGHTS, BertEncoder, BertFolder, kept_model
from pipelines.bert_onnx import Array
from pipelines.minilm import IDENTITY
from pipelines.tuned_files import check_made, read_tuned, write_tuned

KIND = "encoder"


def save_tuned(folder: Path, weights: Mapping[str, Array], about: Mapping[str, Any], base: BertFolder) -> Path:
    """Write a tuned encoder into a folder of its own, in the place of one that is there, and return the folder.

    Args:
        folder: Made if need be.
        weights: Of `pipelines.encoder_tuning`.
        about: `data`, the digest of what it was tuned on, and its `licence`; `settings` and `seed`; and what else
            should be known of it, such as `metrics`.
        base: The encoder that tuning began with.
    """
    tensors = {name: np.ascontiguousarray(array) for name, array in sorted(weights.items())}
    files = {name: (base.path / name).read_bytes() for name in (CONFIG, TOKENIZER)}
    made = {"kind": KIND, "text": CONTEXT_FORM, "base": base.identity.as_dict()}
    return write_tuned(folder, {**files, WEIGHTS: save(tensors)}, made, about)


def open_tuned(folder: Path, cache_dir: Path, base: EncoderIdentity = IDENTITY) -> "TunedEncoder":
    """Open a tuned encoder; its first use writes the model that it runs to `cache_dir`.

    Raises:
        EncoderError: The folder holds none, or one that is damaged, of another base or for other texts; says which.
    """
    return TunedEncoder(folder, cache_dir, base)


class TunedEncoder(BertEncoder):
    """An encoder of questions, and of turns as `hgmem_core.embeddings.context_texts` writes them."""

    def __init__(self, folder: Path, cache_dir: Path, base: EncoderIdentity) -> None:
        """Load it; see `open_tuned`."""
        self._opened_from = folder, cache_dir, base
        manifest = read_tuned(folder)
        check_made(folder, manifest, KIND, CONTEXT_FORM, base.as_dict())
        own = replace(base, name=f"{base.name}-tuned", weights_sha256=manifest["files"][WEIGHTS]["sha256"])
        checkpoint = BertFolder(folder, own)
        super().__init__(checkpoint, kept_model(own, cache_dir, lambda: checkpoint))

    def __reduce__(self) -> tuple[type["TunedEncoder"], tuple[Path, Path, EncoderIdentity]]:
        """Travel to another process as what it takes to open the encoder there."""
        return TunedEncoder, self._opened_from
