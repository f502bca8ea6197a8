"""What is searched besides single turns, and how often each unit holds each term.

The `turn`, whose text is `speaker: text [image: caption]`; the same `dated`, with its time in front; the `window`, a
turn with two on either side within its session; the `prior`, a turn with the two before it; the `session`. The last
three are made of dated texts.
"""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.config import IndexConfig
from hgmem_core.lexical import Ints, TermCounts, count_terms, count_tokens
from hgmem_core.tokens import tokenizer
from hgmem_core.turns import date_texts, turn_texts

Unit = Literal["turn", "dated", "window", "prior", "session"]
UNITS: tuple[Unit, ...] = get_args(Unit)

BEFORE = 2
AFTER = 2
"""Turns on either side of a window's centre."""


def session_spans(session: npt.NDArray[np.int32], before: int, after: int) -> tuple[Ints, Ints]:
    """Return for each row the first row and the row after the last of its span, cut at its session's ends."""
    rows = np.arange(len(session), dtype=np.int64)
    change = np.flatnonzero(np.diff(session)) + 1
    starts = np.concatenate([[0], change])
    stops = np.concatenate([change, [len(session)]])
    place = np.searchsorted(starts, rows, side="right") - 1
    return np.maximum(rows - before, starts[place]), np.minimum(rows + after + 1, stops[place])


def unit_counts(
    rows: pa.Table, session: npt.NDArray[np.int32], config: IndexConfig
) -> tuple[list[str], dict[Unit, TermCounts]]:
    """Count the terms of each unit of one namespace; return its sorted vocabulary too.

    Args:
        rows: TURN rows of the namespace.
        session: The number of each turn's session, int32 `[n]`, rising.
        config: The language of stems.
    """
    tokenize = tokenizer(config.language)
    plain = [tokenize(text) for text in turn_texts(rows)]
    texts_of_dates = date_texts(rows)
    terms_of_date = {text: tokenize(text) for text in set(texts_of_dates)}
    dates = [terms_of_date[text] for text in texts_of_dates]
    vocabulary = sorted({term for terms in (*plain, *terms_of_date.values()) for term in terms})
    number = {term: at for at, term in enumerate(vocabulary)}
    size = len(vocabulary)
    turn = count_tokens([[number[term] for term in terms] for terms in plain], size)
    date = count_tokens([[number[term] for term in terms] for terms in dates], size)
    documents, terms, counts = (
        np.concatenate(pair)
        for pair in ((turn.documents, date.documents), (turn.terms, date.terms), (turn.counts, date.counts))
    )
    dated = count_terms(documents, terms, counts, len(session), size)
    sessions = int(session[-1]) + 1
    return vocabulary, {
        "turn": turn,
        "dated": dated,
        "window": _neighbours(dated, session, BEFORE, AFTER),
        "prior": _neighbours(dated, session, BEFORE, 0),
        "session": count_terms(session[dated.documents].astype(np.int64), dated.terms, dated.counts, sessions, size),
    }


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
