"""Answers from a context, each with the statements that it stands on: a language model's, or the best statements alone.

A model is given numbered statements and cites by number. A number that it was not given is refused, wherever it stands.
An answer that cites nothing else, or nothing at all, is asked for once more, told why, and then counts as failed.
"""

import re
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Annotated, Literal, TypeGuard

from pydantic import BaseModel, BeforeValidator, ConfigDict, PrivateAttr

from hgmem_core.abstention import Abstention
from hgmem_core.chat import Reply, Request
from hgmem_core.context import UNDATED, Context, Statement
from hgmem_core.fitting import one_line
from hgmem_core.passes import Settled, Terms, Trouble, ask, request_of
from hgmem_core.prompts import Prompt, load_prompt, quoted
from hgmem_core.run_config import AnswerStyle
from hgmem_core.summarise import shorten

PROMPTS: MappingProxyType[AnswerStyle, Prompt] = MappingProxyType(
    {"full": load_prompt("answer"), "short": load_prompt("answer_short"), "steps": load_prompt("answer_steps")}
)

MOST_PASSES = 2

_QUESTION_CHARS = 8_192
_ANSWER_CHARS = 8_000
_MISSING_CHARS = 400
_REASON_CHARS = 400
_MOST_NUMBERS = 5
"""Of a request's numbers that a message repeats."""
_ANSWER_TOKENS = MappingProxyType({"full": 80, "short": 30, "steps": 240})
_MOST_EXTRACTED = 3
"""Statements of an extractive answer."""

_MOST_DIGITS = 15
"""Of a number that is repeated; one that is longer is as wrong without its end."""
_MOST_REFUSED = 100
"""Numbers that are named as refused."""
_NUMBER = re.compile(r"\[?\s*(\d{1,15})\s*\]?")
_CITED = re.compile(r"\s*[\[【](\d+(?:\s*[,;]\s*\d+)*)[\]】]")
_CITED_IN_PART = re.compile(r"\s*(?:[\[【][\d,;\s]*)?$")

Outcome = Literal["answered", "abstained", "failed"]
ReasonCode = Literal["no_evidence", "unanswerable", "model_failed"]


def is_number(value: object) -> TypeGuard[int]:
    """Say whether a value of a reply can be the number of a statement, given or not."""
    return type(value) is int and abs(value) < 10**_MOST_DIGITS


def _numbers(value: object) -> object:
    """Read numbers of statements as models write them; what is none is left out."""
    found = []
    for one in value if isinstance(value, list) else [value]:
        if is_number(one):
            found.append(one)
        elif isinstance(one, str) and (number := _NUMBER.fullmatch(one.strip())):
            found.append(int(number[1]))
    return found


def _text(value: object) -> object:
    return "" if value is None else value


_Text = Annotated[str, BeforeValidator(_text)]


class CitedReply(BaseModel):
    """What the model writes: what it cites stands first, so that a text that is shown as it comes is cited already."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    citations: Annotated[list[int], BeforeValidator(_numbers)]
    answer: _Text
    missing: _Text = ""
    _refused: tuple[int, ...] = PrivateAttr(())


class _Reasoning(BaseModel):
    reasoning: _Text


class ReasonedReply(CitedReply, _Reasoning):
    """The same after a chain of thought."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why there is no answer: a word for machines, and a sentence."""

    code: ReasonCode
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a question.

    Attributes:
        outcome: `answered`; `abstained` where the memory or the model says that there is no answer; `failed` where the
            model gave none that could be used.
        engine: `llm`, or `extractive` for statements word for word.
        text: On one line; empty unless answered.
        citations: Numbers of statements of the context, best evidence first; at least one if answered, else none.
        refused: Numbers that the model cited and that it was not given.
        reason: Why it is not answered; None if it is.
        reasoning: The model's chain of thought, where the style asks for one.
        passes: How often the model was asked.
    """

    outcome: Outcome
    engine: Literal["llm", "extractive"]
    text: str = ""
    citations: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    reason: Reason | None = None
    reasoning: str | None = None
    passes: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and what may answer it.

    Attributes:
        question: As it was asked.
        context: The statements.
        style: How the answer is to be worded.
        today: From when relative times count; None if that is not known.
        namespace: Whose memory it is asked of.
        question_id: Of the question, for whoever keeps requests.
    """

    question: str
    context: Context
    style: AnswerStyle = "full"
    today: date | None = None
    namespace: str = ""
    question_id: str = ""


