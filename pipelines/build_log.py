"""What the log of the job that built a version says; see `pipelines.job_log`."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pipelines.versions import Version


@dataclass(slots=True)
class BuildLog:
    """What the log of the job that built a version says.

    Attributes:
        name: Of the file.
        engine: Where stages ran, if it is said.
        seconds: From its start to its end; None if it did not end well.
        stages: By name: seconds of work, buckets made and reused.
        peaks: By stage, the most memory of the process when the last of its buckets was done, in bytes.
        memory: What the job was taken to need before it began, in bytes; None if it is not said.
        retries: How often work was done again, by error.
        asked: What calls of a language model took, by stage.
        ended: The event that ended it.
        unreadable: Lines that are no events.
    """

    name: str
    engine: str = "unknown"
    seconds: float | None = None
    stages: dict[str, tuple[float, int, int]] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    memory: int | None = None
    retries: Counter[str] = field(default_factory=Counter)
    asked: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    ended: str = ""
    unreadable: int = 0


def find_log(version: Version) -> BuildLog | None:
    """Return what the log of the job says that published a version first; None where no log is left of it."""
    found = []
    for path in version.store.files(version.store.root / "logs", "*.jsonl"):
        with suppress(OSError, UnicodeDecodeError):
            version.store.fetch(path)
            lines = path.read_text(encoding="utf-8").splitlines()
            if any('"published"' in line and version.id in line for line in lines):
                found.append((lines[0], path.name, lines))  # a line begins with its time
    if not found:
        return None
    _, name, lines = min(found)
    return read_log(name, lines)


def read_log(name: str, lines: Iterable[str]) -> BuildLog:
    """Return what the lines of a job's log say; of a job that was killed the last one may be cut."""
    log = BuildLog(name)
    for line in lines:
        try:
            event = json.loads(line)
            _take_event(log, event)
        except (ValueError, KeyError, TypeError, AttributeError):
            log.unreadable += 1
    return log


def _take_event(log: BuildLog, event: Mapping[str, Any]) -> None:
    match event["event"]:
        case "engine_chosen":
            log.engine = str(event["engine"])
        case "checked" if event["check"] == "memory":
            log.memory = int(event["needed"])
        case "stage_finished":
            log.stages[str(event["stage"])] = float(event["seconds"]), int(event["made"]), int(event["reused"])
        case "bucket_done" if event.get("peak_memory"):
            stage = str(event["stage"])
            log.peaks[stage] = max(log.peaks.get(stage, 0), int(event["peak_memory"]))
        case "retried":
            log.retries[str(event["error"])] += 1
        case "model_asked":
            log.asked[str(event["stage"])] = event
        case "job_finished" | "job_failed":
            log.ended = str(event["event"])
            log.seconds = float(event["seconds"]) if log.ended == "job_finished" else None
