"""Topics named and corrected by a language model.

First `hgmem_core.group` makes the topics. Of each that has at least two episodes the model then gives title, summary,
keywords, and the role and weight of each episode; it may name misfits, and other topics that are the same thread.

- Misfits leave the topic; an episode that is then in none has a topic of its own.
- Two topics become one if each was named by the other, or if the one that was named has a single episode, of which the
  model was not asked; a union of more episodes than a topic may have is not made.
- The id of a topic is always made of its oldest episode. If two topics come to begin with the same one, the later of
  them loses it.

A topic for which the model gives no answer stays as it was made.
"""

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from hgmem_core.chat import Reply, Request
from hgmem_core.fitting import day, one_line
from hgmem_core.group import KEYWORDS, SUMMARY_CHARS, TITLE_CHARS, Grouping, Topic, describe, groupings
from hgmem_core.passes import Settled, Terms, Trouble, ask, reject_rows, reject_table, request_of
from hgmem_core.prompts import load_prompt, quoted
from hgmem_core.schemas import INCIDENCE, OUTCOME, TOPIC, conform
from hgmem_core.stage_config import GroupConfig
from hgmem_core.summarise import shorten

GROUP_LLM_REVISION = 1
"""Raised when equal episodes and answers give other topics."""

PROMPT = load_prompt("topic")

_MOST_EPISODES = 40
"""Episodes of a topic that are shown, the heaviest; the others keep the role and weight that they have."""
_FEWEST_EPISODES = 2
_EPISODE_CHARS = (400, 200, 100, 40)
"""How much of a summary is shown: the most with which all episodes fit."""
_KEYWORD_CHARS = 80
_LETTERS = ("A", "B", "C")
_ROWS = 256
"""Topics that are compared with all others at a time."""
_TOPIC_TOKENS, _EPISODE_TOKENS = 160, 24
"""Of an answer: for the topic and for each episode."""
_NO_ROLE, _NO_WEIGHT = "developing", 0.5

Role = Literal[
    "initiating", "developing", "climax", "concluding", "recurring", "background", "key_moment", "transition"
]  # fmt: skip


class EpisodeRole(BaseModel):
    """What an episode is to its topic."""

    episode: int
    role: Role
    weight: float


class TopicAnswer(BaseModel):
    """The answer."""

    title: str = ""
    summary: str = ""
    keywords: list[str] = []
    episodes: list[EpisodeRole]
    misfits: list[int] = []
    same_as: list[Literal["A", "B", "C"]] = []


@dataclass(frozen=True, slots=True)
class Grouped:
    """What the stage makes.

    Attributes:
        topics: TOPIC.
        incidences: INCIDENCE of kind `topic`; every episode is in at least one.
        outcomes: OUTCOME, a row for each episode: the gravest that became of the topics it was in.
        rejects: REJECT, a row for each pass that failed.
    """

    topics: pa.Table
    incidences: pa.Table
    outcomes: pa.Table
    rejects: pa.Table


