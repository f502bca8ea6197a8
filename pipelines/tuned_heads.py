"""Trained heads on disk: two small matrices for the vectors of one encoder; see `hgmem_core.heads`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load, save

from hgmem_core.heads import HEADS_FORM, Heads, HeadsError, heads_of
from pipelines.tuned_files import check_made, read_tuned, write_tuned
from pipelines.weights import EncoderError

KIND = "heads"
WEIGHTS = "heads.safetensors"


def save_heads(folder: Path, heads: Heads, about: Mapping[str, Any], base: Mapping[str, Any]) -> Path:
    """Write heads into a folder of their own, in the place of those that are there, and return the folder.

    Args:
        folder: Made if need be.
        heads: What training gave.
        about: See `pipelines.tuned_encoder.save_tuned`.
        base: The identity of the encoder whose vectors they read.
    """
    content = save({name: array.copy() for name, array in heads.as_dict().items()})
    return write_tuned(folder, {WEIGHTS: content}, {"kind": KIND, "text": HEADS_FORM, "base": dict(base)}, about)


def open_heads(folder: Path, base: Mapping[str, Any]) -> Heads:
    """Open heads.

    Args:
        folder: Of the heads.
        base: The identity of the encoder whose vectors they are to read.

    Raises:
        EncoderError: The folder holds none, or some that are damaged or for another encoder; says which.
    """
    check_made(folder, read_tuned(folder), KIND, HEADS_FORM, base)
    try:
        return heads_of(load((folder / WEIGHTS).read_bytes()))
    except (OSError, SafetensorError, HeadsError) as error:
        raise EncoderError(f"{folder} holds no heads ({error}); train them again") from error
