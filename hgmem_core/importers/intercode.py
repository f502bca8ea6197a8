"""Runs of agents at a shell or a database, as InterCode records them.

The reward of a run is its outcome. The rewards of single steps, and what tells how hard or how right one was, are
labels and are not read.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.fields import name_of, shown
from hgmem_core.importers.runs import RunParts, read_runs, text_of
from hgmem_core.messages import Dropped, LogRow
from hgmem_core.text import clean
from hgmem_core.trajectories import Run, Step


def read_intercode(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Run | Dropped]:
    """Yield one run or refusal for each record: an object with `query` and `turn_history`.

    A row is a record, or an object that holds records by number, as an InterCode file does. Since each of its files
    numbers its tasks from 0, a task's id is `<environment>/<dataset>/<number>`.

    Raises:
        ValueError: The namespace template is malformed.
    """
    return read_runs(_records(rows), config, _read)


def _records(rows: Iterable[LogRow]) -> Iterator[LogRow]:
    for row in rows:
        value = row.value
        if isinstance(value, Mapping) and value and "turn_history" not in value and "query" not in value:
            for key, record in value.items():
                yield LogRow(f"{row.row_id}[{clean(str(key))[0][:64]}]", record)
        else:
            yield row


def _read(row: Mapping[str, Any], config: InputConfig, notes: list[str]) -> RunParts:
    history, query = row.get("turn_history"), row.get("query")
    if not isinstance(history, Mapping) or not isinstance(history.get("actions"), list):
        raise ValueError("the run is not an object with a list of actions under 'turn_history.actions'")
    if not isinstance(query, str):
        raise ValueError(f"'query' is {shown(query)}; it must be the text of the task")
    actions, observations = history["actions"], history.get("observations")
    if not isinstance(observations, list):
        notes.append(f"observations: {shown(observations)} is not a list: left out")
        observations = []
    if len(observations) > len(actions):
        notes.append(f"{len(observations) - len(actions)} observations without an action: left out")
    summary = row.get("summary")
    return RunParts(
        task=query,
        steps=list(_steps(actions, observations[: len(actions)], notes)),
        outcome=summary.get("max_reward") if isinstance(summary, Mapping) else None,
        n_steps=len(actions),
        task_id=_task_id(row, notes),
    )


def _steps(actions: list[Any], observations: list[Any], notes: list[str]) -> Iterator[Step]:
    for action, observation in zip_longest(actions, observations):
        if isinstance(action, str):
            yield Step(action, text_of(observation, "observation", notes))
        else:
            notes.append(f"action: {shown(action)} is not text: left out")


def _task_id(row: Mapping[str, Any], notes: list[str]) -> str | None:
    number = name_of(row.get("task_id"), "task_id", notes)
    if number is None:
        return None
    dataset = name_of(row.get("dataset"), "dataset", notes)
    parts = [name_of(row.get("environment"), "environment", notes), dataset and PurePosixPath(dataset).stem, number]
    return "/".join(part for part in parts if part)
