from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.hage import HageWeights, find_anchors, hage_rank, magma_rank, relation_scores, walk
from hgmem_core.intent_llm import Intent
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.recipes import RECIPES, Hage, Magma, find_recipe
from hgmem_core.reinforce import HageTrainer, HageTraining
from hgmem_core.search import Filters, rank_turns
from hgmem_core.turns import microseconds
from hgmem_core.walks import greedily
from tests.core import fixtures
from tests.core.event_graphs import EVEN, random_graph, random_question, relations_of
from tests.core.event_graphs import one_thread as one_thread  # a fixture
from tests.core.fixtures import BEGAN, turns_of
from tests.core.test_search import chat, query, reader_of

DIMENSION = 5
IN_ORDER = np.arange(50)


@pytest.fixture(scope="module")
def ana():
    return reader_of(turns_of(*chat())).open("acme/ana")


def trained(graph, questions, seed=0):
    """A trainer of a graph, and its weights after a few steps."""
    trainer = HageTrainer([graph], questions, HageTraining(router_rate=0.05), seed)
    for _ in range(3):
        trainer.step()
    return trainer, trainer.weights()


def asked(index, text, relations, recipe, weights=None, intent=EVEN, period=None):
    """The anchors and the ranking of a question."""
    one = query(text)
    cosines = index.cosines(one.vector)
    anchors = find_anchors(index, one.vector, cosines, index.term_numbers(one.terms), None, period)
    if isinstance(recipe, Magma):
        return anchors, magma_rank(index, cosines, relations, intent, anchors, recipe)
    return anchors, hage_rank(index.id_order, one.vector, cosines, relations, weights, intent, anchors, recipe)


def relations_between(index, seed=0, share=0.1):
    rng = np.random.default_rng(seed)
    size = len(index)
    pairs = {(i, j): rng.random(4) for i in range(size) for j in range(size) if i != j and rng.random() < share}
    return relations_of(size, pairs)


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_without_torch_a_greedy_walk_goes_where_the_trained_policy_goes(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 12)), DIMENSION, rng.random())
    question = random_question(rng, 0, graph)
    trainer, weights = trained(graph, [question], seed)
    unreachable = replace(question, targets=np.array([len(graph.vectors) - 1]), starts=question.starts % 1)
    walker = HageTrainer([graph], [unreachable], trainer.settings, seed)
    walker.load_state_dict(trainer.state_dict())
    made = walker.walk(torch.tensor([0]), torch.tensor([0]), greedily)
    nodes = [node for node in made.nodes[0].tolist() if node >= 0]
    totals = np.cumsum([0.0, *made.log_probs[0].tolist()])[: len(nodes)]
    relations = weights.learned(graph.relations, 0)
    cosines = graph.vectors @ question.vector
    recipe = Hage("hage", "router", starts=1, hops=len(nodes) - 1)
    score = relation_scores(question.vector, cosines, relations, weights, question.intent, recipe)
    paths = walk(relations, score, np.array([0]), recipe.hops, recipe.width, IN_ORDER)
    assert set(np.flatnonzero(paths > -np.inf)) == set(nodes)
    np.testing.assert_allclose(paths[nodes], totals, atol=1e-4)


def every_path(relations, scores, start, hops):
    """For each node the log probability of the best path to it, found by following all."""
    best = {start: 0.0}

    def follow(path, total):
        edges = range(relations.offsets[path[-1]], relations.offsets[path[-1] + 1])
        free = [edge for edge in edges if relations.targets[edge] not in path]
        norm = np.log(sum(np.exp(float(scores[edge])) for edge in free)) if free else 0.0
        for edge in free:
            node, reached = int(relations.targets[edge]), total + float(scores[edge]) - norm
            best[node] = max(best.get(node, -np.inf), reached)
            if len(path) < hops:
                follow([*path, node], reached)

    follow([start], 0.0)
    return best


