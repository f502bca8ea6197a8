"""Tables of one large namespace, made up, with vectors: what its index is measured with.

The vectors have what those of a chat by MiniLM have (2,500 turns of LoCoMo): near a mean that all share, so that two of
them have a cosine of 0.3; half of their variance in some twenty directions; topics; and a question's best answer at a
cosine of about 0.65. Words follow Zipf's law.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.graph import GraphTables
from hgmem_core.lexical import Floats, Ints
from hgmem_core.relations import LAYOUTS
from hgmem_core.schemas import EPISODE, FACT, INCIDENCE, TOPIC, TURN, TableSchema, embedding_schema, relation_schema

NAMESPACE = "bench/large"
PROPAGATION = 0.5
"""λ of the propagated vectors."""

EPISODE_FACTS, EPISODE_TURNS, SESSION_EPISODES, TOPIC_EPISODES = 50, 10, 4, 15
QUESTIONS = 200

_DIMENSION = 384
_DECAY = 0.75
"""The variance of the i-th direction falls with i to this power."""
_MEAN, _THEME, _OWN, _ASKED = 0.55, 0.65, 0.65, 1.0
"""How much of a vector is what all share, its topic's and its own; how much of a question is its own."""
_VOCABULARY = 50_000
_FACT_WORDS, _TURN_WORDS, _TITLE_WORDS, _QUESTION_WORDS = 10, 20, 4, 6
_ROWS = 1 << 16
"""Of vectors made at a time."""
_SAID = datetime(2024, 1, 1, tzinfo=UTC)

Column: TypeAlias = pa.Array | pa.ChunkedArray | Sequence[object] | npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class LargeLog:
    """Tables of one namespace, and questions: words, and vectors that are near a fact each and in no table.

    Attributes:
        turns: TURN.
        embeddings: EMBEDDING of the turns.
        graph: The rest, without relations.
        questions: Texts.
        asked: Their vectors, float32 `[questions, 384]`.
    """

    turns: pa.Table
    embeddings: pa.Table
    graph: GraphTables
    questions: list[str]
    asked: Floats