@dataclass(slots=True)
class _Question:
    """A topic of at least two episodes.

    Attributes:
        topic: Its place in the grouping.
        row_id: Its id.
        shown: Its members that are shown, in time order, numbered from 1.
        others: Topics that it may be one with, by their letters, and how near each is.
        user: The user part.
        found: What was found in the passes before.
    """

    namespace: str
    topic: int
    row_id: str
    shown: Sequence[int]
    others: Mapping[str, tuple[int, float]]
    user: str
    terms: Terms
    found: TopicAnswer | None = field(default=None, init=False)

    @property
    def answer_type(self) -> type[TopicAnswer]:
        """See `passes.Question`."""
        return TopicAnswer

    def request(self, attempt: int, found: TopicAnswer | None, trouble: Trouble | None) -> Request:
        """Ask about the whole topic: what was good of an earlier answer is kept all the same."""
        self.found = found
        return request_of(
            PROMPT,
            self.user,
            TopicAnswer,
            self.terms,
            namespace=self.namespace,
            stage="group",
            row_id=self.row_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=_TOPIC_TOKENS + _EPISODE_TOKENS * len(self.shown),
        )

    def check(self, answer: TopicAnswer) -> tuple[TopicAnswer | None, list[str]]:
        """Keep roles and misfits of episodes that were shown, and letters that were; say what is missing."""
        complaints: list[str] = []
        numbers = range(1, len(self.shown) + 1)
        misfits = [number for number in dict.fromkeys(answer.misfits) if number in numbers]
        if 2 * len(misfits) > len(self.shown):
            complaints.append(f"{len(misfits)} of {len(self.shown)} episodes cannot be misfits: at most half of them")
            misfits = []
        same_as = [letter for letter in dict.fromkeys(answer.same_as) if letter in self.others]
        roles: dict[int, EpisodeRole] = {}
        for item in answer.episodes:
            if item.episode in numbers and 0.0 <= item.weight <= 1.0:
                roles.setdefault(item.episode, item)
            elif item.episode in numbers:
                complaints.append(f"the weight of episode {item.episode} is not between 0 and 1")
        strange = {*answer.misfits, *(item.episode for item in answer.episodes)} - set(numbers)
        strange_letters = set(answer.same_as) - set(self.others)
        if strange:
            complaints.append(f"{_listed(strange)} is no episode: they are numbered 1 to {len(self.shown)}")
        if strange_letters:
            complaints.append(f"{_listed(strange_letters)} is no topic that was shown")
        title, summary = one_line(answer.title, TITLE_CHARS), one_line(answer.summary, SUMMARY_CHARS)
        known = self.found or TopicAnswer(episodes=[])
        placed = {item.episode for item in known.episodes} | set(known.misfits) | set(roles) | set(misfits)
        if missing := set(numbers) - placed:
            complaints.append(f"no role for episodes {_listed(missing)}")
        if not (title or known.title):
            complaints.append("title is empty")
        if not (summary or known.summary):
            complaints.append("summary is empty")
        sound = TopicAnswer(
            title=title,
            summary=summary,
            keywords=_keywords(answer.keywords),
            episodes=list(roles.values()),
            misfits=misfits,
            same_as=same_as,
        )
        return (sound if title or summary or roles else None), complaints

    def merge(self, found: TopicAnswer, more: TopicAnswer) -> TopicAnswer:
        """Take from the later answer what the earlier one lacks."""
        known = {item.episode for item in found.episodes}
        return TopicAnswer(
            title=found.title or more.title,
            summary=found.summary or more.summary,
            keywords=found.keywords or more.keywords,
            episodes=[*found.episodes, *(item for item in more.episodes if item.episode not in known)],
            misfits=found.misfits or more.misfits,
            same_as=found.same_as or more.same_as,
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """A topic as it was made, without its misfits.

    Attributes:
        members: Places of its episodes, in time order.
        roles: Role and weight of each.
        was_named: By the model.
        title: Of it alone.
        summary: Of it alone.
        keywords: Of it alone.
    """

    members: Sequence[int]
    roles: Mapping[int, tuple[str, float]]
    was_named: bool
    title: str
    summary: str
    keywords: Sequence[str]


def group_llm(
    episodes: pa.Table,
    vectors: pa.Table,
    names: Mapping[str, Set[str]],
    keywords: Mapping[str, Sequence[str]],
    config: GroupConfig,
    terms: Terms,
) -> Generator[list[Request], list[Reply], Grouped]:
    """Group the episodes of one bucket into topics; see `hgmem_core.group.group` for what is not told here.

    Args:
        episodes: EPISODE.
        vectors: EMBEDDING of level `episode`.
        names: For each episode id the names that occur in it.
        keywords: For each episode id the keywords of its facts.
        config: Thresholds and the size cap; the model is shown no other topic with which one would be too large.
        terms: Of requests.
    """
    every = list(groupings(episodes, vectors, names, config))
    questions = [list(_questions(grouping, config, terms)) for grouping in every]
    settled = iter((yield from ask([question for own in questions for question in own])))
    tables = _Rows()
    for grouping, own in zip(every, questions, strict=True):
        answered = [(question, next(settled)) for question in own]
        for question, result in answered:
            tables.rejects += reject_rows("group", question.namespace, question.row_id, result)
        tables.add_outcomes(grouping, answered)
        tables.add_topics(grouping, _parts(grouping, answered, keywords), _same(answered), keywords, config)
    return tables.grouped()


def _questions(grouping: Grouping, config: GroupConfig, terms: Terms) -> Iterator[_Question]:
    made = [describe(grouping, topic, {}) for topic in grouping.topics]
    asked = [place for place, (_, members) in enumerate(made) if len(members) >= _FEWEST_EPISODES]
    for place, near in zip(asked, _nearest(grouping.topics, asked, config.max_episodes), strict=True):
        described, members = made[place]
        others = dict(zip(_LETTERS, near, strict=False))
        titles = [f"{letter}. {quoted(made[other][0]['title'])}" for letter, (other, _) in others.items()]
        written = "\n".join(["Other topics:", *titles]) if titles else ""
        weights = [row["weight"] for row in members]
        shown, user = _shown(grouping, grouping.topics[place], weights, written, terms)
        yield _Question(grouping.namespace, place, described["topic_id"], shown, others, user, terms)


def _shown(
    grouping: Grouping, topic: Topic, weights: Sequence[float], others: str, terms: Terms
) -> tuple[Sequence[int], str]:
    """Return the members that are shown and the user part: as many of the heaviest as fit, and as much of each."""
    heaviest = sorted(range(len(weights)), key=lambda at: (-weights[at], at))
    count = min(_MOST_EPISODES, len(weights))
    while True:
        shown = [topic.members[at] for at in sorted(heaviest[:count])]
        for most_chars in _EPISODE_CHARS:
            lines = (_episode(number, grouping.rows[at], most_chars) for number, at in enumerate(shown, 1))
            user = PROMPT.fill(episodes="\n".join(lines), others=others)
            if terms.fits(PROMPT, user):
                return shown, user
        if count == _FEWEST_EPISODES:
            return shown, user
        count = max(_FEWEST_EPISODES, count // 2)


def _episode(number: int, row: Mapping[str, Any], most_chars: int) -> str:
    title, summary = shorten(row["title"], TITLE_CHARS), shorten(row["summary"], most_chars)
    # Without a model a title is a sentence of the summary.
    said = quoted(summary) if title.removesuffix("…") in summary else f"{quoted(title)}: {quoted(summary)}"
    return f"{number}. {day(row['started_at'])} {said}"


def _nearest(topics: Sequence[Topic], asked: Sequence[int], most_episodes: int) -> Iterator[list[tuple[int, float]]]:
    """Yield for each topic asked about the nearest others that it may be joined with, at most one a letter.

    Each comes with its cosine.
    """
    means = np.array([topic.total for topic in topics])
    sizes = np.array([len(topic.members) for topic in topics])
    if len(means):
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    for start in range(0, len(asked), _ROWS):
        own = np.array(asked[start : start + _ROWS])
        near = means[own] @ means.T
        rows = np.arange(len(own))
        near[rows, own] = 0.0
        near[sizes[own][:, None] + sizes > most_episodes] = 0.0
        found: list[list[tuple[int, float]]] = [[] for _ in own]
        for _ in _LETTERS:
            best = near.argmax(axis=1)
            for row in np.flatnonzero(near[rows, best] > 0.0).tolist():
                found[row].append((int(best[row]), float(near[row, best[row]])))
            near[rows, best] = 0.0
        yield from found


def _parts(
    grouping: Grouping,
    answered: Sequence[tuple[_Question, Settled[TopicAnswer]]],
    keywords: Mapping[str, Sequence[str]],
) -> list[_Part]:
    """Return the topics of a namespace as the model left them, none joined with another yet."""
    answers = {question.topic: (question, result.answer) for question, result in answered if result.answer}
    parts = []
    for place, topic in enumerate(grouping.topics):
        row, members = describe(grouping, topic, keywords)
        roles = {at: (one["role"], one["weight"]) for at, one in zip(topic.members, members, strict=True)}
        if place not in answers:
            parts.append(_Part(topic.members, roles, False, row["title"], row["summary"], row["keywords"]))
            continue
        question, answer = answers[place]
        given = {item.episode: (item.role, item.weight) for item in answer.episodes}
        roles |= {at: given.get(number, (_NO_ROLE, _NO_WEIGHT)) for number, at in enumerate(question.shown, 1)}
        misfits = {question.shown[number - 1] for number in answer.misfits}
        kept = [at for at in topic.members if at not in misfits]
        texts = answer.title or row["title"], answer.summary or row["summary"], answer.keywords or row["keywords"]
        parts.append(_Part(kept, {at: roles[at] for at in kept}, True, *texts))
    return parts


def _same(answered: Sequence[tuple[_Question, Settled[TopicAnswer]]]) -> dict[int, dict[int, float]]:
    """Return for each topic asked about those that the model calls the same, and how near they are."""
    return {
        question.topic: dict(question.others[letter] for letter in (result.answer.same_as if result.answer else ()))
        for question, result in answered
    }


def _joined(parts: Sequence[_Part], same: Mapping[int, Mapping[int, float]], most: int) -> list[list[int]]:
    """Return the parts that make up each topic, the oldest first; see the module's docstring."""
    group_of = {place: [place] for place in range(len(parts))}

    def join(one: int, other: int) -> bool:
        both = sorted({*group_of[one], *group_of[other]})
        if len({at for place in both for at in parts[place].members}) > most:
            return False
        for place in both:
            group_of[place] = both
        return True

    for one in sorted(same):
        for other in sorted(same[one]):
            if one < other and one in same.get(other, ()):
                join(one, other)
    callers: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for one in sorted(same):
        for other, nearness in same[one].items():
            if other not in same:
                callers[other].append((-nearness, one))
    for single in sorted(callers):
        any(join(one, single) for _, one in sorted(callers[single]))
    return [group_of[place] for place in group_of if group_of[place][0] == place]


def _begun_once(topics: Iterable[tuple[list[int], list[int]]]) -> list[tuple[list[int], list[int]]]:
    """Take from a topic, of members and parts, its first member while an earlier topic begins with that."""
    begun: set[int] = set()
    kept = []
    for members, parts in sorted(topics):
        while members and members[0] in begun:
            members = members[1:]
        if members:
            begun.add(members[0])
            kept.append((members, parts))
    return kept


@dataclass(slots=True)
class _Rows:
    """The rows of the tables while they grow."""

    topics: list[dict[str, Any]] = field(default_factory=list)
    incidences: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)

    def add_outcomes(self, grouping: Grouping, answered: Sequence[tuple[_Question, Settled[TopicAnswer]]]) -> None:
        """Add what became of each episode of a namespace."""
        gravity = {"ok": 0, "partial": 1, "fallback": 2}
        worst: dict[int, Settled[TopicAnswer]] = {}
        for question, result in answered:
            for at in grouping.topics[question.topic].members:
                if at not in worst or gravity[result.outcome] > gravity[worst[at].outcome]:
                    worst[at] = result
        for at, row in enumerate(grouping.rows):
            result = worst.get(at) or Settled(outcome="ok", passes=1)
            self.outcomes.append(
                {"namespace": grouping.namespace, "stage": "group", "row_id": row["episode_id"]}
                | {"outcome": result.outcome, "passes": result.passes, "reason": result.reason}
            )

    def add_topics(
        self,
        grouping: Grouping,
        parts: Sequence[_Part],
        same: Mapping[int, Mapping[int, float]],
        keywords: Mapping[str, Sequence[str]],
        config: GroupConfig,
    ) -> None:
        """Add the topics of a namespace, those joined that are the same, and one for each episode that is in none."""
        groups = _joined(parts, same, config.max_episodes)
        joined = ((sorted({at for place in own for at in parts[place].members}), own) for own in groups)
        topics = _begun_once(joined)
        placed = {at for members, _ in topics for at in members}
        topics += [([at], []) for at in range(len(grouping.rows)) if at not in placed]
        for members, own in sorted(topics):
            self._add_topic(grouping, members, [parts[place] for place in own], keywords)

    def _add_topic(
        self, grouping: Grouping, members: list[int], parts: Sequence[_Part], keywords: Mapping[str, Sequence[str]]
    ) -> None:
        row, incidences = describe(grouping, Topic(members, grouping.vectors[members].sum(axis=0)), keywords)
        if parts:
            # What the model wrote comes first, then what has more episodes, then what is older.
            ranked = sorted(parts, key=lambda part: (not part.was_named, -len(part.members)))
            words = dict.fromkeys(word for part in ranked for word in part.keywords)
            row |= {
                "title": ranked[0].title,
                "summary": shorten(" ".join(part.summary for part in ranked), SUMMARY_CHARS),
                "keywords": list(words)[:KEYWORDS],
            }
        for at, incidence in zip(members, incidences, strict=True):
            given = [part.roles[at] for part in parts if at in part.roles and (part.was_named or len(parts) == 1)]
            if given:
                incidence["role"], incidence["weight"] = max(given, key=lambda one: one[1])
        self.topics.append(row)
        self.incidences += incidences

    def grouped(self) -> Grouped:
        """Return the tables."""
        return Grouped(
            conform(pa.Table.from_pylist(self.topics, TOPIC.arrow), TOPIC),
            conform(pa.Table.from_pylist(self.incidences, INCIDENCE.arrow), INCIDENCE),
            conform(pa.Table.from_pylist(self.outcomes, OUTCOME.arrow), OUTCOME),
            reject_table(self.rejects),
        )


def _keywords(words: Iterable[str]) -> list[str]:
    lines = (one_line(word, _KEYWORD_CHARS) for word in words)
    return list(dict.fromkeys(word for word in lines if word))[:KEYWORDS]


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, sorted(items, key=str)))
