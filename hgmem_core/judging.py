"""A language model that marks answers, by the right ones."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel

from hgmem_core.chat import Reply, Request
from hgmem_core.passes import Settled, Terms, Trouble, ask, request_of
from hgmem_core.prompts import Prompt, load_prompt, quoted
from hgmem_core.summarise import shorten

Scale = Literal["binary", "graded"]

PROMPTS: MappingProxyType[Scale, Prompt] = MappingProxyType(
    {"binary": load_prompt("judge_binary"), "graded": load_prompt("judge_graded")}
)

_CHARS = 8_000
"""Of a question, a right answer and an answer, each."""
_ANSWER_TOKENS = 60


class Verdict(BaseModel):
    """A mark on the binary scale."""

    reason: str = ""
    label: Literal["correct", "wrong"]

    @property
    def mark(self) -> float:
        """From 0 to 1."""
        return float(self.label == "correct")


class Grade(BaseModel):
    """A mark on the graded scale."""

    reason: str = ""
    score: float

    @property
    def mark(self) -> float:
        """From 0 to 1."""
        return self.score


@dataclass(frozen=True, slots=True)
class Marking:
    """An answer to be marked.

    Attributes:
        namespace: Whose memory it is about.
        question_id: Of the question, for whoever keeps requests.
        question: As it was asked.
        right: The right answers.
        answer: What was answered.
        scale: Of the marks.
        rule: A sentence that holds for this kind of question alone; empty for none. The binary scale knows some.
    """

    namespace: str
    question_id: str
    question: str
    right: tuple[str, ...]
    answer: str
    scale: Scale
    rule: str = ""


def mark_llm(markings: Sequence[Marking], terms: Terms) -> Generator[list[Request], list[Reply], list[float | None]]:
    """Mark answers with a language model; each mark is from 0 to 1, and None where the model gave none.

    Args:
        markings: The answers; the same one several times for several opinions.
        terms: Of requests.
    """
    settled: list[Settled[Verdict | Grade]] = yield from ask([_Judgement(one, terms) for one in markings])
    return [None if one.answer is None else one.answer.mark for one in settled]


@dataclass(frozen=True, slots=True)
class _Judgement:
    """The question to the judge; see `passes.Question`."""

    marking: Marking
    terms: Terms

    @property
    def answer_type(self) -> type[Verdict | Grade]:
        """By the scale."""
        return Verdict if self.marking.scale == "binary" else Grade

    def request(self, attempt: int, found: Verdict | Grade | None, trouble: Trouble | None) -> Request:
        """Ask for a mark."""
        one = self.marking
        prompt = PROMPTS[one.scale]
        fields = {"question": one.question, "right": "; or: ".join(one.right), "answer": one.answer}
        shown = {name: quoted(shorten(text, _CHARS)) for name, text in fields.items()}
        return request_of(
            prompt,
            prompt.fill(rule=one.rule, **shown),
            self.answer_type,
            self.terms,
            namespace=one.namespace,
            stage="judge",
            row_id=one.question_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=_ANSWER_TOKENS,
        )

    def check(self, answer: Verdict | Grade) -> tuple[Verdict | Grade | None, list[str]]:
        """Keep marks from 0 to 1."""
        return (answer, []) if 0.0 <= answer.mark <= 1.0 else (None, ["score is not between 0 and 1"])

    def merge(self, found: Verdict | Grade, more: Verdict | Grade) -> Verdict | Grade:
        """Take the later one."""
        return more
