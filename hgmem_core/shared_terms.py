"""Which nodes share a name or keyword, and how rare it is in their namespace."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.lexical import Floats, Ints
from hgmem_core.schemas import STRING

RARE = 0.5
"""The rarity from which a term is rare; of N nodes, about √N or fewer have such a term."""


@dataclass(frozen=True, slots=True)
class Occurrences:
    """Which nodes have which terms: parallel arrays without repetition, sorted by term and node.

    Attributes:
        terms: Numbers of terms; equal terms of two namespaces have two; int64 `[n]`.
        nodes: Numbers of nodes, int64 `[n]`.
        having: How many nodes have the term, int64 `[n]`.
        rarity: ln(1 + N / having) / ln(1 + N), where the namespace has N nodes: float32 `[n]` in (0, 1].
    """

    terms: Ints
    nodes: Ints
    having: Ints
    rarity: Floats

    @classmethod
    def of(cls, terms: Ints, nodes: Ints, namespace: Ints) -> "Occurrences":
        """Take terms and the nodes that have them, repeats allowed.

        Args:
            terms: Numbers of terms, the same in every namespace, int64 `[n]`.
            nodes: Numbers of nodes, int64 `[n]`.
            namespace: The number of each node's namespace, int64 `[nodes]`.
        """
        _, own = np.unique(namespace[nodes] * (terms.max(initial=0) + 1) + terms, return_inverse=True)
        own, nodes = np.divmod(np.unique(own * len(namespace) + nodes), max(len(namespace), 1))
        having = np.bincount(own)[own]
        every = np.bincount(namespace)[namespace[nodes]]
        return cls(own, nodes, having, (np.log1p(every / having) / np.log1p(every)).astype(np.float32))

    def neighbours(self, reach: int, kept: npt.NDArray[np.bool_]) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Yield pairs of nodes that have a term at most `reach` occurrences apart, and the term's rarity.

        Args:
            reach: At least 1.
            kept: Which occurrences there are, bool `[n]`.
        """
        terms, nodes, rarity = self.terms[kept], self.nodes[kept], self.rarity[kept]
        for distance in range(1, reach + 1):
            at = np.flatnonzero(terms[distance:] == terms[:-distance])
            yield nodes[at], nodes[at + distance], rarity[at]

    def rarest(self, nodes: int) -> Floats:
        """Return the rarity of each node's rarest term, 0 for one without a term: float32 `[nodes]`."""
        found = np.zeros(nodes, np.float32)
        np.maximum.at(found, self.nodes, self.rarity)
        return found

    def shared(self, one: Ints, other: Ints) -> tuple[Floats, Floats]:
        """Return for pairs of nodes the summed rarity of the terms that they share, and that of the rarest: float32.

        Args:
            one: Numbers of nodes, int64 `[n]`.
            other: The same.
        """
        order = np.lexsort((self.terms, self.nodes))
        held, rarity, of = self.terms[order], self.rarity[order], self.nodes[order]
        first, stop = (np.searchsorted(of, one, side) for side in ("left", "right"))
        pair = np.repeat(np.arange(len(one)), stop - first)
        at = np.arange(len(pair)) + np.repeat(stop - np.cumsum(stop - first), stop - first)
        size = held.max(initial=0) + 1
        own, wanted = of * size + held, other[pair] * size + held[at]
        place = np.searchsorted(own, wanted)
        hits = np.flatnonzero(own[np.minimum(place, len(own) - 1)] == wanted)
        rarest = np.zeros(len(one), np.float32)
        np.maximum.at(rarest, pair[hits], rarity[at[hits]])
        return np.bincount(pair[hits], rarity[at[hits]], len(one)).astype(np.float32), rarest


def listed_terms(
    columns: Sequence[pa.ChunkedArray],
    namespace: Ints,
    speakers: Iterable[tuple[int, str]],
    tokenize: Callable[[str], list[str]],
) -> tuple[Ints, Ints]:
    """Return the terms of lists of names and keywords: rows and numbers of terms, int64 `[n]`, repeats kept.

    A term is a name's search terms together, so that `photo` and `photos` are one. Whoever speaks in a namespace is no
    term there: nearly everything would share it.

    Args:
        columns: Lists of names or keywords, some for each row.
        namespace: The number of each row's namespace, int64 `[rows]`.
        speakers: Who speaks in which namespace.
        tokenize: Text to search terms.
    """
    rows = np.concatenate([pc.list_parent_indices(column).to_numpy() for column in columns])
    lists = [chunk for column in columns for chunk in pc.list_flatten(column).chunks]
    written = pa.chunked_array(lists, STRING).combine_chunks().dictionary_encode()
    words = [tuple(tokenize(name)) for name in written.dictionary.to_pylist()]
    number = {term: at for at, term in enumerate(dict.fromkeys(words))}
    terms = np.array([number[term] for term in words], np.int64)[written.indices.to_numpy()]
    names: defaultdict[int, set[str]] = defaultdict(set)
    for own, speaker in speakers:
        names[own].update(tokenize(speaker))
    anybody = set[str]().union(*names.values())
    of_number = list(number)
    doubtful = [at for at, term in enumerate(of_number) if anybody.issuperset(term)]
    kept = np.ones(len(terms), bool)
    for at in np.flatnonzero(np.isin(terms, doubtful)).tolist():
        kept[at] = not names[int(namespace[rows[at]])].issuperset(of_number[terms[at]])
    return rows[kept], terms[kept]
