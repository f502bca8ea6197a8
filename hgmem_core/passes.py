"""Asking a model about rows, at most three times each, told every time what was wrong with the answer before."""

from collections.abc import Callable, Generator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, Literal, Protocol, TypeVar

import pyarrow as pa
from pydantic import BaseModel

from hgmem_core.chat import Reply, Request, Thinking
from hgmem_core.prompts import Prompt
from hgmem_core.replies import Fault, Reading, read_reply
from hgmem_core.schemas import REJECT, conform

MOST_PASSES = 3

_MOST_FAULTS = 10
"""That the model is told of, and that are kept as the reason."""

Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every request to a model.

    Attributes:
        thinking: Whether it is to think first.
        max_tokens: Of an answer; twice as many once one was cut off.
        prompt_tokens: The most of a prompt, system part included, so that such an answer fits behind it.
        count: Tokens of a text, or more.
    """

    thinking: Thinking
    max_tokens: int
    prompt_tokens: int
    count: Callable[[str], int]

    def fits(self, prompt: Prompt, user: str) -> bool:
        """Say whether a prompt fits; only a long one is counted: there are no more tokens than bytes."""
        text = f"{prompt.system}\n{user}"
        return len(text.encode()) <= self.prompt_tokens or self.count(text) <= self.prompt_tokens


@dataclass(frozen=True, slots=True)
class Trouble:
    """What was wrong with the answer of the pass before.

    Attributes:
        fault: The gravest thing; None where only the sense was wrong.
        faults: A sentence for each thing.
        is_cut: Whether items were missing because the answer ended too early.
    """

    fault: Fault | None
    faults: Sequence[str]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """A pass that left something to be wished for: a row of REJECT."""

    number: int
    reason: str
    raw: str | None


@dataclass(slots=True)
class Settled(Generic[Answer]):
    """What became of a question.

    Attributes:
        answer: What was good of all passes; None if nothing was: the embedded engine's answer stands in.
        outcome: `ok`, `partial` where something is missing, `fallback` without an answer.
        passes: How often it was asked.
        reason: Why it is not `ok`.
        is_whole: Whether some pass came to its end, so that nothing is missing but what was refused of it.
        attempts: Passes that had faults.
    """

    answer: Answer | None = None
    outcome: Literal["ok", "partial", "fallback"] = "fallback"
    passes: int = 0
    reason: str | None = None
    is_whole: bool = False
    attempts: list[Attempt] = field(default_factory=list)


class Question(Protocol[Answer]):
    """One thing to ask about, again if need be."""

    @property
    def answer_type(self) -> type[Answer]:
        """What the answer is read as."""
        ...

    def request(self, attempt: int, found: Answer | None, trouble: Trouble | None) -> Request:
        """Return the request of a pass, see `request_of`; after the first it knows what was good and what was not."""
        ...

    def check(self, answer: Answer) -> tuple[Answer | None, list[str]]:
        """Return what of an answer makes sense (None: nothing of it), and a sentence for each thing that does not."""
        ...

    def merge(self, found: Answer, more: Answer) -> Answer:
        """Join what two passes found; nothing twice."""
        ...


Asking = Generator[list[Request], list[Reply], list[Settled[Answer]]]
"""Gives out requests, takes their replies in the same order, ends with what became of each question."""


def ask(questions: Sequence[Question[Answer]], most_passes: int = MOST_PASSES) -> Asking[Answer]:
    """Ask questions until each is answered in full, at most `most_passes` times.

    What is good of an answer is kept, whatever becomes of the rest. A request that the server refuses, such as one that
    is too long for it, is not sent again.
    """
    settled: list[Settled[Answer]] = [Settled() for _ in questions]
    troubles: dict[int, Trouble | None] = dict.fromkeys(range(len(questions)))
    for attempt in range(1, most_passes + 1):
        if not troubles:
            break
        places = list(troubles)
        replies = yield [questions[at].request(attempt, settled[at].answer, troubles[at]) for at in places]
        for at, reply in zip(places, replies, strict=True):
            trouble = _take(questions[at], settled[at], reply)
            if trouble is None or trouble.fault == "refused":
                del troubles[at]
            else:
                troubles[at] = trouble
    return settled


def _take(question: Question[Answer], settled: Settled[Answer], reply: Reply) -> Trouble | None:
    """Take a reply; return what is wrong with it, None if nothing is."""
    reading: Reading[Answer] = read_reply(reply, question.answer_type)
    faults = list(reading.faults)
    settled.passes += 1
    if reading.answer is not None:
        sound, complaints = question.check(reading.answer)
        faults += complaints
        if sound is not None:
            settled.is_whole |= not reading.is_cut
            settled.answer = sound if settled.answer is None else question.merge(settled.answer, sound)
    faults = list(dict.fromkeys(faults))[:_MOST_FAULTS]
    if reading.fault is None and not faults:
        settled.outcome, settled.reason = "ok", None
        return None
    settled.outcome = "fallback" if settled.answer is None else "partial"
    settled.reason = f"{reading.fault or 'bad_item'}: {'; '.join(faults)}"
    if reply.finish_reason not in ("stop", "length", "refused"):
        settled.reason += f" (finish_reason: {reply.finish_reason[:40]})"
    settled.attempts.append(Attempt(settled.passes, settled.reason, reply.text or reply.reasoning))
    return Trouble(reading.fault, faults, reading.is_cut)


def reject_rows(stage: str, namespace: str, row_id: str, settled: Settled[Any]) -> list[dict[str, Any]]:
    """Return the passes over a row that had faults as rows of REJECT; the last is final where something is lost."""
    lost = settled.outcome != "ok"
    return [
        {
            "namespace": namespace,
            "stage": stage,
            "source_id": row_id,
            "attempt": attempt.number,
            "reason": attempt.reason,
            "raw": attempt.raw,
            "final": lost and attempt is settled.attempts[-1],
        }
        for attempt in settled.attempts
    ]


def reject_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return REJECT of some rows."""
    return conform(pa.Table.from_pylist(list(rows), REJECT.arrow), REJECT)


