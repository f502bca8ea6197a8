"""Runs of agents that talk to a user and call tools, in the shape of the OpenAI chat API, as tau-bench records them.

Only the conversation, the task's number and the reward are read. What tau-bench knows of a task, such as the
instruction of its simulated user and the right actions, was never seen by the agent and is not read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.content import read_content, read_tool_calls
from hgmem_core.importers.fields import is_missing, name_of, shown, time_of
from hgmem_core.importers.runs import RunParts, call_text, read_runs
from hgmem_core.messages import Dropped, LogRow
from hgmem_core.trajectories import Run, Step


def read_tau_bench(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Run | Dropped]:
    """Yield one run or refusal for each row: an object with `traj` or `messages`, and `reward` or `outcome`.

    The task is what the user says first. A step is a call of a tool with its answer, or what the agent says to the user
    with the user's reply. Instructions, and what the agent says before the user does, are no steps; nor is what it says
    beside a call, which is its thought.

    Raises:
        ValueError: The namespace template is malformed.
    """
    return read_runs(rows, config, _read)


def _read(row: Mapping[str, Any], config: InputConfig, notes: list[str]) -> RunParts:
    messages = next((row[key] for key in ("traj", "messages") if not is_missing(row.get(key))), None)
    if not isinstance(messages, list):
        raise ValueError("the run is not an object with a list of messages under 'traj' or 'messages'")
    talk = _Talk(notes)
    for message in messages:
        talk.add(message)
    return RunParts(
        task="\n".join(talk.task),
        steps=[Step(call.action, call.observation) for call in talk.calls],
        outcome=next((row[key] for key in ("reward", "outcome") if not is_missing(row.get(key))), None),
        n_steps=len(talk.calls),
        task_id=name_of(row.get("task_id"), "task_id", notes),
        source_id=name_of(row.get("id"), "id", notes),
        said_at=time_of(row.get("time"), "time", config, notes),
    )


class _Call:
    """A step that waits for what will be seen: the answer to a call, or the user's reply."""

    def __init__(self, action: str, call_id: str | None) -> None:
        self.action = action
        self.call_id = call_id
        self.observation: str | None = None

    def see(self, text: str) -> None:
        self.observation = text if self.observation is None else f"{self.observation}\n{text}"


class _Talk:
    """A conversation as it goes on.

    Attributes:
        task: What the user said before the agent did anything.
        calls: The steps so far.
    """

    def __init__(self, notes: list[str]) -> None:
        self.task: list[str] = []
        self.calls: list[_Call] = []
        self._open: list[_Call] = []
        """Calls of tools that nothing has answered."""
        self._notes = notes

    def add(self, message: object) -> None:
        """Take the next message."""
        role = message.get("role") if isinstance(message, Mapping) else None
        if not isinstance(message, Mapping) or not isinstance(role, str):
            self._notes.append(f"message: {shown(message)} has no role: left out")
            return
        try:
            text, _ = read_content(message.get("content"), self._notes)
        except ValueError as error:
            self._notes.append(f"message: {error}: left out")
            text = ""
        if role == "user":
            self._hear(text)
        elif role == "assistant":
            self._act(message, text)
        elif role in ("tool", "function"):
            self._answer(message, text)
        elif role not in ("system", "developer"):
            self._notes.append(f"message: {shown(role)} is no known role: left out")

    def _hear(self, text: str) -> None:
        if not self.calls:
            self.task += [text] if text else []
        elif text:
            self.calls[-1].see(text)

    def _act(self, message: Mapping[str, Any], text: str) -> None:
        if not self.task:
            return
        made = []
        for call in read_tool_calls(message, self._notes):
            if call["name"] is None:
                self._notes.append("a tool call without a name: left out")
                continue
            arguments = call["arguments"]
            if arguments.strip() and not _is_json(arguments):
                self._notes.append(f"the arguments of {shown(call['name'])} are not JSON: kept as written")
            made.append(_Call(call_text(call["name"], arguments), call["id"]))
        if made:
            self._open += made
            self.calls += made
        elif text:
            self.calls.append(_Call(text, None))

    def _answer(self, message: Mapping[str, Any], text: str) -> None:
        """Give a tool's answer to the call that it names, or, where it names none, to the oldest that has no answer."""
        call_id = name_of(message.get("tool_call_id"), "tool_call_id", self._notes)
        found = [call for call in self._open if call_id is None or call.call_id in (call_id, None)]
        if not found:
            self._notes.append("a tool's message that answers no call: left out")
            return
        found[0].see(text)
        self._open.remove(found[0])


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (RecursionError, ValueError):
        return False
    return True
