"""What is searched besides single turns, and how often each unit holds each term.

The `turn`, whose text is `speaker: text [image: caption]`; the same `dated`, with its time in front; the `window`, a
turn with two on either side within its session; the `prior`, a turn with the two before it; the `session`; the
`episode`. All but the first are made of dated texts. The unit `graph` holds the nodes of the hypergraph, topics,
episodes and facts, as one corpus (see `hgmem_core.graph`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.lexical import Ints, TermCounts, count_terms, count_tokens
from hgmem_core.turns import date_texts, turn_texts

Unit = Literal["turn", "dated", "window", "prior", "session", "episode", "graph"]
UNITS: tuple[Unit, ...] = get_args(Unit)

BEFORE = 2
AFTER = 2
"""Turns on either side of a window's centre."""


def session_numbers(turns: pa.Table) -> npt.NDArray[np.int32]:
    """Return the number of each turn's session, int32 `[n]`, of the TURN rows of one namespace."""
    codes = turns.column("session_id").combine_chunks().dictionary_encode().indices
    return np.asarray(codes.to_numpy(), np.int32)  # sorted by session, so first seen is first in order


def session_spans(session: npt.NDArray[np.int32], before: int, after: int) -> tuple[Ints, Ints]:
    """Return for each row the first row and the row after the last of its span, cut at its session's ends."""
    rows = np.arange(len(session), dtype=np.int64)
    change = np.flatnonzero(np.diff(session)) + 1
    starts = np.concatenate([[0], change])
    stops = np.concatenate([change, [len(session)]])
    place = np.searchsorted(starts, rows, side="right") - 1
    return np.maximum(rows - before, starts[place]), np.minimum(rows + after + 1, stops[place])


@dataclass(frozen=True, slots=True)
class TurnTerms:
    """The terms of each turn of a namespace: of its text, and of its time in words."""

    plain: list[list[str]]
    date: list[list[str]]

    def dated(self, row: int) -> list[str]:
        """Return the terms of a turn with those of its time in front."""
        return self.date[row] + self.plain[row]


def turn_terms(rows: pa.Table, tokenize: Callable[[str], list[str]]) -> TurnTerms:
    """Return the terms of the turns of one namespace, TURN `rows`."""
    dates = date_texts(rows)
    terms_of_date = {text: tokenize(text) for text in set(dates)}
    return TurnTerms([tokenize(text) for text in turn_texts(rows)], [terms_of_date[text] for text in dates])


def unit_counts(
    turns: TurnTerms, session: npt.NDArray[np.int32], episode: npt.NDArray[np.int32], graph: Sequence[Sequence[str]]
) -> tuple[list[str], dict[Unit, TermCounts]]:
    """Count the terms of each unit of one namespace; return its sorted vocabulary too.

    Args:
        turns: The terms of its turns.
        session: The number of each turn's session, int32 `[n]`, rising.
        episode: The number of each turn's episode, int32 `[n]`.
        graph: The terms of each node of its hypergraph.
    """
    vocabulary = sorted({term for texts in (turns.plain, turns.date, graph) for terms in texts for term in terms})
    number = {term: at for at, term in enumerate(vocabulary)}
    size = len(vocabulary)
    turn, date, nodes = (
        count_tokens([[number[term] for term in terms] for terms in texts], size)
        for texts in (turns.plain, turns.date, graph)
    )
    documents, terms, counts = (
        np.concatenate(pair)
        for pair in ((turn.documents, date.documents), (turn.terms, date.terms), (turn.counts, date.counts))
    )
    dated = count_terms(documents, terms, counts, len(session), size)
    return vocabulary, {
        "turn": turn,
        "dated": dated,
        "window": _neighbours(dated, session, BEFORE, AFTER),
        "prior": _neighbours(dated, session, BEFORE, 0),
        "session": _gathered(dated, session),
        "episode": _gathered(dated, episode),
        "graph": nodes,
    }


def _gathered(turn: TermCounts, group: npt.NDArray[np.int32]) -> TermCounts:
    """Count the terms of groups of turns; `group` is the number of each turn's, all numbers up to the largest used."""
    documents = group[turn.documents].astype(np.int64)
    return count_terms(documents, turn.terms, turn.counts, int(group.max()) + 1, turn.n_terms)


def _neighbours(turn: TermCounts, session: npt.NDArray[np.int32], before: int, after: int) -> TermCounts:
    """Count the terms of spans of turns by giving each turn's counts to every span that holds it."""
    documents, terms, counts = [], [], []
    for offset in range(-after, before + 1):
        target = turn.documents + offset
        inside = (target >= 0) & (target < len(session))
        inside[inside] &= session[target[inside]] == session[turn.documents[inside]]
        documents.append(target[inside])
        terms.append(turn.terms[inside])
        counts.append(turn.counts[inside])
    return count_terms(
        np.concatenate(documents), np.concatenate(terms), np.concatenate(counts), turn.n_documents, turn.n_terms
    )
