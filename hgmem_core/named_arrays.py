"""Arrays by name, as models keep them, looked at before they are believed."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]


def check_names(what: str, names: Collection[str], arrays: Arrays) -> None:
    """Look whether arrays are those of a model.

    Raises:
        ValueError: One is missing or unknown.
    """
    if set(names) != set(arrays):
        raise ValueError(f"these are no weights of {what}: there are {sorted(arrays)}, expected {list(names)}")


def check_values(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Look whether arrays have the shapes that are given for some of them, and numbers alone.

    Raises:
        ValueError: One has another shape, or is not finite; names it.
    """
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} has shape {arrays[name].shape}, expected {shape}: it was made for other inputs")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or an infinity")
