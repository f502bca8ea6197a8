"""One query against one namespace: filters, the recipe, hits with their turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from hgmem_core.blend import blend
from hgmem_core.boosted import ForestError
from hgmem_core.frontier import Frontier, all_odds
from hgmem_core.hage import HageWeights, breadth_first, find_anchors, hage_rank, magma_rank, period_of, relation_scores
from hgmem_core.hypermem import Chosen, coarse_to_fine, scores_of_turns, turns_of
from hgmem_core.intent_llm import merged_analysis
from hgmem_core.learned_flat import TurnRanker, find_candidates, learned_order
from hgmem_core.lexical import Floats
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.pagerank import pagerank_scores
from hgmem_core.paths import Paths, chosen_paths, frontier_paths, visited_paths, walked_paths
from hgmem_core.query_analysis import QueryAnalysis, analyse_query
from hgmem_core.ranking import (
    EmptyReason,
    ListScores,
    Mask,
    NodeLevel,
    Query,
    Ranking,
    RelationKind,
    Reranker,
    Rows,
    Step,
    best_rows,
    empty_ranking,
    finite_vector,
    speaker_factors,
)
from hgmem_core.recipes import (
    DEPTH,
    RRF_K,
    AnyRecipe,
    Blend,
    CoarseToFine,
    Hage,
    LearnedFlat,
    Leg,
    Magma,
    PageRank,
    Recipe,
    Routed,
    model_name,
    needs_vector,
)
from hgmem_core.rerank import RerankError, order_anew
from hgmem_core.routed import RoutedWeights, routed_order
from hgmem_core.trained import Trained, TrainedModelError
from hgmem_core.turns import UNKNOWN_TIME, microseconds, moment


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
        as_of: The memory as it stood at this time: nothing that was said after it, and the facts that stood then,
            among them those that were superseded since. Turns without a time pass.
    """

    said_from: datetime | None = None
    said_until: datetime | None = None
    ingested_from: datetime | None = None
    ingested_until: datetime | None = None
    speaker: str | None = None
    session_id: str | None = None
    as_of: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse times without a zone: they would mean another moment on another machine."""
        for name in ("said_from", "said_until", "ingested_from", "ingested_until", "as_of"):
            time = getattr(self, name)
            if time is not None and time.tzinfo is None:
                raise ValueError(f"{name}: {time.isoformat()} has no time zone; write it with one, such as +00:00")


@dataclass(frozen=True, slots=True)
class PathStep:
    """A node on the way to a hit, and the kind of what leads on from it."""

    level: NodeLevel
    id: str
    relation: RelationKind


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
    path: list[PathStep] = field(default_factory=list)
    """What a recipe of a graph passed before it came to the turn, the first node first."""


def rank_turns(
    index: NamespaceIndex,
    query: Query,
    recipe: AnyRecipe,
    filters: Filters,
    k: int,
    reranker: Reranker | None = None,
    explain: bool = False,
    trained: Trained | None = None,
) -> Ranking:
    """Rank the turns of a namespace that pass the filters; at most `k`, ties by id.

    A query without a search term (blank, stop words, punctuation) gives nothing, whatever the recipe: the vector of
    a text that says nothing is near to something all the same. Words that the namespace does not have leave nothing
    to a recipe of words alone.

    Args:
        index: The namespace.
        query: Analysed; with a vector if the recipe needs one.
        recipe: How to rank.
        filters: Conditions that hold before ranking.
        k: The most turns.
        reranker: Orders the best turns anew, or for a coarse-to-fine recipe the best candidates of each stage; scores
            are 1 / rank then. One that fails leaves the recipe's own order, and the ranking says why.
        explain: Whether to keep what each list says.
        trained: The model of a recipe that has one.

    Raises:
        TrainedModelError: The recipe needs a model and none is given, or one of another recipe or layout.
    """
    if reranker is None:
        return _rank(index, query, recipe, filters, k, None, explain, trained)
    try:
        ranking = _rank(index, query, recipe, filters, k, reranker, explain, trained)
    except RerankError as error:
        own = _rank(index, query, recipe, filters, k, None, explain, trained)
        return replace(own, rerank_failure=str(error))
    return replace(ranking, reranked=len(ranking.rows) > 0)


def _rank(
    index: NamespaceIndex,
    query: Query,
    recipe: AnyRecipe,
    filters: Filters,
    k: int,
    reranker: Reranker | None,
    explain: bool,
    trained: Trained | None,
) -> Ranking:
    """Rank; a reranker's failure is raised."""
    numbers = np.array(index.term_numbers(query.terms), np.int64)
    if not query.terms or (not len(numbers) and not needs_vector(recipe)):
        return empty_ranking("no_query_terms")
    passes = passing(index, filters)
    if passes is not None and not passes.any():
        return empty_ranking("nothing_passes_the_filters")
    if isinstance(recipe, CoarseToFine):
        as_of_us = _as_of_us(filters)
        chosen = coarse_to_fine(index, query, numbers, recipe, passes, as_of_us, reranker)
        return _ranked(index, chosen, passes, k, explain)
    asked = _Asked(index, query, numbers, filters, passes)
    found = _own_order(asked, recipe, k if reranker is None else max(k, reranker.candidates), explain, trained)
    if reranker is None or not len(found.rows):
        return replace(found, reason=None if len(found.rows) else "no_match")
    read = found.rows[: reranker.candidates]
    anew = reranker.scores(query, "turn", read)
    best = order_anew(found.rows, anew, index.id_order)
    legs = {**found.legs, "rerank": _read_scores(len(index), read, anew, best[: len(read)])} if explain else {}
    return Ranking(best[:k], _by_rank(len(best[:k])), legs, paths=found.paths)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query with what is known of it in a namespace: its terms' numbers, and which turns pass the filters."""

    index: NamespaceIndex
    query: Query
    numbers: Rows
    filters: Filters
    passes: Mask | None

    def analysis(self) -> QueryAnalysis:
        """Analyse the question; relative times in it count from `as_of`, without one from the end of the log."""
        rules = analyse_query(self.query.text, self.index.speakers[0], self.filters.as_of, self.index.log_span)
        return rules if self.query.told is None else merged_analysis(rules, self.query.told)


