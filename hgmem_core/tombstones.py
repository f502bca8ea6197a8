"""What is to be forgotten: which turns and runs of agents tombstones cover, and tables without them.

A tombstone of a turn or a run covers it always. One of a session or a namespace covers what was said up to the time of
the tombstone and what has no time, so that somebody who comes back later is remembered again, while the old log,
imported again, brings nothing back.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import digest_of_parts, part_id
from hgmem_core.schemas import OUTCOME, STRING, TIME, TOMBSTONE, conform, namespace_ranges
from hgmem_core.turns import UNKNOWN_TIME, microseconds

Scope = Literal["namespace", "session", "turn", "trajectory"]

FORGOTTEN = "forgotten"
"""The reason of an OUTCOME row that a tombstone covers."""

Mask: TypeAlias = npt.NDArray[np.bool_]
Column: TypeAlias = pa.Array | pa.ChunkedArray


@dataclass(frozen=True, slots=True)
class _Own:
    """The tombstones of one namespace that are in force.

    Attributes:
        turns: Ids.
        trajectories: Ids.
        sessions: By id, until when what was said is forgotten, in microseconds since 1970.
        until: The same of the whole namespace; `UNKNOWN_TIME` if it has no such tombstone.
    """

    turns: frozenset[str]
    trajectories: frozenset[str]
    sessions: Mapping[str, int]
    until: int

    @property
    def digest(self) -> str:
        """Of all that decides what is covered."""
        parts = [f"turn {one}" for one in sorted(self.turns)]
        parts += [f"trajectory {one}" for one in sorted(self.trajectories)]
        parts += [f"session {until} {one}" for one, until in sorted(self.sessions.items())]
        return digest_of_parts([f"namespace {self.until}", *parts])

    def is_less_than(self, other: "_Own") -> bool:
        """Say whether something that the other covers is not covered."""
        until = self.sessions.get
        return bool(
            other.turns - self.turns
            or other.trajectories - self.trajectories
            or other.until > self.until
            or any(until(session, UNKNOWN_TIME) < time for session, time in other.sessions.items())
        )

    def said(self, said_at_us: npt.NDArray[np.int64]) -> Mask:
        """Tell what the tombstone of the namespace covers."""
        if self.until == UNKNOWN_TIME:
            return np.zeros(len(said_at_us), bool)
        return said_at_us <= self.until  # an unknown time is the smallest integer

    def said_in(self, session_ids: Column, said_at_us: npt.NDArray[np.int64]) -> Mask:
        """Tell what the tombstones of the namespace and of sessions cover."""
        covered = self.said(said_at_us)
        for session, until in self.sessions.items():
            covered |= _are(session_ids, {session}) & (said_at_us <= until)
        return covered


class Tombstones:
    """The tombstones in force."""

    def __init__(self, rows: pa.Table) -> None:
        """Take TOMBSTONE rows in the order in which they were written.

        The last row of a namespace, scope and id decides whether it is in force, whatever the clock said. It then
        covers up to the latest `deleted_at` since it was last restored: forgetting again never covers less.
        """
        until: dict[tuple[str, str, str], int] = {}
        for row in rows.to_pylist():
            key = row["namespace"], row["scope"], row["id"]
            if row["restored_at"] is not None:
                until.pop(key, None)
            else:
                until[key] = max(until.get(key, UNKNOWN_TIME), microseconds(row["deleted_at"]))
        self._own = {namespace: _own(found) for namespace, found in _by_namespace(until).items()}

    @property
    def namespaces(self) -> frozenset[str]:
        """Those that have a tombstone in force, of any scope."""
        return frozenset(self._own)

    def only(self, namespaces: Set[str]) -> "Tombstones":
        """Return the tombstones of some namespaces."""
        some = Tombstones.__new__(Tombstones)
        some._own = {name: own for name, own in self._own.items() if name in namespaces}
        return some

    def digest_of(self, namespace: str) -> str:
        """Return what tells the tombstones of a namespace from others; empty without any."""
        own = self._own.get(namespace)
        return "" if own is None else own.digest

    def ids(self, namespace: str, scope: Scope) -> frozenset[str]:
        """Return what of a namespace has a tombstone of that scope in force; of the whole namespace the id is empty."""
        own = self._own.get(namespace)
        if own is None:
            return frozenset()
        whole = frozenset() if own.until == UNKNOWN_TIME else frozenset({""})
        found: dict[Scope, frozenset[str]] = {
            "namespace": whole,
            "session": frozenset(own.sessions),
            "turn": own.turns,
            "trajectory": own.trajectories,
        }
        return found[scope]

    def lift(self, earlier: "Tombstones") -> bool:
        """Say whether something that was covered earlier may not be covered any more."""
        nothing = _own({})
        return any(
            now.is_less_than(then)
            for now, then in ((self._own.get(namespace, nothing), then) for namespace, then in earlier._own.items())
        )

    def forgets(self, namespace: str, said_at: datetime | None = None) -> bool:
        """Say whether the namespace's own tombstone covers what was said in it at a time, or at an unknown one."""
        own = self._own.get(namespace)
        if own is None or own.until == UNKNOWN_TIME:
            return False
        return said_at is None or microseconds(said_at) <= own.until

    def hidden_turns(self, namespace: str, turn_ids: Column, session_ids: Column, said_at: Column) -> Mask:
        """Tell which turns of a namespace are covered, bool `[turns]`.

        Args:
            namespace: Whose.
            turn_ids: Theirs, strings.
            session_ids: Of the session of each, strings.
            said_at: When each was said, timestamps; null where unknown.
        """
        own = self._own.get(namespace)
        if own is None:
            return np.zeros(len(turn_ids), bool)
        return own.said_in(session_ids, _microseconds(said_at)) | _are(turn_ids, own.turns)

    def hidden_trajectories(self, namespace: str, trajectory_ids: Column, said_at: Column) -> Mask:
        """Tell which runs of a namespace are covered, bool `[runs]`; see `hidden_turns`."""
        own = self._own.get(namespace)
        if own is None:
            return np.zeros(len(trajectory_ids), bool)
        return own.said(_microseconds(said_at)) | _are(trajectory_ids, own.trajectories)

    def kept_messages(self, messages: pa.Table) -> tuple[pa.Table, Mask]:
        """Return MESSAGE rows without those that are covered, and which of the rows are kept, bool `[rows]`.

        A long message of several turns goes as a whole: what covers one of them covers the others.

        Args:
            messages: Sorted by namespace.
        """

        def covered(namespace: str, rows: pa.Table) -> Mask:
            own, ids = self._own[namespace], rows.column("message_id")
            turns = own.turns | _messages_of_parts(rows, own.turns)
            return own.said_in(rows.column("session_id"), _microseconds(rows.column("said_at"))) | _are(ids, turns)

        return self._kept(messages, covered)

    def kept_trajectories(self, runs: pa.Table) -> tuple[pa.Table, Mask]:
        """Return TRAJECTORY rows without those that are covered, and which of the rows are kept, bool `[rows]`.

        Args:
            runs: Sorted by namespace.
        """

        def covered(namespace: str, rows: pa.Table) -> Mask:
            return self.hidden_trajectories(namespace, rows.column("trajectory_id"), rows.column("said_at"))

        return self._kept(runs, covered)

    def _kept(self, table: pa.Table, covered: Callable[[str, pa.Table], Mask]) -> tuple[pa.Table, Mask]:
        kept = np.ones(table.num_rows, bool)
        if self._own:
            for namespace, start, stop in namespace_ranges(table):
                if namespace in self._own:
                    kept[start:stop] = ~covered(namespace, table.slice(start, stop - start))
        return (table if kept.all() else table.filter(pa.array(kept))), kept


