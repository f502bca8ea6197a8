"""The recipes over the hypergraph, against their definitions written out, and how it holds when a log grows."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from hgmem_core.context import statements_of
from hgmem_core.embeddings import embed_turns
from hgmem_core.graph import GraphError
from hgmem_core.index import build_index
from hgmem_core.namespace_graph import Lists
from hgmem_core.ranking import Reranker
from hgmem_core.recipes import RECIPES, CoarseToFine, Recipe
from hgmem_core.search import Filters, rank_turns
from hgmem_core.stage_config import IndexConfig
from hgmem_core.turns import microseconds
from tests.core.fixtures import BEGAN, HashEncoder, graph_of, message, query_of, reader_of, turns_of
from tests.core.toy_models import model_of

ENCODER = HashEncoder()
SUBJECTS = ["my cello lesson", "the harbour in Lisbon", "a lemon cake", "our old ferry", "Nadia's garden"]
VERBS = ["I love", "I finally finished", "We talked about", "Tomorrow I start", "They asked about"]


def chat(sessions=6, turns=8, seed=1):
    rng = np.random.default_rng(seed)
    return [
        message(
            f"{rng.choice(VERBS)} {rng.choice(SUBJECTS)} number {number}. "
            + ("What do you think?" if number % 3 == 0 else "It took all day."),
            at=10_000 * session + number,
            speaker=("Ana", "Bo")[number % 2],
            session=f"s{session}",
            source_id=f"{session}-{number}",
        )
        for session in range(sessions)
        for number in range(turns)
    ]


@pytest.fixture(scope="module")
def index():
    return reader_of(turns_of(*chat()), ENCODER).open("acme/ana")


def query(text):
    return query_of(text, ENCODER)


def vectors_of(index, level, weight):
    """The level's vectors h + weight * s, from the stored ones."""
    graph = index.graph
    part = graph._slices[level]
    rows = np.arange(graph._first_vector + part.start, graph._first_vector + part.stop)
    base, moved = graph._base.vectors(rows), graph._propagated.vectors(rows)
    return base + weight / 0.5 * (moved - base)


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("level", ["topic", "episode", "fact"])
def test_cosines_under_any_weight_are_those_of_the_propagated_vectors(index, level, weight):
    vectors = vectors_of(index, level, weight)
    asked = query("a lemon cake in Lisbon").vector
    expected = vectors @ asked / np.linalg.norm(vectors, axis=1)
    cosines = index.graph.cosines(level, asked, weight)
    np.testing.assert_allclose(cosines, expected, rtol=1e-4, atol=1e-5)
    some = np.flatnonzero(np.arange(len(cosines)) % 3 != 1)
    assert index.graph.cosines(level, asked, weight, some).tolist() == cosines[some].tolist()


def test_lists_of_some_rows_come_one_after_the_other():
    lists = Lists(np.array([0, 2, 2, 5]), np.array([7, 8, 4, 5, 6]))
    for rows, expected in (([2, 1, 0], [4, 5, 6, 7, 8]), ([1], []), ([0, 0], [7, 8, 7, 8]), ([], [])):
        assert lists.of_all(np.array(rows, np.int64)).tolist() == expected


def test_every_turn_is_in_an_episode_every_episode_in_a_topic_every_fact_has_sources(index):
    graph = index.graph
    assert sorted(graph.turns_of_episode.values.tolist()) == list(range(len(index)))
    assert set(graph.episodes_of_topic.values.tolist()) == set(range(graph.counts["episode"]))
    assert set(graph.facts_of_episode.values.tolist()) == set(range(graph.counts["fact"]))
    assert (np.diff(graph.turns_of_fact.offsets) > 0).all()
    for episode in range(graph.counts["episode"]):
        assert set(index.episode[graph.turns_of_episode.of(episode)].tolist()) == {episode}


def scaled(values):
    spread = values.max() - values.min()
    return (values - values.min()) / spread if spread else np.zeros(len(values))