def _own_order(asked: _Asked, recipe: AnyRecipe, depth: int, explain: bool, trained: Trained | None) -> Ranking:
    """Rank by a recipe's own scores."""
    index, query, passes = asked.index, asked.query, asked.passes
    if isinstance(recipe, LearnedFlat | Routed):
        return _learned_ranking(asked, recipe, depth, explain, trained)
    if isinstance(recipe, Hage | Magma):
        return _walked_ranking(asked, recipe, depth, explain, trained)
    if isinstance(recipe, Blend):
        scores, parts = blend(index, query, asked.numbers, recipe, _as_of_us(asked.filters), passes)
        legs = {name: ListScores(part, _shared_ranks(part)) for name, part in parts.items()} if explain else {}
        candidates = np.arange(len(index))
    elif isinstance(recipe, PageRank):
        scores, parts = pagerank_scores(index, query, asked.numbers, recipe, _as_of_us(asked.filters), passes)
        legs = {name: ListScores(part, _shared_ranks(part)) for name, part in parts.items()} if explain else {}
        candidates = np.flatnonzero(scores)
    elif isinstance(recipe, Recipe):
        scores, candidates, legs = _ranked_lists(index, query, asked.numbers.tolist(), recipe, passes, explain)
    else:
        raise TypeError(f"recipe {recipe.name!r} ranks no turns of its own")
    if passes is not None:
        candidates = candidates[passes[candidates]]  # a session's rank reaches all its turns
    best = best_rows(scores, candidates, depth, index.id_order)
    return Ranking(best, scores[best], legs)


def _learned_ranking(
    asked: _Asked, recipe: LearnedFlat | Routed, depth: int, explain: bool, trained: Trained | None
) -> Ranking:
    index, query, passes = asked.index, asked.query, asked.passes
    flat = recipe.flat if isinstance(recipe, Routed) else recipe
    if not isinstance(trained, RoutedWeights if isinstance(recipe, Routed) else TurnRanker):
        raise _no_model(recipe, trained)
    if not finite_vector(query, recipe.name).any() and not len(asked.numbers):
        return empty_ranking("no_match")
    analysis, as_of_us = asked.analysis(), _as_of_us(asked.filters)
    found = find_candidates(index, query, analysis, asked.numbers, flat, passes, as_of_us)
    frontier: Frontier | None = None
    try:
        if isinstance(trained, RoutedWeights) and isinstance(recipe, Routed):
            rows, odds, frontier = routed_order(
                index, query, analysis, found, trained, recipe.budget, depth, passes, as_of_us
            )
            own = {"odds": odds, "bonus": frontier.bonus}
        elif isinstance(trained, TurnRanker):
            rows, some = learned_order(index, found, trained, depth)
            own = {"odds": all_odds(len(index), found.rows, some)}
    except ForestError as error:
        raise TrainedModelError(f"recipe {recipe.name!r}: {error}") from error
    if not explain:
        return Ranking(rows, _by_rank(len(rows)))
    legs = {name: ListScores(scores, _shared_ranks(scores)) for name, scores in {**found.lists, **own}.items()}
    paths = frontier_paths(index.relations("fact"), index.graph, as_of_us, frontier, rows) if frontier else {}
    return Ranking(rows, _by_rank(len(rows)), legs, paths=paths)


