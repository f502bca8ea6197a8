"""Training by several workers at once: each takes its share of every batch, and what they learn is averaged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

AllReduce = Callable[[list[Tensor]], None]
"""Replaces tensors by their means over all workers, in place."""

Some = TypeVar("Some", bound="Sequence[object] | Tensor")


@dataclass(frozen=True, slots=True)
class DataParallel:
    """One of several workers that train the same model in step: parameters stay equal on all.

    Attributes:
        rank: The number of this one, from 0.
        world_size: How many there are.
        all_reduce: Averages over them; None for one.
        device: Where tensors are; what is drawn differs between kinds of device.

    Raises:
        ValueError: There are several workers, and nothing averages over them.
    """

    rank: int = 0
    world_size: int = 1
    all_reduce: AllReduce | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Check that several workers can tell each other what they learn."""
        if self.world_size > 1 and self.all_reduce is None:
            raise ValueError(f"{self.world_size} workers train together only with an all_reduce")

    def share(self, batch: Some) -> Some:
        """Return this worker's part of a batch; shares differ by one at most."""
        return batch[self.rank :: self.world_size]  # type: ignore[return-value]

    def weight(self, batch: int) -> float:
        """Return what each of `batch` losses counts, so that the mean over all workers is the mean over the batch."""
        return self.world_size / batch

    def average(self, tensors: list[Tensor]) -> None:
        """Replace tensors by their means over all workers, in place; all have to call this."""
        if self.all_reduce is not None:
            self.all_reduce(tensors)

    def mean(self, values: Sequence[float]) -> list[float]:
        """Return the mean of what each worker gives, value by value; all have to call this, and all get the same."""
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        self.average([tensor])
        means: list[float] = tensor.tolist()
        return means


ALONE = DataParallel()
"""One worker, on the processor."""
