"""The stage runner: an output is named by everything that decides it, and what exists is not made again.

What exists counts as long as its files are as they were written; a damaged output is made again from its inputs. Where
some namespaces of a bucket changed, only those are computed: the rows of the others come from the parent, the output of
the same stage in the current version.
"""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import digest_of_parts, namespace_digests
from hgmem_core.lineage import Lineage, join_digests, select, splice
from hgmem_core.schemas import TableSchema
from pipelines.calls import Spent
from pipelines.imports import ImportedPart
from pipelines.store import LINEAGE_FILE, DamagedOutput, Output, Payload, Store

OUTCOMES_FILE = "outcomes.parquet"


Input: TypeAlias = Output | ImportedPart
"""What a stage reads."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What a stage makes of some namespaces of one bucket.

    Attributes:
        files: By name; see `pipelines.store.Payload`.
        outcomes: OUTCOME, one row for each input row.
        schemas: Of those files that later stages read.
        about: JSON-ready facts for the manifest.
        unserved: How many rows a server did not serve: another job is to make the output again.
    """

    files: Mapping[str, Payload]
    outcomes: pa.Table
    schemas: Mapping[str, TableSchema] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    unserved: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the dataflow, apart from the bucket it runs on.

    Attributes:
        name: As in the documentation.
        revision: Raised in the code whenever equal input gives other output.
        settings: JSON-ready: the slice of the configuration and the identity of the model that it uses.
    """

    name: str
    revision: int
    settings: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """What tells it from a stage that would make something else of the same rows."""
        settings = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        return digest_of_parts([self.name, str(self.revision), settings])

    def identity(self, inputs: Iterable[str]) -> str:
        """Return the name of this stage's output for inputs with these digests."""
        return digest_of_parts([self.digest, *inputs])


@dataclass(frozen=True, slots=True)
class Record:
    """A stage's output for one bucket: what became of its input rows, seconds of work, made now or found."""

    stage: str
    bucket: int
    outcomes: Mapping[str, int]
    seconds: float
    made: bool


@dataclass(slots=True)
class Report:
    """What a run did: for each stage the outcomes of its input rows, seconds of work, outputs made and reused.

    Threads may share it. Seconds are summed over all workers: with several they exceed the time that passed.
    """

    records: dict[tuple[str, int], Record] = field(default_factory=dict)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    spent: dict[str, Spent] = field(default_factory=dict)
    """On calls of a language model, by stage."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, record: Record) -> bool:
        """Take a record and return whether it is the first of its output; an output that was made once counts as made.

        A bucket that is taken up again finds what it made before, and one that turns out damaged is made after all.
        """
        key = record.stage, record.bucket
        with self._lock:
            self.seconds[record.stage] += record.seconds
            is_first = key not in self.records
            if is_first or record.made:
                self.records[key] = record
            return is_first

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Add work that a stage's record does not hold."""
        with self._lock:
            self.seconds[stage] += seconds

    def spend(self, stage: str, spent: Spent) -> bool:
        """Take what calls of a language model took, and return whether they were the first of all."""
        with self._lock:
            is_first = not self.spent
            self.spent[stage] = self.spent.get(stage, Spent()) + spent
            return is_first

    @property
    def outcomes(self) -> dict[str, dict[str, int]]:
        """Return the outcomes of each stage's input rows, over all buckets."""
        sums: dict[str, Counter[str]] = {}
        for record in self.records.values():
            sums.setdefault(record.stage, Counter()).update(record.outcomes)
        return {stage: dict(sorted(counts.items())) for stage, counts in sums.items()}

    @property
    def made(self) -> Counter[str]:
        """How many outputs each stage made."""
        return Counter(record.stage for record in self.records.values() if record.made)

    @property
    def reused(self) -> Counter[str]:
        """How many outputs each stage found."""
        return Counter(record.stage for record in self.records.values() if not record.made)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values."""
        made, reused = self.made, self.reused
        return {
            stage: {
                "outcomes": outcomes,
                "seconds": round(self.seconds[stage], 3),
                "made": made[stage],
                "reused": reused[stage],
                **({"calls": asdict(self.spent[stage])} if stage in self.spent else {}),
            }
            for stage, outcomes in self.outcomes.items()
        }


@dataclass(frozen=True, slots=True)
class Task:
    """An output that is to be made.

    Attributes:
        stage: Which stage's.
        folder: Where it will lie.
        inputs: For each namespace a digest of what goes in.
        parent: The output to take unchanged namespaces from, if there are any.
        kept: Those namespaces.
        began: When it was looked for, on the process's clock.
    """

    stage: Stage
    folder: Path
    inputs: Mapping[str, str]
    parent: Output | None
    kept: Set[str]
    began: float

    @property
    def fresh(self) -> Set[str] | None:
        """The namespaces to compute; None if all are."""
        return self.inputs.keys() - self.kept if self.kept else None


Join = Callable[[Output, Set[str], Produced], Produced]
"""Puts the parent's rows of the kept namespaces together with what was produced for the others."""