def without_evidence(
    context: Context, abstention: Abstention | None, engine: Literal["llm", "extractive"]
) -> Answer | None:
    """Return the abstention of a memory that does not hold the answer; None if it may, and a model is to be asked."""
    if abstention is not None and abstention.abstains:
        doubt = abstention.reason
        return Answer("abstained", engine, reason=Reason("no_evidence", doubt.text if doubt else "the match is weak"))
    if not context.statements:
        why = "no statement fits the budget" if context.left_out else "nothing was found"
        return Answer("abstained", engine, reason=Reason("no_evidence", why))
    return None


def extractive_answer(context: Context, style: AnswerStyle, abstention: Abstention | None) -> Answer:
    """Return the best statements word for word, the best one first: one of them for a short answer, else three."""
    if (silence := without_evidence(context, abstention, "extractive")) is not None:
        return silence
    best = context.best_first[: 1 if style == "short" else _MOST_EXTRACTED]
    text = " ".join(_attributed(context.statements[number - 1]) for number in best)
    return Answer("answered", "extractive", text, best)


def _attributed(statement: Statement) -> str:
    """Return what a statement says, after who said it: a claim is not repeated as if it were known."""
    who, text = statement.speaker, statement.text
    return text if text.startswith(who) else f"{who}: {text}"


def answer_request(
    question: str,
    context: Context,
    style: AnswerStyle,
    terms: Terms,
    *,
    today: date | None = None,
    namespace: str = "",
    question_id: str = "",
    attempt: int = 1,
    trouble: Trouble | None = None,
) -> Request:
    """Return the request for an answer; the worst statements are left out until it fits."""
    asked = _Question(Asked(question, context, style, today, namespace, question_id), terms)
    return asked.request(attempt, None, trouble)


def answer_llm(asked: Sequence[Asked], terms: Terms) -> Generator[list[Request], list[Reply], list[Answer]]:
    """Answer questions with a language model; of each that has a statement, at most two requests.

    Args:
        asked: The questions; see `without_evidence` for those that need no model.
        terms: Of requests.
    """
    questions = [_Question(one, terms) for one in asked]
    places = [place for place, question in enumerate(questions) if question.shown]
    settled = yield from ask([questions[place] for place in places], MOST_PASSES)
    found = dict(zip(places, settled, strict=True))
    no_room = Reason("model_failed", "no statement fits the model's context: raise llm.context_tokens")
    return [
        _answer(found[place]) if place in found else Answer("failed", "llm", reason=no_room)
        for place in range(len(asked))
    ]


