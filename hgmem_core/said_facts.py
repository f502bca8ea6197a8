"""The facts of a bucket in the order in which they were said, as arrays."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.graph import GraphError
from hgmem_core.ids import rows_of
from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_graph import Lists
from hgmem_core.nearest import Mask
from hgmem_core.shared_terms import Occurrences
from hgmem_core.talk import Talk
from hgmem_core.turns import UNKNOWN_TIME

_BEGINNING = 24
"""Characters by which a statement is found again in its turn."""


@dataclass(frozen=True, slots=True)
class SaidFacts:
    """What is known of each fact. Facts go by their best source turn, by where in it they begin, and by id.

    Attributes:
        row: Its row in FACT, int64 `[n]`.
        number: For each row of FACT the number of its fact in this order, int64 `[n]`.
        sources: For each row of FACT the rows of its source turns, best evidence first.
        turn: The row of its best source turn, int64 `[n]`.
        namespace: The number of its namespace, int64 `[n]`, rising.
        thread: See `Talk`; int64 `[n]`.
        time_us: From when it holds, else when it was said, in microseconds since 1970; `UNKNOWN_TIME` where unknown.
        names_time: Whether a phrase of its own says from when, bool `[n]`.
        texts: What it says, without its speaker and the question that it answers.
    """

    row: Ints
    number: Ints
    sources: Lists
    turn: Ints
    namespace: Ints
    thread: Ints
    time_us: Ints
    names_time: Mask
    texts: list[str]

    @classmethod
    def of(cls, facts: pa.Table, turns: pa.Table, talk: Talk) -> "SaidFacts":
        """Read FACT rows, sorted by their key, and their turns.

        Raises:
            GraphError: A fact has no source among the turns.
        """
        sources = _sources(facts, turns)
        turn = sources.values[sources.offsets[:-1]]
        texts = [_own_text(text) for text in facts.column("text").to_pylist()]
        said = turns.column("text").take(pa.array(turn)).to_pylist()
        begins = [" ".join(whole.split()).find(text[:_BEGINNING]) for whole, text in zip(said, texts, strict=True)]
        row = np.lexsort((np.arange(len(turn)), np.array(begins, np.int64), talk.place[turn]))
        holds = facts.column("valid_from").cast(pa.int64()).fill_null(UNKNOWN_TIME).to_numpy()
        names_time = facts.column("time_phrase").is_valid().to_numpy() & (holds != UNKNOWN_TIME)
        return cls(
            row,
            np.argsort(row),
            sources,
            turn[row],
            talk.namespace[turn[row]],
            talk.thread[turn[row]],
            np.where(holds == UNKNOWN_TIME, talk.said_at_us[turn], holds)[row],
            names_time[row],
            [texts[at] for at in row.tolist()],
        )


Pairs: TypeAlias = tuple[Ints, Ints]
"""Numbers of facts, int64 `[n]` each."""


@dataclass(frozen=True, slots=True)
class Known:
    """What else is known of facts, numbered as in `SaidFacts`.

    Attributes:
        vectors: float32 `[facts, d]`, of unit length where there is one, else zero.
        has_vector: Which facts have one, bool `[facts]`.
        terms: Who has which names and keywords.
        episodes: Who is in which episode.
        topics: Who is in which topic.
        causes: Causes and their effects, as the log names them.
        successors: Facts, and what superseded them.
    """

    vectors: Floats
    has_vector: Mask
    terms: Occurrences
    episodes: Occurrences
    topics: Occurrences
    causes: Pairs
    successors: Pairs


def _sources(facts: pa.Table, turns: pa.Table) -> Lists:
    column = facts.column("turn_ids")
    turn = rows_of(pc.list_flatten(column), turns.column("turn_id"))
    fact = pc.list_parent_indices(column).to_numpy()[turn >= 0]
    offsets = np.searchsorted(fact, np.arange(facts.num_rows + 1))
    bare = np.flatnonzero(np.diff(offsets) == 0)
    if len(bare):
        raise GraphError(f"fact {facts.column('fact_id')[int(bare[0])].as_py()} cites no turn of its bucket")
    return Lists(offsets, turn[turn >= 0])


def _own_text(text: str) -> str:
    last = text.rpartition("\n")[2]
    return last.partition(": ")[2] or last
