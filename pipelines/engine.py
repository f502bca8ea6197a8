"""What the dataflow asks of an engine, and the choice between the two.

Import and build are the same functions of a file or a bucket whichever engine calls them, so both give equal stores.
"""

import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Protocol, TypeAlias

from hgmem_core.config import Config
from hgmem_core.encoding import Encoder, EncoderIdentity
from hgmem_core.run_config import RunConfig
from pipelines.calls import Spent
from pipelines.chat_model import ChatModel
from pipelines.imports import ImportedPart
from pipelines.job_log import BucketDone, JobLog, ModelAsked, StageFinished
from pipelines.progress import Progress
from pipelines.runner import Record, Report, Runner
from pipelines.stages import TUNED_STAGE, index_of_bucket
from pipelines.steps import Answers
from pipelines.store import Output, Store
from pipelines.tuned_vectors import Tuned


class ClusterError(RuntimeError):
    """The cluster cannot do the work, or stopped doing it: says what is missing or waited for, and what to do."""


Kind = Literal["imports", "buckets"]
"""Of work: reading log files, or working on buckets; the configuration gives each its resources."""

Work = Callable[[int], Mapping[str, Any]]
"""Does one item, given by number; the result is JSON-ready. Doing an item twice does no harm."""


Indexes: TypeAlias = Mapping[int, Mapping[str, Output]]
"""The indexes of each bucket, by stage: `index` of its turns, `index_skills` or `evolve` of its runs."""


class BucketJob(Protocol):
    """Work on buckets that needs vectors, or a language model, on its way; travels to other processes."""

    @property
    def store(self) -> Store:
        """Where."""
        ...

    @property
    def config(self) -> Config:
        """How."""
        ...

    @property
    def tuned(self) -> Tuned | None:
        """What makes tuned vectors; None for no such vectors."""
        ...

    @property
    def software(self) -> Mapping[str, str]:
        """What the driver runs; see `pipelines.preflight.software_versions`."""
        ...

    @property
    def id(self) -> str:
        """Of this job, no other's."""
        ...

    @property
    def buckets(self) -> Sequence[int]:
        """Which, rising."""
        ...

    @property
    def saves_between(self) -> bool:
        """Whether vectors lie in an output of the bucket by the time that it asks for more."""
        ...

    def identity_of_encoder(self, stage: str) -> Mapping[str, Any]:
        """Return the identity of what encodes the texts of a stage."""
        ...

    def outputs(self, bucket: int, answers: Answers, tell: Callable[[Record], object]) -> dict[str, Output]:
        """Return what becomes of a bucket, by stage; `tell` takes a record of every output on the way."""
        ...


@dataclass(frozen=True, slots=True)
class BuildJob:
    """What a worker has to know to build a bucket; travels to other processes.

    Attributes:
        store: Where.
        config: How.
        encoder: What makes the vectors.
        tuned: What makes tuned vectors; None for no such vectors.
        parts: What was imported of each bucket, the oldest import first.
        parents: The folders of each bucket's indexes in the current version, to take what did not change from.
        software: What the driver runs; see `pipelines.preflight.software_versions`.
        id: Of this job, no other's.
    """

    store: Store
    config: Config
    encoder: EncoderIdentity
    tuned: Tuned | None
    parts: Mapping[int, Sequence[ImportedPart]]
    parents: Mapping[int, Sequence[Path]]
    software: Mapping[str, str]
    id: str

    def identity_of_encoder(self, stage: str) -> Mapping[str, Any]:
        """Return the identity of what encodes the texts of a stage."""
        return self.encoder.as_dict() if self.tuned is None or stage != TUNED_STAGE else self.tuned.identity

    @property
    def buckets(self) -> Sequence[int]:
        """Those that anything was imported of."""
        return sorted(self.parts)

    @property
    def saves_between(self) -> bool:
        """They do: every stage has an output of its own."""
        return True

    def outputs(self, bucket: int, answers: Answers, tell: Callable[[Record], object]) -> dict[str, Output]:
        """Build a bucket and return its indexes."""
        runner = self.runner(bucket, tell)
        return index_of_bucket(runner, self.config, self.encoder, self.tuned, self.parts[bucket], answers)

    def runner(self, bucket: int, tell: Callable[[Record], object]) -> Runner:
        """Return what runs the stages of a bucket."""
        parents: dict[str, Output] = {}
        for folder in self.parents.get(bucket, ()):
            found = self.store.find(folder)
            if found is None:
                continue
            parents[folder.parent.name] = found
            for stage, identity in found.manifest["made_from"].items():
                output = self.store.find(self.store.output_folder(stage, identity))
                if output is not None:
                    parents[stage] = output
        return Runner(self.store, bucket, parents, tell, self.id)


