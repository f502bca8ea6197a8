"""The recipe `routed`: flat search, and a frontier of facts that grows from its best turns along learned relations.

A walk of a few hops cannot hold evidence that lies in many sessions, so what grows here is a set. Every fact has the
log odds of its best turn, s_i, and p_i = sigmoid(s_i). To expand a fact is to let it speak for its neighbours: a
relation i -> j gives the turn of j the bonus p_i · w_ij, and a turn keeps the largest bonus that it was given. The fact
that is most probable by odds and bonus is expanded next, until a budget of facts is spent or the best is less probable
than a learned bound. w_ij = softplus of a small network of the relation's features, both facts' odds and cosines, the
question's intent, and a residual that is a function of the two facts' vectors, so that it holds on graphs never seen.

A bonus is never negative and turns keep their odds: without a relation that speaks for a turn the order is that of flat
search.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from hgmem_core.lexical import Floats, Ints
from hgmem_core.named_arrays import check_names, check_values
from hgmem_core.ranking import Rows
from hgmem_core.relations import RICH, Relations

ENDS = ("source odds", "target odds", "source cosine", "target cosine", "temporal", "semantic", "causal", "entity")
"""What the network reads beside a relation's features: of its ends, and the question's intent."""

INPUTS = (*RICH, *ENDS)
BELOW = 1.0
"""How far the odds of turns that flat search did not order lie below the least of those that it did."""
_LARGEST_ODDS = 10.0
_AHEAD = 6
"""Facts that are read together when one comes up that flat search did not foresee."""


@dataclass(frozen=True, slots=True)
class FrontierWeights:
    """What training learned.

    Attributes:
        mean: Of each input, float32 `[inputs]`.
        scale: Of each input, above 0, float32 `[inputs]`.
        first_weight: float32 `[hidden, inputs]`.
        first_bias: float32 `[hidden]`.
        second_weight: float32 `[hidden2, hidden]`.
        second_bias: float32 `[hidden2]`.
        third_weight: float32 `[hidden2]`.
        third_bias: float32 `[]`.
        source_residual: float32 `[rank, dimension]`.
        target_residual: float32 `[rank, dimension]`; the residual is (source_residual v_i) · (target_residual v_j).
        stop: Log odds below which no fact is expanded, float32 `[]`.
    """

    mean: Floats
    scale: Floats
    first_weight: Floats
    first_bias: Floats
    second_weight: Floats
    second_bias: Floats
    third_weight: Floats
    third_bias: Floats
    source_residual: Floats
    target_residual: Floats
    stop: Floats

    def as_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> "FrontierWeights":
        """Return the weights of `as_dict`.

        Raises:
            ValueError: An array is missing, unknown, of another shape, or not finite.
        """
        check_names("a frontier", [field.name for field in fields(cls)], arrays)
        weights = cls(**arrays)
        first, second = len(weights.first_bias), len(weights.second_bias)
        shapes: dict[str, tuple[int, ...]] = {
            "mean": (len(INPUTS),),
            "scale": (len(INPUTS),),
            "first_weight": (first, len(INPUTS)),
            "second_weight": (second, first),
            "third_weight": (second,),
            "third_bias": (),
            "target_residual": weights.source_residual.shape,
            "stop": (),
        }
        check_values(arrays, shapes)
        if not (weights.scale > 0).all():
            raise ValueError("scale of a frontier is not above 0")
        return weights


@dataclass(frozen=True, slots=True)
class Field:
    """What a question finds in a namespace before the frontier grows.

    Attributes:
        relations: Of the facts, layout RICH.
        vectors: Gives those of some facts, unit or zeros, float32 `[n, dimension]`.
        turns: The row of each fact's best turn, -1 for a fact that no longer stands, int64 `[facts]`.
        odds: Of every turn by flat search, float32 `[turns]`; see `all_odds`.
        question: The unit vector of the question, float32 `[dimension]`.
        intent: Of the question, float32 `[4]`.
    """

    relations: Relations
    vectors: Callable[[Ints], Floats]
    turns: Ints
    odds: Floats
    question: Floats
    intent: Floats


@dataclass(frozen=True, slots=True)
class Frontier:
    """What grew.

    Attributes:
        bonus: Of every turn, at least 0, float32 `[turns]`.
        expanded: Facts in the order in which they were, int64 `[n]`.
        spoken_by: The fact that gave each turn its bonus, -1 for none, int64 `[turns]`.
    """

    bonus: Floats
    expanded: Rows
    spoken_by: Ints


def all_odds(turns: int, rows: Rows, odds: Floats) -> Floats:
    """Return the log odds of every turn, float32 `[turns]`: of those that were not ordered, below the least."""
    every = np.full(turns, odds.min() - BELOW, np.float32)
    every[rows] = odds
    return every


def leaving_relations(field: Field, facts: Ints) -> tuple[Ints, Ints]:
    """Return the relations that leave some facts and lead to another turn, by number, and each one's fact by place."""
    offsets = field.relations.offsets
    sizes = offsets[facts + 1] - offsets[facts]
    before = np.cumsum(sizes) - sizes
    of_facts = np.repeat(np.arange(len(facts)), sizes)
    edges = np.arange(len(of_facts)) + np.repeat(offsets[facts] - before, sizes)
    theirs = field.turns[field.relations.targets[edges]]
    kept = (theirs >= 0) & (theirs != field.turns[facts[of_facts]])
    return edges[kept], of_facts[kept]


