"""Nothing of what is forgotten leaves a namespace, whatever is asked of an index that was made with it."""

from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pytest

from hgmem_core.context import assemble, statements_of
from hgmem_core.evidence import find_evidence
from hgmem_core.recipes import RECIPES
from hgmem_core.rerank import Reranking
from hgmem_core.schemas import TOMBSTONE
from hgmem_core.search import Filters, hits_of, passing, rank_turns
from hgmem_core.tombstones import Tombstones
from tests.core.fixtures import BEGAN, HashEncoder, message, query_of, reader_of, turns_of
from tests.core.toy_models import model_of

ENCODER = HashEncoder()
CANARY = "canary"
SAID = [
    message("I keep a red bicycle in the cellar.", 0, source_id="m1"),
    message(f"My {CANARY} bicycle is in the harbour of {CANARY.title()}ville.", 1, "Canary Bo", source_id="canary-1"),
    message("The bicycle has a bell, a lamp and a basket.", 2, source_id="m3"),
    message("I went to Lisbon by train.", 60, session="s2", source_id="m4"),
    message(f"The {CANARY} code of my bicycle lock is 4711.", 61, "Bo", session="s2", source_id="canary-2"),
    message("I moved to Porto in May.", 62, session="s2", source_id="m6"),
    message("I like lemon tea with honey.", 120, session="s3", source_id="m7"),
    message("I like lemon tea with honey.", 180, session="s4", source_id="canary-3"),
]
TURNS = turns_of(*SAID)
IDS = dict(zip(*(TURNS.column(name).to_pylist() for name in ("source_id", "turn_id")), strict=True))
HIDDEN = [id for source, id in IDS.items() if "canary" in source]
QUESTION = f"Where is the red {CANARY} bicycle, and what tea?"


def forgotten(*ids):
    rows = [
        {"namespace": "acme/ana", "scope": "turn", "id": id, "deleted_at": BEGAN, "restored_at": None} for id in ids
    ]
    return Tombstones(pa.Table.from_pylist(rows, schema=TOMBSTONE.arrow))


@pytest.fixture(scope="module")
def reader():
    return reader_of(TURNS, ENCODER)


@pytest.fixture(scope="module")
def index(reader):
    return reader.open("acme/ana", forgotten(*HIDDEN))


EVERY = Filters()


class Reading:
    """A reranker's scorer that keeps what it was shown."""

    def __init__(self):
        self.read = []

    def scores(self, query, documents):
        self.read += documents
        return np.arange(len(documents), dtype=np.float32)


def told(index, recipe, filters=EVERY):
    """Everything that a recipe gives out for the question, and what it shows a reranker."""
    reading = Reading()
    answers = []
    for reranker in (None, Reranking(reading, 50, 10_000).of(index)):
        ranking = rank_turns(index, query_of(QUESTION, ENCODER), recipe, filters, 50, reranker, True, model_of(recipe))
        statements = statements_of(index, ranking, recipe)
        assert all(statement.text for statement in statements)
        answers.append([[asdict(hit) for hit in hits_of(index, ranking)], assemble(statements, 10_000, len)])
    return repr([answers, reading.read])


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_no_recipe_shows_a_forgotten_turn(reader, index, recipe):
    everything = told(reader.open("acme/ana"), recipe)
    assert CANARY in everything and any(id in everything for id in HIDDEN)
    found = told(index, recipe)
    assert "bicycle" in found
    assert CANARY not in found.casefold().replace(QUESTION.casefold(), "")
    assert not [id for id in HIDDEN if id in found]


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_filters_do_not_bring_a_forgotten_turn_back(index, recipe):
    for filters in (Filters(session_id="s2"), Filters(said_from=BEGAN), Filters(as_of=BEGAN.replace(year=2030))):
        found = told(index, recipe, filters)
        assert not [id for id in HIDDEN if id in found]
    assert not rank_turns(
        index, query_of(QUESTION, ENCODER), recipe, Filters(speaker="Canary Bo"), 9, trained=model_of(recipe)
    ).rows.size


