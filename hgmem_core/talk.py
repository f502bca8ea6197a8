"""The turns of a bucket in the order in which they were said, as arrays."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.lexical import Ints
from hgmem_core.schemas import namespace_ranges
from hgmem_core.statements import asks
from hgmem_core.turns import UNKNOWN_TIME


@dataclass(frozen=True, slots=True)
class Talk:
    """What is known of each turn, in the order of TURN's rows. Sessions go by their first known time, then by id.

    Attributes:
        namespace: The number of its namespace, int64 `[n]`.
        session: The number of its session, int64 `[n]`; in a thread they count on in the order of time.
        thread: What it has an order with, int64 `[n]`: the sessions of a namespace that have a time are one thread, a
            session without one is a thread of its own.
        place: Its place in the order in which all were said, thread by thread, int64 `[n]`.
        said_at_us: When it was said, in microseconds since 1970; `UNKNOWN_TIME` where unknown.
        speaker: The number of its speaker, or of the role of one without a name, int64 `[n]`; -1 without both.
        asks: Whether a sentence of it is a question, bool `[n]`.
    """

    namespace: Ints
    session: Ints
    thread: Ints
    place: Ints
    said_at_us: Ints
    speaker: Ints
    asks: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, turns: pa.Table) -> "Talk":
        """Read TURN rows, sorted by their key."""
        namespace = _numbers(turns)
        ids = turns.column("session_id").combine_chunks().dictionary_encode().indices.to_numpy()
        begins = (np.diff(namespace, prepend=-1) != 0) | (np.diff(ids, prepend=-1) != 0)
        own = np.cumsum(begins) - 1
        said = turns.column("said_at").cast(pa.int64())
        first_us = _first_times(own, np.asarray(said.fill_null(_LATEST).to_numpy(), np.int64))
        starts = np.flatnonzero(begins)
        order = np.lexsort((np.arange(len(starts)), first_us, namespace[starts]))
        session = np.empty(len(starts), np.int64)
        session[order] = np.arange(len(starts))
        place = np.empty(len(own), np.int64)
        place[np.argsort(session[own], kind="stable")] = np.arange(len(own))
        undated = first_us == _LATEST
        thread = np.where(undated, len(starts) + np.arange(len(starts)), namespace[starts])
        who = pc.coalesce(turns.column("speaker"), turns.column("role"))
        return cls(
            namespace,
            session[own],
            thread[own],
            place,
            np.asarray(said.fill_null(UNKNOWN_TIME).to_numpy(), np.int64),
            np.asarray(who.combine_chunks().dictionary_encode().indices.fill_null(-1).to_numpy(), np.int64),
            np.array([asks(text) for text in turns.column("text").to_pylist()], bool),
        )


_DAY_US = 86_400e6
_LATEST = int(np.iinfo(np.int64).max)


def _numbers(turns: pa.Table) -> Ints:
    sizes = [stop - start for _, start, stop in namespace_ranges(turns)]
    return np.repeat(np.arange(len(sizes)), sizes)


def _first_times(session: Ints, times: Ints) -> Ints:
    first = np.full(int(session[-1]) + 1 if len(session) else 0, _LATEST)
    np.minimum.at(first, session, times)
    return first


def days_between(one_us: Ints, other_us: Ints) -> npt.NDArray[np.float64]:
    """Return the days between times in microseconds, 0 where one of two is unknown."""
    known = (one_us != UNKNOWN_TIME) & (other_us != UNKNOWN_TIME)
    days: npt.NDArray[np.float64] = np.abs(np.where(known, other_us, 0) - np.where(known, one_us, 0)) / _DAY_US
    return days
