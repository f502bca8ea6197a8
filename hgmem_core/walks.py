"""Walks of a policy over graphs, many at a time: HAGE's Markov decision process in torch.

A walk begins at a node and goes, at most `hops` times, to an unvisited neighbour. The policy is a softmax over
S_ij = λ cos(q, v_j) + (1 - λ) w_ij. A walk ends when it has found all its targets, when it has gone its hops, or at a
dead end. All graphs share one space of node numbers and one of relation numbers; neighbours are padded to the largest
number of any node.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hgmem_core.lexical import Floats, Ints
from hgmem_core.relations import Relations
from hgmem_core.router import INTENTS, QueryRouter

_CLOSED = -1e9
"""The score of a neighbour that cannot be chosen: finite, so that nothing becomes NaN where none can."""
_NO_NODE = -1

Choose = Callable[[int, Tensor], Tensor]
"""From the number of a step and log π `[walks, neighbours]` to the chosen neighbour of each walk, `[walks]`."""


@dataclass(frozen=True, slots=True)
class TrainingGraph:
    """A graph that walks learn on.

    Attributes:
        relations: Of its nodes.
        vectors: Of its nodes, unit, float32 `[nodes, dimension]`.
    """

    relations: Relations
    vectors: Floats


@dataclass(frozen=True, slots=True)
class TrainingQuestion:
    """A question with its evidence.

    Attributes:
        graph: The number of the graph that it is asked of.
        vector: Unit, float32 `[dimension]`.
        intent: Over temporal, semantic, causal and entity relations; sum 1, float32 `[4]`.
        starts: Nodes of the graph where walks begin, int64 `[n]`, n > 0; as published, the one nearest to the question.
        targets: Nodes of the graph that hold evidence, int64 `[m]`; without any, nothing can be learned from it.
    """

    graph: int
    vector: Floats
    intent: Floats
    starts: Ints
    targets: Ints


@dataclass(frozen=True, slots=True)
class WalkRules:
    """How walks go and what they earn; the defaults are the published ones.

    Attributes:
        hops: The most steps.
        cosine_share: λ.
        target_reward: For each target that a step finds.
        step_cost: Of every step.
        failure_cost: Of ending without all targets, out of hops (as published) or at a dead end (as in released code).
    """

    hops: int = 5
    cosine_share: float = 0.5
    target_reward: float = 10.0
    step_cost: float = 0.05
    failure_cost: float = 1.0


@dataclass(frozen=True, slots=True)
class Graphs:
    """Graphs in one space of numbers.

    Attributes:
        neighbours: Of each node, padded with itself, `[nodes, neighbours]`.
        relations: The number of the relation to each neighbour, `[nodes, neighbours]`.
        features: Of every relation, `[relations, features]`.
        first_relation: Of each graph, and how many relations there are in all.
    """

    neighbours: Tensor
    relations: Tensor
    features: Tensor
    first_relation: list[int]


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions with the cosines of every node of their graphs.

    Attributes:
        vectors: `[questions, dimension]`.
        intents: `[questions, 4]`.
        cosines: Of all questions, one after the other: that of question i with node j is `cosines[place[i] + j]`.
        place: See `cosines`, `[questions]`.
        starts: Node numbers, padded, `[questions, most starts]`.
        n_starts: `[questions]`.
        targets: Node numbers, padded with -1, `[questions, most targets]`.
    """

    vectors: Tensor
    intents: Tensor
    cosines: Tensor
    place: Tensor
    starts: Tensor
    n_starts: Tensor
    targets: Tensor


@dataclass(frozen=True, slots=True)
class Walks:
    """What walks did.

    Attributes:
        log_probs: log π of what was chosen at each step, 0 where a walk had ended, `[walks, hops]`.
        rewards: `[walks, hops]`.
        live: Where a step was made, bool `[walks, hops]`.
        choices: Which neighbour was chosen, by its place, `[walks, hops]`.
        nodes: Where a walk was, from its start on; -1 after its end, `[walks, hops + 1]`.
        succeeded: Whether all targets were found, bool `[walks]`.
    """

    log_probs: Tensor
    rewards: Tensor
    live: Tensor
    choices: Tensor
    nodes: Tensor
    succeeded: Tensor