def test_what_is_left_is_found_as_before(reader, index):
    """Where the question has no word of what is hidden."""
    query = query_of("lemon tea", ENCODER)
    before, after = (
        [hit.turn_id for hit in hits_of(one, rank_turns(one, query, RECIPES["bm25"], Filters(), 50))]
        for one in (reader.open("acme/ana"), index)
    )
    assert after == [id for id in before if id not in HIDDEN] != before


def texts(index, level):
    return list(zip(*(index.graph.column(level, name).to_pylist() for name in ("text", "title")), strict=True))


def test_facts_go_on_with_the_sources_that_remain_and_go_with_the_last(reader, index):
    before = reader.open("acme/ana")
    rows = np.flatnonzero(index.hidden)
    kept = gone = 0
    for fact, text in enumerate(before.graph.column("fact", "text").to_pylist()):
        sources, left = (one.graph.turns_of_fact.of(fact).tolist() for one in (before, index))
        assert left == [row for row in sources if row not in rows]
        assert index.graph.column("fact", "text")[fact].as_py() == (text if left else "")
        assert index.graph.stands(None)[fact] == bool(left)
        kept += bool(left) and len(left) < len(sources)
        gone += not left
    assert kept and gone


def test_summaries_that_may_tell_of_a_forgotten_turn_say_nothing(reader, index):
    before = reader.open("acme/ana")
    rows, shown = set(np.flatnonzero(index.hidden).tolist()), 0
    for level in ("episode", "topic"):
        for node, (said, left) in enumerate(zip(texts(before, level), texts(index, level), strict=True)):
            episodes = [node] if level == "episode" else before.graph.episodes_of_topic.of(node).tolist()
            reached = {row for episode in episodes for row in before.graph.turns_of_episode.of(episode).tolist()}
            assert left == (("", None) if reached & rows else said)
            shown += not reached & rows
    assert shown


def test_no_relation_leads_to_or_from_what_is_forgotten(reader, index):
    for graph, hidden in (("turn", index.hidden), ("fact", np.diff(index.graph.turns_of_fact.offsets) == 0)):
        before, after = (one.relations(graph) for one in (reader.open("acme/ana"), index))
        pairs = [list(zip(one.sources.tolist(), one.targets.tolist(), strict=True)) for one in (before, after)]
        assert (
            pairs[1] == [(one, other) for one, other in pairs[0] if not hidden[one] and not hidden[other]] != pairs[0]
        )
        assert len(after) == len(before)


def test_evidence_does_not_know_what_is_forgotten(reader, index):
    query = query_of(f"Which bicycle has a {CANARY}?", ENCODER)
    before, after = (find_evidence(one, query, passing(one, EVERY), None) for one in (reader.open("acme/ana"), index))
    assert before.missing != CANARY
    assert (after.missing, after.is_unknown) == (CANARY, True)
    assert after.features["terms/known"] < before.features["terms/known"]


def test_a_fact_that_a_forgotten_one_closed_stands_again():
    said = [
        message("I live in Lisbon.", 0, source_id="m1"),
        message("I live in Porto now.", 60 * 24 * 400, source_id="m2"),
    ]
    turns = turns_of(*said)
    reader = reader_of(turns, ENCODER)
    closed = ~reader.open("acme/ana").graph.stands(None)
    later = turns.column("turn_id")[1].as_py()
    after = reader.open("acme/ana", forgotten(later)).graph
    assert closed.any()
    assert after.stands(None)[closed].all()
    assert not after.stands(None)[np.diff(after.turns_of_fact.offsets) == 0].any()


def test_a_namespace_all_of_which_is_forgotten_is_not_there(reader):
    assert reader.open("acme/ana", forgotten(*TURNS.column("turn_id").to_pylist())) is None


def test_what_is_on_disk_stays_as_it_was(reader):
    reader.open("acme/ana", forgotten(*HIDDEN))
    assert reader.open("acme/ana").column("text").to_pylist() == TURNS.column("text").to_pylist()
    assert reader.open("acme/ana").hidden is None