def inputs_of(field: Field, edges: Ints, sources: Ints) -> Floats:
    """Return what the network reads of some relations, float32 `[len(edges), len(INPUTS)]`."""
    targets = field.relations.targets[edges]
    cosines = [field.vectors(facts) @ field.question for facts in (sources, targets)]
    intent = np.broadcast_to(field.intent, (len(edges), len(field.intent)))
    read = [field.relations.features[edges], _ends(field, sources, targets, *cosines), intent]
    return np.concatenate(read, axis=1, dtype=np.float32)


def _ends(field: Field, sources: Ints, targets: Ints, source_cosines: Floats, target_cosines: Floats) -> Floats:
    """Return the odds and the cosines of the two ends of relations, `[len(sources), 4]`."""
    odds = (np.clip(field.odds[field.turns[facts]], -_LARGEST_ODDS, _LARGEST_ODDS) for facts in (sources, targets))
    return np.stack([*odds, source_cosines, target_cosines], axis=1)


def relation_weights(field: Field, edges: Ints, facts: Ints, of_facts: Ints, weights: FrontierWeights) -> Floats:
    """Return w of some relations, at least 0, float32 `[len(edges)]`.

    Args:
        field: The question in its namespace.
        edges: Numbers of the relations.
        facts: That the relations leave.
        of_facts: Which of them each leaves, by its place in `facts`.
        weights: Learned.
    """
    targets = field.relations.targets[edges]
    own, theirs = field.vectors(facts), field.vectors(targets)
    ends = _ends(field, facts[of_facts], targets, (own @ field.question)[of_facts], theirs @ field.question)
    # Mean and scale of the inputs are worked into the first layer; the intent is the same for all.
    first = weights.first_weight / weights.scale
    of_relation, of_ends, of_intent = np.split(first, [len(RICH), len(RICH) + ends.shape[1]], axis=1)
    bias = weights.first_bias - first @ weights.mean + of_intent @ field.intent
    hidden = np.maximum(field.relations.features[edges] @ of_relation.T + ends @ of_ends.T + bias, 0)
    hidden = np.maximum(hidden @ weights.second_weight.T + weights.second_bias, 0)
    residual = (own @ weights.source_residual.T)[of_facts] * (theirs @ weights.target_residual.T)
    output = hidden @ weights.third_weight + weights.third_bias + residual.sum(axis=1)
    w: Floats = np.logaddexp(0, output).astype(np.float32)
    return w


def grow(field: Field, weights: FrontierWeights, budget: int) -> Frontier:
    """Grow the frontier; ties by the facts' numbers, which are those of their ids.

    Args:
        field: The question in its namespace.
        weights: Learned.
        budget: The most facts that are expanded.
    """
    bonus = np.zeros(len(field.odds), np.float32)
    spoken_by = np.full(len(field.odds), -1, np.int64)
    is_open, is_read = field.turns >= 0, np.zeros(len(field.turns), bool)
    scores = np.where(is_open, field.odds[field.turns], np.float32(-np.inf))
    expanded: list[int] = []
    spoken: dict[int, tuple[Ints, Floats]] = {}
    while len(expanded) < budget and len(scores):
        fact = int(scores.argmax())
        if not is_open[fact] or scores[fact] < weights.stop:
            break
        if fact not in spoken:
            # What a relation is worth does not change, so facts that are likely to be next are read together.
            wanted = np.where(is_read, np.float32(-np.inf), scores)
            ahead = budget if not spoken else _AHEAD
            likely = np.argpartition(-wanted, min(ahead, len(wanted)) - 1)[:ahead]
            likely = likely[np.isfinite(wanted[likely])]
            if fact not in likely:
                likely[0] = fact  # of many that are equally probable others were taken
            is_read[likely] = True
            spoken |= _spoken_for(field, likely, weights)
        rows, worth = spoken[fact]
        given = worth / np.float32(1 + np.exp(-scores[fact]))
        is_open[fact], scores[fact] = False, -np.inf
        expanded.append(fact)
        gains = given > bonus[rows]
        spoken_by[rows[gains]] = fact
        np.maximum.at(bonus, rows[gains], given[gains])
        is_moved = np.zeros(len(bonus), bool)
        is_moved[rows[gains]] = True
        moved = np.flatnonzero(is_moved[field.turns] & is_open)
        scores[moved] = (field.odds + bonus)[field.turns[moved]]
    return Frontier(bonus, np.array(expanded, np.int64), spoken_by)


def _spoken_for(field: Field, facts: Ints, weights: FrontierWeights) -> dict[int, tuple[Ints, Floats]]:
    """Return for each fact the turns that it may speak for, and w of the relations that lead there."""
    edges, of_facts = leaving_relations(field, facts)
    rows = field.turns[field.relations.targets[edges]]
    worth = relation_weights(field, edges, facts, of_facts, weights)
    ends = np.cumsum(np.bincount(of_facts, minlength=len(facts)))[:-1]
    return dict(zip(facts.tolist(), zip(np.split(rows, ends), np.split(worth, ends), strict=True), strict=True))
