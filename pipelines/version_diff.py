"""What two versions of a store differ in: turns, episodes, facts, topics and skills of each namespace.

The versions are compared group of buckets by group of buckets. What is one output in both is not read; of the rest, the
lineage tells which namespaces differ, and their rows alone are compared.
"""

import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import namespace_digests
from hgmem_core.lineage import Lineage
from hgmem_core.schemas import EPISODE, FACT, SKILL, TOPIC, TURN, TableSchema
from pipelines.files import StoreError
from pipelines.store import LINEAGE_FILE, Output
from pipelines.versions import Version

Level = Literal["turns", "episodes", "facts", "topics", "skills"]
LEVELS: tuple[Level, ...] = get_args(Level)

EXAMPLES = 3
"""Ids that are named of what was added, removed or changed."""


class _Source(NamedTuple):
    stage: str
    file: str
    schema: TableSchema
    id: str
    places: Set[str]
    """Columns that change when something is put before a row; they do not count."""


_SOURCES: Mapping[Level, _Source] = {
    "turns": _Source("merge", "turns.parquet", TURN, "turn_id", {"position"}),
    "episodes": _Source("segment", "episodes.parquet", EPISODE, "episode_id", {"first_position", "last_position"}),
    "facts": _Source("consolidate", "facts.parquet", FACT, "fact_id", set()),
    "topics": _Source("group", "topics.parquet", TOPIC, "topic_id", set()),
    "skills": _Source("index_skills", "skills.arrow", SKILL, "skill_id", set()),
}


@dataclass(frozen=True, slots=True)
class Change:
    """How many rows of a level came, went, or say something else, and the first ids of each."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    examples: Mapping[str, list[str]] = field(default_factory=dict)

    def __add__(self, other: "Change") -> "Change":
        """Return the sums, with the examples of the first."""
        sums = (self.added + other.added, self.removed + other.removed, self.changed + other.changed)
        return Change(*sums, self.examples or other.examples)

    def __bool__(self) -> bool:
        """Say whether there is any."""
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True)
class NamespaceDiff:
    """What differs in a namespace.

    Attributes:
        namespace: Its name.
        state: Whether both versions have it, or one of them.
        levels: Those in which something differs.
    """

    namespace: str
    state: Literal["added", "removed", "changed"]
    levels: Mapping[Level, Change]


def diff_versions(old: Version, new: Version) -> Iterator[NamespaceDiff]:
    """Yield every namespace in which two versions of a store differ, some buckets after the other.

    Columns of a clock, and places within a session, do not count. No more is held in memory than the rows of a bucket
    of each, if both were made with as many buckets.

    Raises:
        StoreError: A table is gone or damaged.
    """
    groups = math.gcd(old.store_buckets, new.store_buckets)
    for group in range(groups):
        sides = [_Side(version, range(group, version.store_buckets, groups)) for version in (old, new)]
        before, after = (side.namespaces() for side in sides) if _differ(sides) else (frozenset(), frozenset())
        found: dict[str, dict[Level, Change]] = {name: {} for name in before ^ after}
        for level in LEVELS:
            for namespace, change in _changes(level, *sides):
                if change:
                    found.setdefault(namespace, {})[level] = change
        for namespace in sorted(found):
            state: Literal["added", "removed", "changed"] = "changed"
            if namespace in before ^ after:
                state = "added" if namespace in after else "removed"
            yield NamespaceDiff(namespace, state, found[namespace])


def _differ(sides: "list[_Side]") -> bool:
    old, new = sides
    return old.turns != new.turns or old.skills != new.skills


Place: TypeAlias = tuple[int, str]
"""Of a namespace: its bucket, and the digest of its rows."""


class _Side:
    """Some buckets of a version."""

    def __init__(self, version: Version, buckets: range) -> None:
        self._version = version
        manifest = version.manifest
        skills = manifest.get("skills", {"buckets": {}})
        self.turns = _indexes(manifest["buckets"], buckets)
        """The folder of each bucket's index."""
        self.skills = _indexes(skills["buckets"], buckets)
        self._table: tuple[Level, int, pa.Table] | None = None

    def outputs(self, level: Level) -> dict[int, Output]:
        """Return where the rows of a level lie, by bucket."""
        if level == "skills":
            return {bucket: self._found(folder) for bucket, folder in self.skills.items()}
        stage, found = _SOURCES[level].stage, {}
        for bucket, folder in self.turns.items():
            identity = self._found(folder).manifest["made_from"][stage]
            found[bucket] = self._found(f"outputs/{stage}/{identity}")
        return found

    def namespaces(self) -> Set[str]:
        indexes = [self._found(folder) for folder in (*self.turns.values(), *self.skills.values())]
        return frozenset().union(*(Lineage.of(one.table(LINEAGE_FILE)).digests for one in indexes))

    def places(self, level: Level, outputs: Mapping[int, Output]) -> dict[str, Place]:
        """Return where the rows of each namespace lie."""
        found: dict[str, Place] = {}
        for bucket, output in outputs.items():
            if level == "skills":  # the lineage of an evolved index does not tell by which feedback it was evolved
                digests: Mapping[str, str] = namespace_digests(output.table(_SOURCES[level].file), SKILL)
            else:
                digests = Lineage.of(output.table(LINEAGE_FILE)).digests
            found |= {name: (bucket, digest) for name, digest in digests.items()}
        return found

    def rows(self, level: Level, outputs: Mapping[int, Output], place: Place | None, namespace: str) -> pa.Table:
        """Return the rows of a namespace; those of its bucket are kept for the next one."""
        source = _SOURCES[level]
        if place is None:
            return source.schema.empty()
        if self._table is None or self._table[:2] != (level, place[0]):
            self._table = level, place[0], outputs[place[0]].table(source.file)
        return self._table[2].filter(pc.field("namespace") == namespace)

    def _found(self, folder: str) -> Output:
        path = self._version.store.root / folder
        output = self._version.store.find(path)
        if output is None:
            raise StoreError(
                f"{path} of version {self._version.id} is gone or damaged, so it cannot be compared: rebuild with the "
                "configuration of that version, or compare others"
            )
        return output


