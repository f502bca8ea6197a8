"""Work in a process of its own, and CPU time and memory of a process and all that it starts, as Linux tells them.

A local Ray starts its servers as children of the driver and its workers as children of one of them, so the tree of
processes below the driver holds all of a session that this process started; of a cluster that was there before, it
holds nothing.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, ParamSpec, Self, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
"""An environment in which numerical libraries start no threads."""

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_PERIOD_SECONDS = 0.5
_LARGEST_SHARE = 0.05
"""Of its time, how much a meter may spend on looking."""


def in_fresh_process(
    environment: dict[str, str], work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
) -> Result:
    """Return what `work`, a function of a module, returns in a new interpreter; what it raises is raised here.

    Args:
        environment: Added to the environment of the new process.
        work: What to do.
        given: Its arguments.
        named: Its arguments by name.
    """
    with environment_with(environment), ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *given, **named).result()


@contextmanager
def environment_with(added: dict[str, str]) -> Iterator[None]:
    """Add to the environment of processes that are started within the `with` block."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Process(NamedTuple):
    """A process: ids are given again, an id with its start is not."""

    id: int
    started: int
    """In ticks since the machine was booted."""


class _State(NamedTuple):
    parent: int
    cpu_seconds: float


class Running(NamedTuple):
    """A process that this one started, or one of those, or of theirs.

    Attributes:
        id: Its process id.
        title: What it calls itself; Ray's actors and tasks are `ray::NAME`.
        cpu_seconds: What it used so far, user and system.
    """

    id: int
    title: str
    cpu_seconds: float


def descendants() -> list[Running]:
    """Return the processes below this one that are running."""
    states = _states()
    own = {process for process in states if process.id == os.getpid()}
    below = _family(states, own) - own
    return [Running(process.id, _title(process.id), states[process].cpu_seconds) for process in sorted(below)]


def _title(process: int) -> str:
    with suppress(OSError):  # it ended meanwhile
        return Path(f"/proc/{process}/cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
    return ""


@dataclass(slots=True)
class Usage:
    """What a tree of processes used while it was watched.

    Attributes:
        wall_seconds: How long that was.
        cpu_seconds: Of all processes, user and system; of one that ended, up to when it was last seen.
        peak_memory_bytes: The most that was seen at one time: each page once, however many processes share it.
        most_processes: How many there were at one time.
    """

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    most_processes: int = 0


@dataclass(slots=True)
class Meter:
    """Watches this process and its descendants while its `with` block runs; `usage` tells the result afterwards.

    Every half second a thread looks at all of them. It counts neither its own time nor what was used before the block.
    A process that outlives its parent is still counted.
    """

    usage: Usage = field(default_factory=Usage)
    _cpu: dict[Process, float] = field(default_factory=dict)
    _before: dict[Process, float] = field(default_factory=dict)
    _own_seconds: float = 0.0
    _began: float = 0.0
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Begin."""
        self._look()
        self._before = dict(self._cpu)
        self._thread = threading.Thread(target=self._watch, name="meter", daemon=True)
        self._thread.start()
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Look once more, and end."""
        self.usage.wall_seconds = time.perf_counter() - self._began
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._look()
        used = sum(seconds - self._before.get(process, 0.0) for process, seconds in self._cpu.items())
        self.usage.cpu_seconds = max(0.0, used - self._own_seconds)

    def _watch(self) -> None:
        rest = _PERIOD_SECONDS
        while not self._ended.wait(rest):
            self._look()
            # Looking takes the longer the more memory there is, and holds up those that are looked at.
            rest = max(_PERIOD_SECONDS, (time.thread_time() - self._own_seconds) / _LARGEST_SHARE)
            self._own_seconds = time.thread_time()

    def _look(self) -> None:
        states = _states()
        mine = _family(states, self._cpu.keys() | {process for process in states if process.id == os.getpid()})
        self._cpu |= {process: states[process].cpu_seconds for process in mine}
        memory = sum(memory_bytes(process.id) for process in mine)
        self.usage.peak_memory_bytes = max(self.usage.peak_memory_bytes, memory)
        self.usage.most_processes = max(self.usage.most_processes, len(mine))


def _family(states: dict[Process, _State], roots: set[Process]) -> set[Process]:
    """Return those of `roots` that are alive, and all their descendants."""
    children: dict[int, list[Process]] = {}
    for process, state in states.items():
        children.setdefault(state.parent, []).append(process)
    found: set[Process] = set()
    waiting = [process for process in roots if process in states]
    while waiting:
        process = waiting.pop()
        if process not in found:
            found.add(process)
            waiting += children.get(process.id, [])
    return found


def _states() -> dict[Process, _State]:
    """Return every process of the machine."""
    states = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                # The name of the program, in brackets, may hold blanks and brackets itself.
                fields = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
                cpu_seconds = (int(fields[11]) + int(fields[12])) * _TICK_SECONDS
                states[Process(int(name), int(fields[19]))] = _State(int(fields[1]), cpu_seconds)
    return states


def is_running(process: int) -> bool:
    """Say whether a thread of a process has not ended; once all have, it holds nothing open."""
    threads = Path(f"/proc/{process}/task")
    with suppress(OSError):  # all of them ended meanwhile
        for thread in os.listdir(threads):
            with suppress(OSError):  # this one did
                if (threads / thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX":
                    return True
    return False


def memory_bytes(process: int) -> int:
    """Return a process's share of the pages that it has in memory, in bytes; 0 once it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0
