"""How many walks of HAGE's policy a second, with their gradient, and how many a plain loop makes."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hgmem_core.lexical import Floats
from hgmem_core.reinforce import HageTrainer, HageTraining, discounted
from hgmem_core.relations import PAPER, Relations
from hgmem_core.router import QueryRouter
from hgmem_core.walks import TrainingGraph, TrainingQuestion, WalkRules
from pipelines.benchmark import spread

_NODES, _TARGETS, _DIMENSION = 600, 3, 384


def walk_benchmark(neighbours: int, batch: int, plain_walks: int, repeats: int) -> dict[str, Any]:
    """Measure steps of training on a random graph of 600 nodes, where next to no walk ends before its fifth hop.

    Router and features are trained, on vectors of 384 dimensions. To measure one thread, call it in a process whose
    libraries start no others; `threads` tells how many torch would use.

    Args:
        neighbours: Of every node.
        batch: Walks a step.
        plain_walks: Of the plain loop, in a repeat.
        repeats: One more before them warms up.

    Returns:
        Walks a second, and a second of CPU time, side by side and of a plain loop; the ratio of the latter medians.
    """
    graph, questions = _random(neighbours, batch)
    settings = HageTraining(batch=batch)
    trainer = HageTrainer([graph], questions, settings, 0)
    features = torch.nn.Parameter(torch.from_numpy(graph.relations.features))
    generator = np.random.default_rng(0)
    parameters = [*trainer.router.parameters(), features]

    def by_chance(nodes: list[int], log_policy: Tensor) -> int:
        policy = log_policy.detach().double().softmax(0).numpy()
        return int(generator.choice(len(nodes), p=policy / policy.sum()))

    def one_at_a_time(walks: int) -> None:
        for number in range(walks):
            question = questions[number % len(questions)]
            walked = walk_alone(trainer.router, features, graph, question, settings.rules, by_chance)
            torch.autograd.grad(plain_loss(*walked, settings.discount), parameters)

    def side_by_side(steps: int) -> None:
        for _ in range(steps):
            trainer.step()

    steps = max(1, 1024 // batch)
    speeds = {
        "walks": _speeds(side_by_side, steps, steps * batch, repeats),
        "plain_walks": _speeds(one_at_a_time, plain_walks, plain_walks, repeats),
    }
    wall = {f"{name}_a_second": spread([one for one, _ in pairs], 1) for name, pairs in speeds.items()}
    cpu = {f"{name}_a_cpu_second": spread([one for _, one in pairs], 1) for name, pairs in speeds.items()}
    return {
        "case": "walks",
        "nodes": _NODES,
        "neighbours": neighbours,
        "hops": settings.rules.hops,
        "batch": batch,
        "repeats": repeats,
        "threads": torch.get_num_threads(),
        "ratio": round(cpu["walks_a_cpu_second"]["median"] / cpu["plain_walks_a_cpu_second"]["median"], 1),
        **wall,
        **cpu,
    }


def _speeds(work: Callable[[int], None], size: int, walks: int, repeats: int) -> list[tuple[float, float]]:
    """Return walks a second and a second of CPU time of each repeat."""
    speeds = []
    for repeat in range(repeats + 1):
        began, began_cpu = time.perf_counter(), time.process_time()
        work(size)
        if repeat:
            speeds.append((walks / (time.perf_counter() - began), walks / (time.process_time() - began_cpu)))
    return speeds


def _random(neighbours: int, size: int) -> tuple[TrainingGraph, list[TrainingQuestion]]:
    """Return a graph where every node has so many neighbours, and so many questions of it."""
    rng = np.random.default_rng(0)

    def units(count: int) -> Floats:
        vectors = rng.standard_normal((count, _DIMENSION), np.float32)
        unit: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    steps = [np.sort(rng.choice(_NODES - 1, neighbours, replace=False)) for _ in range(_NODES)]
    targets = np.concatenate([np.sort((node + 1 + step) % _NODES) for node, step in enumerate(steps)])
    features = rng.random((len(targets), len(PAPER)), np.float32)
    relations = Relations(np.arange(0, len(targets) + 1, neighbours), targets, features, PAPER)
    intents = rng.dirichlet(np.ones(len(PAPER)), size).astype(np.float32)
    questions = []
    for vector, intent in zip(units(size), intents, strict=True):
        nodes = rng.choice(_NODES, 1 + _TARGETS, replace=False)
        questions.append(TrainingQuestion(0, vector, intent, nodes[:1], nodes[1:]))
    return TrainingGraph(relations, units(_NODES)), questions


def walk_alone(
    router: QueryRouter,
    features: Tensor,
    graph: TrainingGraph,
    question: TrainingQuestion,
    rules: WalkRules,
    choose: Callable[[list[int], Tensor], int],
) -> tuple[list[Tensor], list[float]]:
    """Walk once from the question's first start, one neighbour and one concatenated input at a time.

    This is what `hgmem_core.walks` does for many walks at once, written down plainly.

    Args:
        router: Its parameters.
        features: Of the graph's relations, `[relations, features]`.
        graph: To walk on.
        question: To walk for.
        rules: Of walking.
        choose: From the unvisited neighbours and log π over them to the place of one.

    Returns:
        log π of what was chosen and the reward, for each step that was made.
    """
    relations, vector, intent = graph.relations, torch.from_numpy(question.vector), torch.from_numpy(question.intent)
    cosines = torch.from_numpy(graph.vectors) @ vector
    here = int(question.starts[0])
    visited, wanted = {here}, set(question.targets.tolist()) - {here}
    log_probs: list[Tensor] = []
    rewards: list[float] = []
    while wanted and len(rewards) < rules.hops:
        edges = range(relations.offsets[here], relations.offsets[here + 1])
        free = [(edge, int(relations.targets[edge])) for edge in edges if relations.targets[edge] not in visited]
        if not free:
            break
        scores = []
        for edge, there in free:
            inputs = torch.cat([vector, features[edge], intent, cosines[here, None], cosines[there, None]])
            hidden = functional.linear(inputs, router.first_weight, router.first_bias).relu()
            hidden = functional.linear(hidden, router.second_weight, router.second_bias).relu()
            weight = functional.softplus(functional.linear(hidden, router.third_weight, router.third_bias)[0])
            scores.append(rules.cosine_share * cosines[there] + (1 - rules.cosine_share) * weight)
        log_policy = torch.stack(scores).log_softmax(0)
        place = choose([there for _, there in free], log_policy)
        log_probs.append(log_policy[place])
        here = free[place][1]
        visited.add(here)
        rewards.append(rules.target_reward * (here in wanted) - rules.step_cost)
        wanted.discard(here)
    if wanted and rewards:
        rewards[-1] -= rules.failure_cost
    return log_probs, rewards


def plain_loss(log_probs: list[Tensor], rewards: list[float], discount: float) -> Tensor:
    """Return Σ_t -log π(a_t) · G_t of one walk that made a step."""
    returns = discounted(torch.tensor([rewards]), discount)[0]
    return -(torch.stack(log_probs) * returns).sum()