class _Question:
    """A question to the model; see `passes.Question`."""

    def __init__(self, asked: Asked, terms: Terms) -> None:
        """Take as many of the best statements as fit."""
        self._asked = asked
        self._terms = terms
        self._prompt = PROMPTS[asked.style]
        count = len(asked.context.statements)
        while count and not terms.fits(self._prompt, self._user(count)):
            count //= 2
        self._shown_user = self._user(count)
        self.shown = self._best(count)

    def _best(self, count: int) -> frozenset[int]:
        return frozenset(self._asked.context.best_first[:count])

    def _user(self, count: int) -> str:
        asked = self._asked
        return self._prompt.fill(
            today=asked.today.isoformat() if asked.today else "unknown",
            statements=shown_statements(asked.context, self._best(count)),
            question=quoted(shorten(asked.question, _QUESTION_CHARS)),
        )

    @property
    def answer_type(self) -> type[CitedReply]:
        """A chain of thought stands before the rest, where there is one."""
        return ReasonedReply if self._asked.style == "steps" else CitedReply

    def request(self, attempt: int, found: CitedReply | None, trouble: Trouble | None) -> Request:
        """Ask the whole question."""
        return request_of(
            self._prompt,
            self._shown_user,
            self.answer_type,
            self._terms,
            namespace=self._asked.namespace,
            stage="answer",
            row_id=self._asked.question_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=_ANSWER_TOKENS[self._asked.style],
        )

    def check(self, answer: CitedReply) -> tuple[CitedReply | None, list[str]]:
        """Hold what is cited against what was shown."""
        text, cited = _without_citations(answer.answer)
        cited = list(dict.fromkeys([*answer.citations, *cited]))
        given = [number for number in cited if number in self.shown]
        refused = tuple(number for number in cited if number not in self.shown)[:_MOST_REFUSED]
        missing = one_line(answer.missing, _MISSING_CHARS)
        if not text or (missing and not given):
            checked = answer.model_copy(update={"answer": "", "citations": [], "missing": missing})
        elif given:
            checked = answer.model_copy(update={"answer": text, "citations": given})
        else:
            lines = f"statements are numbered {min(self.shown)} to {max(self.shown)}"
            named = f"{list(refused[:_MOST_NUMBERS])}, none of which is shown" if refused else "no statement"
            return None, [f"citations names {named}; {lines}: cite what the answer stands on, or say what is missing"]
        checked._refused = refused
        return checked, []

    def merge(self, found: CitedReply, more: CitedReply) -> CitedReply:
        """Take the later answer: the earlier one was cut off."""
        return more


def shown_statements(context: Context, numbers: Collection[int]) -> str:
    """Write some statements as a model sees them: under their days, numbered, speaker and text as quoted data."""
    lines = []
    day = None
    for number, statement in enumerate(context.statements, 1):
        if number not in numbers:
            continue
        if statement.date != day:
            day = statement.date
            lines.append(f"{day or UNDATED}:")
        text, who = statement.text, statement.speaker
        said = text.removeprefix(f"{who}: ") if who else text
        lines.append(f"[{number}] {quoted(who) + ': ' if who else ''}{quoted(said)}")
    return "\n".join(lines)


def _without_citations(text: str) -> tuple[str, list[int]]:
    """Return an answer's text on one line without numbers in brackets, and those."""
    line = one_line(text, _ANSWER_CHARS)
    numbers = [int(number[:_MOST_DIGITS]) for found in _CITED.findall(line) for number in re.findall(r"\d+", found)]
    return _CITED.sub("", line).strip(), numbers


def text_so_far(text: str) -> str:
    """Return what of the beginning of an answer's text can be shown: it is the beginning of the checked text.

    Of a very long text only its first half is shown, because where that is cut is not known before its end.

    >>> text_so_far("Ana moved to Lisbon [2"), text_so_far("Ana moved to Lisbon [2] in Ma")
    ('Ana moved to Lisbon', 'Ana moved to Lisbon in Ma')
    """
    line = one_line(text[:_ANSWER_CHARS], _ANSWER_CHARS)[: _ANSWER_CHARS // 2]
    return _CITED.sub("", _CITED_IN_PART.sub("", line))


def _answer(settled: Settled[CitedReply]) -> Answer:
    found, passes = settled.answer, settled.passes
    if found is None:
        why = shorten(" ".join((settled.reason or "").split()), _REASON_CHARS)
        return Answer("failed", "llm", reason=Reason("model_failed", why), passes=passes)
    reasoning = found.reasoning.strip() if isinstance(found, ReasonedReply) else None
    if not found.answer:
        missing = found.missing or "the model says that the statements do not hold the answer"
        reason = Reason("unanswerable", missing)
        return Answer("abstained", "llm", refused=found._refused, reason=reason, reasoning=reasoning, passes=passes)
    cited = tuple(found.citations)
    return Answer("answered", "llm", found.answer, cited, found._refused, None, reasoning, passes)
