"""Forget a namespace, a session, or some of what was said or done there; or remember it again.

What is asked for becomes tombstones, which hide it in every version at once, keep it out of the next build, and out of
logs that are imported later.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import bucket_of, part_id, turn_id
from hgmem_core.schemas import MESSAGE, STRING, TIME, TRAJECTORY, TableSchema
from hgmem_core.tombstones import NO_TOMBSTONES, Scope, Tombstones
from pipelines.imports import ImportedPart, imported_parts, read_imports
from pipelines.selection import Selection, among, fitting_messages, fitting_runs
from pipelines.spill import RowKind
from pipelines.store import Store, StoreError
from pipelines.tombstone_files import Tombstone, add_tombstones, tombstone_table, written_tombstones
from pipelines.versions import current_version, open_version

__all__ = ["Change", "NothingToForget", "Selection", "forget", "restore"]


class NothingToForget(StoreError):
    """What is to be forgotten, or to be restored, is not there: says what of it."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a tombstone hid, or its restoring brought back.

    Attributes:
        number: Of the file that was written; None if there was nothing to write, or nothing was to be.
        tombstones: How many rows it has.
        turns: That are hidden now, or are back.
        sessions: That some of these are of.
        trajectories: Runs, likewise.
        facts: Of the current version: those of which no source remains.
        facts_with_fewer_sources: Those that go on with the others.
        summaries: Of episodes and topics that a hidden turn is in.
        skills: Those that no other run taught.
    """

    number: int | None
    tombstones: int
    turns: int
    sessions: int
    trajectories: int
    facts: int
    facts_with_fewer_sources: int
    summaries: int
    skills: int


Key = tuple[Scope, str]
"""What a tombstone names in its namespace."""


def forget(
    store: Store, selection: Selection, now: datetime, allow_unknown: bool = False, dry_run: bool = False
) -> Change:
    """Write tombstones for what is selected and tell what they hide. Takes no lease and waits for nobody.

    What is forgotten already is not forgotten twice, except that of a namespace or a session what was said since is. Of
    these, all goes that is there: what was said later by the log, whose clock may be ahead of ours, is named by its id.

    Args:
        store: Where.
        selection: What to forget.
        now: The time of the tombstones.
        allow_unknown: Whether what the store has never seen may be forgotten in advance.
        dry_run: Whether to tell only, and write nothing.

    Raises:
        NothingToForget: Nothing fits, or an id is not known; nothing is written then.
        StoreError: A file of the store is damaged.
    """
    memory = _Memory.of(store, selection.namespace)
    missing = list(memory.missing(selection))
    if missing and not (allow_unknown and memory.keys(selection)):
        raise NothingToForget(
            f"{store} has of namespace {selection.namespace!r} no {', no '.join(missing)}: nothing was forgotten. "
            "python -m jobs.query --json shows ids; what is still to come can be forgotten with --allow-unknown"
        )
    rows = [
        Tombstone(namespace=selection.namespace, scope=scope, id=name, deleted_at=now, asked=asked)
        for (scope, name), asked in sorted(memory.asked_for(selection).items())
        if selection.names_all or not memory.is_forgotten((scope, name))
    ]
    ahead = [key for key in sorted(memory.said_after(selection, now)) if not memory.is_forgotten(key)]
    asked = selection.digest if ahead else ""
    rows += [
        Tombstone(namespace=selection.namespace, scope=scope, id=name, deleted_at=now, asked=asked)
        for scope, name in ahead
    ]
    return memory.changed(rows, dry_run)


def restore(store: Store, selection: Selection, now: datetime, dry_run: bool = False) -> Change:
    """Lift the tombstones that `forget` wrote for the same selection; others, wider or narrower, stay in force.

    Args:
        store: Where.
        selection: What was forgotten.
        now: The time of the restoring.
        dry_run: Whether to tell only, and write nothing.

    Raises:
        NothingToForget: None of that is forgotten; nothing is written then.
        StoreError: A file of the store is damaged.
    """
    memory = _Memory.of(store, selection.namespace)
    keys = {key for key in memory.keys(selection) | memory.written_for(selection) if memory.is_forgotten(key)}
    named: list[Key] = [("turn", one) for one in selection.turns]
    missing = [f"turn {name!r}" for _, name in named if ("turn", name) not in keys]
    if missing or not keys:
        what = ", ".join(missing) or "what is selected"
        raise NothingToForget(
            f"{store}: of namespace {selection.namespace!r} no tombstone in force names {what}: nothing was "
            "restored. A tombstone is lifted by the arguments that it was written for, or by the ids that it names"
        )
    rows = [
        Tombstone(namespace=selection.namespace, scope=scope, id=name, deleted_at=now, restored_at=now)
        for scope, name in sorted(keys)
    ]
    return memory.changed(rows, dry_run)


@dataclass(frozen=True, slots=True)
class _Memory:
    """What the imports of a store hold of a namespace, forgotten or not, and its tombstones.

    Attributes:
        store: Where.
        namespace: Whose.
        messages: MESSAGE with a `turn_id`, every delivery.
        runs: TRAJECTORY, every delivery.
        written: Every tombstone, lifted ones too.
        tombstones: Those in force.
    """

    store: Store
    namespace: str
    messages: pa.Table
    runs: pa.Table
    written: Sequence[Tombstone]
    tombstones: Tombstones

    @classmethod
    def of(cls, store: Store, namespace: str) -> "_Memory":
        written = written_tombstones(store)
        imports = read_imports(store)
        parts: Sequence[ImportedPart] = ()
        if any(one.entry.rows for one in imports):
            parts = imported_parts(store, imports, NO_TOMBSTONES).get(bucket_of(namespace, store.buckets), [])
        messages = _read(parts, "messages", namespace, MESSAGE)
        pairs = zip(messages.column("message_id").to_pylist(), messages.column("part").to_pylist(), strict=True)
        messages = messages.append_column("turn_id", pa.array([part_id(*pair) for pair in pairs], STRING))
        runs = _read(parts, "runs", namespace, TRAJECTORY)
        return cls(store, namespace, messages, runs, written, Tombstones(tombstone_table(written)))

    def is_forgotten(self, key: Key) -> bool:
        """Say whether a tombstone in force names just that."""
        scope, name = key
        return name in self.tombstones.ids(self.namespace, scope)

    def keys(self, selection: Selection) -> set[Key]:
        """Return what tombstones of a selection name; ids that were given stand for themselves, known or not."""
        if selection.names_all:
            return {("namespace", "") if selection.session is None else ("session", selection.session)}
        keys: set[Key] = {("turn", one) for one in selection.turns}
        if selection.session is not None:
            keys |= {("turn", turn_id(self.namespace, selection.session, one)) for one in selection.source_ids}
        if selection.may_fit_messages:
            said = self.messages.filter(fitting_messages(self.messages, selection))
            whole = self.messages.filter(among(self.messages, "message_id", _values(said, "message_id")))
            keys |= {("turn", one) for one in _values(whole, "turn_id")}
        if selection.may_fit_runs:
            fitting = self.runs.filter(fitting_runs(self.runs, selection))
            known = _values(fitting, "trajectory_id") | _values(fitting, "source_id")
            unknown = set(selection.trajectories) - known
            keys |= {("trajectory", one) for one in _values(fitting, "trajectory_id") | unknown}
        return keys

    def said_after(self, selection: Selection, time: datetime) -> set[Key]:
        """Return what a tombstone of the namespace or of a session, written at that time, would leave of it."""
        if not selection.names_all:
            return set()
        said = self.messages.filter(_said_after(self.messages, time))
        if selection.session is not None:
            said = said.filter(pc.equal(said.column("session_id"), selection.session))
        keys: set[Key] = {("turn", one) for one in _values(said, "turn_id")}
        if selection.session is None:
            runs = self.runs.filter(_said_after(self.runs, time))
            keys |= {("trajectory", one) for one in _values(runs, "trajectory_id")}
        return keys

    def asked_for(self, selection: Selection) -> Mapping[Key, str]:
        """Return what tombstones of a selection name, each with the digest of what of it means that."""
        asked: dict[Key, str] = {}
        for one in selection.one_by_one():
            digest = "" if selection.names_all or selection.turns else one.digest
            asked |= dict.fromkeys(self.keys(one), digest)
        return asked

    def written_for(self, selection: Selection) -> set[Key]:
        """Return what tombstones name that were written for a selection, whether or not that is in the store still."""
        if selection.turns or not any(one.asked for one in self.written):
            return set()
        digests = {one.digest for one in selection.one_by_one()}
        return {(one.scope, one.id) for one in self.written if one.namespace == self.namespace and one.asked in digests}

    def was_asked(self, selection: Selection) -> bool:
        """Say whether a tombstone in force was written for a selection."""
        return any(map(self.is_forgotten, self.written_for(selection)))

    def missing(self, selection: Selection) -> Iterator[str]:
        """Yield what of a selection was neither imported nor forgotten before, in words."""
        if selection.names_all:
            [key] = self.keys(selection)
            is_there = self.messages.num_rows + self.runs.num_rows > 0
            if selection.session is not None:
                is_there = selection.session in _values(self.messages, "session_id")
            if not is_there and not self.is_forgotten(key):
                yield "message and no run" if selection.session is None else f"session {selection.session!r}"
            return
        turns = _values(self.messages, "turn_id")
        yield from (
            f"turn {one!r}" for one in selection.turns if one not in turns and not self.is_forgotten(("turn", one))
        )
        if selection.source_ids:
            said = self.messages.filter(fitting_messages(self.messages, selection))
            sources = _values(said, "source_id")
            yield from (
                f"message with the id {one!r}"
                for one in selection.source_ids
                if one not in sources and not self.was_asked(replace(selection, source_ids=(one,)))
            )
        runs = _values(self.runs, "trajectory_id") | _values(self.runs, "source_id")
        yield from (
            f"run {one!r}"
            for one in selection.trajectories
            if one not in runs
            and not self.is_forgotten(("trajectory", one))
            and not self.was_asked(replace(selection, trajectories=(one,)))
        )
        if not self.keys(selection) and not self.was_asked(selection):
            yield "message and no run that fits" if selection.may_fit_runs else "message that fits"

    def changed(self, rows: Sequence[Tombstone], dry_run: bool) -> Change:
        """Write rows, unless there are none or none are to be, and tell what they make of the memory."""
        after = Tombstones(tombstone_table([*self.written, *rows]))
        one, other = self._shown(self.tombstones), self._shown(after)
        turns = one.turns.keys() ^ other.turns.keys()
        sessions = {(one.turns | other.turns)[turn] for turn in turns}
        facts = one.facts.keys() ^ other.facts.keys()
        both = one.facts.keys() & other.facts.keys()
        number = add_tombstones(self.store, rows) if rows and not dry_run else None
        return Change(
            number=number,
            tombstones=len(rows),
            turns=len(turns),
            sessions=len(sessions),
            trajectories=len(one.trajectories ^ other.trajectories),
            facts=len(facts),
            facts_with_fewer_sources=sum(one.facts[fact] != other.facts[fact] for fact in both),
            summaries=abs(one.summaries - other.summaries),
            skills=abs(one.skills - other.skills),
        )

    def _shown(self, tombstones: Tombstones) -> "_Shown":
        """Return what is shown under some tombstones: of imports, and of the current version if there is one."""
        said, _ = tombstones.kept_messages(self.messages)
        turns = dict(zip(said.column("turn_id").to_pylist(), said.column("session_id").to_pylist(), strict=True))
        runs = _values(tombstones.kept_trajectories(self.runs)[0], "trajectory_id")
        facts: dict[str, int] = {}
        summaries = skills = 0
        if current_version(self.store) is not None:
            version = open_version(self.store)
            bucket = version.bucket_of(self.namespace)
            reader, of_skills = version.open_bucket(bucket), version.open_skills(bucket)
            index = reader.open(self.namespace, tombstones) if reader else None
            if index is not None:
                sizes = np.diff(index.graph.turns_of_fact.offsets).tolist()
                ids = index.graph.column("fact", "node_id").to_pylist()
                facts = {fact: size for fact, size in zip(ids, sizes, strict=True) if size}
                texts = [
                    text for level in ("topic", "episode") for text in index.graph.column(level, "text").to_pylist()
                ]
                summaries = sum(map(bool, texts))
            graph = of_skills.open(self.namespace, tombstones) if of_skills else None
            skills = 0 if graph is None else graph.tables.skills.num_rows
        return _Shown(turns, runs, facts, summaries, skills)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a namespace shows: turns with their sessions, runs, facts with how many sources, summaries, skills."""

    turns: dict[str, str]
    trajectories: Set[str]
    facts: dict[str, int]
    summaries: int
    skills: int


def _read(parts: Sequence[ImportedPart], kind: RowKind, namespace: str, schema: TableSchema) -> pa.Table:
    """Return the rows of a namespace, the oldest import first; all are of it, so they are sorted by namespace."""
    return pa.concat_tables([schema.empty(), *(part.read({namespace}) for part in parts if part.kind == kind)])


def _said_after(rows: pa.Table, time: datetime) -> pa.ChunkedArray:
    return pc.greater(rows.column("said_at"), pa.scalar(time, TIME))


def _values(rows: pa.Table, name: str) -> set[str]:
    """Return the distinct values of a column; null is none."""
    return set(rows.column(name).to_pylist()) - {None}
