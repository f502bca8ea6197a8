"""What the importers of agents' runs share: from the parts that a row was read into to a run or a refusal."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.ids import content_id
from hgmem_core.importers.fields import NamespaceTemplate, empty, is_missing, joined, refused, shown, unreadable
from hgmem_core.messages import Dropped, LogRow
from hgmem_core.text import clean, is_blank
from hgmem_core.tokens import fold
from hgmem_core.trajectories import Run, RunOutcome, Step, anonymous_trajectory_id, trajectory_id

TrajectoryImporter = Callable[[Iterable[LogRow], InputConfig], Iterator[Run | Dropped]]
"""Turns the rows of one file into runs: exactly one result for each run of the log, in its order."""

_SUCCESS = frozenset("success succeeded successful pass passed true yes ok correct solved resolved won".split())
_FAILURE = frozenset("failure failed fail false no error incorrect wrong unsolved unresolved lost".split())
_NEARLY = 1e-6
"""What a reward that is a sum of floats may lack, or have beyond, to be 1."""
_MOST_STEPS = 2**31


@dataclass(frozen=True, slots=True)
class RunParts:
    """What a row says of a run, before any of it is checked or cleaned.

    Attributes:
        task: What was to be done.
        steps: In their order; those with nothing in their action count as none.
        outcome: As the log has it, see `outcome_of`.
        n_steps: How many steps the log says there were, those that could not be read among them.
        task_id: Or None, for which the task itself stands.
        source_id: The log's own id of the run, or None.
        said_at: When it was made, or None.
    """

    task: str
    steps: list[Step]
    outcome: object
    n_steps: int
    task_id: str | None = None
    source_id: str | None = None
    said_at: datetime | None = None


Reader = Callable[[Mapping[str, Any], InputConfig, list[str]], RunParts]
"""Reads a row that is an object; it adds what was lost to the notes, and raises ValueError where it holds no run."""


def read_runs(rows: Iterable[LogRow], config: InputConfig, read: Reader) -> Iterator[Run | Dropped]:
    """Yield one run or refusal for each row.

    Of a refused row only the reason is kept: the rest of it may hold labels.

    Args:
        rows: Of one file.
        config: Its namespace is a template over the columns of a row.
        read: See `Reader`.

    Raises:
        ValueError: The namespace template is malformed.
    """
    namespaces = NamespaceTemplate(config.namespace)
    for row in rows:
        if row.error is not None:
            yield unreadable(row)
        elif not isinstance(row.value, Mapping):
            yield refused(row.row_id, f"the run is {shown(row.value)}; it must be an object")
        else:
            yield _read_run(row, config, read, namespaces)


def _read_run(row: LogRow, config: InputConfig, read: Reader, namespaces: NamespaceTemplate) -> Run | Dropped:
    try:
        namespace = namespaces.fill(row.value)
    except ValueError as error:
        return refused(row.row_id, str(error))
    notes: list[str] = []
    try:
        parts = read(row.value, config, notes)
    except ValueError as error:
        return refused(row.row_id, str(error), namespace=namespace)
    task = _cleaned(parts.task, "task", notes)
    if not task:
        return refused(row.row_id, "nothing says what the task was", namespace=namespace)
    steps = tuple(_cleaned_steps(parts.steps, notes))
    if not steps:
        return empty(row.row_id, namespace, joined(["the run has no steps", *notes]) or "")
    task_id = parts.task_id or content_id("task", " ".join(fold(task).split()))
    source_id = parts.source_id
    return Run(
        row_id=row.row_id,
        namespace=namespace,
        trajectory_id=anonymous_trajectory_id(namespace, task_id, task, steps, parts.said_at)
        if source_id is None
        else trajectory_id(namespace, source_id),
        task_id=task_id,
        task=task,
        steps=steps,
        outcome=outcome_of(parts.outcome, notes),
        n_steps=_n_steps(parts.n_steps, len(steps), notes),
        source_id=source_id,
        said_at=parts.said_at,
        note=joined(notes),
    )


def _cleaned(text: str, label: str, notes: list[str]) -> str:
    """Return text as it can be stored, empty where nothing in it can be seen."""
    text, note = clean(text)
    if note:
        notes.append(f"{label}: {note}")
    return "" if is_blank(text) else text


def _cleaned_steps(steps: Iterable[Step], notes: list[str]) -> Iterator[Step]:
    for step in steps:
        action = _cleaned(step.action, "action", notes)
        observation = step.observation
        if action:
            yield Step(action, None if observation is None else _cleaned(observation, "observation", notes))
        else:
            notes.append("a step without an action: left out")


def _n_steps(said: int, count: int, notes: list[str]) -> int:
    if count <= said < _MOST_STEPS:
        return said
    notes.append(f"n_steps: {shown(said)} cannot be, for {count} steps are there")
    return count


def outcome_of(value: object, notes: list[str]) -> RunOutcome:
    """Return how a run ended; a note is added where that is missing or not understood, so that it is unknown.

    A truth value says it itself. A number from 0 to 1, or one written as text, is a success where it is 1: part of a
    reward is none. A word is one of a few, whatever its case.

    >>> outcome_of("0.8", []), outcome_of("Passed", []), outcome_of(1, [])
    ('failure', 'success', 'success')
    """
    if is_missing(value) or (isinstance(value, str) and is_blank(value)):
        notes.append("the run has no outcome: taken as unknown")
        return "unknown"
    if isinstance(value, str):
        word = fold(value.strip()[:32])
        if word in _SUCCESS or word in _FAILURE:
            return "success" if word in _SUCCESS else "failure"
        if word == "unknown":
            return "unknown"
        try:
            number: float | Decimal | None = float(word)
        except ValueError:
            number = None
    else:
        number = value if isinstance(value, int | float | Decimal) else None
    if number is None or not 0 <= number <= 1 + _NEARLY:
        notes.append(f"outcome: {shown(value)} is no success or failure and no number from 0 to 1: taken as unknown")
        return "unknown"
    return "success" if number >= 1 - _NEARLY else "failure"


def call_text(name: str, arguments: str) -> str:
    """Return the call of a tool as the text of an action.

    >>> call_text("find_user", '{"name": "Ana"}')
    'find_user({"name": "Ana"})'
    """
    return f"{name}({arguments.strip()})"


def text_of(value: object, label: str, notes: list[str]) -> str | None:
    """Return what was seen as text: as it stands, or written as JSON; None where it is missing or cannot be written."""
    if is_missing(value):
        return None
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (RecursionError, TypeError, ValueError):
        notes.append(f"{label}: {shown(value)} cannot be written as JSON: left out")
        return None