@given(st.integers(0, 10_000))
def test_a_beam_wide_enough_finds_every_most_probable_path(seed):
    rng = np.random.default_rng(seed)
    nodes, hops = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    relations = random_graph(rng, nodes, DIMENSION, rng.random()).relations
    scores = rng.standard_normal(len(relations.targets)).astype(np.float32)
    starts = np.unique(rng.integers(nodes, size=2))
    found = walk(relations, lambda edges, _: scores[edges], starts, hops, 1_000, IN_ORDER)
    expected = np.full(nodes, -np.inf)
    for start in starts.tolist():
        for node, value in every_path(relations, scores, start, hops).items():
            expected[node] = max(expected[node], value)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_beam_keeps_the_most_probable_paths_of_each_start():
    relations = relations_of(8, [(0, 1), (0, 2), (0, 3), (2, 4), (5, 6), (5, 7)])
    scores = np.array([0.5, 0.4, 0.1, 0.0, 0.1, 0.9], np.float32)
    for width, visited in ((1, {0, 1, 5, 7}), (2, {0, 1, 2, 4, 5, 6, 7}), (3, set(range(8)))):
        paths = walk(relations, lambda edges, _: scores[edges], np.array([0, 5]), 2, width, IN_ORDER)
        assert set(np.flatnonzero(paths > -np.inf)) == visited


def ways(kinds, cosines):
    """A graph whose node 0 leads to one node for each of the kinds, and the cosines."""
    edges = {(0, number): np.eye(4)[kind] for number, kind in enumerate(kinds, 1)}
    return relations_of(len(cosines), edges), np.array(cosines, np.float32)


@pytest.mark.parametrize(
    ("scores", "intent", "cosines", "chosen"),
    [
        ("fixed", EVEN, [0, 0.5, 0.5, 0.5, 0.5], 2),  # semantic relations weigh most
        ("fixed", EVEN, [0, 0.9, 0.5, 0.5, 0.5], 1),  # unless another is much nearer
        ("intent", [0.1, 0.1, 0.7, 0.1], [0, 0.9, 0.5, 0.5, 0.5], 3),
        ("intent", [0.7, 0.1, 0.1, 0.1], [0, 0.9, 0.5, 0.5, 0.5], 1),
    ],
)
def test_without_a_router_kinds_of_relations_weigh_what_the_recipe_says(scores, intent, cosines, chosen):
    relations, cosines = ways([0, 1, 2, 3], cosines)
    recipe = Hage("hage:x", scores, starts=1, hops=1)
    vector, intent = np.zeros(DIMENSION, np.float32), np.array(intent, np.float32)
    ranked = hage_rank(few(5).id_order, vector, cosines, relations, None, intent, np.array([0]), recipe)
    assert ranked.tolist() == [0, chosen]


def few(size):
    """An index of the first turns only, ties in their order."""
    return reader_of(turns_of(*chat(turns=size))).open("acme/ana")


@pytest.mark.parametrize(
    ("intent", "first"), [([0.7, 0.1, 0.1, 0.1], 1), ([0.1, 0.1, 0.7, 0.1], 3), ([0.1, 0.1, 0.1, 0.7], 4)]
)
def test_magma_goes_first_where_the_kind_of_question_leads(intent, first):
    relations, cosines = ways([0, 1, 2, 3], [0, 0.5, 0.5, 0.5, 0.5])
    recipe = Magma("magma-static", starts=1, hops=1, width=2)
    ranked = magma_rank(few(5), cosines, relations, np.array(intent, np.float32), np.array([0]), recipe)
    assert ranked[:2].tolist() == [0, first]
    assert len(ranked) == 3


def test_magma_stops_at_its_levels_and_its_budget():
    relations = relations_of(6, list(pairwise(range(6))))
    cosines, anchors = np.linspace(0.9, 0.4, 6, dtype=np.float32), np.array([0])
    index = few(6)
    for changes, found in (({}, 6), ({"hops": 2}, 3), ({"budget": 4}, 4), ({"budget": 1}, 1)):
        recipe = replace(RECIPES["magma-static"], **changes)
        ranked = magma_rank(index, cosines, relations, EVEN, anchors, recipe)
        assert ranked.tolist() == list(range(found))


