from datetime import timedelta

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.embeddings import dated_texts, embed_turns
from hgmem_core.encoding import encode_texts
from hgmem_core.namespace_index import TieOrder
from hgmem_core.ranking import Query, best_rows
from hgmem_core.recipes import DEPTH, RECIPES, Leg, Recipe, RecipeError, find_recipe
from hgmem_core.search import Filters, hits_of, rank_turns
from hgmem_core.tokens import tokenizer
from hgmem_core.turns import date_texts, merge_imports, turn_texts
from hgmem_core.units import session_spans
from tests.core import fixtures
from tests.core.fixtures import BEGAN, IMPORTED, HashEncoder, imported, message, query_of, turns_of
from tests.core.toy_models import model_of

ENCODER = HashEncoder()
WORDS = "tea harbour violin seven garden ticket rain Lisbon piano bread".split()


def reader_of(turns):
    return fixtures.reader_of(turns, ENCODER)


def query(text):
    return query_of(text, ENCODER)


def search(index, text, recipe="untrained", k=10, **filters):
    asked = find_recipe(recipe)
    ranking = rank_turns(index, query(text), asked, Filters(**filters), k, trained=model_of(asked))
    return hits_of(index, ranking), ranking


def chat(seed=3, turns=40, namespace="acme/ana"):
    rng = np.random.default_rng(seed)
    return [
        message(
            " ".join(rng.choice(WORDS, 5)),
            at=60 * (number // 8) + number % 8,
            speaker=("Ana", "Bo")[number % 2],
            session=f"s{number // 8}",
            namespace=namespace,
            source_id=str(number),
        )
        for number in range(turns)
    ]


@pytest.fixture(scope="module")
def turns():
    return turns_of(*chat(), *chat(seed=4, namespace="acme/bo"))


@pytest.fixture(scope="module")
def ana(turns):
    return reader_of(turns).open("acme/ana")


def spans(index, before, after):
    """The rows of each turn's span, written out."""
    session = index.session
    rows = range(len(index))
    return [
        [r for r in range(row - before, row + after + 1) if r in rows and session[r] == session[row]] for row in rows
    ]


def reference_scores(texts, question):
    """bm25s's own scores over the given texts."""
    tokenize = tokenizer("english")
    vocabulary = {}
    corpus = [[vocabulary.setdefault(term, len(vocabulary)) for term in tokenize(text)] for text in texts]
    model = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    model.index((corpus, vocabulary), show_progress=False)
    known = [term for term in tokenize(question) if term in vocabulary]
    return model.get_scores(known) if known else np.zeros(len(texts))


@pytest.mark.parametrize("question", ["tea in Lisbon", "violin violin Ana", "5 March rain", "March 2024 pm"])
def test_every_posting_list_scores_as_bm25s_does_on_the_texts_it_stands_for(ana, question):
    plain = turn_texts(ana.nodes)
    dated = [date + text for date, text in zip(date_texts(ana.nodes), plain, strict=True)]
    joined = {
        "turn": plain,
        "dated": dated,
        "window": [" ".join(dated[row] for row in span) for span in spans(ana, 2, 2)],
        "prior": [" ".join(dated[row] for row in span) for span in spans(ana, 2, 0)],
        "episode": [
            " ".join(dated[row] for row in ana.graph.turns_of_episode.of(number).tolist())
            for number in range(ana.graph.counts["episode"])
        ],
        "session": [
            " ".join(text for text, own in zip(dated, ana.session, strict=True) if own == number)
            for number in range(ana.sessions)
        ],
    }
    numbers = ana.term_numbers(tokenizer("english")(question))
    for unit, texts in joined.items():
        expected = reference_scores(texts, question)
        np.testing.assert_allclose(ana.bm25(unit, numbers), expected, rtol=1e-5, atol=1e-6, err_msg=unit)


def test_window_cosines_equal_those_of_the_normalised_mean_vectors(ana):
    vector = query("tea in Lisbon").vector
    for unit, after in (("window", 2), ("prior", 0)):
        own = encode_texts(ENCODER, dated_texts(ana.nodes))
        means = np.array([own[span].mean(axis=0) for span in spans(ana, 2, after)])
        expected = means @ vector / np.linalg.norm(means, axis=1)
        np.testing.assert_allclose(ana.span_cosines(unit, ana.cosines(vector)), expected, rtol=1e-4, atol=1e-5)


def ranked_by(scores, ids, keep):
    order = sorted((row for row in range(len(ids)) if keep[row]), key=lambda row: (-np.float32(scores[row]), ids[row]))
    return order[:DEPTH]


@pytest.mark.parametrize("recipe", [name for name, recipe in RECIPES.items() if isinstance(recipe, Recipe)])
@pytest.mark.parametrize("question", ["tea in Lisbon", "What did Ana say about the violin?"])
def test_recipes_equal_their_definition_written_out(ana, recipe, question):
    legs = RECIPES[recipe].legs
    asked = query(question)
    ids = ana.column("turn_id").to_pylist()
    numbers = ana.term_numbers(asked.terms)
    cosines = ana.cosines(asked.vector)
    total = np.zeros(len(ids))
    for leg in legs:
        if leg.kind == "bm25":
            scores = ana.bm25(leg.unit, numbers)
        else:
            scores = cosines if leg.unit == "turn" else ana.span_cosines(leg.unit, cosines)
        if leg.unit == "session":
            order = ranked_by(scores, list(range(ana.sessions)), scores > 0)
            for rank, session in enumerate(order, 1):
                total[ana.session == session] += leg.weight / (60 + rank)
        else:
            order = ranked_by(scores, ids, scores > 0 if leg.kind == "bm25" else np.ones(len(ids), bool))
            for rank, row in enumerate(order, 1):
                total[row] += leg.weight / (60 + rank)
        if len(legs) == 1:
            assert rank_turns(ana, asked, RECIPES[recipe], Filters(), 10).rows.tolist() == order[:10]
            return
    if recipe == "untrained" and "Ana" in question:
        total[[name != "Ana" for name in ana.column("speaker").to_pylist()]] *= 0.85
    expected = ranked_by(total, ids, total > 0)[:10]
    assert rank_turns(ana, asked, RECIPES[recipe], Filters(), 10).rows.tolist() == expected


def test_a_turn_in_no_list_is_not_found(ana):
    recipe = Recipe("words", (Leg("bm25", "turn"), Leg("bm25", "prior")))
    asked = query("tea")
    matching = ana.bm25("prior", ana.term_numbers(asked.terms)) > 0
    assert not matching.all()
    assert sorted(rank_turns(ana, asked, recipe, Filters(), 100).rows.tolist()) == np.flatnonzero(matching).tolist()


def test_nothing_in_one_namespace_changes_another(turns):
    alone = reader_of(turns.filter(np.array(turns.column("namespace").to_pylist()) == "acme/ana")).open("acme/ana")
    together = reader_of(turns).open("acme/ana")
    for recipe in RECIPES:
        first, _ = search(alone, "tea for Bo in Lisbon", recipe)
        second, _ = search(together, "tea for Bo in Lisbon", recipe)
        assert first == second


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_secret_of_one_namespace_is_in_no_answer_of_another(recipe):
    reader = reader_of(turns_of(message("the code is sky-42", namespace="acme/ana"), *chat(namespace="acme/bo")))
    hits, _ = search(reader.open("acme/bo"), "the code is sky-42", recipe, k=1_000)
    assert all("sky-42" not in hit.text for hit in hits)
    assert reader.open("acme") is None
    assert reader.open("acme/carol") is None


def test_filters_hold_before_the_best_are_taken(monkeypatch):
    monkeypatch.setattr("hgmem_core.search.DEPTH", 5)  # the lists could hold those alone that are near
    near = [message("sky garden ticket", number, speaker="Bo", source_id=f"b{number}") for number in range(15)]
    far = [message(f"ticket {number}", 20 + number, speaker="Ada", source_id=f"a{number}") for number in range(5)]
    index = reader_of(turns_of(*near, *far)).open("acme/ana")
    for recipe in RECIPES:
        hits, _ = search(index, "sky garden ticket", recipe, k=5, speaker="Ada")
        assert [hit.speaker for hit in hits] == ["Ada"] * 5, recipe


def test_time_session_and_import_filters(turns):
    index = reader_of(turns).open("acme/ana")
    until = BEGAN + timedelta(hours=2)
    hits, _ = search(index, "tea violin", k=100, said_from=BEGAN + timedelta(hours=1), said_until=until)
    assert {hit.session_id for hit in hits} == {"s1"}
    hits, _ = search(index, "tea violin", k=100, session_id="s2")
    assert {hit.session_id for hit in hits} == {"s2"}
    hits, ranking = search(index, "tea violin", k=100, ingested_until=IMPORTED)
    assert (hits, ranking.reason) == ([], "nothing_passes_the_filters")


def test_the_time_of_saying_and_of_import_are_two_filters():
    first = imported(message("old tea", at=0, source_id="1"), ingested_at=IMPORTED)
    second = imported(message("back-dated tea", at=-99, source_id="2"), ingested_at=IMPORTED + timedelta(days=9))
    index = reader_of(merge_imports([first, second])[0]).open("acme/ana")
    late, _ = search(index, "tea", ingested_from=IMPORTED + timedelta(days=1))
    early, _ = search(index, "tea", said_until=BEGAN)
    assert [hit.source_id for hit in late] == [hit.source_id for hit in early] == ["2"]
    with pytest.raises(ValueError, match=r"said_from: .* has no time zone"):
        Filters(said_from=BEGAN.replace(tzinfo=None))


def test_a_turn_without_a_time_passes_no_time_filter():
    index = reader_of(turns_of(message("tea", None, source_id="1"), message("tea too", 5, session="s2"))).open(
        "acme/ana"
    )
    assert len(search(index, "tea")[0]) == 2
    assert [hit.session_id for hit in search(index, "tea", said_until=BEGAN + timedelta(days=9))[0]] == ["s2"]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("text", ["", "   ", "the of and", "?!…", "👩‍👩‍👧", "\n"])
def test_a_query_that_says_nothing_finds_nothing(ana, recipe, text):
    hits, ranking = search(ana, text, recipe)
    assert (hits, ranking.reason) == ([], "no_query_terms")


def test_unknown_words_find_nothing_by_words_and_change_nothing(ana):
    assert search(ana, "zyzzyva quux", "bm25")[1].reason == "no_query_terms"
    before = search(ana, "tea")[0]
    search(ana, "zyzzyva quux tea")
    assert search(ana, "tea")[0] == before


def test_fewer_turns_than_asked_for():
    index = reader_of(turns_of(*(message(f"tea {number}", number) for number in range(3)))).open("acme/ana")
    for recipe in RECIPES:
        assert len(search(index, "tea", recipe, k=10)[0]) == 3


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_only_turn_of_a_namespace_is_found(recipe):
    index = reader_of(turns_of(message("I moved to Lisbon."))).open("acme/ana")
    assert [hit.text for hit in search(index, "Lisbon", recipe)[0]] == ["I moved to Lisbon."]


def test_an_empty_bucket_and_texts_without_terms_are_valid():
    assert reader_of(turns_of()).namespaces() == []
    index = reader_of(turns_of(message("...", speaker=None), message("!!!", 1, speaker=None))).open("acme/ana")
    assert search(index, "anything", "bm25")[0] == []
    assert len(search(index, "anything", "hybrid")[0]) == len(search(index, "anything")[0]) == 2


@pytest.mark.parametrize("word", ["北京", "学校"])
def test_a_chinese_word_inside_a_sentence_is_found_by_words(word):
    index = reader_of(turns_of(message("我昨天去了北京的学校", speaker="李"), message("今天下雨", 1))).open("acme/ana")
    assert [hit.text for hit in search(index, word, "bm25")[0]] == ["我昨天去了北京的学校"]


@settings(max_examples=30)
@given(st.permutations(range(24)), st.integers(1, 8))
def test_permuted_rows_give_the_same_answers(order, k):
    messages = chat(turns=24)
    expected = reader_of(turns_of(*messages)).open("acme/ana")
    shuffled = reader_of(turns_of(*(messages[place] for place in order))).open("acme/ana")
    for recipe in ("bm25", "untrained"):
        assert search(shuffled, "rain in Lisbon", recipe, k)[0] == search(expected, "rain in Lisbon", recipe, k)[0]


def test_equal_scores_are_ordered_by_id():
    index = reader_of(turns_of(*(message("same words", speaker=None, session=f"s{n}") for n in range(12)))).open(
        "acme/ana"
    )
    ids = [hit.turn_id for hit in search(index, "same words", "bm25", k=5)[0]]
    assert ids == sorted(index.column("turn_id").to_pylist())[:5]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 40, 2_500, 9_000]),
    st.sampled_from([1, 2, 30, 100_000]),
    st.sampled_from([0, 1, 10, 700]),
)
def test_the_best_rows_are_those_of_a_full_sort(seed, rows, levels, depth):
    rng = np.random.default_rng(seed)
    scores = (rng.integers(0, levels, rows) / 7 - 1).astype(np.float32) * rng.choice(np.float32([1, 0, -0.0]), rows)
    rank = rng.permutation(rows)
    candidates = np.flatnonzero(rng.random(rows) < 0.95)
    expected = sorted(candidates.tolist(), key=lambda row: (-scores[row], rank[row]))[:depth]
    assert best_rows(scores, candidates, depth, TieOrder.of(rank)).tolist() == expected


