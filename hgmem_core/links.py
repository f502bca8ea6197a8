"""Links between numbered nodes: found one kind at a time, then joined so that each pair has one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hgmem_core.lexical import Floats, Ints

Found: TypeAlias = tuple[Ints, Ints, Floats]
"""Sources and targets of some links, int64 `[n]`, and the strength of each, float32 `[n]`."""


@dataclass(frozen=True, slots=True)
class Links:
    """Links without repetition, sorted by source and target.

    Attributes:
        sources: Numbers of nodes, int64 `[n]`.
        targets: The same.
        strengths: For each kind, float32 `[n]`, 0 where a link is not of that kind.
    """

    sources: Ints
    targets: Ints
    strengths: Mapping[str, Floats]


def join(found: Mapping[str, Iterable[Found]], nodes: int) -> Links:
    """Join the links of every kind; of those that lead from one node to the same other, the strongest counts.

    Args:
        found: Of each kind; what leads from a node to itself is left out.
        nodes: How many nodes there are.
    """
    keys: list[Ints] = []
    values: list[Floats] = []
    sizes = []
    for parts in found.values():
        given = [(sources * nodes + targets, strengths) for sources, targets, strengths in parts]
        keys += [key for key, _ in given]
        values += [strengths for _, strengths in given]
        sizes.append(sum(len(key) for key, _ in given))
    every = np.concatenate([np.zeros(0, np.int64), *keys])
    links, place = np.unique(every, return_inverse=True)
    strengths = {}
    bounds = np.cumsum([0, *sizes])
    given_values = np.concatenate([np.zeros(0, np.float32), *values])
    for kind, first, last in zip(found, bounds[:-1], bounds[1:], strict=True):
        strengths[kind] = np.zeros(len(links), np.float32)
        np.maximum.at(strengths[kind], place[first:last], given_values[first:last])
    sources, targets = np.divmod(links, max(nodes, 1))
    apart = sources != targets
    return Links(sources[apart], targets[apart], {kind: values[apart] for kind, values in strengths.items()})


def steps(thread: Ints, distance: int) -> Ints:
    """Return the places whose neighbour `distance` places on is of the same thread: int64, rising.

    Args:
        thread: Of each place, int64 `[n]`.
        distance: At least 1.
    """
    return np.flatnonzero(thread[distance:] == thread[:-distance])


def constant(sources: Ints, targets: Ints, strength: float) -> Found:
    """Return links that are all as strong."""
    return sources, targets, np.full(len(sources), strength, np.float32)