def peak_memory() -> int:
    """Return the most memory that this process has had so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


class Watch:
    """Takes what workers report of a build: for the summary, and for whoever watches. Threads may share it."""

    def __init__(self, progress: Progress, log: JobLog, outputs: int) -> None:
        """Announce the build of so many outputs: one for each bucket and stage."""
        self.report = Report()
        self._asking = Lock()  # nobody may be ahead of the one who starts the bar
        self._progress = progress
        self._log = log
        progress.start("build", outputs)
        progress.start("encode", None)

    def record(self, record: Record) -> None:
        """Take the record of an output."""
        is_first = self.report.add(record)
        if is_first:
            self._progress.advance("build", 1)
        elif not record.made:
            return  # on Ray a bucket is taken up several times, and finds what it made
        rows = sum(record.outcomes.values())
        seconds, peak = round(record.seconds, 4), peak_memory()
        self._log.write(BucketDone(record.stage, record.bucket, seconds, rows, record.made, peak))

    def encoded(self, stage: str, texts: int, seconds: float) -> None:
        """Take that so many texts of a stage were encoded."""
        self.report.add_seconds(stage, seconds)
        self._progress.advance("encode", texts)

    def asked(self, stage: str, spent: Spent) -> None:
        """Take that a language model was asked by a stage."""
        with self._asking:
            if self.report.spend(stage, spent):
                self._progress.start("ask", None)
            self._progress.advance("ask", spent.calls)

    def finish(self) -> None:
        """Say that every bucket is built."""
        self._progress.finish("encode")
        if self.report.spent:
            self._progress.finish("ask")
        for stage, spent in self.report.spent.items():
            self._log.write(ModelAsked(stage, **asdict(spent)))
        for stage, told in self.report.as_dict().items():
            rows = sum(told["outcomes"].values())
            self._log.write(StageFinished(stage, told["seconds"], rows, told["made"], told["reused"]))


class Engine(Protocol):
    """Runs the work of an import or a build, somewhere."""

    @property
    def name(self) -> str:
        """As in the configuration."""
        ...

    @property
    def workers_here(self) -> int:
        """How many buckets are worked on at a time on this machine, at most; 0 if others may do it."""
        ...

    def map(self, kind: Kind, work: Work, items: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Apply `work` to every item and yield the items with their results, as they are finished.

        The first error ends it: the same that `work` raised.
        """
        ...

    def index(self, job: BucketJob, encoder: Encoder, chat: ChatModel | None, watch: Watch) -> Indexes:
        """Work on every bucket of a job and return its outputs.

        Raises:
            ModelError: The language model cannot be used any more; what it answered is kept.
        """
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """Which engine a run takes, and why."""

    name: Literal["local", "ray"]
    why: str

    def __str__(self) -> str:
        """Say both in a line."""
        return f"{self.name}: {self.why}"


def choose_engine(config: RunConfig, log_bytes: int, uses_vllm: bool = False) -> Choice:
    """Choose the engine of a run.

    Args:
        config: What is asked for.
        log_bytes: Bytes of logs, those that the store knows and new ones.
        uses_vllm: Whether a model runs as actors on Ray.
    """
    if config.engine != "auto":
        return Choice(config.engine, "as configured")
    if uses_vllm:
        return Choice("ray", "vLLM runs as actors on Ray")
    mebibytes = log_bytes / (1 << 20)
    name: Literal["local", "ray"] = "ray" if mebibytes >= config.ray_from_mib else "local"
    return Choice(name, f"{mebibytes:.1f} MiB of logs, Ray from {config.ray_from_mib:g}")
