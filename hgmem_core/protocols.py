"""How answers to a benchmark's questions are made and marked, by the names of those who published the way."""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from hgmem_core.answer import Answer
from hgmem_core.config import AnswerStyle
from hgmem_core.judging import Marking, Scale
from hgmem_core.section import ConfigError
from hgmem_core.tasks.task import Gold
from hgmem_core.token_f1 import best_f1, exact_match, locomo_list_f1, locomo_words

_NOT_FOUND = re.compile(
    r"\b(?:not|no|never|cannot|can't|isn't|wasn't|nothing|none)\b.{0,40}\b(?:found|mention|know|inform|specif|state|avail"
    r"|answer|record|said|clear)|\b(?:unknown|unanswerable|n/a)\b",
    re.IGNORECASE,
)
"""What an answer says that finds none."""

_LOCOMO_NOT_FOUND = ("no information available", "not mentioned")

Marks = Callable[[Gold, str], Mapping[str, float]]
"""Gives the metrics of an answer's text without a judge, in percent."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way to make and to mark answers.

    Attributes:
        name: What a result calls it.
        tasks: For which benchmarks it is.
        groups: Which kinds of question are asked; empty for all.
        style: How answers are worded.
        context_tokens: Of the statements that an answer may stand on.
        scale: On which a judge marks; None where words are counted.
        judgements: How often a judge marks each answer; the majority decides, on the graded scale the mean.
        marks: Counts words; None where a judge marks.
        says_not_found: Tells an answer that finds none, which is right where there is none; so is an abstention.
        rules: What a judge is told of some kinds of question.
    """

    name: str
    tasks: Set[str]
    groups: Set[str]
    style: AnswerStyle
    context_tokens: int
    scale: Scale | None
    judgements: int
    marks: Marks | None
    says_not_found: Callable[[str], bool]
    rules: Mapping[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of what it measures, the main one first."""
        if self.scale is not None:
            return ("judge",)
        return ("f1",) if self.marks is _locomo_f1 else ("f1", "em")

    def asks(self, gold: Gold) -> bool:
        """Say whether a question is one of the protocol's."""
        return not self.groups or gold.group in self.groups

    def needs_judge(self, gold: Gold, answer: Answer, unanswerable: Set[str]) -> bool:
        """Say whether a judge is to mark an answer: not where there is no right one, or none was given."""
        return self.scale is not None and answer.outcome == "answered" and gold.group not in unanswerable

    def markings(self, gold: Gold, answer: Answer) -> list[Marking]:
        """Return what a judge is asked of an answer."""
        if self.scale is None:
            return []
        rule = self.rules.get(gold.group, "")
        one = Marking(gold.namespace, gold.query_id, gold.text, gold.answers, answer.text, self.scale, rule)
        return [one] * self.judgements

    def score(
        self, gold: Gold, answer: Answer, judgements: Sequence[float | None], unanswerable: Set[str]
    ) -> dict[str, float]:
        """Return the metrics of an answer, in percent; one that failed, or that nobody could mark, is wrong.

        Args:
            gold: The question.
            answer: To it.
            judgements: What a judge gave, where one was asked; None for each that it could not give.
            unanswerable: The kinds of question to which there is no answer.
        """
        if gold.group in unanswerable:
            is_silent = answer.outcome == "abstained"
            is_right = is_silent or (answer.outcome == "answered" and self.says_not_found(answer.text))
            return dict.fromkeys(self.metrics, 100.0 * is_right)
        if answer.outcome != "answered":
            return dict.fromkeys(self.metrics, 0.0)
        if self.marks is not None:
            return dict(self.marks(gold, answer.text))
        given = [mark or 0.0 for mark in judgements]
        if self.scale == "binary":
            return {"judge": 100.0 * (2 * sum(given) > len(given))}
        return {"judge": 100.0 * sum(given) / len(given)}


def _locomo_f1(gold: Gold, text: str) -> Mapping[str, float]:
    right = gold.answers[0]
    if gold.group == "1":
        return {"f1": locomo_list_f1(text, right)}
    # An open-domain answer gives its reasons behind a semicolon.
    return {"f1": best_f1(text, [right.partition(";")[0] if gold.group == "3" else right], locomo_words)}


def _words(gold: Gold, text: str) -> Mapping[str, float]:
    return {"f1": best_f1(text, gold.answers), "em": exact_match(text, gold.answers)}


def _says_not_found(text: str) -> bool:
    return _NOT_FOUND.search(text) is not None


def _says_locomos_not_found(text: str) -> bool:
    return any(phrase in text.lower() for phrase in _LOCOMO_NOT_FOUND)


_PROTOCOLS = (
    Protocol(
        name="hypermem", tasks={"locomo"}, groups=frozenset("1234"), style="steps", context_tokens=7_500,
        scale="binary", judgements=3, marks=None, says_not_found=_says_not_found,
    ),
    Protocol(
        name="hage", tasks={"locomo", "hotpotqa"}, groups=set(), style="short", context_tokens=3_800,
        scale="graded", judgements=1, marks=None, says_not_found=_says_not_found,
    ),
    Protocol(
        name="locomo-f1", tasks={"locomo"}, groups=set(), style="short", context_tokens=4_000,
        scale=None, judgements=0, marks=_locomo_f1, says_not_found=_says_locomos_not_found,
    ),
    Protocol(
        name="longmemeval", tasks={"longmemeval"}, groups=set(), style="steps", context_tokens=7_500,
        scale="binary", judgements=1, marks=None, says_not_found=_says_not_found,
        rules={
            "temporal-reasoning": "Rule: a number of days, weeks or months may be off by one.",
            "knowledge-update": "Rule: an outdated answer may stand beside the latest one.",
            "single-session-preference": "Rule: the right answer describes what a good one respects; one that uses "
            "what the person told of herself in this way is correct, even if not all of it.",
        },
    ),
    Protocol(
        name="answer-f1", tasks={"hotpotqa", "2wiki", "musique", "questions"}, groups=set(), style="short",
        context_tokens=4_000, scale=None, judgements=0, marks=_words, says_not_found=_says_not_found,
    ),
)  # fmt: skip

PROTOCOLS: Mapping[str, Protocol] = MappingProxyType({one.name: one for one in _PROTOCOLS})
"""By name."""


def find_protocol(name: str, task: str) -> Protocol:
    """Return the protocol of that name.

    Raises:
        ConfigError: There is none, or it is for other tasks.
    """
    fitting = [one.name for one in PROTOCOLS.values() if task in one.tasks]
    if name not in fitting:
        raise ConfigError(f"{name!r} is no protocol for {task}; there are {', '.join(fitting) or 'none'}")
    return PROTOCOLS[name]
