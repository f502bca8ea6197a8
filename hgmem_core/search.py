"""One query against one namespace: filters, ranked lists, fusion, hits with their turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import numpy as np
import numpy.typing as npt

from hgmem_core.lexical import Floats
from hgmem_core.namespace_index import NamespaceIndex, TieOrder, words
from hgmem_core.recipes import DEPTH, RRF_K, Leg, Recipe
from hgmem_core.turns import UNKNOWN_TIME, microseconds, moment

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

EmptyReason = Literal["no_query_terms", "no_match", "nothing_passes_the_filters", "unknown_namespace"]


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on turns that hold before anything is ranked; None means no condition.

    Attributes:
        said_from: Earliest time of saying, included; turns without a time never pass a time filter.
        said_until: Time of saying below which turns pass, itself excluded.
        ingested_from: Earliest time of import, included: a clock of its own, apart from when things were said.
        ingested_until: Time of import below which turns pass, itself excluded.
        speaker: Exactly this speaker.
        session_id: Exactly this session.
    """

    said_from: datetime | None = None
    said_until: datetime | None = None
    ingested_from: datetime | None = None
    ingested_until: datetime | None = None
    speaker: str | None = None
    session_id: str | None = None

    def __post_init__(self) -> None:
        """Refuse times without a zone: they would mean another moment on another machine."""
        for name in ("said_from", "said_until", "ingested_from", "ingested_until"):
            time = getattr(self, name)
            if time is not None and time.tzinfo is None:
                raise ValueError(f"{name}: {time.isoformat()} has no time zone; write it with one, such as +00:00")


@dataclass(frozen=True, slots=True)
class Query:
    """A query, analysed: its text, its search terms, its unit vector float32 `[dimension]` if a leg needs one."""

    text: str
    terms: tuple[str, ...]
    vector: Floats | None


@dataclass(frozen=True, slots=True)
class Hit:
    """One result: a turn of the log, why it is here, and where it comes from."""

    rank: int
    score: float
    turn_id: str
    session_id: str
    position: int
    source_id: str | None
    speaker: str | None
    role: str | None
    said_at: datetime | None
    text: str
    attachments: str
    legs: dict[str, tuple[int, float]] = field(default_factory=dict)
    """For each list that holds the turn, its rank there and its score there."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Rows of a namespace, best first, with their scores, and why there are none if so.

    Attributes:
        rows: int64 `[n]`.
        scores: float32 `[n]`, falling.
        legs: For each leg, the rows of its list, best first, and the score of every row (or session).
        reason: Why the ranking is empty, else None.
    """

    rows: Rows
    scores: Floats
    legs: dict[str, tuple[Rows, Floats]]
    reason: EmptyReason | None


def rank_turns(index: NamespaceIndex, query: Query, recipe: Recipe, filters: Filters, k: int) -> Ranking:
    """Rank the turns of a namespace that pass the filters; at most `k`, ties by id.

    A query without a search term (blank, stop words, punctuation) gives nothing, whatever the recipe: the vector of
    a text that says nothing is near to something all the same. Words that the namespace does not have leave nothing
    to a recipe of words alone.
    """
    empty = Ranking(np.zeros(0, np.int64), np.zeros(0, np.float32), {}, "no_query_terms")
    numbers = index.term_numbers(query.terms)
    if not query.terms or (not numbers and all(leg.kind == "bm25" for leg in recipe.legs)):
        return empty
    passes = _passing(index, filters)
    if passes is not None and not passes.any():
        return Ranking(empty.rows, empty.scores, {}, "nothing_passes_the_filters")
    legs = _leg_scores(index, query, numbers, recipe)
    lists = {leg.name: (_leg_rows(index, leg, legs[leg.name], passes), legs[leg.name]) for leg in recipe.legs}
    if len(recipe.legs) == 1:
        rows, scores = lists[recipe.legs[0].name]
        fused = scores
        candidates = rows
    else:
        fused = _fuse(index, recipe, lists)
        candidates = np.flatnonzero(fused > 0)
    if recipe.other_speaker != 1.0:
        fused = fused * _speaker_factors(index, query.text, recipe.other_speaker)
    if passes is not None:
        candidates = candidates[passes[candidates]]  # a session's rank reaches all its turns
    best = best_rows(fused, candidates, k, index.id_order)
    return Ranking(best, fused[best], lists, None if len(best) else "no_match")


def _passing(index: NamespaceIndex, filters: Filters) -> Mask | None:
    """Return which rows pass, or None if all do."""
    conditions: list[Mask] = []
    for times, first, until in (
        ("said_at_us", filters.said_from, filters.said_until),
        ("ingested_at_us", filters.ingested_from, filters.ingested_until),
    ):
        if first is not None or until is not None:
            values = getattr(index, times)
            conditions.append(values != UNKNOWN_TIME)
            if first is not None:
                conditions.append(values >= microseconds(first))
            if until is not None:
                conditions.append(values < microseconds(until))
    if filters.speaker is not None:
        names, codes = index.speakers
        conditions.append(codes == (names.index(filters.speaker) if filters.speaker in names else -2))
    if filters.session_id is not None:
        sessions = index.session_ids
        conditions.append(
            index.session == (sessions.index(filters.session_id) if filters.session_id in sessions else -1)
        )
    return np.logical_and.reduce(conditions) if conditions else None


