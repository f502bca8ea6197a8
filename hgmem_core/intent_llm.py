"""What a question asks for, told by a language model: its intent, the questions in it, the time it speaks of.

The rules of `hgmem_core.query_analysis` say the same and more; what a model told goes over it (`merged_analysis`).
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Protocol

from pydantic import BaseModel

from hgmem_core.chat import Reply, Request
from hgmem_core.fitting import first_that_fits, one_line
from hgmem_core.passes import MOST_PASSES, Settled, Terms, Trouble, ask, request_of
from hgmem_core.prompts import load_prompt, quoted
from hgmem_core.query_analysis import QueryAnalysis
from hgmem_core.summarise import shorten

PROMPT = load_prompt("intent")

MOST_SUB_QUERIES = 4
_SUB_QUERY_CHARS = 400
_QUESTION_CHARS = (4_000, 1_000, 250)
"""How much of a question is shown: the most with which it fits."""
_ANSWER_TOKENS = 120
_EVEN_SHARE = 0.2
"""Of the intent, spread over all relations: models say 0, and the rules, with which recipes are trained, never do."""


class IntentAnswer(BaseModel):
    """The answer."""

    temporal: float = 0.0
    semantic: float = 0.0
    causal: float = 0.0
    entity: float = 0.0
    sub_queries: list[str] = []
    time_from: str | None = None
    time_to: str | None = None
    needs_several: bool = False

    @property
    def weights(self) -> tuple[float, float, float, float]:
        """In the order of `relate_llm.RELATIONS`, as the model gave them."""
        return self.temporal, self.semantic, self.causal, self.entity


@dataclass(frozen=True, slots=True)
class Intent:
    """What a question asks for.

    Attributes:
        weights: How much it hangs on the four relations, in the order of `relate_llm.RELATIONS`; their sum is 1. None
            where that was not told.
        sub_queries: One to four questions that together ask for the same, each complete in itself; none where that was
            not told.
        first_day: Of the time that it speaks of; None where that is open or unknown.
        last_day: Of the same, included.
        needs_several: Whether several memories make up the answer.
        outcome: `ok`, `partial`, or `fallback` without an answer: then nothing is known.
        reason: Why it is not `ok`.
    """

    weights: tuple[float, float, float, float] | None
    sub_queries: tuple[str, ...]
    first_day: date | None
    last_day: date | None
    needs_several: bool
    outcome: str
    reason: str | None


class IntentError(RuntimeError):
    """Nothing was told of a question: says who was asked, what is wrong, and what to do."""


class Analyst(Protocol):
    """Whoever tells what questions ask for; threads may share it."""

    def intent(self, namespace: str, question: str, today: date | None) -> Intent:
        """Return what a question asks for, all of it or a part.

        Args:
            namespace: In which it is asked.
            question: As it was asked.
            today: From when relative times count; None if that is not known.

        Raises:
            IntentError: There is nothing to return.
        """
        ...


def merged_analysis(rules: QueryAnalysis, told: Intent) -> QueryAnalysis:
    """Return what rules found in a question with what a model told in its place, as far as it told anything.

    The intent is the model's, drawn a little towards all relations alike, so that each stays above 0 and the sum 1. The
    time is the model's if it names a day: from the beginning of the first to the end of the last in UTC, open where it
    names none. The sub-queries are the question and the model's. Language, names, speakers, the event before or after
    which is asked, and whether a time is asked for stay as the rules have them.

    >>> from hgmem_core.query_analysis import analyse_query
    >>> told = Intent((0.0, 0.0, 1.0, 0.0), (), None, date(2024, 2, 29), False, "ok", None)
    >>> merged = merged_analysis(analyse_query("What did Ana do?"), told)
    >>> [round(weight, 2) for weight in merged.intent], merged.time_from, merged.time_until.isoformat()
    ([0.05, 0.05, 0.85, 0.05], None, '2024-03-01T00:00:00+00:00')
    """
    merged = rules
    if told.weights is not None:
        temporal, semantic, causal, entity = (
            (1 - _EVEN_SHARE) * weight + _EVEN_SHARE / len(told.weights) for weight in told.weights
        )
        merged = replace(merged, intent=(temporal, semantic, causal, entity))
    if told.first_day is not None or told.last_day is not None:
        merged = replace(merged, time_from=_midnight(told.first_day), time_until=_midnight_after(told.last_day))
    if told.sub_queries:
        question = rules.sub_queries[0]
        merged = replace(merged, sub_queries=tuple(dict.fromkeys((question, *told.sub_queries))))
    return merged


def _midnight(day: date | None) -> datetime | None:
    return None if day is None else datetime.combine(day, time(), UTC)


def _midnight_after(day: date | None) -> datetime | None:
    """Return when a day is over; the last one that there is stands for an open end."""
    return None if day is None or day == date.max else _midnight(day + timedelta(days=1))


@dataclass(frozen=True, slots=True)
class _Question:
    """A query."""

    namespace: str
    query_id: str
    user: str
    terms: Terms

    @property
    def answer_type(self) -> type[IntentAnswer]:
        """See `passes.Question`."""
        return IntentAnswer

    def request(self, attempt: int, found: IntentAnswer | None, trouble: Trouble | None) -> Request:
        """Ask about the whole question."""
        return request_of(
            PROMPT,
            self.user,
            IntentAnswer,
            self.terms,
            namespace=self.namespace,
            stage="intent",
            row_id=self.query_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=_ANSWER_TOKENS,
        )

    def check(self, answer: IntentAnswer) -> tuple[IntentAnswer | None, list[str]]:
        """Keep weights that are ones, sub-queries that ask something, and days that exist."""
        complaints = []
        weights = answer.weights
        if not all(0.0 <= weight <= 1.0 for weight in weights) or not sum(weights):
            complaints.append("temporal, semantic, causal and entity are between 0 and 1, and not all 0")
            weights = (0.0,) * 4
        queries = (one_line(text, _SUB_QUERY_CHARS) for text in answer.sub_queries)
        asking = [query for query in dict.fromkeys(queries) if query][:MOST_SUB_QUERIES]
        if not asking:
            complaints.append("sub_queries is empty")
        days: list[date | None] = []
        for name, text in (("time_from", answer.time_from), ("time_to", answer.time_to)):
            day = _day(text)
            if text and day is None:
                complaints.append(f"{name} is no day such as 2024-05-31")
            days.append(day)
        if days[0] and days[1] and days[0] > days[1]:
            complaints.append("time_from is after time_to")
            days = [None, None]
        if not asking and not sum(weights):
            return None, complaints
        names = ("temporal", "semantic", "causal", "entity")
        first, last = (day.isoformat() if day else None for day in days)
        return IntentAnswer(
            **dict(zip(names, weights, strict=True)),
            sub_queries=asking,
            time_from=first,
            time_to=last,
            needs_several=answer.needs_several,
        ), complaints

    def merge(self, found: IntentAnswer, more: IntentAnswer) -> IntentAnswer:
        """Take the later answer, and what it lacks from the earlier one."""
        weighed = more if sum(more.weights) else found
        timed = more if more.time_from or more.time_to else found
        return weighed.model_copy(
            update={
                "sub_queries": more.sub_queries or found.sub_queries,
                "time_from": timed.time_from,
                "time_to": timed.time_to,
                "needs_several": more.needs_several,
            }
        )


def intent_llm(
    namespace: str, query_id: str, query: str, today: date | None, terms: Terms, most_passes: int = MOST_PASSES
) -> Generator[list[Request], list[Reply], Intent]:
    """Say what a query asks for; one small request.

    Args:
        namespace: In which it is asked.
        query_id: Of the query.
        query: What is asked.
        today: The day from which relative times count; None if it is not known.
        terms: Of requests.
        most_passes: How often it is asked, if it is not answered in full before.
    """
    shown = today.isoformat() if today else "unknown"
    users = [PROMPT.fill(today=shown, question=quoted(shorten(query, chars))) for chars in _QUESTION_CHARS]
    question = _Question(namespace, query_id, first_that_fits(PROMPT, users, terms), terms)
    [settled] = yield from ask([question], most_passes)
    return _intent(settled)


def _intent(settled: Settled[IntentAnswer]) -> Intent:
    answer = settled.answer or IntentAnswer()
    total = sum(answer.weights)
    temporal, semantic, causal, entity = (weight / (total or 1.0) for weight in answer.weights)
    return Intent(
        weights=(temporal, semantic, causal, entity) if total else None,
        sub_queries=tuple(answer.sub_queries),
        first_day=_day(answer.time_from),
        last_day=_day(answer.time_to),
        needs_several=answer.needs_several,
        outcome=settled.outcome,
        reason=settled.reason,
    )


def _day(text: str | None) -> date | None:
    """Return the day that a text in ISO 8601 begins with, None if there is none."""
    try:
        return date.fromisoformat((text or "").strip()[:10])
    except ValueError:
        return None
