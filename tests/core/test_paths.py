from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hgmem_core.hage import breadth_first, walk
from hgmem_core.paths import visited_paths, walked_paths
from hgmem_core.recipes import RECIPES, Hage, Magma
from hgmem_core.search import Filters, hits_of, rank_turns
from tests.core.event_graphs import EVEN, random_graph, relations_of
from tests.core.test_hage import DIMENSION, IN_ORDER, few, ways
from tests.core.test_routed import FEW, frontier_that_gives, ranked
from tests.core.test_routed import ana as ana  # a fixture
from tests.core.test_routed import query as words


def ids(steps):
    return [step.number for step in steps]


@pytest.mark.parametrize("seed", range(20))
def test_the_path_to_a_turn_is_as_probable_as_the_walk_says(seed):
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 8))
    relations = random_graph(rng, nodes, DIMENSION, rng.random()).relations
    scores = rng.standard_normal(len(relations.targets)).astype(np.float32)
    recipe = Hage("hage", "fixed", width=3, starts=2, hops=4)
    starts = np.unique(rng.integers(nodes, size=2))

    def score(edges, _):
        return scores[edges]

    found = walked_paths(relations, score, starts, recipe, IN_ORDER)
    values = walk(relations, score, starts, recipe.hops, recipe.width, IN_ORDER)
    assert set(found) == set(np.flatnonzero(values > -np.inf).tolist())
    for row, steps in found.items():
        path, total = [*ids(steps), row], 0.0
        assert path[0] in starts and len(set(path)) == len(path)
        for place, (source, target) in enumerate(pairwise(path)):
            edges = range(relations.offsets[source], relations.offsets[source + 1])
            free = [edge for edge in edges if relations.targets[edge] not in path[: place + 1]]
            [taken] = [edge for edge in free if relations.targets[edge] == target]
            total += float(scores[taken]) - np.log(sum(np.exp(float(scores[edge])) for edge in free))
        assert total == pytest.approx(values[row], abs=1e-5)


def test_a_step_is_of_the_strongest_kind_of_its_relation():
    relations, _ = ways([0, 1, 2, 3], [0] * 5)
    found = walked_paths(relations, lambda edges, _: edges * 0.0, np.array([0]), Hage("h", "fixed", width=4), IN_ORDER)
    kinds = {row: steps[0].relation for row, steps in found.items() if steps}
    assert kinds == {1: "temporal", 2: "semantic", 3: "causal", 4: "entity"}
    assert found[0] == ()


def test_a_search_breadth_first_remembers_by_which_turn_the_best_step_came():
    relations = relations_of(5, {(0, 2): [0.1, 0, 0, 0], (1, 2): [0.9, 0, 0, 0], (2, 3): [0, 0, 1, 0]})
    recipe = Magma("m", starts=2)
    _, before = breadth_first(few(5), np.zeros(5, np.float32), relations, EVEN, np.array([0, 1]), recipe)
    assert before.tolist() == [-1, -1, 1, 2, -1]
    found = visited_paths(relations, before, np.array([3, 1, 4]))
    assert {row: ids(steps) for row, steps in found.items()} == {3: [1, 2], 1: [], 4: []}
    assert [step.relation for step in found[3]] == ["temporal", "causal"]


@pytest.mark.parametrize("name", ["magma-static", "hage:static"])
def test_hits_tell_the_way_only_where_it_is_asked_for(ana, name):
    recipe = replace(RECIPES[name], starts=1)
    told, untold = (
        hits_of(ana, rank_turns(ana, words("violin in Lisbon"), recipe, Filters(), 8, explain=explain))
        for explain in (True, False)
    )
    assert [hit.turn_id for hit in told] == [hit.turn_id for hit in untold]
    assert not any(hit.path for hit in untold)
    reached = [hit for hit in told if hit.path]
    assert reached and not told[0].path
    assert {hit.path[0].id for hit in reached} == {told[0].turn_id}


def test_a_turn_that_facts_speak_for_tells_through_which_it_came_forward(ana):
    ranking = ranked(ana, FEW, frontier_that_gives(9.0), explain=True)
    bonus = ranking.legs["bonus"].scores
    texts, turns = ana.graph.column("fact", "text").to_pylist(), ana.graph.turns_of_fact
    relations = ana.relations("fact")
    for row in ranking.rows.tolist():
        steps = ranking.paths[row]
        assert bool(steps) == (bonus[row] > 0)
        reached = [*(turns.of(fact)[0] for fact in ids(steps[1:])), row][: len(steps)]
        for fact, turn in zip(ids(steps), reached, strict=True):
            leading = relations.targets[relations.offsets[fact] : relations.offsets[fact + 1]].tolist()
            assert any(turns.of(one)[0] == turn for one in leading), texts[fact]


def test_a_turn_that_was_chosen_coarse_to_fine_tells_its_topic_episode_and_fact(ana):
    ranking = rank_turns(ana, words("violin in Lisbon"), RECIPES["hypermem"], Filters(), 8, explain=True)
    graph = ana.graph
    steps = ranking.paths[int(ranking.rows[0])]
    assert [(step.level, step.relation) for step in steps] == [
        ("topic", "holds"), ("episode", "holds"), ("fact", "holds"),
    ]  # fmt: skip
    topic, episode, fact = ids(steps)
    assert episode in graph.episodes_of_topic.of(topic)
    assert fact in graph.facts_of_episode.of(episode) and fact == ranking.facts[0]
    assert ranking.rows[0] in graph.turns_of_fact.of(fact)
    flat = rank_turns(
        ana, words("violin in Lisbon"), RECIPES["hypermem:no-topic-no-episode-stage"], Filters(), 8, explain=True
    )
    assert [step.level for step in flat.paths[int(flat.rows[0])]] == ["fact"]