def _leg_scores(index: NamespaceIndex, query: Query, numbers: Sequence[int], recipe: Recipe) -> dict[str, Floats]:
    """Return the score of every turn (or session) in each leg; a query vector of zeros leaves NaN, not a ranking."""
    scores: dict[str, Floats] = {}
    cosines: Floats | None = None
    for leg in recipe.legs:
        if leg.kind == "bm25":
            scores[leg.name] = index.bm25(leg.unit, numbers)
            continue
        if cosines is None:
            if query.vector is None or not np.isfinite(query.vector).all():
                raise ValueError(f"recipe {recipe.name!r} needs a finite query vector")
            cosines = index.cosines(query.vector) if query.vector.any() else np.full(len(index), np.nan, np.float32)
        if leg.unit == "turn":
            scores[leg.name] = cosines
        elif leg.unit == "window" or leg.unit == "prior":
            scores[leg.name] = index.span_cosines(leg.unit, cosines)
        else:
            raise ValueError(f"recipe {recipe.name!r}: the unit {leg.unit!r} has no vectors")
    return scores


def _leg_rows(index: NamespaceIndex, leg: Leg, scores: Floats, passes: Mask | None) -> Rows:
    """Return the rows (or sessions) of a leg's list, best first."""
    if leg.unit == "session":
        allowed = scores > 0
        if passes is not None:
            allowed &= np.bincount(index.session[passes], minlength=index.sessions) > 0
        return best_rows(scores, np.flatnonzero(allowed), DEPTH, index.session_order)
    if leg.kind == "bm25":
        candidates = np.flatnonzero(scores > 0)
    elif np.isnan(scores[0]):
        candidates = np.zeros(0, np.int64)
    else:
        candidates = index.vector_rows
    if passes is not None:
        candidates = candidates[passes[candidates]]
    return best_rows(scores, candidates, DEPTH, index.id_order)


_SHARES = 1 / (RRF_K + 1 + np.arange(DEPTH))
"""What rank 1, 2, 3, ... of a list is worth."""


def _fuse(index: NamespaceIndex, recipe: Recipe, lists: dict[str, tuple[Rows, Floats]]) -> Floats:
    """Join the lists by reciprocal rank fusion; a session's share goes to each of its turns."""
    fused = np.zeros(len(index))
    for leg in recipe.legs:
        rows, _ = lists[leg.name]
        shares = leg.weight * _SHARES[: len(rows)]
        if leg.unit == "session":
            by_session = np.zeros(index.sessions)
            by_session[rows] = shares
            fused += by_session[index.session]
        else:
            fused[rows] += shares
    return fused.astype(np.float32)


def _speaker_factors(index: NamespaceIndex, text: str, factor: float) -> Floats | float:
    asked = words(text)
    named = [number for number, phrase in enumerate(index.speaker_phrases) if phrase.strip() and phrase in asked]
    if len(named) != 1:
        return 1.0
    codes = index.speakers[1]
    return np.where((codes == named[0]) | (codes < 0), np.float32(1.0), np.float32(factor))


def best_rows(scores: Floats, candidates: Rows, depth: int, ties: TieOrder) -> Rows:
    """Return the `depth` best candidates, best first, equal scores in the order of `ties`.

    Score and tie rank become one 64-bit integer, all distinct, so that numpy's vectorised sort and partition of
    integers do the work: sparse scores are mostly zeros, on which a partition of floats is slow.
    """
    bits = (0.0 - scores[candidates]).view(np.uint32)  # 0.0 - x has no negative zero
    ordered = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))  # the order of the floats, as unsigned integers
    keys = (ordered.astype(np.uint64) << np.uint64(32)) | ties.rank[candidates]
    if depth < len(keys):
        keys = np.partition(keys, depth - 1)[:depth]
    keys.sort()
    return ties.row[(keys & np.uint64(0xFFFF_FFFF)).astype(np.int64)]


def hits_of(index: NamespaceIndex, ranking: Ranking, explain: bool = False) -> list[Hit]:
    """Return the turns of a ranking with text, speaker and time; with `explain`, each leg's rank and score."""
    ranks: dict[str, Callable[[int], tuple[int, float] | None]] = {}
    if explain:
        ranks = {name: _leg_lookup(index, name, rows, scores) for name, (rows, scores) in ranking.legs.items()}
    columns = [index.column(name) for name in _HIT_COLUMNS]
    hits = []
    for rank, (row, score) in enumerate(zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True), 1):
        turn_id, source_id, role, text, attachments = (column[row].as_py() for column in columns)
        hits.append(
            Hit(
                rank=rank,
                score=score,
                turn_id=turn_id,
                session_id=index.session_ids[index.session[row]],
                position=int(index.position[row]),
                source_id=source_id,
                speaker=index.speaker_of(row),
                role=role,
                said_at=moment(int(index.said_at_us[row])),
                text=text,
                attachments=attachments,
                legs={name: found for name, look in ranks.items() if (found := look(row)) is not None},
            )
        )
    return hits


_HIT_COLUMNS = ("turn_id", "source_id", "role", "text", "attachments")


def _leg_lookup(
    index: NamespaceIndex, name: str, rows: Rows, scores: Floats
) -> Callable[[int], tuple[int, float] | None]:
    place = {row: rank for rank, row in enumerate(rows.tolist(), 1)}

    def look(row: int) -> tuple[int, float] | None:
        item = int(index.session[row]) if name.endswith("/session") else row
        return (place[item], float(scores[item])) if item in place else None

    return look
