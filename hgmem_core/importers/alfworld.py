"""Runs of agents in ALFWorld's text games: a name, a result, and the game as it was played, line by line."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.fields import name_of, shown
from hgmem_core.importers.runs import RunParts, read_runs
from hgmem_core.messages import Dropped, LogRow
from hgmem_core.trajectories import Run, Step

_TASK = re.compile(r"your task is to:\s*(.*)", re.IGNORECASE)
_THOUGHT = re.compile(r"(?:think|actionpath)\s*(?::|$)", re.IGNORECASE)


def read_alfworld(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Run | Dropped]:
    """Yield one run or refusal for each row: an object with `name`, `result` and `traj`.

    Lines that begin with `>` are the agent's, what follows one is what it saw. Its thoughts (`Think:`) and its notes of
    what it did so far (`ActionPath:`) are no steps: the game does not know them, and the notes only repeat the steps
    before. The room as it is described first is left out, for nothing was done to see it.

    The task's id is the folder in `name`, which names what tells games apart; the kind of task in it is a label, and
    the task is only what the game says.

    Raises:
        ValueError: The namespace template is malformed.
    """
    return read_runs(rows, config, _read)


def _read(row: Mapping[str, Any], config: InputConfig, notes: list[str]) -> RunParts:
    text = row.get("traj")
    if not isinstance(text, str):
        raise ValueError(f"'traj' is {shown(text)}; it must be the text of a game")
    task = ""
    turns: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(">"):
            turns.append((line[1:].strip(), []))
        elif turns:
            turns[-1][1].append(line)
        elif found := _TASK.search(line):
            task = found[1]
    steps = [
        Step(action, "\n".join(seen).strip() if seen else None)
        for action, seen in turns
        if action and not _THOUGHT.match(action)
    ]
    name = name_of(row.get("name"), "name", notes)
    return RunParts(
        task=task,
        steps=steps,
        outcome=row.get("result"),
        n_steps=len(steps),
        task_id=name.partition("/")[0] if name else None,
    )