def test_explanations_tell_each_lists_rank(ana):
    for hit in hits_of(ana, rank_turns(ana, query("tea in Lisbon"), RECIPES["untrained"], Filters(), 3, explain=True)):
        total = sum((0.5 if name == "bm25/session" else 1.0) / (60 + rank) for name, (rank, _) in hit.legs.items())
        assert total == pytest.approx(hit.score)
    for hit in hits_of(ana, rank_turns(ana, query("tea in Lisbon"), RECIPES["hypergraph"], Filters(), 3, explain=True)):
        assert sum(score for _, score in hit.legs.values()) == pytest.approx(hit.score)


def test_spans_end_with_their_session():
    first, stop = session_spans(np.array([0, 0, 0, 1, 1], np.int32), 2, 1)
    assert first.tolist() == [0, 0, 0, 3, 3]
    assert stop.tolist() == [2, 3, 3, 5, 5]


class DeafEncoder(HashEncoder):
    """Sees nothing in a text that holds a certain character."""

    def tokenize(self, texts):
        return super().tokenize(["" if "ꙮ" in text else text for text in texts])


def test_a_turn_of_which_the_encoder_sees_nothing_is_counted_and_found_by_words_alone():
    turns = turns_of(message("tea ꙮ harbour", speaker=None), message("tea bread", 1), message("piano", 2))
    outcomes = embed_turns(turns, DeafEncoder(), 32)[1].to_pylist()
    assert [(row["outcome"], row["reason"]) for row in outcomes if row["outcome"] != "ok"] == [
        ("empty", "the encoder sees no token")
    ]
    index = fixtures.reader_of(turns, DeafEncoder()).open("acme/ana")
    assert {hit.text for hit in search(index, "tea harbour", "dense")[0]} == {"tea bread", "piano"}
    assert search(index, "tea harbour", "bm25")[0][0].text == "tea ꙮ harbour"


def test_a_query_vector_that_is_not_finite_is_refused(ana):
    broken = Query("tea", ("tea",), np.full(16, np.nan, np.float32))
    with pytest.raises(ValueError, match="finite query vector"):
        rank_turns(ana, broken, RECIPES["dense"], Filters(), 3)


def test_recipes_by_name():
    assert find_recipe("default") is RECIPES["hypergraph"]
    with pytest.raises(RecipeError, match="no recipe 'best'; there are default, bm25"):
        find_recipe("best")
