"""What past runs teach, found without a language model: skills of success, mistakes of failure, and lessons.

A run that succeeded teaches up to three patterns of its actions (`hgmem_core.run_patterns`) that are not more common in
runs that failed; a run that failed up to three that are. A pattern is written the same way whichever run it comes from:
a name made of its templates, and a text that says when it was of use, what was done, and how such runs ended. The
lesson of a run that failed is the step at which it left the way of runs that succeeded; that of one that succeeded is
the way it took. All templates are written as `hgmem_core.action_templates.template_words` writes them.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.action_templates import template_words
from hgmem_core.ids import content_id
from hgmem_core.run_patterns import (
    AGAIN,
    REFUSED,
    Pattern,
    PatternCounts,
    RunActions,
    templates_of,
)
from hgmem_core.schemas import INCIDENCE, LESSON, STRING, SUBTASK, conform
from hgmem_core.skill_texts import sentence_of
from hgmem_core.subtasks import subtasks
from hgmem_core.tokens import fold, tokenizer

SKILLS_REVISION = 1
"""Raised when equal trajectories teach other skills or lessons."""

MOST_SKILLS = 3
"""Of one run."""
_MOST_STEPS_SHOWN = 8
"""Of a lesson."""
_SUPPORT = 2
"""Runs that must have a pattern, unless no pattern of the run has so many."""
_MISTAKE_FROM = 1.2
"""How much more common among failures a mistake has to be."""
_WORDS = 4
"""That say what tasks a pattern is for."""
_TASKS_A_WORD = 2
"""A word of fewer different tasks is a name or a number of one of them."""
_MOST_TASK_CHARS = 2_000
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_PLACE = re.compile(r"\([^()]*\)|<[a-z]+>|…")

Polarity = Literal["positive", "negative"]


@dataclass(frozen=True, slots=True)
class Learned:
    """What runs teach.

    Attributes:
        mentions: Columns of `TAUGHT`, a row for each skill that a run teaches; within a namespace in the time order of
            the runs, as `hgmem_core.skill_dedup.dedup_skills` takes them.
        lessons: LESSON.
    """

    mentions: pa.Table
    lessons: pa.Table


TAUGHT = pa.schema([(name, STRING) for name in ("namespace", "trajectory_id", "polarity", "name", "text")])
"""A skill as one run teaches it; MENTION gives it an id and a place."""


def in_time_order(trajectories: pa.Table) -> pa.Table:
    """Return TRAJECTORY rows by namespace and time, those without a time last; equal ones by their place in the log."""
    keys = ["namespace", "said_at", "sequence", "trajectory_id"]
    return trajectories.take(pc.sort_indices(trajectories, sort_keys=[(key, "ascending") for key in keys]))


def learn_skills(trajectories: pa.Table, language: str) -> Learned:
    """Return what runs teach, each namespace by itself.

    Args:
        trajectories: TRAJECTORY.
        language: Of the tasks' stop words and stems; see `hgmem_core.tokens.tokenizer`.
    """
    mentions: list[dict[str, str]] = []
    lessons: list[dict[str, str]] = []
    ordered = in_time_order(trajectories)
    for namespace, runs in _by_namespace(ordered):
        teacher = _Teacher(runs, language)
        for run, did in zip(runs, teacher.did, strict=True):
            about = {"namespace": namespace, "trajectory_id": run["trajectory_id"]}
            for polarity, pattern in teacher.patterns(run["outcome"], did):
                name, text = teacher.written(pattern, polarity)
                mentions.append({**about, "polarity": polarity, "name": name, "text": text})
            lesson = teacher.lesson(run["outcome"], did)
            if lesson:
                lessons.append({**about, "text": lesson})
    table = pa.Table.from_pylist(lessons, schema=LESSON.arrow)
    return Learned(pa.Table.from_pylist(mentions, schema=TAUGHT), conform(table, LESSON))


def plan_tasks(trajectories: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the subtasks of each run's task, from the task's text alone, and their memberships: SUBTASK, INCIDENCE."""
    rows: list[dict[str, Any]] = []
    for run in trajectories.select(["namespace", "trajectory_id", "task"]).to_pylist():
        for position, text in enumerate(subtasks(run["task"])):
            own = content_id("subtask", run["namespace"], run["trajectory_id"], position)
            rows.append(
                {
                    "namespace": run["namespace"],
                    "subtask_id": own,
                    "trajectory_id": run["trajectory_id"],
                    "position": position,
                    "text": text,
                }
            )
    return (conform(pa.Table.from_pylist(rows, schema=SUBTASK.arrow), SUBTASK), _memberships(rows))


