from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from hgmem_core.learned_flat import find_candidates, learned_order, ranker_of
from hgmem_core.query_analysis import analyse_query
from hgmem_core.recipes import RECIPES
from hgmem_core.search import Filters, rank_turns
from hgmem_core.trained import TrainedModelError, trained_of
from hgmem_core.turn_features import DEEP, FLAT, choose_candidates, list_scores, turn_features
from tests.core.fixtures import BEGAN, HashEncoder, message, query_of, reader_of, turns_of
from tests.core.toy_models import model_of

ENCODER = HashEncoder()
TEXTS = (
    "I moved to Lisbon last week.", "How is the new flat?", "Tiny, but it sees the river.", "Do you miss the tea?",
    "I bought tea at the harbour.", "The violin lesson was long.", "Rain again, no bread.", "See you at the harbour?",
)  # fmt: skip


def query(text):
    return query_of(text, ENCODER)


@pytest.fixture(scope="module")
def ana():
    messages = [
        message(text, at=60 * 24 * (place // 4) + place, speaker=("Ana", "Bo")[place % 2], session=f"s{place // 4}")
        for place, text in enumerate(TEXTS)
    ]
    return reader_of(turns_of(*messages), ENCODER).open("acme/ana")


def features(index, text, layout=FLAT, rows=None):
    asked = query(text)
    numbers = np.array(index.term_numbers(asked.terms), np.int64)
    lists = list_scores(index, asked, numbers, layout)
    every, fused = choose_candidates(index, lists, layout, len(index))
    analysis = analyse_query(text, index.speakers[0], None, index.log_span)
    rows = every if rows is None else np.array(rows)
    return turn_features(index, asked, analysis, {**lists, "rrf": fused}, rows, layout)


def test_features_tell_of_neighbours_within_the_session(ana):
    found = features(ana, "tea at the harbour", rows=range(8))
    scaled = found["bm25/turn scaled"]
    for step in (-2, -1, 1, 2):
        beside = found[f"bm25/turn at {step:+d}"]
        for row in range(8):
            there = row + step
            expected = scaled[there] if 0 <= there < 8 and there // 4 == row // 4 else 0.0
            assert beside[row] == expected


def test_features_tell_of_turns_and_of_the_question(ana):
    found = features(ana, "When did Ana buy tea?", rows=range(8))
    assert found["speaker"].tolist() == [1, 0] * 4
    assert found["asks"].tolist() == [0, 1, 0, 1, 0, 0, 0, 1]
    assert found["asks at -1"].tolist() == [0, 0, 1, 0, 0, 0, 0, 0]
    assert found["place in session"].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1] * 2)
    assert found["word when"].tolist() == [1] * 8
    assert found["word who"].tolist() == [0] * 8
    assert found["asks when"].tolist() == [1] * 8
    assert found["in time"].tolist() == [-1] * 8
    assert features(ana, "Who bought tea?", rows=[0])["speaker"].tolist() == [0.5]


def test_features_tell_which_turns_are_of_the_time_asked_about(ana):
    day = f"{BEGAN.day} {BEGAN:%B} {BEGAN.year}"
    found = features(ana, f"What was said on {day}?", rows=range(8))
    assert found["in time"].tolist() == [1] * 4 + [0] * 4
    assert (found["days off"][:4] == 0).all()
    assert (found["days off"][4:] > 0).all()


def test_ranks_and_scores_are_those_of_the_lists(ana):
    found = features(ana, "tea at the harbour", DEEP, rows=range(8))
    for name in DEEP.lists:
        order = np.argsort(-found[name], kind="stable")
        assert np.expm1(found[f"{name} rank"])[order].round().tolist() == list(range(8))
    assert all(np.isfinite(column).all() and column.shape == (8,) for column in found.values())


def test_a_namespace_of_one_turn_has_finite_features():
    index = reader_of(turns_of(message("tea", None, speaker=None)), ENCODER).open("acme/ana")
    for layout in (FLAT, DEEP):
        assert all(np.isfinite(column).all() for column in features(index, "tea in June 2020", layout).values())


