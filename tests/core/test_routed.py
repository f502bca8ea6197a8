from dataclasses import replace

import numpy as np
import pytest

from hgmem_core.encoding import encode_texts
from hgmem_core.ranking import Query
from hgmem_core.recipes import RECIPES
from hgmem_core.search import Filters, rank_turns
from hgmem_core.tokens import tokenizer
from hgmem_core.trained import TrainedModelError, features_of, trained_of
from tests.core.fixtures import HashEncoder, message, reader_of, turns_of
from tests.core.toy_models import model_of

ENCODER = HashEncoder()
ROUTED, FLAT = RECIPES["routed"], RECIPES["learned-flat:hypergraph"]
FEW = replace(ROUTED, flat=replace(ROUTED.flat, candidates=3))
TEXTS = (
    "I moved to Lisbon since the rent was low.", "How is the new flat in Lisbon?", "Tiny, but it looks over the river.",
    "The violin lesson was long.", "My violin teacher moved to Porto.", "Rain again, and no bread.",
    "The river was high after the rain.", "Is Porto far from Lisbon?",
)  # fmt: skip


def query(text):
    return Query(text, tuple(tokenizer("english")(text)), encode_texts(ENCODER, [text])[0])


@pytest.fixture(scope="module")
def ana():
    messages = [
        message(text, at=60 * 24 * (place // 4) + place, speaker=("Ana", "Bo")[place % 2], session=f"s{place // 4}")
        for place, text in enumerate(TEXTS)
    ]
    return reader_of(turns_of(*messages), ENCODER).open("acme/ana")


def frontier_that_gives(bias):
    """The toy model, whose frontier gives every relation softplus(bias)."""
    toy = model_of(ROUTED)
    frontier = toy.frontier
    even = replace(
        frontier,
        third_weight=np.zeros_like(frontier.third_weight),
        third_bias=np.array(bias, np.float32),
        source_residual=np.zeros_like(frontier.source_residual),
    )
    return replace(toy, frontier=even)


def ranked(index, recipe, trained, text="violin in Lisbon", k=8, explain=False, **filters):
    return rank_turns(index, query(text), recipe, Filters(**filters), k, explain=explain, trained=trained)


def test_a_frontier_that_gives_nothing_leaves_the_order_of_flat_search(ana):
    model = frontier_that_gives(-200.0)
    assert ranked(ana, ROUTED, model).rows.tolist() == ranked(ana, FLAT, model.flat).rows.tolist()
    spends_nothing = replace(ROUTED, budget=0)
    assert ranked(ana, spends_nothing, model_of(ROUTED)).rows.tolist() == ranked(ana, FLAT, model.flat).rows.tolist()


def test_the_frontier_brings_forward_what_flat_search_did_not_order(ana):
    flat = ranked(ana, FEW, frontier_that_gives(-200.0), explain=True)
    grown = ranked(ana, FEW, frontier_that_gives(9.0), explain=True)
    assert sorted(grown.rows.tolist()) == sorted(flat.rows.tolist()) == list(range(8))
    candidates = set(flat.rows[:3].tolist())
    spoken_for = np.flatnonzero(grown.legs["bonus"].scores > 0)
    assert set(spoken_for.tolist()) - candidates
    assert set(grown.rows[:3].tolist()) != candidates
    by_score = grown.legs["odds"].scores + grown.legs["bonus"].scores
    assert (np.diff(by_score[grown.rows[: len(candidates | set(spoken_for.tolist()))]]) <= 0).all()


def test_a_bonus_is_never_negative_and_odds_stay(ana):
    flat, grown = (ranked(ana, ROUTED, frontier_that_gives(bias), explain=True) for bias in (-200.0, 2.0))
    assert (grown.legs["bonus"].scores >= 0).all()
    np.testing.assert_array_equal(flat.legs["odds"].scores, grown.legs["odds"].scores)


def test_what_the_frontier_speaks_for_passes_the_filters(ana):
    for filters, allowed in (({"speaker": "Bo"}, {1, 3, 5, 7}), ({"session_id": "s1"}, {4, 5, 6, 7})):
        assert set(ranked(ana, FEW, frontier_that_gives(9.0), **filters).rows.tolist()) <= allowed


def test_a_model_travels_as_arrays_and_others_are_refused(ana):
    model = model_of(ROUTED)
    again = trained_of(ROUTED, model.as_dict(), features_of(model))
    assert ranked(ana, ROUTED, again).rows.tolist() == ranked(ana, ROUTED, model).rows.tolist()
    with pytest.raises(TrainedModelError, match=r"routed: the frontier was trained on other features of relations"):
        trained_of(ROUTED, model.as_dict(), features_of(model)[:-1])
    with pytest.raises(
        TrainedModelError, match="recipe 'routed' needs the trained model 'routed', and not the TurnRank"
    ):
        ranked(ana, ROUTED, model.flat)
    flat = model_of(RECIPES["learned-flat"])
    with pytest.raises(TrainedModelError, match="recipe 'routed': the ranker was trained on other features"):
        ranked(ana, ROUTED, replace(model, flat=flat))


def test_one_turn_alone_is_found():
    index = reader_of(turns_of(message("I moved to Lisbon.")), ENCODER).open("acme/ana")
    assert ranked(index, ROUTED, frontier_that_gives(3.0)).rows.tolist() == [0]