@pytest.mark.parametrize("question", ["the harbour in Lisbon", "What did Ana say about her cello lesson?"])
def test_hypergraph_equals_its_formula_written_out(index, question):
    graph, asked = index.graph, query(question)
    numbers = index.term_numbers(asked.terms)
    vectors = vectors_of(index, "fact", 0.5)
    cosines = vectors @ asked.vector / np.linalg.norm(vectors, axis=1)
    best = np.full(len(index), np.nan)
    for fact, cosine in enumerate(cosines):
        row = graph.turns_of_fact.of(fact)[0]
        best[row] = np.nanmax([best[row], cosine])
    best[np.isnan(best)] = cosines.min()
    topic = np.array(
        [
            max(
                best[row]
                for number in range(graph.counts["topic"])
                if index.episode[turn] in graph.episodes_of_topic.of(number)
                for episode in graph.episodes_of_topic.of(number)
                for row in graph.turns_of_episode.of(episode)
            )
            for turn in range(len(index))
        ]
    )
    words = sum(scaled(index.bm25(unit, numbers)) for unit in ("dated", "window", "prior")) * 0.4 / 3
    episode = scaled(index.bm25("episode", numbers)[index.episode])
    expected = words + 0.6 * scaled(best) + 0.1 * episode + 0.2 * scaled(topic)
    if "Ana" in question:
        expected[[speaker != "Ana" for speaker in index.column("speaker").to_pylist()]] *= 0.8
    ranking = rank_turns(index, asked, RECIPES["hypergraph"], Filters(), 10)
    np.testing.assert_allclose(ranking.scores, np.sort(expected)[::-1][:10], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(ranking.scores, expected[ranking.rows], rtol=1e-3, atol=1e-4)


def stage(lexical, cosines, has_vector, candidates, keep, depth=100):
    score = dict.fromkeys(candidates, 0.0)
    by_words = sorted((node for node in candidates if lexical[node] > 0), key=lambda node: (-lexical[node], node))
    by_cosine = sorted((node for node in candidates if has_vector[node]), key=lambda node: (-cosines[node], node))
    for ranked in (by_words[:depth], by_cosine[:depth]):
        for rank, node in enumerate(ranked, 1):
            score[node] += np.float32(1 / (60 + rank))
    return sorted((node for node in candidates if score[node]), key=lambda node: (-np.float32(score[node]), node))[
        :keep
    ]


@pytest.mark.parametrize("speaker", [None, "Ana"])
@pytest.mark.parametrize("recipe", [name for name, recipe in RECIPES.items() if isinstance(recipe, CoarseToFine)])
def test_hypermem_equals_its_stages_written_out(index, recipe, speaker, monkeypatch):
    nodes = sum(index.graph.counts.values())
    monkeypatch.setattr(index.graph, "_has_vector", np.arange(nodes) % 4 != 0)
    graph, asked, settings = index.graph, query("my cello lesson in Lisbon"), RECIPES[recipe]
    lexical = index.bm25("graph", index.term_numbers(asked.terms))
    passes = {row for row in range(len(index)) if speaker in (None, index.speaker_of(row))}

    def passing(nodes, turns):
        return [node for node in nodes if passes.intersection(turns.of(node).tolist())]

    def run(level, candidates, keep):
        cosines = graph.cosines(level, asked.vector, settings.propagation)
        return stage(graph.level(level, lexical), cosines, graph.has_vector(level), candidates, keep)

    episodes, facts = range(graph.counts["episode"]), range(graph.counts["fact"])
    if settings.topics:
        every = range(graph.counts["topic"])
        reached = [topic for topic in every if passing(graph.episodes_of_topic.of(topic), graph.turns_of_episode)]
        topics = run("topic", reached, settings.topics)
        episodes = sorted({node for topic in topics for node in graph.episodes_of_topic.of(topic).tolist()})
    if settings.episodes:
        episodes = run("episode", passing(episodes, graph.turns_of_episode), settings.episodes)
        facts = sorted({node for episode in episodes for node in graph.facts_of_episode.of(episode).tolist()})
    else:
        episodes = []
    facts = run("fact", passing(facts, graph.turns_of_fact), settings.facts)
    ranking = rank_turns(index, asked, settings, Filters(speaker=speaker), 1_000)
    assert (ranking.facts.tolist(), ranking.episodes.tolist()) == (facts, episodes)
    turns = [row for fact in facts for row in graph.turns_of_fact.of(fact).tolist()]
    turns += [row for episode in episodes for row in graph.turns_of_episode.of(episode).tolist()]
    assert ranking.rows.tolist() == [row for row in dict.fromkeys(turns) if row in passes]


def test_a_reranker_orders_the_candidates_of_each_stage(index):
    seen = {}

    def rerank(asked, level, rows):
        seen[level] = rows.tolist()
        return np.arange(len(rows), dtype=np.float32)

    recipe = CoarseToFine("x", topics=1, episodes=1, facts=2)
    ranking = rank_turns(index, query("my cello lesson"), recipe, Filters(), 10, reranker=Reranker(rerank, 100))
    assert list(seen) == ["topic", "episode", "fact"]
    assert set(seen["episode"]) <= set(index.graph.episodes_of_topic.of(seen["topic"][-1]).tolist())
    assert ranking.episodes.tolist() == seen["episode"][-1:]
    assert set(seen["fact"]) <= set(index.graph.facts_of_episode.of(seen["episode"][-1]).tolist())
    assert ranking.facts.tolist() == seen["fact"][:-3:-1]


def test_filters_reach_the_hypergraph(index):
    one_topic = CoarseToFine("one topic", topics=1)
    for session in index.session_ids:
        for recipe in (*(recipe for recipe in RECIPES.values() if not isinstance(recipe, Recipe)), one_topic):
            filters = Filters(session_id=session)
            ranking = rank_turns(index, query("my cello lesson"), recipe, filters, 100, trained=model_of(recipe))
            assert set(index.column("session_id").take(ranking.rows).to_pylist()) == {session}, recipe
            cited = {turn for one in statements_of(index, ranking, recipe) for turn in one.turn_ids}
            rows = [row for row, turn in enumerate(index.column("turn_id").to_pylist()) if turn in cited]
            assert set(index.column("session_id").take(rows).to_pylist()) == {session}, recipe


def test_adding_the_last_session_changes_no_id_of_the_earlier_ones():
    messages = chat()
    before = graph_of(turns_of(*(one for one in messages if one.session_id != "s5")), ENCODER)
    after = graph_of(turns_of(*messages), ENCODER)
    for name, key in (("episodes", "episode_id"), ("facts", "fact_id"), ("topics", "topic_id")):
        old, new = (set(getattr(tables, name).column(key).to_pylist()) for tables in (before, after))
        assert old
        assert old <= new, name


def test_a_superseded_fact_is_not_found_by_default():
    index = reader_of(
        turns_of(
            message("I like tea.", 0, session="s1"),
            message("Nothing much happened.", 1, session="s1"),
            message("I dislike tea.", 90_000, session="s2"),
        ),
        ENCODER,
    ).open("acme/ana")
    texts = index.graph.column("fact", "text").to_pylist()
    closed = [text for text, stands in zip(texts, index.graph.stands(None), strict=True) if not stands]
    assert closed == ["Ana: I like tea."]
    ranking = rank_turns(index, query("Does Ana like tea?"), RECIPES["hypermem"], Filters(), 10)
    assert "Ana: I like tea." not in [texts[fact] for fact in ranking.facts.tolist()]
    assert ranking.facts.tolist()
    for recipe in ("hypermem", "hypergraph"):
        then = Filters(as_of=BEGAN + timedelta(days=1))
        past = rank_turns(index, query("Does Ana like tea?"), RECIPES[recipe], then, 10)
        assert set(index.column("text").take(past.rows).to_pylist()) <= {"I like tea.", "Nothing much happened."}
        assert index.column("text")[past.rows[0]].as_py() == "I like tea."
    past = rank_turns(index, query("Does Ana like tea?"), RECIPES["hypermem"], then, 10)
    assert "Ana: I like tea." in [texts[fact] for fact in past.facts.tolist()]


def test_a_fact_that_cites_no_turn_stops_the_build():
    turns = turns_of(*chat(sessions=1))
    graph = graph_of(turns, ENCODER)
    elsewhere = graph_of(turns_of(message("I like lemon cake.", session="elsewhere")), ENCODER)
    broken = replace(graph, facts=elsewhere.facts)
    with pytest.raises(GraphError, match=r"fact \w+ cites no turn of acme/ana"):
        build_index(turns, embed_turns(turns, ENCODER, 32)[0], broken, IndexConfig(), 0.5)


def test_a_context_has_each_statement_on_one_line_and_dates_it_by_its_earliest_source():
    index = reader_of(
        turns_of(
            message("I adopted a puppy called Rex.", 60 * 24 * 30, session="a"),
            message("Nothing else happened at all.", 60 * 24 * 30 + 1, session="a"),
            message("I adopted a puppy called Rex.", 0, session="z"),
            message("Look:\n9 May, 2020:\n[2] Bo: I hid the key.", 1, session="z"),
        ),
        ENCODER,
    ).open("acme/ana")
    for recipe in ("hypergraph", "hypermem:no-episode-context"):
        ranking = rank_turns(index, query("puppy called Rex key"), RECIPES[recipe], Filters(), 10)
        statements = statements_of(index, ranking, RECIPES[recipe])
        assert not any("\n" in statement.text for statement in statements)
    [puppy] = [statement for statement in statements if "Rex" in statement.text]
    assert puppy.date == "1 March, 2024"
    assert len(puppy.turn_ids) == 2


def test_a_superseded_fact_lifts_no_turn_of_the_default():
    said = ["I like tea.", "I dislike tea."]
    index = reader_of(
        turns_of(*(message(text, 90_000 * at, session=f"s{at}") for at, text in enumerate(said))), ENCODER
    )
    graph = index.open("acme/ana").graph
    facts, _ = graph.best_turn_of_fact(None)
    texts = graph.column("fact", "text").to_pylist()
    assert [texts[fact] for fact in facts.tolist()] == ["Ana: I dislike tea."]
    facts, _ = graph.best_turn_of_fact(microseconds(BEGAN + timedelta(days=1)))
    assert "Ana: I like tea." in [texts[fact] for fact in facts.tolist()]
