"""What a trained ranker is told of a turn: where the ranked lists put it, its neighbours, itself, and the question.

`FLAT` reads the turns and their surroundings only; `DEEP` adds the levels of the hypergraph, `TUNED` tuned vectors of
the turns to that. A layout's features are those of `turn_features`, in that order; a trained ranker carries their names
and is refused where they differ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

import numpy as np

from hgmem_core.blend import combined, components, scaled
from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_index import NamespaceIndex, words
from hgmem_core.query_analysis import QueryAnalysis
from hgmem_core.ranking import Mask, Query, Rows, best_rows, finite_tuned_vector, finite_vector, speaker_factors
from hgmem_core.recipes import RRF_K, Blend
from hgmem_core.turns import UNKNOWN_TIME, microseconds

TURN_FEATURES_REVISION = 1
"""Raised when a feature of the same name gets another value."""

NEAREST = 10
"""The best turns by the leading list, to which others are compared."""
RANKED = 1_000
"""Turns of a list that are fused with those of others."""
_CROWD = 30
"""The best turns by the leading list, which are counted by session and episode."""
_DAY_US = 86_400_000_000
_QUESTION_WORDS = ("when", "who", "what", "where", "why", "how", "which", "did", "would", "both", "many", "long", "or")
_ASKED_WITHIN = 6
"""Words at the beginning of a question among which its question word is."""


@dataclass(frozen=True, slots=True)
class FeatureLayout:
    """Which ranked lists the features are made of.

    Attributes:
        lists: Each gives the score, the score scaled to [0, 1] over all turns, and the logarithm of the rank among the
            candidates.
        beside: Those of which the scaled scores of the two turns on either side are features too.
        pool: Those whose reciprocal rank fusion chooses the candidates.
        lead: The one whose best turns others are compared to.
    """

    lists: tuple[str, ...]
    beside: tuple[str, ...]
    pool: tuple[str, ...]
    lead: str


_FOUR = ("bm25/turn", "dense/turn", "bm25/window", "dense/window")

FLAT = FeatureLayout((*_FOUR, "bm25/session", "dense/session"), _FOUR[:2], _FOUR, "rrf")
DEEP = FeatureLayout(
    (
        *FLAT.lists,
        *("bm25/dated", "bm25/prior", "dense/prior", "bm25/episode", "dense/episode"),
        *("bm25/fact", "dense/fact", "dense/topic", "blend"),
    ),
    ("bm25/dated", "bm25/prior", "dense/turn", "dense/fact", "blend"),
    _FOUR,
    "blend",
)
TUNED = FeatureLayout(
    (*DEEP.lists, "dense/tuned"), (*DEEP.beside, "dense/tuned"), (*DEEP.pool, "dense/tuned"), DEEP.lead
)
LAYOUTS: MappingProxyType[str, FeatureLayout] = MappingProxyType({"flat": FLAT, "deep": DEEP, "tuned": TUNED})


def list_scores(
    index: NamespaceIndex, query: Query, numbers: Ints, layout: FeatureLayout, as_of_us: int | None = None
) -> dict[str, Floats]:
    """Return the scores of every turn in each list of a layout, float32 `[turns]`; `rrf` fuses its pool.

    Args:
        index: The namespace.
        query: With a vector, and for tuned vectors with one of theirs.
        numbers: The query's terms as the namespace numbers them.
        layout: Which lists.
        as_of_us: When the facts must stand, in microseconds since 1970; None for now.
    """
    vector = finite_vector(query, "learned")
    terms = numbers.tolist()
    cosines = index.cosines(vector)
    blended = components(index, query, numbers, _BLEND, as_of_us) if "blend" in layout.lists else {}
    makers: dict[str, Callable[[], Floats]] = {
        "bm25/turn": lambda: index.bm25("turn", terms),
        "bm25/dated": lambda: index.bm25("dated", terms),
        "bm25/window": lambda: index.bm25("window", terms),
        "bm25/prior": lambda: index.bm25("prior", terms),
        "bm25/session": lambda: index.bm25("session", terms).take(index.session),
        "bm25/episode": lambda: index.bm25("episode", terms).take(index.episode),
        "bm25/fact": lambda: _words_of_facts(index, terms, as_of_us),
        "dense/turn": lambda: cosines,
        "dense/window": lambda: index.span_cosines("window", cosines),
        "dense/prior": lambda: index.span_cosines("prior", cosines),
        "dense/session": lambda: _session_means(index, cosines),
        "dense/tuned": lambda: index.tuned_cosines(finite_tuned_vector(query, "learned-flat:tuned")),
        "dense/episode": lambda: index.graph.cosines("episode", vector, 0.0).take(index.episode),
        "dense/fact": lambda: blended["dense/fact"],
        "dense/topic": lambda: blended["dense/topic"],
        "blend": lambda: _blended(index, query, blended),
    }
    return {name: makers[name]() for name in layout.lists}


def choose_candidates(
    index: NamespaceIndex, lists: Mapping[str, Floats], layout: FeatureLayout, size: int, passes: Mask | None = None
) -> tuple[Rows, Floats]:
    """Return the `size` best turns by reciprocal rank fusion of a layout's pool, best first, and all fused scores.

    Ranks count to `RANKED` over the turns that pass, equal scores in the order of their ids.
    """
    rows = np.arange(len(index)) if passes is None else np.flatnonzero(passes)
    fused = np.zeros(len(index))
    for name in layout.pool:
        order = best_rows(lists[name], rows, RANKED, index.id_order)
        fused[order] += 1 / (RRF_K + 1 + np.arange(len(order)))
    scores = fused.astype(np.float32)
    return best_rows(scores, rows, size, index.id_order), scores


def turn_features(
    index: NamespaceIndex,
    query: Query,
    analysis: QueryAnalysis,
    lists: Mapping[str, Floats],
    rows: Rows,
    layout: FeatureLayout,
) -> dict[str, Floats]:
    """Return the features of some turns by name, float32 `[len(rows)]` each.

    Args:
        index: The namespace.
        query: What is asked.
        analysis: Of the same.
        lists: Of `list_scores`, and `rrf` where it leads.
        rows: The candidates, at least one.
        layout: Which features.
    """
    columns: dict[str, Floats] = {}
    whole = {name: scaled(lists[name]) for name in layout.lists}
    for name in layout.lists:
        scores = lists[name][rows]
        columns[name] = scores
        columns[f"{name} scaled"] = whole[name][rows]
        columns[f"{name} rank"] = np.log1p(_ranks(scores))
    steps = {step: _beside(index, rows, step) for step in (-1, 1, -2, 2)}
    for name in layout.beside:
        for step, (place, is_there) in steps.items():
            columns[f"{name} at {step:+d}"] = whole[name][place] * is_there
    columns |= _of_turns(index, analysis, rows, *steps[-1])
    columns |= _of_question(query, analysis, len(rows))
    best = rows[np.argsort(-lists[layout.lead][rows], kind="stable")]
    columns |= _near_the_best(index, rows, best)
    return {name: np.asarray(column, np.float32) for name, column in columns.items()}


_BLEND = Blend("hypergraph")


def _blended(index: NamespaceIndex, query: Query, parts: Mapping[str, Floats]) -> Floats:
    scores = combined(parts, _BLEND)
    factors = speaker_factors(index, query.text, _BLEND.other_speaker)
    return scores if factors is None else scores * factors


def _words_of_facts(index: NamespaceIndex, terms: list[int], as_of_us: int | None) -> Floats:
    """Return the best BM25 score of the facts that a turn is the best source of, 0 without one."""
    graph = index.graph
    scores = graph.level("fact", index.bm25("graph", terms))
    facts, rows = graph.best_turn_of_fact(as_of_us)
    best = np.zeros(len(index), np.float32)
    np.maximum.at(best, rows, scores[facts])
    return best


def _session_means(index: NamespaceIndex, cosines: Floats) -> Floats:
    sums = np.bincount(index.session, weights=cosines, minlength=index.sessions)
    means = sums / np.bincount(index.session, minlength=index.sessions)
    return means.astype(np.float32).take(index.session)


def _ranks(scores: Floats) -> Ints:
    """Return the place of each score from 0, equal ones in their order."""
    ranks = np.empty(len(scores), np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return ranks


def _beside(index: NamespaceIndex, rows: Rows, step: int) -> tuple[Rows, Mask]:
    """Return the turns `step` turns on, and whether each is there within the session."""
    place = np.clip(rows + step, 0, len(index) - 1)
    return place, (place == rows + step) & (index.session[place] == index.session[rows])


def _of_turns(
    index: NamespaceIndex, analysis: QueryAnalysis, rows: Rows, before: Rows, has_before: Mask
) -> dict[str, Floats]:
    codes = index.speakers[1][rows]
    named = np.isin(codes, analysis.speakers)
    session = index.session[rows]
    return {
        "speaker": np.where(named, 1.0, 0.0) if analysis.speakers else np.full(len(rows), 0.5),
        "length": index.text_length[rows],
        "length at -1": index.text_length[before] * has_before,
        "asks": index.asks[rows],
        "asks at -1": index.asks[before] * has_before,
        "attachment": index.has_attachment[rows],
        "place in session": index.position[rows] / np.maximum(1, index.session_length[session] - 1),
        "place of session": session / max(1, index.sessions - 1),
        **_of_times(index.said_at_us[rows], analysis.time_from, analysis.time_until),
    }


def _of_times(said: Ints, first: datetime | None, until: datetime | None) -> dict[str, Floats]:
    """Return whether turns are of the time that a question speaks of, -1 where that is unknown, and how far off."""
    known = said != UNKNOWN_TIME
    if (first is None and until is None) or not known.any():
        return {"in time": np.full(len(said), -1.0, np.float32), "days off": np.zeros(len(said), np.float32)}
    early = np.zeros(len(said)) if first is None else np.maximum(0.0, microseconds(first) - said.astype(np.float64))
    late = np.zeros(len(said)) if until is None else np.maximum(0.0, said.astype(np.float64) - microseconds(until) + 1)
    off = np.where(known, early + late, 0.0) / _DAY_US
    return {"in time": np.where(known, off == 0.0, -1.0), "days off": np.log1p(off)}


def _of_question(query: Query, analysis: QueryAnalysis, size: int) -> dict[str, Floats]:
    said = words(query.text).split()
    values = {
        "words": float(len(said)),
        "speakers named": float(len(analysis.speakers)),
        "asks when": float(analysis.asks_when),
        **dict(zip(("temporal", "semantic", "causal", "entity"), analysis.intent, strict=True)),
        **{f"word {word}": float(word in said[:_ASKED_WITHIN]) for word in _QUESTION_WORDS},
    }
    return {name: np.full(size, value, np.float32) for name, value in values.items()}


def _near_the_best(index: NamespaceIndex, rows: Rows, best: Rows) -> dict[str, Floats]:
    """Return how near turns are to the best ones, which come first in `best`, and how many of these are close by."""
    cosines = np.stack([index.turn_cosines(int(row), rows) for row in best[:NEAREST]], axis=1)
    ordered = np.sort(cosines, axis=1)
    crowd = best[:_CROWD]
    columns = {"near the best": cosines.mean(axis=1), "near one of the best": ordered[:, -min(2, ordered.shape[1])]}
    for name, groups in (("session", index.session), ("episode", index.episode)):
        counts = np.bincount(groups[crowd], minlength=int(groups.max()) + 1)
        columns[f"best in {name}"] = counts[groups[rows]].astype(np.float32)
    return columns