def _walked_ranking(asked: _Asked, recipe: Hage | Magma, depth: int, explain: bool, trained: Trained | None) -> Ranking:
    index, analysis = asked.index, asked.analysis()
    vector = finite_vector(asked.query, recipe.name)
    cosines = index.cosines(vector)
    intent = np.array(analysis.intent, np.float32)
    relations = index.relations("turn")
    anchors = find_anchors(index, vector, cosines, asked.numbers.tolist(), asked.passes, period_of(analysis))
    if isinstance(recipe, Magma):
        rows = magma_rank(index, cosines, relations, intent, anchors, recipe)
    else:
        weights = trained if isinstance(trained, HageWeights) else None
        if weights is None and recipe.trained is not None:
            raise _no_model(recipe, trained)
        rows = hage_rank(index.id_order, vector, cosines, relations, weights, intent, anchors, recipe)
    if asked.passes is not None:
        rows = rows[asked.passes[rows]]  # walks may lead through what must not be shown
    rows = rows[:depth]
    paths: Paths = {}
    if explain and isinstance(recipe, Magma):
        _, before = breadth_first(index, cosines, relations, intent, anchors, recipe)
        paths = visited_paths(relations, before, rows)
    elif explain and isinstance(recipe, Hage):
        score = relation_scores(vector, cosines, relations, weights, intent, recipe)
        paths = walked_paths(relations, score, anchors, recipe, index.id_order.rank)
    return Ranking(rows, _by_rank(len(rows)), paths=paths)


def _no_model(recipe: AnyRecipe, trained: Trained | None) -> TrainedModelError:
    name = model_name(recipe)
    given = "" if trained is None else f", and not the {type(trained).__name__} that is given"
    return TrainedModelError(
        f"recipe {recipe.name!r} needs the trained model {name!r}{given}: train it with python -m jobs.train, and name "
        "its folder as retrieve.models"
    )


def _as_of_us(filters: Filters) -> int | None:
    return None if filters.as_of is None else microseconds(filters.as_of)


def _by_rank(size: int) -> Floats:
    """Return falling scores of a ranking whose own are of several kinds, float32 `[size]`."""
    return (1 / np.arange(1, size + 1)).astype(np.float32)


def _read_scores(turns: int, rows: Rows, scores: Floats, order: Rows) -> ListScores:
    """Return a list of some turns, `order` being the best first, as what it says of each turn."""
    every, ranks = np.zeros(turns, np.float32), np.zeros(turns, np.int64)
    every[rows] = scores
    ranks[order] = np.arange(1, len(order) + 1)
    return ListScores(every, ranks)


def _ranked(index: NamespaceIndex, chosen: Chosen, passes: Mask | None, k: int, explain: bool) -> Ranking:
    rows = turns_of(index, chosen)
    rows = (rows if passes is None else rows[passes[rows]])[:k]
    reason: EmptyReason | None = None if len(rows) else "no_match"
    legs = {}
    if explain and chosen.scores:
        read = scores_of_turns(index, chosen)
        order = np.array([row for row in rows.tolist() if row in read], np.int64)
        scores = np.array([read[row] for row in order.tolist()], np.float32)
        legs["rerank"] = _read_scores(len(index), order, scores, order)
    paths = chosen_paths(index.graph, chosen) if explain else {}
    by_rank = _by_rank(len(rows))
    return Ranking(
        rows, by_rank, legs, reason, chosen.episodes, chosen.facts, passes, paths=paths, topics=chosen.topics
    )


def passing(index: NamespaceIndex, filters: Filters) -> Mask | None:
    """Return which rows pass, or None if all do; hidden ones never do."""
    conditions: list[Mask] = [] if index.hidden is None else [~index.hidden]
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
    if filters.as_of is not None:
        conditions.append(index.said_at_us <= microseconds(filters.as_of))  # an unknown time is the smallest integer
    if filters.speaker is not None:
        names, codes = index.speakers
        conditions.append(codes == (names.index(filters.speaker) if filters.speaker in names else -2))
    if filters.session_id is not None:
        sessions = index.session_ids
        conditions.append(
            index.session == (sessions.index(filters.session_id) if filters.session_id in sessions else -1)
        )
    return np.logical_and.reduce(conditions) if conditions else None