def test_anchors_are_the_flat_ranking_of_words_and_vectors(ana):
    for text in ("tea in Lisbon", "violin violin Ana", "zebra"):
        anchors, _ = asked(ana, text, relations_between(ana), RECIPES["hage:static"])
        flat = rank_turns(ana, query(text), find_recipe("hybrid"), Filters(), 1_000)
        assert anchors.tolist() == flat.rows.tolist()


def test_turns_of_the_time_that_is_asked_about_come_forward(ana):
    period = tuple(microseconds(BEGAN + timedelta(minutes=minutes)) for minutes in (60, 68))
    within = set(range(8, 16))
    relations = relations_between(ana)
    without, _ = asked(ana, "tea in Lisbon", relations, RECIPES["hage:static"])
    with_time, _ = asked(ana, "tea in Lisbon", relations, RECIPES["hage:static"], period=period)
    assert sorted(with_time) == sorted(without)
    assert len(within & set(with_time[:8].tolist())) > len(within & set(without[:8].tolist()))


def test_only_turns_that_pass_are_anchors(ana):
    one = query("tea in Lisbon")
    passes = ana.speakers[1] == 0
    anchors = find_anchors(ana, one.vector, ana.cosines(one.vector), ana.term_numbers(one.terms), passes, None)
    assert len(anchors) > 0
    assert passes[anchors].all()


@pytest.mark.parametrize("name", [name for name, one in RECIPES.items() if isinstance(one, Hage | Magma)])
def test_no_recipe_finds_less_than_flat_search_and_none_repeats(ana, name):
    relations = relations_between(ana)
    graph = random_graph(np.random.default_rng(0), 4, 16)
    _, weights = trained(graph, [random_question(np.random.default_rng(0), 0, graph)])
    for text in ("tea in Lisbon", "violin", ""):
        anchors, ranked = asked(ana, text, relations, RECIPES[name], weights)
        assert set(anchors) <= set(ranked)
        assert len(set(ranked)) == len(ranked)
        starts = RECIPES[name].starts
        assert ranked[:starts].tolist() == anchors[:starts].tolist()


def test_walks_bring_turns_forward_that_flat_search_ranks_low(ana):
    anchors, _ = asked(ana, "tea in Lisbon", relations_between(ana), RECIPES["hage:static"])
    far = int(anchors[-1])
    relations = relations_of(len(ana), [(int(anchors[0]), far)])
    _, ranked = asked(ana, "tea in Lisbon", relations, RECIPES["hage:static"])
    assert ranked[RECIPES["hage:static"].starts] == far


@pytest.mark.parametrize("name", [name for name, one in RECIPES.items() if isinstance(one, Hage | Magma)])
def test_without_relations_or_without_a_vector_flat_search_remains(ana, name):
    graph = random_graph(np.random.default_rng(0), 4, 16)
    _, weights = trained(graph, [random_question(np.random.default_rng(0), 0, graph)])
    anchors, ranked = asked(ana, "tea in Lisbon", relations_of(len(ana), []), RECIPES[name], weights)
    assert ranked.tolist() == anchors.tolist()
    vector, cosines = np.zeros(16, np.float32), np.zeros(len(ana), np.float32)
    terms = ana.term_numbers(query("tea").terms)
    words = find_anchors(ana, vector, cosines, terms, None, None)
    assert words.tolist() == rank_turns(ana, query("tea"), find_recipe("bm25"), Filters(), 1_000).rows.tolist()
    none = find_anchors(ana, vector, cosines, [], None, None)
    assert none.tolist() == []
    if isinstance(RECIPES[name], Hage):
        ranked = hage_rank(ana.id_order, vector, cosines, relations_between(ana), weights, EVEN, none, RECIPES[name])
        assert ranked.tolist() == []


