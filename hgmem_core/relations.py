"""The event graph of one namespace as arrays: who leads to whom, and the features of each relation.

Relations are directed; between two nodes there is at most one each way, with features that say which kinds it is of.
A layout names the features in their order: `PAPER` has the four scores of HAGE (section 3, the edge feature e_ij),
`RICH` begins with the same four.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from hgmem_core.lexical import Floats, Ints

GraphName = Literal["turn", "fact"]

PAPER = ("temporal", "semantic", "causal", "entity")
"""In [0, 1] each; 0 where two nodes are not related so."""

RICH = (
    *PAPER,
    "later", "earlier", "log_gap", "no_time", "same_session", "next_session", "log_distance", "same_speaker",
    "no_speaker", "cosine", "nearest", "nearest_back", "shared_terms", "causes", "caused_by", "asks", "answers",
    "same_episode", "same_topic", "succession", "target_superseded", "target_size", "target_hub",
    "target_rarest",
)  # fmt: skip
"""See `hgmem_core.relation_features` for what each is."""

LAYOUTS: MappingProxyType[GraphName, tuple[str, ...]] = MappingProxyType({"turn": PAPER, "fact": RICH})
"""The layout of each graph."""


@dataclass(frozen=True, slots=True)
class Relations:
    """The relations of one namespace in compressed rows: those of node i are `offsets[i]:offsets[i + 1]`.

    Attributes:
        offsets: int64 `[nodes + 1]`.
        targets: Node numbers, int64 `[relations]`, rising within a row; no node leads to itself.
        features: float32 `[relations, len(layout)]`.
        layout: The names of the features.
    """

    offsets: Ints
    targets: Ints
    features: Floats
    layout: tuple[str, ...]

    def __len__(self) -> int:
        """Count the nodes."""
        return len(self.offsets) - 1

    @property
    def sources(self) -> Ints:
        """The source of each relation, int64 `[relations]`."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))
