"""An endpoint under load while versions change and a replica is killed: whether any answer is of a wrong version."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from pipelines.processes import is_running
from pipelines.serve_load import Asked, Client, Load
from pipelines.store import Store
from pipelines.versions import current_version, point_to

EVENTS = ("swap", "swap", "kill", "swap", "roll back", "swap", "swap")
"""What happens, at even distances."""


@dataclass(slots=True)
class Current:
    """Which version the pointer named when: moments of the monotonic clock, the first one before all requests."""

    moved: list[tuple[float, str]] = field(default_factory=list)

    def seconds_late(self, asked: Asked) -> float:
        """Return how long before a question was sent its answer's version had been the current one.

        0 if it was the current one at any time between the question and the answer; infinite if it was not before the
        answer.
        """
        late = float("inf")
        for place, (since, version) in enumerate(self.moved):
            until = self.moved[place + 1][0] if place + 1 < len(self.moved) else float("inf")
            if version == asked.version and since <= asked.ended:
                late = min(late, max(0.0, asked.began - until))
        return late


def soak(
    load: Load,
    port: int,
    store: Store,
    other: str,
    replicas: Callable[[], Sequence[int]],
    requests: int,
    clients: int,
    within_s: float,
) -> dict[str, Any]:
    """Ask while the pointer moves between the current and another version, and a replica is killed.

    Args:
        load: Asks.
        port: Of the endpoint, for rolling back.
        store: Whose versions are served.
        other: The other version.
        replicas: Gives the process ids of the replicas.
        requests: How many questions.
        clients: How many ask at the same time.
        within_s: How long after the pointer moved an answer may be of the version before.

    Returns:
        Counts of answers and errors, how late the latest answer of an earlier version was, and what rolling back was
        answered with: with 504 it went on after its time was over. An error is in flight if its request was on the way
        while the replica ended, for until it has, what is sent to it arrives.
    """
    found = current_version(store)
    if found is None:
        raise ValueError(f"{store.root} has no current version")
    current = Current([(0.0, found[1])])
    versions = found[1], other
    killed: list[tuple[float, float]] = []

    events = dict(zip(_places(requests), EVENTS, strict=True))
    one_at_a_time = Lock()
    rolled_back: list[int] = []

    def happen(number: int) -> None:
        event = events.get(number)
        if event is not None:
            with one_at_a_time:
                if event == "kill":
                    killed.append(_kill(replicas()[0]))
                else:
                    then = versions[current.moved[-1][1] == versions[0]]
                    current.moved.append((time.monotonic(), then))
                    if event == "swap":
                        point_to(store, then)
                    else:
                        status, _ = Client(port).ask("/v1/version/rollback", {"version": then})
                        rolled_back.append(status)

    counts = counted(load.ask(requests, clients, happen), current, killed, within_s)
    return {**counts, "rollback_statuses": rolled_back}


def _places(requests: int) -> list[int]:
    """Return before which requests the events happen."""
    return [place * requests // (len(EVENTS) + 1) for place in range(1, len(EVENTS) + 1)]


def _kill(process: int) -> tuple[float, float]:
    """Kill a process; return when that was, and when it had ended, some tenths of a second later."""
    began = time.monotonic()
    os.kill(process, signal.SIGKILL)
    while is_running(process):
        time.sleep(0.001)
    return began, time.monotonic()


def counted(
    asked: Sequence[Asked], current: Current, killed: Sequence[tuple[float, float]], within_s: float
) -> dict[str, Any]:
    """Count what became of questions; see `soak`."""
    answers = [one for one in asked if one.status == 200]
    failed = [one for one in asked if one.status != 200]
    in_flight = [one for one in failed if any(one.began <= gone and began <= one.ended for began, gone in killed)]
    late = [current.seconds_late(one) for one in answers]
    return {
        "requests": len(asked),
        "answers": len(answers),
        "wrong_versions": sum(seconds > within_s for seconds in late),
        "late_seconds": round(max((seconds for seconds in late if seconds < float("inf")), default=0.0), 2),
        "errors_in_flight": len(in_flight),
        "other_errors": len(failed) - len(in_flight),
    }