def test_candidates_are_the_best_by_rank_fusion_and_pass_the_filters(ana):
    asked = query("tea at the harbour")
    lists = list_scores(ana, asked, np.array(ana.term_numbers(asked.terms), np.int64), FLAT)
    ids = ana.column("turn_id").to_pylist()
    fused = np.zeros(8)
    for name in FLAT.pool:
        order = sorted(range(8), key=lambda row, name=name: (-lists[name][row], ids[row]))
        fused[order] += 1 / (61 + np.arange(8))
    expected = sorted(range(8), key=lambda row: (-np.float32(fused[row]), ids[row]))
    assert choose_candidates(ana, lists, FLAT, 3)[0].tolist() == expected[:3]
    passes = np.arange(8) % 2 == 1
    assert set(choose_candidates(ana, lists, FLAT, 8, passes)[0].tolist()) == {1, 3, 5, 7}


@pytest.mark.parametrize("name", ["learned-flat", "learned-flat:hypergraph"])
def test_candidates_come_in_the_order_of_their_odds_and_the_rest_behind_them(ana, name):
    recipe = replace(RECIPES[name], candidates=4)
    asked = query("tea at the harbour")
    analysis = analyse_query(asked.text, ana.speakers[0])
    found = find_candidates(ana, asked, analysis, np.array(ana.term_numbers(asked.terms), np.int64), recipe)
    rows, odds = learned_order(ana, found, model_of(RECIPES[name]), 8)
    assert sorted(rows.tolist()) == list(range(8))
    ids = ana.column("turn_id").to_pylist()
    by_odds = dict(zip(found.rows.tolist(), odds.tolist(), strict=True))
    assert rows[:4].tolist() == sorted(by_odds, key=lambda row: (-by_odds[row], ids[row]))
    behind = [row for row in range(8) if row not in by_odds]
    assert rows[4:].tolist() == sorted(behind, key=lambda row: (-found.fused[row], ids[row]))
    assert learned_order(ana, found, model_of(RECIPES[name]), 2)[0].tolist() == rows[:2].tolist()


def test_odds_and_lists_explain_a_hit(ana):
    recipe = RECIPES["learned-flat"]
    ranking = rank_turns(ana, query("tea at the harbour"), recipe, Filters(), 3, explain=True, trained=model_of(recipe))
    assert set(FLAT.lists) | {"odds"} == set(ranking.legs)
    assert ranking.legs["odds"].ranks[ranking.rows].tolist() == [1, 2, 3]


def test_a_recipe_without_its_model_says_what_to_do(ana):
    for name in ("learned-flat", "hage"):
        for trained in (None, model_of(RECIPES["hage" if name == "learned-flat" else "learned-flat"])):
            with pytest.raises(
                TrainedModelError, match=f"recipe '{name}' needs the trained model '{name}'.*jobs.train"
            ):
                rank_turns(ana, query("tea"), RECIPES[name], Filters(), 3, trained=trained)


def test_a_model_of_other_features_is_refused(ana):
    flat, deep = (model_of(RECIPES[name]) for name in ("learned-flat", "learned-flat:hypergraph"))
    with pytest.raises(TrainedModelError, match="recipe 'learned-flat': the ranker was trained on other features"):
        rank_turns(ana, query("tea"), RECIPES["learned-flat"], Filters(), 3, trained=deep)
    with pytest.raises(TrainedModelError, match=r"learned-flat: the forest reads \d+ features, and 2 are named"):
        trained_of(RECIPES["learned-flat"], flat.as_dict(), ("a", "b"))
    again = ranker_of(flat.as_dict(), flat.features)
    assert again.features == flat.features


def test_relative_times_count_from_as_of(ana):
    recipe = RECIPES["learned-flat"]
    toy = model_of(recipe)
    in_time = np.full((1, 1), toy.features.index("in time"), np.int32)
    forest = replace(
        toy.forest,
        features=in_time,
        thresholds=np.full((1, 1), 0.5, np.float32),
        masks=np.ones((1, 1), np.uint32),
        values=np.array([[-1, 1]], np.float32),
    )
    asked = query("What did Ana buy yesterday?")
    for day, session in ((1, "s0"), (2, "s1")):
        now = Filters(as_of=BEGAN + timedelta(days=day, hours=2))
        ranking = rank_turns(ana, asked, recipe, now, 8, trained=replace(toy, forest=forest))
        assert {ana.session_ids[ana.session[row]] for row in ranking.rows[:4]} == {session}
