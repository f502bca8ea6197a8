"""The log of a job: one event a line, as JSON, for machines and for whoever looks for what went wrong.

It holds numbers, hgmem's own ids, and names of stages, machines and errors. Texts, namespaces and names of files are
personal data, and messages of errors may quote them: no event has a place for them, and a name that could be a
sentence, a path or a namespace is withheld. Workers return events; the driver writes them.
"""

import json
import logging
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TypeAlias

from hgmem_core import __version__
from pipelines.files import create_file, make_folder
from pipelines.store import Store, StoreError

WITHHELD = "(withheld)"


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A job began; `what` is its name."""

    what: str
    hgmem: str = __version__


@dataclass(frozen=True, slots=True)
class EngineChosen:
    """Where the stages run, and on how many bytes of logs."""

    engine: str
    log_bytes: int


@dataclass(frozen=True, slots=True)
class LeaseTaken:
    """This process holds the store; `taken_over` from one that was gone."""

    host: str
    pid: int
    taken_over: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """Something was looked at before work began, such as `disk` or `memory`, in bytes."""

    check: str
    needed: int
    available: int | None


@dataclass(frozen=True, slots=True)
class StageFinished:
    """A stage is done on all buckets; `seconds` are summed over workers."""

    stage: str
    seconds: float
    rows: int
    made: int
    reused: int


@dataclass(frozen=True, slots=True)
class ModelTried:
    """A language model answered as it must: its context, what it thought, and in which field its answer was."""

    max_model_len: int | None
    thinking_tokens: int
    source: str


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """What a stage's calls of a language model took; `seconds` are summed over all in flight."""

    stage: str
    calls: int
    refused: int
    prompt_tokens: int
    completion_tokens: int
    thinking_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BucketDone:
    """A stage is done on one bucket: made now, or found as it was made before.

    `peak_memory` is the most that the driver's process has had so far, in bytes; workers on Ray are others.
    """

    stage: str
    bucket: int
    seconds: float
    rows: int
    made: bool
    peak_memory: int


@dataclass(frozen=True, slots=True)
class Retried:
    """Work is done again after an error, of which the class is named; `bucket` is None if it was no bucket's."""

    stage: str
    bucket: int | None
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class Published:
    """A version exists; `moved` tells whether it became the current one, under that number."""

    version: str
    number: int
    moved: bool
    turns: int
    namespaces: int


@dataclass(frozen=True, slots=True)
class VersionsPruned:
    """So many versions and outputs were removed, and so many bytes with them."""

    versions: int
    outputs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class JobFinished:
    """The job did what it should."""

    seconds: float


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job ended with an error, of which the class is named."""

    seconds: float
    error: str


Event: TypeAlias = (
    JobStarted
    | EngineChosen
    | LeaseTaken
    | Checked
    | StageFinished
    | ModelTried
    | ModelAsked
    | BucketDone
    | Retried
    | Published
    | VersionsPruned
    | JobFinished
    | JobFailed
)
_LEVELS = {Retried: logging.WARNING, JobFailed: logging.ERROR}


class JobLog:
    """Takes events; `open_job_log` gives it. Threads may share it."""

    def __init__(self, handlers: list[logging.Handler]) -> None:
        """Write to these handlers; to none, if there are none."""
        # Not from `getLogger`: that one is shared by all jobs of a process, and other software could add to it.
        self._logger = logging.Logger("hgmem.job", logging.INFO)
        self._logger.handlers = handlers
        self._is_silent = not handlers

    def write(self, event: Event) -> None:
        """Write an event.

        Raises:
            OSError: It cannot be written.
        """
        if not self._is_silent:
            name = re.sub("(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
            self._logger.log(_LEVELS.get(type(event), logging.INFO), name, extra={"facts": asdict(event)})


@contextmanager
def open_job_log(what: str, path: Path | None = None, stream: IO[str] | None = None) -> Iterator[JobLog]:
    """Open the log of a job, and write how the job began and ended.

    Args:
        what: The job's name, such as `rebuild`.
        path: A file to write, in a folder that is made for it; see `log_path`.
        stream: Where to write besides. With neither, the log keeps nothing.

    Raises:
        StoreError: The file cannot be made.
    """
    began = time.perf_counter()
    with ExitStack() as stack:
        streams = [stream] if stream else []
        if path is not None:
            streams.append(stack.enter_context(_create(path)))
        log = JobLog([_Lines(stream) for stream in streams])
        log.write(JobStarted(what))
        try:
            yield log
        except BaseException as error:
            with suppress(OSError):  # the disk is full, as `error` says
                log.write(JobFailed(time.perf_counter() - began, type(error).__name__))
            raise
        log.write(JobFinished(time.perf_counter() - began))


def log_path(store: Store, started_at: datetime) -> Path:
    """Return a new name for the log of a job that began at that time."""
    return store.root / "logs" / f"{started_at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}.jsonl"


@contextmanager
def open_store_log(what: str, store: Store, began_at: datetime) -> Iterator[JobLog]:
    """Open the log that a job leaves in its store; see `open_job_log`. In object storage it is there at the end."""
    path = log_path(store, began_at)
    try:
        with open_job_log(what, path) as log:
            yield log
    finally:
        if path.exists():
            store.share(path)


def _create(path: Path) -> IO[str]:
    try:
        make_folder(path.parent, exist_ok=True)
        return create_file(path).open("w", encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"the job's log {path} cannot be written: {error.strerror}; make its folder writable and give it room"
        ) from error


class _Lines(logging.StreamHandler[IO[str]]):
    """Writes each event as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = {name: _safe(fact) for name, fact in record.__dict__["facts"].items()}
        return json.dumps({"at": at, "level": record.levelname.lower(), "event": record.msg, **facts})

    def handleError(self, record: logging.LogRecord) -> None:
        """Let a job fail whose log cannot be written: by default, logging prints a traceback for each event."""
        raise


def _safe(fact: str | float | None) -> str | float | None:
    if isinstance(fact, str):
        return fact if re.fullmatch(r"[A-Za-z0-9_.:+-]{1,64}", fact) else WITHHELD
    return round(fact, 3) if isinstance(fact, float) else fact
