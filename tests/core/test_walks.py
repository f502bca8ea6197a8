from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.reinforce import discounted, policy_loss
from hgmem_core.router import QueryRouter
from hgmem_core.walks import (
    TrainingGraph,
    TrainingQuestion,
    WalkRules,
    as_before,
    by_chance,
    greedily,
    pad_graphs,
    pad_questions,
    roll_out,
)
from pipelines.walk_benchmark import plain_loss, walk_alone
from tests.core.event_graphs import EVEN, random_graph, random_question, relations_of, units
from tests.core.event_graphs import one_thread as one_thread  # a fixture

DIMENSION = 5
RULES = WalkRules()


def a_router(seed=0, dimension=DIMENSION):
    return QueryRouter(dimension, 4, torch.Generator().manual_seed(seed))


def walks_of(graphs, questions, choose=greedily, rules=RULES, router=None, features=None):
    padded, asked = pad_graphs(graphs, "cpu"), pad_questions(questions, graphs, "cpu")
    router = router or a_router(dimension=graphs[0].vectors.shape[1])
    features = padded.features if features is None else features
    numbers = torch.arange(len(questions))
    return roll_out(router, features, padded, asked, numbers, asked.starts[:, 0], rules, choose)


def path(walks, number=0):
    return [node for node in walks.nodes[number].tolist() if node >= 0]


def on(pairs, targets, start=0, nodes=6, cosines=None):
    """A graph and a question of it; with `cosines`, those of its nodes with the question."""
    vectors = units(np.random.default_rng(0), nodes, DIMENSION)
    vector = vectors[start]
    if cosines is not None:
        vector = np.eye(1, DIMENSION, dtype=np.float32)[0]
        vectors = np.zeros((nodes, DIMENSION), np.float32)
        vectors[:, 0] = cosines
        vectors[:, 1] = np.sqrt(1 - vectors[:, 0] ** 2)
    graph = TrainingGraph(relations_of(nodes, pairs), vectors)
    return [graph], [TrainingQuestion(0, vector, EVEN, np.array([start]), np.array(targets, np.int64))]


CHAIN = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_walks_side_by_side_equal_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    graphs = [random_graph(rng, int(nodes), DIMENSION, rng.random()) for nodes in rng.integers(1, 9, 3)]
    questions = [random_question(rng, number, graphs[number]) for number in rng.integers(0, 3, 8)]
    rules, discount = WalkRules(hops=int(rng.integers(1, 6)), cosine_share=float(rng.random())), 0.9
    router, padded = a_router(seed), pad_graphs(graphs, "cpu")
    features = torch.nn.Parameter(padded.features)
    walks = walks_of(graphs, questions, by_chance(torch.Generator().manual_seed(seed)), rules, router, features)
    first_node = np.cumsum([0, *(len(graph.vectors) for graph in graphs)])
    loss = torch.zeros(())
    for number, question in enumerate(questions):
        own = features[padded.first_relation[question.graph] : padded.first_relation[question.graph + 1]]
        steps = iter(np.array(path(walks, number)[1:]) - first_node[question.graph])
        graph = graphs[question.graph]
        made = walk_alone(router, own, graph, question, rules, lambda near, _, steps=steps: near.index(next(steps)))
        rest = [0.0] * (rules.hops - len(made[0]))
        np.testing.assert_allclose(walks.rewards[number], [*made[1], *rest], atol=1e-5)
        log_probs = [float(one.detach()) for one in made[0]]
        np.testing.assert_allclose(walks.log_probs[number].detach(), [*log_probs, *rest], atol=1e-5)
        assert walks.live[number].tolist() == [True] * len(log_probs) + [False] * len(rest)
        if log_probs:
            loss = loss + plain_loss(*made, discount)
    parameters = [*router.parameters(), features]
    mine = torch.autograd.grad(policy_loss(walks, discounted(walks.rewards, discount)).sum(), parameters)
    plain = torch.autograd.grad(loss + 0 * sum(one.sum() for one in parameters), parameters)
    for one, other in zip(mine, plain, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-3)


def test_a_walk_earns_for_new_targets_pays_for_steps_and_for_failing():
    walks = walks_of(*on(CHAIN, [2, 4]))
    assert path(walks) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(walks.rewards[0], [-0.05, 9.95, -0.05, 9.95, 0])
    assert walks.succeeded.tolist() == [True]
    out_of_hops = walks_of(*on(CHAIN, [2, 4]), rules=WalkRules(hops=3))
    np.testing.assert_allclose(out_of_hops.rewards[0], [-0.05, 9.95, -1.05])
    assert out_of_hops.succeeded.tolist() == [False]


def test_a_walk_ends_at_a_dead_end_and_pays_for_it():
    walks = walks_of(*on([(0, 1), (1, 0)], [3]))
    assert path(walks) == [0, 1]
    np.testing.assert_allclose(walks.rewards[0], [-1.05, 0, 0, 0, 0])
    assert walks.live[0].tolist() == [True, False, False, False, False]


