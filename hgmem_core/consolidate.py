"""Facts of a namespace that say the same become one, and what no longer holds is closed.

Facts are taken in the order in which they were said: by time, then session, position and id; those without a time come
after all others, so that they take no other's place. One that says what an earlier one, not yet closed, says is merged
into it: the earlier keeps its id, adds the support and the sources, and stands in the episodes of both. The same is
said

- by an equal text, but for blanks and the case of its first word, or
- by an equal sequence of words, but for articles, fillers, punctuation and contractions, if the vectors are near. An
  article or filler is one in lower case, or the first word before one in lower case: `Hey Jude` is not `Jude`.

So a name, a number, a date, a negation, a capital within the sentence (`Polish`, `polish`) or any other word that
differs keeps two facts apart, however near their vectors are. Facts with a time phrase are one only if it means the
same interval.

A statement of a state (see `hgmem_core.contradictions`) closes an earlier one that contradicts it: that one names it in
`superseded_by` and ends where it begins. Nothing is closed unless it is sure which was said later, and nothing by a
statement about a time before it or about one that cannot be placed.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import regex

from hgmem_core.contradictions import State, state_of
from hgmem_core.schemas import FACT, INCIDENCE, OUTCOME, STRING, conform
from hgmem_core.stage_config import ConsolidateConfig
from hgmem_core.tokens import fold
from hgmem_core.vector_rows import NO_VECTOR, rows_of_vectors

CONSOLIDATE_REVISION = 3
"""Raised when equal facts are consolidated otherwise."""

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+(?:['’.,:/-][\p{L}\p{M}\p{N}]+)*|-(?=\d)|[\p{S}#%&@/?*？]")
_SAYS_NOTHING = frozenset("a an the really very so oh wow and actually honestly haha hey".split())
_CONTRACTIONS = MappingProxyType(
    {"can't": "cannot", "won't": "will not", "gonna": "going to", "wanna": "want to", "i'm": "i am", "let's": "let us"}
    | {f"{word}n't": f"{word} not" for word in "do does did is are was were have has had would could should".split()}
    | {f"{word}'ve": f"{word} have" for word in "i you we they".split()}
    | {f"{word}'re": f"{word} are" for word in "you we they".split()}
    | {f"{word}'ll": f"{word} will" for word in "i you he she it we they".split()}
)
MERGED_INTO = "merged into "
"""Begins the reason of a fact that was merged; the other's id follows."""

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
_MOST_LEADERS = 16
"""Facts of equal words and unlike vectors that a further one is compared with: more than any real log has."""

Interval = tuple[datetime | None, datetime | None]


@dataclass(slots=True)
class Fact:
    """What is looked at of a FACT row, and what becomes of it; dictionaries stand for lists without repetition.

    Attributes:
        said: When, in which session and where in it its first source was said.
        merged_into: The earlier fact that took its place; that one may have been merged in turn.
        passes: How often it was looked at.
        undecided: Why the rules' word stands where another was asked for.
    """

    row: int
    namespace: str
    fact_id: str
    text: str
    time_phrase: str | None
    interval: Interval
    said: tuple[datetime | None, str, int]
    turn_ids: dict[str, None]
    support: int
    superseded_by: str | None
    confidence: float
    queries: dict[str, None]
    entities: dict[str, None]
    merged_into: "Fact | None" = None
    is_changed: bool = False
    passes: int = 1
    undecided: str | None = None

    @property
    def survivor(self) -> "Fact":
        """The fact that it is now a part of; itself if it was not merged."""
        fact = self
        while fact.merged_into is not None:
            fact = fact.merged_into
        return fact

    @property
    def is_open(self) -> bool:
        """Whether it stands for itself and still holds."""
        return self.merged_into is None and self.superseded_by is None

    @property
    def held(self) -> Interval | None:
        """The interval that its time phrase means, None without a phrase; no two are one if theirs differ."""
        return self.interval if self.time_phrase else None


