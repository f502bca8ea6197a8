"""Runs of agents in a format of our own: one JSON object each."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.content import read_tool_calls
from hgmem_core.importers.fields import integer_of, is_missing, name_of, shown, time_of
from hgmem_core.importers.runs import RunParts, call_text, read_runs, text_of
from hgmem_core.messages import Dropped, LogRow
from hgmem_core.trajectories import Run, Step


def read_trajectories(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Run | Dropped]:
    """Yield one run or refusal for each row, such as this one.

        {"task": "Restart the print server",
         "steps": [{"action": "systemctl restart cups", "observation": ""},
                   {"action": {"name": "get_status", "arguments": {"unit": "cups"}}, "observation": {"active": true}}],
         "outcome": "success",
         "id": "run-17", "task_id": "cups-1", "time": "2024-05-01T09:30:00Z", "n_steps": 2}

    `task` and `steps` must be there. An action is text or the call of a tool; a step may be an action alone; what is
    seen may be any JSON. `outcome` is told in `outcome_of`; without it the run teaches nothing of success and failure.
    `id` names the run: with one, a run that comes again replaces the earlier one. Without `task_id`, runs with equal
    tasks are of one task. `n_steps` is for runs of which `steps` shows a part. Other columns can be named in the
    namespace, and are not read otherwise.

    Raises:
        ValueError: The namespace template is malformed.
    """
    return read_runs(rows, config, _read)


def _read(row: Mapping[str, Any], config: InputConfig, notes: list[str]) -> RunParts:
    task, steps = row.get("task"), row.get("steps")
    if not isinstance(task, str):
        raise ValueError(f"'task' is {shown(task)}; it must be the text of the task")
    if not is_missing(steps) and not isinstance(steps, list):
        raise ValueError(f"'steps' is {shown(steps)}; it must be a list of steps")
    steps = steps if isinstance(steps, list) else []
    n_steps = integer_of(row.get("n_steps"), "n_steps", notes)
    return RunParts(
        task=task,
        steps=[step for item in steps if (step := _step(item, notes)) is not None],
        outcome=row.get("outcome"),
        n_steps=len(steps) if n_steps is None else n_steps,
        task_id=name_of(row.get("task_id"), "task_id", notes),
        source_id=name_of(row.get("id"), "id", notes),
        said_at=time_of(row.get("time"), "time", config, notes),
    )


def _step(item: object, notes: list[str]) -> Step | None:
    """Return a step, or None, with a note, where it cannot be read."""
    action, observation = item, None
    if isinstance(item, Mapping) and "action" in item:
        action, observation = item["action"], text_of(item.get("observation"), "observation", notes)
    if isinstance(action, Mapping):
        [call] = read_tool_calls({"tool_calls": [action]}, notes)
        action = call_text(call["name"], call["arguments"]) if call["name"] else None
    if isinstance(action, str):
        return Step(action, observation)
    notes.append(f"step: {shown(item)} has no action that is text or the call of a named tool: left out")
    return None