def request_of(
    prompt: Prompt,
    user: str,
    answer_type: type[BaseModel],
    terms: Terms,
    *,
    namespace: str,
    stage: str,
    row_id: str,
    attempt: int,
    trouble: Trouble | None,
    expected_tokens: int,
) -> Request:
    """Return a request that tells, from the second pass on, what was wrong before.

    An answer that was cut off may be twice as long the next time, and is no longer thought about beforehand.
    """
    was_cut = trouble is not None and (trouble.is_cut or trouble.fault in ("truncated_in_thinking", "blanks"))
    if trouble is not None:
        wrong = "\n".join(f"- {fault}" for fault in trouble.faults)
        user = f"{user}\n\nAn earlier answer could not be used as it was:\n{wrong}\nAnswer with the JSON object alone."
    return Request(
        namespace=namespace,
        stage=stage,
        row_id=row_id,
        attempt=attempt,
        system=prompt.system,
        user=user,
        answer=answer_type.__name__,
        schema=schema_of(answer_type),
        max_tokens=terms.max_tokens * (2 if was_cut else 1),
        thinking="off" if was_cut and terms.thinking == "on" else terms.thinking,
        expected_tokens=expected_tokens,
    )


@cache
def schema_of(answer_type: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of an answer for guided decoding: closed objects, every property required.

    Grammars know no lengths of strings, and servers that are strict take no optional properties.
    """
    schema = deepcopy(answer_type.model_json_schema())
    for part in [schema, *schema.get("$defs", {}).values()]:
        if part.get("type") == "object":
            part |= {"additionalProperties": False, "required": list(part["properties"])}
        for value in part.get("properties", {}).values():
            value.pop("default", None)
            value.pop("title", None)
        part.pop("description", None)
    return schema