def forgotten_outcomes(stage: str, namespaces: Column, row_ids: Sequence[str]) -> pa.Table:
    """Return OUTCOME rows that say of input rows of a stage that a tombstone covers them."""
    count = len(row_ids)
    columns = {
        "namespace": namespaces,
        "stage": pa.array([stage] * count, STRING),
        "row_id": pa.array(row_ids, STRING),
        "outcome": pa.array(["empty"] * count, STRING),
        "passes": pa.array(np.ones(count, np.int32)),
        "reason": pa.array([FORGOTTEN] * count, STRING),
    }
    return conform(pa.table(columns), OUTCOME)


def _by_namespace(until: Mapping[tuple[str, str, str], int]) -> dict[str, dict[str, dict[str, int]]]:
    found: dict[str, dict[str, dict[str, int]]] = {}
    for (namespace, scope, name), time in until.items():
        found.setdefault(namespace, {}).setdefault(scope, {})[name] = time
    return found


def _own(found: Mapping[str, Mapping[str, int]]) -> _Own:
    return _Own(
        frozenset(found.get("turn", ())),
        frozenset(found.get("trajectory", ())),
        dict(found.get("session", {})),
        max(found.get("namespace", {}).values(), default=UNKNOWN_TIME),
    )


def _messages_of_parts(messages: pa.Table, turns: Set[str]) -> frozenset[str]:
    """Return the ids of messages of which a later part is among the turns."""
    if not turns:
        return frozenset()
    later = messages.filter(pc.greater(messages.column("part"), 0))
    rows = zip(later.column("message_id").to_pylist(), later.column("part").to_pylist(), strict=True)
    return frozenset(message for message, part in rows if part_id(message, part) in turns)


def _are(ids: Column, wanted: Set[str]) -> Mask:
    if not wanted:
        return np.zeros(len(ids), bool)
    found = pc.is_in(ids, value_set=pa.array(sorted(wanted), STRING))
    return np.array(found.to_numpy(zero_copy_only=False) if isinstance(found, pa.Array) else found.to_numpy(), bool)


def _microseconds(times: Column) -> npt.NDArray[np.int64]:
    whole = times.cast(TIME).cast(pa.int64()).fill_null(UNKNOWN_TIME)
    return np.asarray(whole.to_numpy(), np.int64)


NO_TOMBSTONES = Tombstones(TOMBSTONE.empty())
"""Nothing is to be forgotten."""
