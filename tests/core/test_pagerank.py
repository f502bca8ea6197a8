from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.pagerank import Edges, pagerank
from hgmem_core.recipes import find_recipe
from hgmem_core.search import Filters, rank_turns
from tests.core.fixtures import BEGAN, message, turns_of
from tests.core.test_search import query, reader_of

PPR = find_recipe("ppr")


def texts(index, asked, **filters):
    """The texts of the turns found, best first."""
    ranking = rank_turns(index, asked, PPR, Filters(**filters), 10)
    return [index.column("text")[row].as_py() for row in ranking.rows.tolist()]


def blind(question):
    """A question whose vector says nothing, so that a walk starts at its words alone."""
    one = query(question)
    return replace(one, vector=np.zeros_like(one.vector))


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.floats(0, 0.95))
def test_the_probabilities_solve_the_equations_of_the_walk(seed, damping):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 12))
    edges = []
    joined = np.zeros((size, size))
    for _ in range(int(rng.integers(0, 3))):
        count = int(rng.integers(0, 15))
        one, other, weight = rng.integers(0, size, count), rng.integers(0, size, count), rng.random(count) + 0.01
        edges.append(Edges(one, other, weight))
        for i, j, w in zip(one, other, weight, strict=True):
            joined[i, j] += w
            joined[j, i] += w
    start = rng.random(size)
    start /= start.sum()
    steps = np.array([row / row.sum() if row.sum() else start for row in joined])
    solved = np.linalg.solve(np.eye(size) - damping * steps.T, (1 - damping) * start)
    np.testing.assert_allclose(pagerank(edges, start, damping), solved, atol=1e-5)


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_what_is_no_number_ends_in_an_error_and_not_in_an_endless_walk(weight):
    nodes = np.array([0, 1])
    with pytest.raises(ValueError, match="finite"):
        pagerank([Edges(nodes, nodes[::-1], np.array([1.0, weight]))], np.array([0.5, 0.5]), 0.5)


@pytest.fixture(scope="module")
def office():
    said = [
        ("Marta keeps her telescope in the attic of the lighthouse.", "Marta"),
        ("The lighthouse belongs to the harbour office of Peniche.", "Bo"),
        ("Peniche has a new ferry.", "Bo"),
        ("I had soup for lunch.", "Cai"),
        ("Soup again, with bread.", "Bo"),
        ("My bicycle needs a chain.", "Cai"),
    ]
    turns = turns_of(*(message(text, at=at, speaker=who, source_id=str(at)) for at, (text, who) in enumerate(said)))
    return reader_of(turns).open("acme/ana")


def test_a_turn_two_steps_away_comes_before_those_that_nothing_leads_to(office):
    found = texts(office, blind("Where is the telescope?"))
    # The second shares one word with the first and none with the question; so does the third with the second.
    assert found[:3] == [
        "Marta keeps her telescope in the attic of the lighthouse.",
        "The lighthouse belongs to the harbour office of Peniche.",
        "Peniche has a new ferry.",
    ]


def test_what_does_not_pass_is_neither_found_nor_led_through(office):
    found = texts(office, query("Where is the telescope?"), speaker="Bo")
    assert found
    assert all(text in ("The lighthouse belongs to the harbour office of Peniche.", "Peniche has a new ferry.",
                        "Soup again, with bread.") for text in found)  # fmt: skip
    assert texts(office, query("telescope"), said_until=BEGAN) == []


def test_a_question_that_leads_nowhere_finds_nothing(office):
    ranking = rank_turns(office, blind("xylophone"), PPR, Filters(), 10)
    assert (len(ranking.rows), ranking.reason) == (0, "no_match")


def test_the_walk_is_explained_by_the_cosines_that_it_starts_at(office):
    ranking = rank_turns(office, query("telescope"), PPR, Filters(), 3, explain=True)
    assert set(ranking.legs) == {"dense/turn"}
    np.testing.assert_allclose(ranking.legs["dense/turn"].scores, office.cosines(query("telescope").vector))
