"""BM25 over one namespace as packed postings: for each term, the rows that hold it and what it adds to their score.

Scores are those of bm25s's `lucene` method (Kamphuis et al., ECIR 2020): idf(t) · tf / (tf + k1 · (1 − b + b · l / l̄))
with idf(t) = ln(1 + (N − df + ½) / (df + ½)). They are computed when the index is built, so a query only adds them up.
N, df and l̄ are the namespace's own: nothing in one namespace changes a score in another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TermCounts:
    """How often each document holds each term: parallel arrays, one entry a (document, term) pair, all distinct.

    Attributes:
        documents: int64 `[n]`, document numbers below `n_documents`.
        terms: int64 `[n]`, term numbers below `n_terms`.
        counts: int64 `[n]`, at least 1.
        n_documents: All documents, those without a term too.
        n_terms: The size of the vocabulary.
    """

    documents: Ints
    terms: Ints
    counts: Ints
    n_documents: int
    n_terms: int


@dataclass(frozen=True, slots=True)
class Postings:
    """For each term t, the slice `offsets[t]:offsets[t + 1]` of `rows` (ascending) and of `scores`.

    Attributes:
        offsets: int64 `[n_terms + 1]`.
        rows: uint32 `[n]`, document numbers within the namespace.
        scores: float32 `[n]`, what the term adds to the document's BM25 score; above 0.
    """

    offsets: Ints
    rows: npt.NDArray[np.uint32]
    scores: Floats


def count_terms(documents: Ints, terms: Ints, counts: Ints, n_documents: int, n_terms: int) -> TermCounts:
    """Add up the counts of equal (document, term) pairs, which may come in any order."""
    pairs, place = np.unique(documents * n_terms + terms, return_inverse=True)
    total = np.bincount(place, weights=counts, minlength=len(pairs)).astype(np.int64)
    return TermCounts(pairs // max(n_terms, 1), pairs % max(n_terms, 1), total, n_documents, n_terms)


def count_tokens(texts: Sequence[Sequence[int]], n_terms: int) -> TermCounts:
    """Count the term numbers of each document."""
    lengths = np.fromiter((len(text) for text in texts), np.int64, len(texts))
    flat = np.fromiter((term for text in texts for term in text), np.int64, int(lengths.sum()))
    documents = np.repeat(np.arange(len(texts), dtype=np.int64), lengths)
    return count_terms(documents, flat, np.ones_like(flat), len(texts), n_terms)


def score_postings(counts: TermCounts, k1: float, b: float) -> Postings:
    """Return the postings of `counts` with BM25 scores; see the module's docstring for the formula."""
    lengths = np.bincount(counts.documents, weights=counts.counts, minlength=counts.n_documents)
    frequency = np.bincount(counts.terms, minlength=counts.n_terms)
    idf = np.log(1 + (counts.n_documents - frequency + 0.5) / (frequency + 0.5))
    mean_length = lengths.mean() if counts.n_documents else 0.0
    order = np.lexsort((counts.documents, counts.terms))
    documents, terms, count = counts.documents[order], counts.terms[order], counts.counts[order]
    relative = lengths[documents] / mean_length if mean_length else np.zeros(len(documents))
    scores = idf[terms] * count / (count + k1 * (1 - b + b * relative))
    offsets = np.concatenate([[0], np.cumsum(frequency)]).astype(np.int64)
    return Postings(offsets, documents.astype(np.uint32), scores.astype(np.float32))


def add_scores(
    slices: Sequence[tuple[npt.NDArray[np.uint32], npt.NDArray[np.floating[Any]]]], n_documents: int
) -> Floats:
    """Return each document's score, float32 `[n_documents]`: the sum over the terms of a query, repeats counted."""
    total = np.zeros(n_documents)
    if slices:  # np.add.at is fast only without a cast
        rows = np.concatenate([rows for rows, _ in slices], dtype=np.intp)
        np.add.at(total, rows, np.concatenate([scores for _, scores in slices], dtype=np.float64))
    return total.astype(np.float32)