@pytest.mark.parametrize("name", ["hage:scored-edges", "magma-static"])
def test_a_models_intent_leads_where_the_rules_would_not(ana, monkeypatch, name):
    recipe, one = RECIPES[name], query("Why tea in Lisbon?")
    anchors, _ = asked(ana, one.text, relations_of(len(ana), []), recipe)
    cosines = ana.cosines(one.vector)
    later, cause = [row for row in anchors[recipe.starts :].tolist() if cosines[row] > 0.1][-2:]
    leaving = {(int(anchors[0]), later): (1, 0, 0, 0), (int(anchors[0]), cause): (0, 0, 1, 0)}
    monkeypatch.setattr(NamespaceIndex, "relations", lambda index, level: relations_of(len(index), leaving))

    def first_visited(told):
        return int(rank_turns(ana, replace(one, told=told), recipe, Filters(), 50).rows[recipe.starts])

    temporal = Intent((1.0, 0.0, 0.0, 0.0), (), None, None, False, "ok", None)
    assert first_visited(None) == first_visited(replace(temporal, weights=None)) == cause
    assert first_visited(temporal) == later


def test_the_days_that_a_model_tells_bring_their_turns_forward():
    # A minute before each day is over.
    texts = [fixtures.message("tea", 24 * 60 * day + 359, session=str(day)) for day in range(9)]
    index = reader_of(turns_of(*texts)).open("acme/ana")
    asked_about = (BEGAN + timedelta(days=6)).date()
    told = Intent(None, (), asked_about, asked_about, False, "ok", None)
    for name in ("hage:static", "magma-static"):
        rows = [
            rank_turns(index, replace(query("tea"), told=one), RECIPES[name], Filters(), 9).rows.tolist()
            for one in (None, told)
        ]
        assert rows[0][0] != 6 and rows[1][0] == 6, name


def test_weights_travel_as_arrays_and_are_checked():
    graph = random_graph(np.random.default_rng(0), 4, DIMENSION)
    question = random_question(np.random.default_rng(0), 0, graph)
    _, weights = trained(graph, [question])
    arrays = weights.as_dict()
    again = HageWeights.from_dict(arrays)
    assert all(np.array_equal(values, again.as_dict()[name]) for name, values in arrays.items())
    assert all(isinstance(values, np.ndarray) for values in arrays.values())
    for changes, message in (
        ({"more": arrays["first_bias"]}, "these are no weights of HAGE"),
        (
            {"second_weight": arrays["second_weight"][:, 1:]},
            r"second_weight has shape \(64, 127\), expected \(64, 128\)",
        ),
        ({"features": arrays["features"][1:]}, "features has shape"),
        ({"third_bias": arrays["third_bias"] * np.nan}, "third_bias holds NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            HageWeights.from_dict({**arrays, **changes})
    arrays.pop("first_bias")
    with pytest.raises(ValueError, match="these are no weights of HAGE"):
        HageWeights.from_dict(arrays)


def test_learned_features_are_those_of_the_graph_that_they_were_learned_on():
    rng = np.random.default_rng(0)
    graphs = [random_graph(rng, size, DIMENSION, 0.7) for size in (6, 9)]
    questions = [random_question(rng, number % 2, graphs[number % 2]) for number in range(6)]
    trainer = HageTrainer(graphs, questions, HageTraining(feature_rate=0.1), 0)
    trainer.step()
    for number, graph in enumerate(graphs):
        learned = trainer.weights().learned(graph.relations, number)
        assert learned.targets.tolist() == graph.relations.targets.tolist()
        assert 0 < np.abs(learned.features - graph.relations.features).max() < 0.2
    with pytest.raises(ValueError, match=r"graph 0 had \d+ relations in training and now has"):
        trainer.weights().learned(graphs[1].relations, 0)


def test_weights_that_are_missing_or_do_not_fit_are_refused(ana):
    relations = relations_between(ana)
    with pytest.raises(ValueError, match="recipe 'hage' needs weights; train some"):
        asked(ana, "tea", relations, RECIPES["hage"])
    graph = random_graph(np.random.default_rng(0), 4, DIMENSION)
    _, weights = trained(graph, [random_question(np.random.default_rng(0), 0, graph)])
    with pytest.raises(ValueError, match="the router takes 15 inputs; a query of 16 dimensions and relations of 4"):
        asked(ana, "tea", relations, RECIPES["hage"], weights)