@pytest.mark.parametrize(("pairs", "targets"), [([], [3]), ([(1, 2)], [3]), (CHAIN, [0])])
def test_a_walk_that_cannot_or_need_not_move_is_empty(pairs, targets):
    walks = walks_of(*on(pairs, targets))
    assert path(walks) == [0]
    assert not walks.live.any()
    assert not walks.rewards.any()
    assert not walks.log_probs.any()
    assert walks.succeeded.tolist() == [targets == [0]]


def test_a_graph_of_one_node_is_walked():
    graph = TrainingGraph(relations_of(1, []), np.ones((1, DIMENSION), np.float32))
    question = TrainingQuestion(0, np.ones(DIMENSION, np.float32), EVEN, np.array([0]), np.array([0]))
    assert walks_of([graph], [question]).succeeded.tolist() == [True]


def test_a_start_that_is_a_target_earns_nothing_and_need_not_be_found_again():
    walks = walks_of(*on(CHAIN, [0, 1]))
    assert path(walks) == [0, 1]
    np.testing.assert_allclose(walks.rewards[0], [9.95, 0, 0, 0, 0])


def test_a_target_named_twice_is_found_once():
    walks = walks_of(*on(CHAIN, [1, 1]))
    np.testing.assert_allclose(walks.rewards[0], [9.95, 0, 0, 0, 0])


def test_no_node_is_visited_twice():
    everything = [(i, j) for i in range(6) for j in range(6) if i != j]
    graphs, [question] = on(everything, [5])
    questions = [replace(question, starts=np.array([number % 5])) for number in range(200)]
    walks = walks_of(graphs, questions, by_chance(torch.Generator().manual_seed(0)))
    assert all(len(set(path(walks, number))) == len(path(walks, number)) for number in range(200))
    assert walks.succeeded.all()  # five hops to five others


def test_without_a_router_the_nearest_neighbour_is_chosen():
    graphs, questions = on([(0, 1), (0, 2), (2, 3), (2, 4)], [5], cosines=[0.1, 0.2, 0.3, 0.9, -0.5, 0])
    assert path(walks_of(graphs, questions, rules=WalkRules(cosine_share=1.0))) == [0, 2, 3]


def test_neighbours_are_drawn_as_the_policy_says():
    graphs, [question] = on([(0, 1), (0, 2), (0, 3)], [5], cosines=[0, 0.9, 0.1, -0.8, 0, 0])
    rules = WalkRules(hops=1, cosine_share=1.0)
    walks = walks_of(graphs, [question] * 20_000, by_chance(torch.Generator().manual_seed(0)), rules)
    shares = np.bincount(walks.nodes[:, 1], minlength=4)[1:] / 20_000
    policy = np.exp([0.9, 0.1, -0.8])
    np.testing.assert_allclose(shares, policy / policy.sum(), atol=0.015)


def test_a_walk_can_be_walked_again():
    rng = np.random.default_rng(3)
    graphs = [random_graph(rng, 8, DIMENSION)]
    questions = [random_question(rng, 0, graphs[0]) for _ in range(20)]
    walks = walks_of(graphs, questions, by_chance(torch.Generator().manual_seed(0)))
    again = walks_of(graphs, questions, as_before(walks.choices), router=a_router(9))
    assert torch.equal(walks.nodes, again.nodes)
    assert not torch.equal(walks.log_probs, again.log_probs)


def test_wrong_input_is_named():
    graphs, [question] = on(CHAIN, [2])
    other = replace(graphs[0], relations=replace(graphs[0].relations, layout=("a", "b", "c", "d")))
    nan = np.full(DIMENSION, np.nan, np.float32)
    for wrong, message in (
        ([], "there is no graph"),
        ([graphs[0], other], "relations of different features"),
        ([replace(graphs[0], vectors=graphs[0].vectors[:2])], "graph 0: there is not one vector for each node"),
        ([replace(graphs[0], vectors=graphs[0].vectors * np.nan)], "graph 0: a vector holds NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            pad_graphs(wrong, "cpu")
    for changes, message in (
        ({"graph": 1}, "there is no graph 1"),
        ({"starts": np.zeros(0, np.int64)}, "it has no start"),
        ({"starts": np.array([6])}, "a start is none of the 6 nodes"),
        ({"targets": np.array([-1])}, "a target is none of the 6 nodes"),
        ({"intent": np.ones(3, np.float32)}, "its intent is not 4 weights"),
        ({"vector": nan}, "its vector holds NaN"),
        ({"vector": nan[:2]}, "its vector has not the 5 dimensions"),
    ):
        with pytest.raises(ValueError, match=f"question 1: {message}"):
            pad_questions([question, replace(question, **changes)], graphs, "cpu")
    with pytest.raises(ValueError, match="there is no question"):
        pad_questions([], graphs, "cpu")