def _ranked_lists(
    index: NamespaceIndex,
    query: Query,
    numbers: Sequence[int],
    recipe: Recipe,
    passes: Mask | None,
    explain: bool,
) -> tuple[Floats, Rows, dict[str, ListScores]]:
    """Return the score of every turn, the turns that a list holds, and what each list says if that is asked."""
    scores = _leg_scores(index, query, numbers, recipe, passes)
    lists = {leg.name: _leg_rows(index, leg, scores[leg.name], passes) for leg in recipe.legs}
    legs = {leg.name: _listed(index, leg, scores[leg.name], lists[leg.name]) for leg in recipe.legs if explain}
    if len(recipe.legs) == 1:
        only = recipe.legs[0].name
        return scores[only], lists[only], legs
    fused = _fuse(index, recipe, lists)
    factors = speaker_factors(index, query.text, recipe.other_speaker) if recipe.other_speaker != 1.0 else None
    return (fused if factors is None else fused * factors), np.flatnonzero(fused != 0), legs


def _listed(index: NamespaceIndex, leg: Leg, scores: Floats, rows: Rows) -> ListScores:
    """Return a list by turn; a session's rank and score are those of all its turns."""
    ranks = np.zeros(len(scores), np.int64)
    ranks[rows] = np.arange(1, len(rows) + 1)
    if leg.unit == "session":
        return ListScores(scores[index.session], ranks[index.session])
    return ListScores(scores, ranks)


def _leg_scores(
    index: NamespaceIndex, query: Query, numbers: Sequence[int], recipe: Recipe, passes: Mask | None
) -> dict[str, Floats]:
    """Return the score of every turn (or session) in each leg; a query vector of zeros leaves NaN, not a ranking."""
    scores: dict[str, Floats] = {}
    cosines: Floats | None = None
    for leg in recipe.legs:
        if leg.kind == "bm25":
            scores[leg.name] = index.bm25(leg.unit, numbers)
            continue
        if cosines is None:
            vector = finite_vector(query, recipe.name)
            cosines = (
                index.near_cosines(vector, DEPTH, passes) if vector.any() else np.full(len(index), np.nan, np.float32)
            )
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
        candidates = index.dense_rows(scores)
    if passes is not None:
        candidates = candidates[passes[candidates]]
    return best_rows(scores, candidates, DEPTH, index.id_order)


_SHARES = 1 / (RRF_K + 1 + np.arange(DEPTH))
"""What rank 1, 2, 3, ... of a list is worth."""


def _fuse(index: NamespaceIndex, recipe: Recipe, lists: dict[str, Rows]) -> Floats:
    """Join the lists by reciprocal rank fusion; a session's share goes to each of its turns."""
    fused = np.zeros(len(index))
    for leg in recipe.legs:
        rows = lists[leg.name]
        shares = leg.weight * _SHARES[: len(rows)]
        if leg.unit == "session":
            by_session = np.zeros(index.sessions)
            by_session[rows] = shares
            fused += by_session.take(index.session)
        else:
            fused[rows] += shares
    return fused.astype(np.float32)


def hits_of(index: NamespaceIndex, ranking: Ranking) -> list[Hit]:
    """Return the turns of a ranking with text, speaker and time, and each list's rank and score if it kept them."""
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
                legs={
                    name: (int(leg.ranks[row]), float(leg.scores[row]))
                    for name, leg in ranking.legs.items()
                    if leg.ranks[row]
                },
                path=[_path_step(index, step) for step in ranking.paths.get(row, ())],
            )
        )
    return hits


def _path_step(index: NamespaceIndex, step: Step) -> PathStep:
    ids = index.column("turn_id") if step.level == "turn" else index.graph.column(step.level, "node_id")
    return PathStep(step.level, ids[step.number].as_py(), step.relation)


_HIT_COLUMNS = ("turn_id", "source_id", "role", "text", "attachments")


def _shared_ranks(scores: Floats) -> Rows:
    """Return each turn's rank by score, equal scores sharing the better one."""
    return 1 + len(scores) - np.searchsorted(np.sort(scores), scores, side="right")