def pad_graphs(graphs: Sequence[TrainingGraph], device: str) -> Graphs:
    """Put graphs into one space of numbers, as tensors on a device.

    Raises:
        ValueError: There is none, their features differ, or vectors are not as many as nodes, or not finite.
    """
    if not graphs:
        raise ValueError("there is no graph to walk on; give at least one")
    layouts = {graph.relations.layout for graph in graphs}
    if len(layouts) > 1:
        raise ValueError(f"the graphs have relations of different features, {sorted(layouts)}; build them alike")
    for number, graph in enumerate(graphs):
        _check(len(graph.relations) == len(graph.vectors), f"graph {number}: there is not one vector for each node")
        _check(np.isfinite(graph.vectors).all(), f"graph {number}: a vector holds NaN or an infinity")
        _check(np.isfinite(graph.relations.features).all(), f"graph {number}: a feature is NaN or an infinity")
    nodes = np.cumsum([0, *(len(graph.relations) for graph in graphs)])
    edges = np.cumsum([0, *(len(graph.relations.targets) for graph in graphs)])
    degrees = np.concatenate([np.diff(graph.relations.offsets) for graph in graphs])
    present = np.arange(max(1, degrees.max(initial=0))) < degrees[:, None]
    neighbours = np.broadcast_to(np.arange(len(degrees))[:, None], present.shape).copy()
    relations = np.zeros(present.shape, np.int64)
    targets = [graph.relations.targets + first for graph, first in zip(graphs, nodes, strict=False)]
    neighbours[present] = np.concatenate(targets)
    relations[present] = np.arange(edges[-1])
    features = np.concatenate([graph.relations.features for graph in graphs])
    if not len(features):
        features = np.zeros((1, features.shape[1]), np.float32)  # what padding refers to
    return Graphs(
        torch.from_numpy(neighbours).to(device),
        torch.from_numpy(relations).to(device),
        torch.from_numpy(features).to(device),
        edges.tolist(),
    )


def pad_questions(questions: Sequence[TrainingQuestion], graphs: Sequence[TrainingGraph], device: str) -> Questions:
    """Number the nodes of questions as `pad_graphs` does, and compute the cosines.

    Raises:
        ValueError: There is none, or one is not as it should be: says which and why.
    """
    _check(len(questions) > 0, "there is no question to walk for; give at least one")
    first = np.cumsum([0, *(len(graph.relations) for graph in graphs)])
    for number, question in enumerate(questions):
        where = f"question {number}"
        _check(0 <= question.graph < len(graphs), f"{where}: there is no graph {question.graph}")
        size = len(graphs[question.graph].relations)
        _check(len(question.starts) > 0, f"{where}: it has no start; give at least the node nearest to it")
        for name, nodes in (("start", question.starts), ("target", question.targets)):
            _check(not ((nodes < 0) | (nodes >= size)).any(), f"{where}: a {name} is none of the {size} nodes")
        _check(question.intent.shape == (INTENTS,), f"{where}: its intent is not {INTENTS} weights")
        dimension = graphs[question.graph].vectors.shape[1]
        _check(
            question.vector.shape == (dimension,),
            f"{where}: its vector has not the {dimension} dimensions of its graph",
        )
        _check(np.isfinite(question.vector).all(), f"{where}: its vector holds NaN or an infinity")
    cosines = [graphs[question.graph].vectors @ question.vector for question in questions]
    begins = np.cumsum([0, *map(len, cosines)])[:-1]
    graph = np.array([question.graph for question in questions])
    starts = _padded([question.starts + first[question.graph] for question in questions])
    arrays = (
        np.stack([question.vector for question in questions]),
        np.stack([question.intent for question in questions]),
        np.concatenate(cosines),
        begins - first[graph],
        starts,
        (starts != _NO_NODE).sum(axis=1),
        _padded([np.unique(question.targets) + first[question.graph] for question in questions]),
    )
    return Questions(*(torch.from_numpy(array).to(device) for array in arrays))