def large_log(facts: int) -> LargeLog:
    """Make up a namespace of some facts, rounded up to whole episodes; equal calls give equal tables."""
    random = np.random.default_rng(1)
    episodes = -(-facts // EPISODE_FACTS)
    topics = -(-episodes // TOPIC_EPISODES)
    topic_of = np.arange(episodes) // TOPIC_EPISODES
    space, words = _Space(random), _Words(random)
    themes = space.directions(topics)
    made = {
        "topic": space.around(themes, np.arange(topics)),
        "episode": space.around(themes, topic_of),
        "fact": space.around(themes, np.repeat(topic_of, EPISODE_FACTS)),
        "turn": space.around(themes, np.repeat(topic_of, EPISODE_TURNS)),
    }
    tables = {
        "topic": _topics(topics, words),
        "episode": _episodes(episodes, words),
        "fact": _facts(episodes, words),
    }
    turns = _turns(episodes, words)
    moved = {**made, "fact": _propagated(made["fact"])}
    levels = ("topic", "episode", "fact")
    base, propagated = (
        pa.concat_tables([_embeddings(level, tables[level], vectors[level], variant) for level in levels])
        for vectors, variant in ((made, "base"), (moved, "propagated"))
    )
    members = pa.concat_tables(
        [
            _members("episode", np.arange(episodes * EPISODE_FACTS) // EPISODE_FACTS, "fact"),
            _members("topic", topic_of, "episode"),
        ]
    )
    relations = (relation_schema(LAYOUTS[name]).empty() for name in ("turn", "fact"))
    meant = random.choice(len(made["fact"]), QUESTIONS, replace=False)
    return LargeLog(
        turns,
        _embeddings("turn", turns, made["turn"], "base"),
        GraphTables(tables["topic"], tables["episode"], tables["fact"], members, base, propagated, *relations),
        words.texts(QUESTIONS, _QUESTION_WORDS),
        space.questions(made["fact"][meant]),
    )


class _Space:
    """Where vectors lie: a mean, and directions of falling variance."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        scale = np.arange(1, _DIMENSION + 1) ** (-_DECAY / 2)
        self._scale = (scale / np.linalg.norm(scale)).astype(np.float32)
        self._mean = self.directions(1)[0]

    def directions(self, count: int) -> Floats:
        """Return vectors about the origin, of length 1 on average."""
        return self._random.standard_normal((count, _DIMENSION), np.float32) * self._scale

    def around(self, themes: Floats, theme: Ints) -> Floats:
        """Return a unit vector for each number of a theme."""
        vectors = np.empty((len(theme), _DIMENSION), np.float32)
        for start in range(0, len(theme), _ROWS):
            some = theme[start : start + _ROWS]
            own = _MEAN * self._mean + _THEME * themes[some] + _OWN * self.directions(len(some))
            vectors[start : start + len(some)] = _units(own)
        return vectors

    def questions(self, vectors: Floats) -> Floats:
        """Return unit vectors near others."""
        return _units(vectors + _ASKED * self.directions(len(vectors)))


def _units(vectors: Floats) -> Floats:
    units: Floats = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return units


def _propagated(facts: Floats) -> Floats:
    """Return h + λ s, where s is the mean of the episode's facts; as `hgmem_core.propagate`, with equal weights."""
    by_episode = facts.reshape(-1, EPISODE_FACTS, _DIMENSION)
    moved: Floats = by_episode + np.float32(PROPAGATION) * by_episode.mean(axis=1, keepdims=True)
    return moved.reshape(facts.shape)


class _Words:
    """Texts of made-up words, of which the n-th is said 1 / n as often as the first."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        letters = "bdfgklmnprstvz", "aeiou"
        syllables = [first + second for first in letters[0] for second in letters[1]]
        self._known = [
            "".join(syllables[number // len(syllables) ** place % len(syllables)] for place in range(3)) + "x"
            for number in range(_VOCABULARY)
        ]
        shares = 1 / np.arange(10, _VOCABULARY + 10)  # the most frequent words are stop words, which are no terms
        self._bounds = np.cumsum(shares / shares.sum())

    def texts(self, count: int, size: int) -> list[str]:
        """Return texts of `size` words."""
        drawn = np.searchsorted(self._bounds, self._random.random((count, size))).clip(max=_VOCABULARY - 1)
        return [" ".join([self._known[word] for word in row]) for row in drawn.tolist()]


def _turns(episodes: int, words: _Words) -> pa.Table:
    count = episodes * EPISODE_TURNS
    number = np.arange(count)
    in_session = SESSION_EPISODES * EPISODE_TURNS
    return _table(
        TURN,
        count,
        session_id=_ids("session", number // in_session),
        position=number % in_session,
        turn_id=_ids("turn", number),
        text=words.texts(count, _TURN_WORDS),
        attachments=["[]"] * count,
        ingested_at=[_SAID] * count,
        revision=[0] * count,
        speaker=[("Ana", "Bo")[at % 2] for at in range(count)],
        said_at=np.datetime64(_SAID.replace(tzinfo=None), "us") + number * np.timedelta64(60, "s"),
    )


def _episodes(count: int, words: _Words) -> pa.Table:
    number = np.arange(count)
    first = number % SESSION_EPISODES * EPISODE_TURNS
    turns = _ids("turn", np.arange(count * EPISODE_TURNS))
    return _table(
        EPISODE,
        count,
        episode_id=_ids("episode", number),
        session_id=_ids("session", number // SESSION_EPISODES),
        first_position=first,
        last_position=first + EPISODE_TURNS - 1,
        turn_ids=[turns[at : at + EPISODE_TURNS] for at in range(0, len(turns), EPISODE_TURNS)],
        title=words.texts(count, _TITLE_WORDS),
        summary=words.texts(count, _TURN_WORDS),
    )


def _facts(episodes: int, words: _Words) -> pa.Table:
    count = episodes * EPISODE_FACTS
    source = _ids("turn", np.arange(count) * EPISODE_TURNS // EPISODE_FACTS)
    return _table(
        FACT,
        count,
        fact_id=_ids("fact", np.arange(count)),
        text=words.texts(count, _FACT_WORDS),
        **{name: [[]] * count for name in ("keywords", "queries", "entities")},
        confidence=[1.0] * count,
        support=[1] * count,
        turn_ids=[[turn] for turn in source],
    )


def _topics(count: int, words: _Words) -> pa.Table:
    titles = words.texts(count, _TITLE_WORDS)
    return _table(
        TOPIC, count, topic_id=_ids("topic", np.arange(count)), title=titles, summary=titles, keywords=[[]] * count
    )


def _members(kind: str, edges: Ints, node: str) -> pa.Table:
    count = len(edges)
    return _table(
        INCIDENCE,
        count,
        kind=[kind] * count,
        hyperedge_id=_ids(kind, edges),
        node_id=_ids(node, np.arange(count)),
        node_kind=[node] * count,
        role=["member"] * count,
        weight=[1.0] * count,
    )


def _embeddings(level: str, nodes: pa.Table, vectors: Floats, variant: str) -> pa.Table:
    count = len(vectors)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), _DIMENSION)
    ids = nodes.column(f"{level}_id")
    named = {"level": [level] * count, "node_id": ids, "variant": [variant] * count, "vector": column}
    return _table(embedding_schema(_DIMENSION), count, **named)


def _table(schema: TableSchema, rows: int, **columns: Column) -> pa.Table:
    """Return rows of the namespace; columns that are not given are empty."""
    columns["namespace"] = [NAMESPACE] * rows
    arrays = [
        pa.nulls(rows, field.type) if (given := columns.get(field.name)) is None else _column(given, field.type)
        for field in schema.arrow
    ]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _column(values: Column, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return values.cast(kind) if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, kind)


def _ids(kind: str, numbers: Ints) -> list[str]:
    return [f"{kind}-{number:08d}" for number in numbers.tolist()]