def _memberships(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    incidences = [
        {
            "namespace": row["namespace"],
            "kind": "trajectory",
            "hyperedge_id": row["trajectory_id"],
            "node_id": row["subtask_id"],
            "node_kind": "subtask",
            "role": "subtask",
            "weight": 1.0,
        }
        for row in rows
    ]
    return conform(pa.Table.from_pylist(incidences, schema=INCIDENCE.arrow), INCIDENCE)


def _by_namespace(ordered: pa.Table) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    namespaces = ordered.column("namespace")
    columns = ordered.select(["trajectory_id", "task_id", "task", "steps", "outcome"])
    bounds = [0, *(at for at in range(1, len(namespaces)) if namespaces[at] != namespaces[at - 1]), len(namespaces)]
    for start, stop in pairwise(bounds):
        if stop > start:
            yield namespaces[start].as_py(), columns.slice(start, stop - start).to_pylist()


class _Teacher:
    """What the runs of one namespace, seen together, say of each pattern."""

    def __init__(self, runs: Sequence[Mapping[str, Any]], language: str) -> None:
        self.did = [RunActions.of(run["steps"]) for run in runs]
        self._counts = PatternCounts()
        self._ways = _Way()
        for run, did in zip(runs, self.did, strict=True):
            self._counts.add(did, run["outcome"])
            if run["outcome"] == "success":
                self._ways.add(did.sequence)
        self._words = _TaskWords(runs, self.did, language)

    def patterns(self, outcome: str, did: RunActions) -> list[tuple[Polarity, Pattern]]:
        """Return what a run teaches, most telling first; nothing where nobody knows how it ended."""
        if outcome == "success":
            return [("positive", pattern) for pattern in self._chosen(did, self._worth)]
        if outcome == "failure":
            return [("negative", pattern) for pattern in self._chosen(did, self._harm)]
        return []

    def _worth(self, pattern: Pattern) -> tuple[int, float]:
        """Return in how many runs that succeeded a pattern is, and how telling it is; 0 for what is no skill."""
        lift = self._counts.lift(pattern)
        is_skill = pattern[0] not in (AGAIN, REFUSED) and (lift >= 1 or not self._counts.among_failed(pattern))
        return self._counts.among_succeeded(pattern), min(lift, 4.0) if is_skill else 0.0

    def _harm(self, pattern: Pattern) -> tuple[int, float]:
        """Return in how many runs that failed a pattern is, and how telling it is; 0 for what is no mistake."""
        harm = 1 / self._counts.lift(pattern)
        return self._counts.among_failed(pattern), min(harm, 4.0) if harm >= _MISTAKE_FROM else 0.0

    def _chosen(self, did: RunActions, judge: Callable[[Pattern], tuple[int, float]]) -> list[Pattern]:
        """Return up to three patterns that together say most of what tells the run from others."""
        judged = {pattern: judge(pattern) for pattern in did.patterns}
        support = min(_SUPPORT, max((runs for runs, worth in judged.values() if worth), default=0))
        left = sorted(pattern for pattern, (runs, worth) in judged.items() if worth and runs >= support)
        chosen: list[Pattern] = []
        said: set[str] = set()
        while left and len(chosen) < MOST_SKILLS:
            values = [(judged[pattern][1] * self._news(pattern, said), len(pattern)) for pattern in left]
            best = left[values.index(max(values))]
            chosen.append(best)
            said |= {*templates_of(best)}
            left = [pattern for pattern in left if {*templates_of(pattern)} - said]
        return chosen

    def _news(self, pattern: Pattern, said: Set[str]) -> float:
        """Return how much a pattern tells its runs from others by the templates that were not said yet."""
        return sum(self._counts.rarity(template) for template in {*templates_of(pattern)} - said)

    def written(self, pattern: Pattern, polarity: Polarity) -> tuple[str, str]:
        """Return the name and the text of a pattern."""
        templates, words = templates_of(pattern), self._words.of(pattern)
        name = _name(templates)
        if polarity == "positive":
            return name, sentence_of(words, templates, "", avoid=False, compared=bool(self._counts.failed))
        how = {AGAIN: "the very same again and again", REFUSED: "which is answered with an error"}.get(pattern[0], "")
        named = {AGAIN: f"{name} again and again", REFUSED: f"{name} with an error"}.get(pattern[0], name)
        return named, sentence_of(words, templates, how, avoid=True, compared=True)

    def lesson(self, outcome: str, did: RunActions) -> str:
        """Return what the way of a run teaches; empty where it did nothing that has a template."""
        if not did.sequence:
            return ""
        if outcome == "success":
            return f"What worked: {_steps(_shortened(did.sequence))}."
        if outcome != "failure":
            return ""
        place, others = self._ways.leaves(did.sequence)
        here = template_words(did.sequence[place]) if place < len(did.sequence) else ""
        before = f"after {template_words(did.sequence[place - 1])}" if place else "at the beginning"
        if others and here:
            return f"It failed: {before} it went on with {here}; runs that succeeded went on with {_either(others)}."
        if others:
            return f"It failed: {before} it stopped; runs that succeeded went on with {_either(others)}."
        return f"It failed with {_steps(_shortened(did.sequence))}."


@dataclass(slots=True)
class _Way:
    """The ways of runs that succeeded, as a tree of their templates: how many took each turn."""

    taken: int = 0
    next: dict[str, "_Way"] = field(default_factory=dict)

    def add(self, sequence: Pattern) -> None:
        way = self
        for template in sequence:
            way = way.next.setdefault(template, _Way())
            way.taken += 1

    def leaves(self, sequence: Pattern) -> tuple[int, list[str]]:
        """Return the place at which a run leaves all ways, and what these have there, the most common first."""
        way, place = self, 0
        for template in sequence:
            if template not in way.next:
                break
            way, place = way.next[template], place + 1
        others = sorted(way.next, key=lambda template: (-way.next[template].taken, template))
        return place, others[:2]


class _TaskWords:
    """The words of tasks that tell for which of them a pattern is."""

    def __init__(self, runs: Sequence[Mapping[str, Any]], did: Sequence[RunActions], language: str) -> None:
        tokenize = tokenizer(language)
        self._tasks = Counter[str]()
        self._by_pattern: dict[Pattern, Counter[str]] = {}
        self._of_pattern: Counter[Pattern] = Counter()
        self._shown: dict[str, str] = {}
        different: dict[str, set[str]] = {}
        own_words = []
        for run in runs:
            shown: dict[str, str] = {}
            for word in _WORD.findall(run["task"][:_MOST_TASK_CHARS]):
                for term in tokenize(word)[:1]:
                    shown.setdefault(term, fold(word))
            for term, word in shown.items():
                different.setdefault(term, set()).add(run["task_id"])
                if self._shown.setdefault(term, word) > word:
                    self._shown[term] = word
            own_words.append(frozenset(shown))
            self._tasks.update(shown.keys())
        self._common = {term for term, tasks in different.items() if len(tasks) >= _TASKS_A_WORD}
        self._count = len(runs)
        for words, one in zip(own_words, did, strict=True):
            for pattern in one.patterns:
                self._of_pattern[pattern] += 1
                self._by_pattern.setdefault(pattern, Counter()).update(words & self._common)

    def of(self, pattern: Pattern) -> list[str]:
        """Return the words that are more common in the tasks of runs with a pattern than in all, most telling first."""
        runs = self._of_pattern[pattern]
        found = []
        for term, have in self._by_pattern.get(pattern, Counter()).items():
            lift = (have / runs) / (self._tasks[term] / self._count)
            if have >= min(2, runs) and lift > 1:
                found.append((-have * math.log(lift), self._shown[term]))
        return [word for _, word in sorted(found)[:_WORDS]]


def _steps(templates: Sequence[str]) -> str:
    return ", then ".join(template if template == "…" else template_words(template) for template in templates)


def _either(templates: Sequence[str]) -> str:
    return " or ".join(template_words(template) for template in templates)


def _shortened(sequence: Pattern) -> Pattern:
    """Return the templates of a way, each at its first place; of a long one the first and the last few."""
    distinct = tuple(dict.fromkeys(sequence))
    if len(distinct) <= _MOST_STEPS_SHOWN:
        return distinct
    half = _MOST_STEPS_SHOWN // 2
    return (*distinct[:half], "…", *distinct[-half:])


def _name(templates: Sequence[str]) -> str:
    """Return a few words of templates: those that are no places for things.

    >>> _name(["take <object> from <object>", "heat <object> with <object>"])
    'take from, heat with'
    >>> _name(["get_order(order_id)", "SELECT COUNT(…) FROM <table> WHERE …"])
    'get order, SELECT COUNT FROM'
    """
    parts = []
    for template in templates:
        said = [word for word in _PLACE.sub(" ", template).replace("_", " ").split() if any(map(str.isalnum, word))]
        parts.append(" ".join(said[:3]).strip("(),;") or "act")
    return ", ".join(dict.fromkeys(parts))
