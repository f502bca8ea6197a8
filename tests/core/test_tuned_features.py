"""What a ranker is told of turns by their tuned vectors."""

import numpy as np
import pytest

from hgmem_core.learned_flat import find_candidates
from hgmem_core.query_analysis import analyse_query
from hgmem_core.ranking import Query
from hgmem_core.recipes import RECIPES
from tests.core.event_graphs import units
from tests.core.fixtures import HashEncoder, message, query_of, reader_of, turns_of

ENCODER = HashEncoder()
SAID = [f"turn {number} is about tea and about harbour {number % 7}" for number in range(30)]
TUNED, DEEP = RECIPES["learned-flat:tuned"], RECIPES["learned-flat:hypergraph"]


def index_of(has_tuned):
    turns = turns_of(*(message(text, at=at) for at, text in enumerate(SAID)))
    return reader_of(turns, ENCODER, has_tuned).open("acme/ana")


@pytest.fixture(scope="module")
def ana():
    return index_of(has_tuned=True)


def found(index, query, recipe):
    numbers = np.array(index.term_numbers(query.terms), np.int64)
    return find_candidates(index, query, analyse_query(query.text), numbers, recipe)


def test_a_turn_that_tuned_vectors_alone_are_near_to_comes_to_the_front(ana):
    asked = query_of("tea at harbour 3", ENCODER)
    last = int(found(ana, asked, DEEP).rows[-1])
    # Where every turn's tuned cosine points to the last of the others.
    near = max(units(np.random.default_rng(0), 400, 16), key=lambda vector: margin(ana.tuned_cosines(vector), last))
    assert margin(ana.tuned_cosines(near), last) > 0
    candidates = found(ana, Query(asked.text, asked.terms, asked.vector, near), TUNED)
    assert candidates.rows.tolist().index(last) < len(SAID) - 3
    columns = dict(zip(candidates.names, candidates.features.T, strict=True))
    place = candidates.rows.tolist().index(last)
    np.testing.assert_allclose(columns["dense/tuned"], ana.tuned_cosines(near)[candidates.rows], atol=1e-6)
    assert columns["dense/tuned rank"][place] == 0
    assert columns["dense/tuned scaled"][place] == 1


def margin(cosines, row):
    return cosines[row] - np.delete(cosines, row).max()


def test_without_tuned_vectors_a_question_is_refused(ana):
    asked = query_of("tea", ENCODER)
    with pytest.raises(ValueError, match="'learned-flat:tuned' needs a finite query vector of the version's tuned"):
        found(ana, Query(asked.text, asked.terms, asked.vector), TUNED)
    without = index_of(has_tuned=False)
    with pytest.raises(ValueError, match=r"the index has no tuned vectors: name their folder as encoder\.tuned"):
        found(without, asked, TUNED)
    assert len(found(without, asked, DEEP).rows) == len(SAID)