def _indexes(entries: Mapping[str, Mapping[str, str]], buckets: range) -> dict[int, str]:
    return {bucket: entries[str(bucket)]["folder"] for bucket in buckets if str(bucket) in entries}


def _changes(level: Level, old: _Side, new: _Side) -> Iterator[tuple[str, Change]]:
    one, other = old.outputs(level), new.outputs(level)
    equal = {bucket for bucket in one if bucket in other and one[bucket].folder == other[bucket].folder}
    if equal == one.keys() == other.keys():
        return
    before, after = old.places(level, one), new.places(level, other)
    names = [
        name for name in before.keys() | after.keys() if before.get(name, (0, ""))[1] != after.get(name, (0, ""))[1]
    ]
    for name in sorted(names, key=lambda name: (after.get(name, (-1, "")), before.get(name, (-1, "")), name)):
        rows = (
            side.rows(level, outputs, places.get(name), name)
            for side, outputs, places in ((old, one, before), (new, other, after))
        )
        yield name, _compared(_SOURCES[level], *rows)


def _compared(source: _Source, old: pa.Table, new: pa.Table) -> Change:
    """Compare the rows of one namespace."""
    dropped = {"namespace", *source.schema.clock, *source.places}
    kept = [name for name in source.schema.arrow.names if name not in dropped]
    before, after = (pl.DataFrame(pl.from_arrow(table.select(kept))) for table in (old, new))
    told = [name for name in kept if name != source.id]
    both = before.join(after, on=source.id, suffix=".after")
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}.after")) for name in told)
    found = {
        "added": after.join(before, on=source.id, how="anti"),
        "removed": before.join(after, on=source.id, how="anti"),
        "changed": both.filter(differs),
    }
    examples = {how: sorted(rows[source.id].to_list())[:EXAMPLES] for how, rows in found.items() if rows.height}
    return Change(**{how: rows.height for how, rows in found.items()}, examples=examples)
