"""Retrieval metrics over a ranking of distinct ids and the set of relevant ones, in percent, binary relevance."""

from collections.abc import Callable, Collection, Sequence
from math import log2
from types import MappingProxyType

Metric = Callable[[Sequence[str], Collection[str]], float]


def recall(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the share of the relevant ids among the first `k`.

    >>> recall(["a", "b", "c"], {"a", "z"}, k=2)
    50.0
    """
    return 100.0 * len(set(ranked[:k]) & set(relevant)) / len(relevant)


def ndcg(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return the discounted cumulative gain at `k`, 1 / log2(rank + 1) a hit, over that of the ideal ranking."""
    gain = sum(1 / log2(rank + 1) for rank, item in enumerate(ranked[:k], 1) if item in relevant)
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(k, len(relevant)) + 1))
    return 100.0 * gain / ideal


def hit(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return 100 if one of the first `k` is relevant."""
    return 100.0 * any(item in relevant for item in ranked[:k])


def all_found(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return 100 if every relevant id is among the first `k`."""
    return 100.0 * (set(relevant) <= set(ranked[:k]))


def reciprocal_rank(ranked: Sequence[str], relevant: Collection[str]) -> float:
    """Return 100 over the rank of the first relevant id, 0 if there is none in the ranking."""
    return next((100.0 / rank for rank, item in enumerate(ranked, 1) if item in relevant), 0.0)


METRICS: MappingProxyType[str, Metric] = MappingProxyType(
    {
        "recall@2": lambda ranked, relevant: recall(ranked, relevant, 2),
        "recall@5": lambda ranked, relevant: recall(ranked, relevant, 5),
        "recall@10": lambda ranked, relevant: recall(ranked, relevant, 10),
        "recall@20": lambda ranked, relevant: recall(ranked, relevant, 20),
        "recall@30": lambda ranked, relevant: recall(ranked, relevant, 30),
        "ndcg@10": lambda ranked, relevant: ndcg(ranked, relevant, 10),
        "hit@10": lambda ranked, relevant: hit(ranked, relevant, 10),
        "mrr": reciprocal_rank,
        "all@10": lambda ranked, relevant: all_found(ranked, relevant, 10),
    }
)
"""What an evaluation may measure, by name; each takes a ranking and a non-empty set of relevant ids."""