def _check(holds: bool | np.bool_, complaint: str) -> None:
    if not holds:
        raise ValueError(complaint)


def _padded(rows: Sequence[Ints]) -> Ints:
    table = np.full((len(rows), max(1, *map(len, rows))), _NO_NODE)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table


def roll_out(
    router: QueryRouter,
    features: Tensor,
    graphs: Graphs,
    questions: Questions,
    asked: Tensor,
    starts: Tensor,
    rules: WalkRules,
    choose: Choose,
) -> Walks:
    """Walk once for each of `asked`, all side by side.

    Args:
        router: Weighs relations.
        features: Of every relation, `[relations, features]`: those of `graphs`, or what was learned in their place.
        graphs: To walk on.
        questions: To walk for.
        asked: The question of each walk, `[walks]`.
        starts: Where each begins, `[walks]`.
        rules: Of walking.
        choose: Where to go.
    """
    targets, place = questions.targets[asked], questions.place[asked]
    queries = router.of_queries(questions.vectors[asked], questions.intents[asked])
    wanted = targets != _NO_NODE
    found = targets == starts[:, None]
    live = (wanted & ~found).any(1)
    here, nodes = starts, [starts]
    log_probs, rewards, lives, choices = list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()
    for step in range(rules.hops):
        near = graphs.neighbours[here]
        free = (near[:, :, None] != torch.stack(nodes, 1)[:, None, :]).all(2)
        stuck = live & ~free.any(1)
        if step:
            rewards[-1] = rewards[-1] - rules.failure_cost * stuck
        live = live & ~stuck
        there = questions.cosines[place[:, None] + near]
        e = functional.embedding(graphs.relations[here], features)
        weights = router(queries, e, questions.cosines[place + here], there)
        scores = rules.cosine_share * there + (1 - rules.cosine_share) * weights
        log_policy = scores.masked_fill(~free, _CLOSED).log_softmax(1)
        choice = choose(step, log_policy.detach())
        here = torch.where(live, near.gather(1, choice[:, None])[:, 0], here)
        hit = (targets == here[:, None]) & ~found  # where a walk has ended, it is at nothing new
        found = found | hit
        log_probs.append(log_policy.gather(1, choice[:, None])[:, 0].masked_fill(~live, 0.0))
        rewards.append(live * (rules.target_reward * hit.sum(1) - rules.step_cost))
        lives.append(live)
        choices.append(choice)
        nodes.append(here.masked_fill(~live, _NO_NODE))
        live = live & (wanted & ~found).any(1)
    rewards[-1] = rewards[-1] - rules.failure_cost * live
    succeeded = (found | ~wanted).all(1)
    return Walks(
        torch.stack(log_probs, 1),
        torch.stack(rewards, 1),
        torch.stack(lives, 1),
        torch.stack(choices, 1),
        torch.stack(nodes, 1),
        succeeded,
    )


def greedily(step: int, log_policy: Tensor) -> Tensor:
    """Choose the best neighbour."""
    return log_policy.argmax(1)


def by_chance(generator: torch.Generator) -> Choose:
    """Choose as the policy says: the largest of π / Exp(1) is neighbour j with probability π_j."""

    def choose(step: int, log_policy: Tensor) -> Tensor:
        waits = torch.empty_like(log_policy).exponential_(generator=generator).clamp_(min=1e-30)
        return (log_policy - waits.log()).argmax(1)

    return choose


def as_before(choices: Tensor) -> Choose:
    """Choose what `Walks.choices` says."""
    return lambda step, log_policy: choices[:, step]