class Runner:
    """Runs stages on one bucket of a store."""

    def __init__(
        self, store: Store, bucket: int, parents: Mapping[str, Output], tell: Callable[[Record], object], job: str
    ) -> None:
        """Begin with nothing read.

        Args:
            store: Where outputs are kept.
            bucket: Its number.
            parents: By stage, the bucket's outputs in an earlier version.
            tell: Takes a record of every output.
            job: The id of this job.
        """
        self.store = store
        self._bucket = bucket
        self._parents = parents
        self._tell = tell
        self._job = job
        self._tables: dict[Path, pa.Table] = {}
        self._written: set[Path] = set()
        self._used: set[Path] = set()

    def begin(self, stage: Stage, inputs: Sequence[Input]) -> Output | Task:
        """Return the output of `stage` for these inputs, or what is to be made of it.

        Of what exists, a parent too, only the sizes of files are looked at here; `read` looks at the rest.
        """
        began = time.perf_counter()
        folder = self.store.output_folder(stage.name, stage.identity(one.digest for one in inputs))
        found = self.store.find(folder)
        if found is not None and found.manifest.get("unserved_in", self._job) != self._job:
            self.store.remove(folder)
            found = None
        if found is not None and found.damage(contents=False) is None:
            self._record(stage, found, began, made=False)
            self._used.add(folder)
            return found
        wanted = join_digests([self._digests(one) for one in inputs])
        parent = self._parents.get(stage.name)
        kept: Set[str] = frozenset()
        if (
            parent is not None
            and parent.manifest["stage_digest"] == stage.digest
            and "unserved_in" not in parent.manifest
        ):
            had = self._lineage(parent).inputs
            kept = {name for name, digest in wanted.items() if had.get(name) == digest}
        return Task(stage, folder, wanted, parent, kept, began)

    def finish(self, task: Task, produced: Produced, join: "Join | None" = None) -> Output:
        """Keep what was made of a task's fresh namespaces, together with the parent's rows of the others."""
        fresh = [namespace_digests(_table(produced.files[name]), schema) for name, schema in produced.schemas.items()]
        digests = join_digests(fresh) if produced.schemas else dict(task.inputs)
        # A stage may make nothing of a namespace: that, too, is a result with a digest.
        nothing = digest_of_parts([""] * len(fresh))
        digests = {name: digests.get(name, nothing) for name in task.inputs}
        outcomes = produced.outcomes
        if task.kept and task.parent is not None:
            had = self._lineage(task.parent).digests
            digests |= {name: had[name] for name in task.kept}
            outcomes = _joined(self.read(task.parent, OUTCOMES_FILE), outcomes, task.kept)
            produced = (join or self._join)(task.parent, task.kept, produced)
        lineage = Lineage(task.inputs, digests)
        about = {
            **produced.about,
            "stage": task.stage.name,
            "stage_digest": task.stage.digest,
            "digest": lineage.digest,
            "outcomes": count_outcomes(outcomes),
        }
        if produced.unserved:
            about["unserved_in"] = self._job
        files = {**produced.files, OUTCOMES_FILE: outcomes, LINEAGE_FILE: lineage.table()}
        output = self.store.keep(task.folder, files, about)
        self._written.add(output.folder)
        self._tables |= {output.folder / name: table for name, table in files.items() if isinstance(table, pa.Table)}
        self._record(task.stage, output, task.began, made=True)
        return output

    def make(self, stage: Stage, inputs: Sequence[Input], work: Callable[[Set[str] | None], Produced]) -> Output:
        """Return the output of `stage` for these inputs; do the `work`, on namespaces, only if it does not exist yet.

        Raises:
            DamagedOutput: An input turned out damaged.
        """
        task = self.begin(stage, inputs)
        return task if isinstance(task, Output) else self.finish(task, work(task.fresh))

    def read(self, output: Output, name: str, namespaces: Set[str] | None = None) -> pa.Table:
        """Read a table of an output, or its rows of some namespaces; kept in memory for the next reader.

        Raises:
            DamagedOutput: The file is not as it was written.
        """
        path = output.folder / name
        if path not in self._tables:
            self._tables[path] = output.table(name)
        table = self._tables[path]
        return table if namespaces is None else select(table, namespaces)

    def sound(self, output: Output) -> Output:
        """Return an output after a look at all its files, if this runner did not write it just now.

        Raises:
            DamagedOutput: One is not as it was written.
        """
        damage = None if output.folder in self._written else output.damage()
        if damage:
            raise DamagedOutput(output.folder, damage)
        return output

    def remove(self, folder: Path) -> None:
        """Forget a damaged output, and remove it so that it is made again.

        A parent is not removed: its version may still be served, as far as what is damaged does not matter there.
        """
        self._parents = {stage: parent for stage, parent in self._parents.items() if parent.folder != folder}
        self._tables = {path: table for path, table in self._tables.items() if path.parent != folder}
        if folder in self._used | self._written:
            self.store.set_aside(folder)

    def _lineage(self, output: Output) -> Lineage:
        return Lineage.of(self.read(output, LINEAGE_FILE))

    def _digests(self, one: Input) -> Mapping[str, str]:
        return self._lineage(one).digests if isinstance(one, Output) else one.digests()

    def _join(self, parent: Output, kept: Set[str], produced: Produced) -> Produced:
        files = {name: _joined(self.read(parent, name), table, kept) for name, table in produced.files.items()}
        return Produced(files, produced.outcomes, produced.schemas, produced.about, produced.unserved)

    def _record(self, stage: Stage, output: Output, began: float, made: bool) -> None:
        seconds = time.perf_counter() - began
        self._tell(Record(stage.name, self._bucket, output.manifest["outcomes"], seconds, made))


def _table(payload: Payload) -> pa.Table:
    if not isinstance(payload, pa.Table):
        raise TypeError("a file that later stages read must be a table")
    return payload


def _joined(old: pa.Table, new: Payload, kept: Set[str]) -> pa.Table:
    return splice(old, _table(new), kept).combine_chunks()


def count_outcomes(outcomes: pa.Table) -> dict[str, int]:
    """Count an OUTCOME table's rows by outcome."""
    counted = pc.value_counts(outcomes.column("outcome")).to_pylist()
    return {item["values"]: item["counts"] for item in sorted(counted, key=lambda item: str(item["values"]))}