def consolidate(
    facts: pa.Table, fact_vectors: pa.Table, incidences: pa.Table, turns: pa.Table, config: ConsolidateConfig
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Merge equal facts and close contradicted ones, in each namespace.

    Args:
        facts: FACT of one bucket.
        fact_vectors: EMBEDDING of level `fact`; a fact without a vector is merged by its text alone.
        incidences: INCIDENCE; rows of kind `episode` follow their facts, others stay.
        turns: TURN of the bucket: when the facts were said.
        config: How near is near.

    Returns:
        FACT; INCIDENCE; OUTCOME of stage `consolidate` with a row for each fact given: `ok` kept, `empty` merged into
        another, `partial` kept but superseded.
    """
    every = apply_rules(facts, fact_vectors, turns, config)
    return changed_facts(facts, every), moved_incidences(incidences, every), outcomes_of(facts, every)


def apply_rules(facts: pa.Table, fact_vectors: pa.Table, turns: pa.Table, config: ConsolidateConfig) -> list[Fact]:
    """Return what becomes of each FACT row, in the order of the rows; see `consolidate`."""
    every = _facts(facts, turns)
    vector_rows, matrix = rows_of_vectors(facts.column("fact_id"), fact_vectors)
    namespaces: dict[str, _Namespace] = {}
    for fact in in_time(every):
        if fact.namespace not in namespaces:
            namespaces[fact.namespace] = _Namespace(vector_rows, matrix, config.near_duplicate_cosine)
        namespaces[fact.namespace].add(fact)
    return every


def in_time(facts: Iterable[Fact]) -> list[Fact]:
    """Return facts in the order in which they were said; those without a time come last."""
    return sorted(facts, key=_order)


def overlaps(one: Interval, other: Interval) -> bool:
    """Say whether two half-open intervals share a moment; None is an open end.

    >>> overlaps((None, None), (datetime(2024, 1, 1), datetime(2024, 1, 2)))
    True
    """
    starts_in_time = one[0] is None or other[1] is None or one[0] < other[1]
    return starts_in_time and (other[0] is None or one[1] is None or other[0] < one[1])


@dataclass(slots=True)
class _Namespace:
    """The fold over the facts of one namespace."""

    vector_rows: npt.NDArray[np.int64]
    matrix: npt.NDArray[np.float32]
    least_cosine: float
    by_text: dict[Any, Fact] = field(default_factory=dict)
    by_words: dict[Any, list[Fact]] = field(default_factory=dict)
    by_state: dict[tuple[str, ...], dict[str, list[Fact]]] = field(default_factory=dict)
    """Facts that are open, by what they are about and by what they say of it."""

    def add(self, fact: Fact) -> None:
        """Take the fact that was said next."""
        if fact.superseded_by is not None:
            return
        text_key, words_key = (_verbatim(fact.text), fact.held), (words(fact.text), fact.held)
        if is_placeable(fact):
            same = self.by_text.get(text_key)
            if same is None or same.superseded_by is not None:
                same = self._near(fact, words_key)
            if same is not None:
                merge(same, fact)
                return
            self.by_text[text_key] = fact
            self.by_words.setdefault(words_key, []).append(fact)
        state = state_of(fact.text)
        if state is not None:
            self._close(state, fact)

    def _near(self, fact: Fact, key: object) -> Fact | None:
        row = self.vector_rows[fact.row]
        leaders = [
            leader
            for leader in self.by_words.get(key, [])[:_MOST_LEADERS]
            if leader.superseded_by is None and self.vector_rows[leader.row] != NO_VECTOR
        ]
        if row == NO_VECTOR or not leaders:
            return None
        cosines = self.matrix[[self.vector_rows[leader.row] for leader in leaders]] @ self.matrix[row]
        return next((leader for leader, near in zip(leaders, cosines, strict=True) if near >= self.least_cosine), None)

    def _close(self, state: State, fact: Fact) -> None:
        # Sessions without times have no order, so each is a world of its own.
        session = fact.said[1] if fact.said[0] is None else ""
        key = (state.speaker, state.subject, state.attribute, state.thing, session)
        held = self.by_state.setdefault(key, {})
        for value, older in held.items():
            if state.ends(value):
                held[value] = [other for other in older if not supersede(other, fact)]
        if state.value:
            held.setdefault(state.value, []).append(fact)


def is_placeable(fact: Fact) -> bool:
    """Say whether it is known when a fact holds: two days that cannot be placed are not known to be one day."""
    return fact.held is None or fact.held[0] is not None


def merge(older: Fact, newer: Fact) -> None:
    """Make `newer` a part of `older`, which takes over its support and its sources."""
    newer.merged_into = older
    older.is_changed = True
    older.support += newer.support
    older.confidence = max(older.confidence, newer.confidence)
    older.turn_ids |= newer.turn_ids
    older.queries |= newer.queries
    older.entities |= newer.entities


def can_supersede(older: Fact, newer: Fact) -> bool:
    """Say whether it is sure that `newer` was said later, and that `older` still held at the time it speaks of."""
    if newer.time_phrase and newer.interval == (None, None):
        return False
    # A state goes on after the time that its phrase names, such as that of a move.
    return overlaps(newer.interval, (older.interval[0], None)) and _is_later(newer, older)


def supersede(older: Fact, newer: Fact) -> bool:
    """Close `older` at the start of `newer` if that can be; say whether it was."""
    if not can_supersede(older, newer):
        return False
    start = newer.interval[0]
    older.superseded_by = newer.fact_id
    older.is_changed = True
    if start is None or (older.interval[0] is not None and start <= older.interval[0]):
        start = newer.said[0]
    ends = [moment for moment in (older.interval[1], start) if moment is not None]
    older.interval = (older.interval[0], min(ends, default=None))
    return True


def _is_later(newer: Fact, older: Fact) -> bool:
    (new_time, new_session, new_position), (old_time, old_session, old_position) = newer.said, older.said
    if new_session == old_session:
        return new_position > old_position
    return new_time is not None and old_time is not None and new_time > old_time


def words(text: str) -> tuple[str, ...]:
    """Return the words that tell a statement from another: signs, numbers and negations too.

    >>> words("Ana: I'm really not a fan!") == words("Ana: I am not the fan")
    True
    """
    kept: list[str] = []
    for who, said in _lines(text):
        kept += [*_WORD.findall(who), ":"]
        found = _WORD.findall(said)
        for place, word in enumerate(found):
            is_before_lower = place == 0 and found[1:2] != [] and found[1][0].islower()
            if word in _SAYS_NOTHING or (is_before_lower and fold(word) in _SAYS_NOTHING):
                continue
            folded = fold(word)
            word = folded if place == 0 or folded == "i" or folded.startswith("i'") else word
            kept += _CONTRACTIONS[word].split() if word in _CONTRACTIONS else [word]
    return tuple(kept)


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield of each line who said it, folded, and what was said, its case kept."""
    for line in unicodedata.normalize("NFKC", text).replace("’", "'").split("\n"):
        who, colon, said = line.partition(": ")
        yield (fold(who), said) if colon else ("", line)


def _verbatim(text: str) -> tuple[str, ...]:
    """Return what is the same in equal texts: all but blanks and the case of first words."""
    kept: list[str] = []
    for who, said in _lines(text):
        first, *rest = said.split() or [""]
        kept += [*who.split(), ":", fold(first), *rest]
    return tuple(kept)


def _order(fact: Fact) -> tuple[bool, datetime, str, int, str]:
    at, session, position = fact.said
    return at is None, at or _LONG_AGO, session, position, fact.fact_id


def _facts(facts: pa.Table, turns: pa.Table) -> list[Fact]:
    columns = (turns.column(name).to_pylist() for name in ("namespace", "turn_id", "said_at", "session_id", "position"))
    said = {(namespace, turn): tuple(rest) for namespace, turn, *rest in zip(*columns, strict=True)}
    names = ("namespace", "fact_id", "text", "time_phrase", "valid_from", "valid_to", "turn_ids", "support")
    more = ("superseded_by", "confidence", "queries", "entities")
    every = []
    values = zip(*(facts.column(name).to_pylist() for name in (*names, *more)), strict=True)
    for row, (namespace, own, text, phrase, start, end, turn_ids, support, closed_by, *rest) in enumerate(values):
        confidence, queries, entities = rest
        when = said[namespace, turn_ids[0]]
        lists = (dict.fromkeys(queries), dict.fromkeys(entities))
        sources = dict.fromkeys(turn_ids)
        every.append(
            Fact(row, namespace, own, text, phrase, (start, end), when, sources, support, closed_by, confidence, *lists)
        )
    return every


def changed_facts(facts: pa.Table, every: Sequence[Fact]) -> pa.Table:
    """Return the facts that are left, with what the merged and the closed ones changed."""
    changes = {
        "turn_ids": [list(fact.turn_ids) for fact in every],
        "support": [fact.support for fact in every],
        "confidence": [fact.confidence for fact in every],
        "queries": [list(fact.queries) for fact in every],
        "entities": [list(fact.entities) for fact in every],
        "valid_to": [fact.interval[1] for fact in every],
        "superseded_by": [fact.superseded_by for fact in every],
    }
    if any(fact.is_changed for fact in every):
        for name, values in changes.items():
            place = facts.column_names.index(name)
            facts = facts.set_column(place, FACT.arrow.field(name), pa.array(values, FACT.arrow.field(name).type))
    return conform(facts.filter(pa.array([fact.merged_into is None for fact in every], pa.bool_())), FACT)


def moved_incidences(incidences: pa.Table, every: Iterable[Fact]) -> pa.Table:
    """Return the incidences with merged facts replaced; of two that become one, the heavier stays."""
    survivors = _survivors(every)
    if not survivors:
        return conform(incidences, INCIDENCE)
    # Facts of other namespaces have other ids: an id is made of its episode's, and that of its first turn's.
    kinds, nodes = incidences.column("kind").to_pylist(), incidences.column("node_id").to_pylist()
    moved = [survivors.get(node, node) if kind == "episode" else node for kind, node in zip(kinds, nodes, strict=True)]
    column = incidences.column_names.index("node_id")
    incidences = incidences.set_column(column, INCIDENCE.arrow.field("node_id"), pa.array(moved, STRING))
    keys = list(zip(*(incidences.column(name).to_pylist() for name in INCIDENCE.key), strict=True))
    weights = incidences.column("weight").to_pylist()
    heaviest: dict[tuple[str, ...], int] = {}
    for row, key in enumerate(keys):
        first = heaviest.setdefault(key, row)
        if weights[row] > weights[first]:
            heaviest[key] = row
    return conform(incidences.take(pa.array(list(heaviest.values()), pa.int64())), INCIDENCE)


def _survivors(every: Iterable[Fact]) -> dict[str, str]:
    """Return for each merged fact the id of the one that it is now a part of."""
    return {fact.fact_id: fact.survivor.fact_id for fact in every if fact.merged_into}


def outcomes_of(facts: pa.Table, every: Sequence[Fact]) -> pa.Table:
    """Return OUTCOME of stage `consolidate`, a row for each fact given."""
    settled = [_outcome(fact) for fact in every]
    rows = {
        "namespace": facts.column("namespace"),
        "stage": pa.array(["consolidate"] * len(every), STRING),
        "row_id": facts.column("fact_id"),
        "outcome": pa.array([outcome for outcome, _ in settled], STRING),
        "passes": pa.array([fact.passes for fact in every], pa.int32()),
        "reason": pa.array([reason for _, reason in settled], STRING),
    }
    return conform(pa.table(rows), OUTCOME)


def _outcome(fact: Fact) -> tuple[str, str | None]:
    if fact.merged_into:
        return "empty", f"{MERGED_INTO}{fact.survivor.fact_id}"
    if fact.superseded_by:
        return "partial", f"superseded by {fact.superseded_by}"
    return ("fallback", fact.undecided) if fact.undecided else ("ok", None)
