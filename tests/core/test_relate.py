"""The event graphs against their rules written out, and in namespaces where next to nothing is known."""

from datetime import timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from hgmem_core.embeddings import embed_turns
from hgmem_core.graph import GraphError
from hgmem_core.relate import RelateTables, relate
from hgmem_core.relation_rows import features_of
from hgmem_core.relations import PAPER, RICH
from hgmem_core.schemas import CAUSE, FACT, INCIDENCE, OUTCOME, conform, embedding_schema, layout_of
from hgmem_core.stage_config import RelateConfig
from tests.core.fixtures import BEGAN, HashEncoder, graph_of, message, turns_of

DAY = 24 * 60
AXES = np.eye(16, dtype=np.float32)
ROUNDED = AXES[0] * np.float32(1.0000002)
"""A unit vector as far as floats go."""


def vectors_of(level, vectors, namespace="acme/ana"):
    """EMBEDDING of a mapping from id to vector."""
    rows = [
        {
            "namespace": namespace,
            "level": level,
            "node_id": node,
            "variant": "base",
            "vector": np.asarray(vector).tolist(),
        }
        for node, vector in vectors.items()
    ]
    return conform(pa.Table.from_pylist(rows, embedding_schema(16).arrow), embedding_schema(16))


def facts_of(turns, *facts):
    """FACT of some texts; a fact is the turn's number (or several, best first), the text, and more columns."""
    ids = dict(zip(turns.column("text").to_pylist(), turns.column("turn_id").to_pylist(), strict=True))
    said = dict(zip(turns.column("turn_id").to_pylist(), turns.column("said_at").to_pylist(), strict=True))
    rows = []
    for number, (sources, text, more) in enumerate(facts):
        sources = [sources] if isinstance(sources, str) else sources
        row = {"namespace": turns.column("namespace")[0].as_py(), "fact_id": f"f{number:03d}", "text": text}
        row |= {"keywords": [], "queries": [], "entities": [], "confidence": 0.9, "support": 1}
        row |= {"turn_ids": [ids[source] for source in sources], "valid_from": said[ids[sources[0]]]}
        rows.append(row | more)
    return conform(pa.Table.from_pylist(rows, FACT.arrow), FACT)


def related(turns, facts=None, turn_vectors=None, fact_vectors=None, incidences=None, causes=None, **settings):
    """The features of each relation by its two ids, of turns and of facts, and the outcomes."""
    nothing = embedding_schema(16).empty()
    tables = RelateTables(
        turns,
        nothing if turn_vectors is None else turn_vectors,
        FACT.empty() if facts is None else facts,
        nothing if fact_vectors is None else fact_vectors,
        INCIDENCE.empty() if incidences is None else incidences,
        CAUSE.empty() if causes is None else causes,
    )
    *graphs, outcomes = relate(tables, RelateConfig(**settings), "english")
    check(turns, tables.facts, *graphs, outcomes)
    return [by_pair(graph) for graph in graphs], outcomes


def check(turns, facts, of_turns, of_facts, outcomes):
    """What always holds."""
    for relations, layout in ((of_turns, PAPER), (of_facts, RICH)):
        features = features_of(relations)
        assert layout_of(relations.schema) == layout and features.shape == (relations.num_rows, len(layout))
        assert np.isfinite(features).all()
        assert ((features[:, :4] >= 0) & (features[:, :4] <= 1)).all()
        assert all(one != other for one, other in by_pair(relations))
    pairs = by_pair(of_facts)
    assert all((other, one) in pairs for one, other in pairs)
    assert outcomes.schema == OUTCOME.arrow
    rows = {row["row_id"]: row for row in outcomes.to_pylist()}
    assert len(rows) == outcomes.num_rows == turns.num_rows + facts.num_rows
    nodes = {node for relations in (of_turns, of_facts) for node in relations.column("source_id").to_pylist()}
    nodes |= set(of_turns.column("target_id").to_pylist())
    assert {node for node, row in rows.items() if row["outcome"] == "ok"} == nodes
    assert all("related to no other" in row["reason"] for row in rows.values() if row["outcome"] == "empty")


def by_pair(relations):
    layout = layout_of(relations.schema)
    names = (relations.column(name).to_pylist() for name in ("source_id", "target_id"))
    rows = zip(*names, features_of(relations).tolist(), strict=True)
    return {(source, target): dict(zip(layout, values, strict=True)) for source, target, values in rows}


def named(pairs, turns):
    """The same by the turns' texts."""
    text = dict(zip(turns.column("turn_id").to_pylist(), turns.column("text").to_pylist(), strict=True))
    return {(text[source], text[target]): features for (source, target), features in pairs.items()}


def test_relations_of_turns_equal_the_rules_written_out():
    texts = [f"Turn {number}{'?' if number in (3, 8) else '.'}" for number in range(14)]
    minutes = [0, 5, 30, 40, 600, 601, 602, 1_000, 1_001, 1_002, 1_003, 9_000, 9_001, 9_060]
    who = "AABABBBAABABBA"
    turns = turns_of(
        *(
            message(text, at=at, speaker=speaker, session=f"s{at // 1_000}", source_id=text)
            for text, at, speaker in zip(texts, minutes, who, strict=True)
        )
    )
    order = {text: place for place, text in enumerate(texts)}
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((14, 16)) + 0.8
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    ids = dict(zip(turns.column("text").to_pylist(), turns.column("turn_id").to_pylist(), strict=True))
    embeddings = vectors_of("turn", {ids[text]: vectors[order[text]] for text in texts})
    naming = {"Lisbon": [0, 2, 3, 7, 8, 12], "Rome": [1, 13]}
    facts = facts_of(
        turns, *((texts[at], f"{name} {at}", {"entities": [name]}) for name in naming for at in naming[name])
    )
    [found, _], _ = related(turns, facts, turn_vectors=embeddings)

    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    expected = {}
    for one in range(14):
        nearest = np.argsort(-cosines[one])[:3]
        for other in range(14):
            distance, hours = other - one, abs(minutes[other] - minutes[one]) / 60
            kinds = {
                "temporal": [float(abs(distance) == 1), (0 < distance <= 9 and hours <= 24) / (1 + hours)],
                "semantic": [(0 < abs(distance) <= 3) / (1 + 0.5 * abs(distance))],
                "causal": [
                    0.8 * (distance == 1 and who[one] != who[other]),
                    0.85 * (distance == 1 and "?" in texts[one]),
                ],
                "entity": [0.0],
            }
            if other in nearest and cosines[one, other] > 0.5:
                kinds["semantic"].append(cosines[one, other])
            for places in naming.values():
                if one in places and other in places and 0 < places.index(other) - places.index(one) <= 4:
                    kinds["entity"].append(np.log(1 + 14 / len(places)) / np.log(15))
            strongest = {kind: max(strengths) for kind, strengths in kinds.items()}
            if one != other and any(strongest.values()):
                expected[texts[one], texts[other]] = strongest
    found = named(found, turns)
    assert found.keys() == expected.keys()
    for pair, strengths in expected.items():
        assert found[pair] == pytest.approx(strengths, abs=1e-5), pair


@pytest.mark.parametrize(("times", "close"), [([7, 7, 7], 1), ([None, None, None], 0), ([7, 7, None], 0)])
def test_turns_that_were_said_at_once_are_close_and_those_without_a_time_are_not(times, close):
    turns = turns_of(*(message(f"Turn {at}", at=time, sequence=at) for at, time in enumerate(times)))
    found = named(related(turns)[0][0], turns)
    assert found["Turn 0", "Turn 2"]["temporal"] == close


def test_a_turn_asks_by_its_sentences_not_by_a_word():
    turns = turns_of(*(message(text, at=at) for at, text in enumerate(["It is what it is.", "Is it? I see.", "Yes."])))
    found = named(related(turns)[0][0], turns)
    assert found["It is what it is.", "Is it? I see."]["causal"] == 0
    assert found["Is it? I see.", "Yes."]["causal"] == pytest.approx(0.85)


def test_sessions_go_by_time_and_those_without_have_no_order():
    texts = {"first": (5, "s9"), "second": (DAY, "s1"), "undated": (None, "s5"), "lonely": (None, "s6")}
    turns = turns_of(*(message(text, at=at, session=session) for text, (at, session) in texts.items()))
    pairs = named(related(turns)[0][0], turns)
    assert set(pairs) == {("first", "second"), ("second", "first")}
    assert pairs["first", "second"]["temporal"] == 1 and pairs["second", "first"]["causal"] == 0


def test_whoever_speaks_is_no_name_that_relates():
    turns = turns_of(
        *(
            message(f"Turn {at}", at=at * DAY, speaker=("Ana Li", "Bo")[at % 2], session=f"s{at:02d}")
            for at in range(30)
        )
    )
    facts = [(f"Turn {at}", f"Fact {at}", {"entities": ["Ana"] if at < 29 else []}) for at in range(0, 30, 6)]
    other = [(f"Turn {at}", f"More {at}", {"entities": ["Bo", "Lisbon"]}) for at in (1, 29)]
    [of_turns, of_facts], _ = related(turns, facts_of(turns, *facts, *other), near=1)
    of_turns = named(of_turns, turns)
    assert {pair for pair, kinds in of_turns.items() if kinds["entity"]} == {("Turn 1", "Turn 29")}
    assert {pair for pair, kinds in of_facts.items() if kinds["entity"]} == {("f005", "f006"), ("f006", "f005")}


def pairs_with(facts, name):
    return {pair: round(features[name], 4) for pair, features in facts.items() if features[name]}


def test_facts_are_related_by_when_they_were_said_and_by_when_they_hold():
    turns = turns_of(*(message(f"Turn {at}", at=at * DAY, session=f"s{at}") for at in range(12)))
    facts = [(f"Turn {at}", f"Fact {at}", {}) for at in range(11)]
    holds = {"time_phrase": "on the first day", "valid_from": BEGAN + timedelta(hours=12)}
    [_, found], _ = related(turns, facts_of(turns, *facts, ("Turn 11", "Fact 11", holds)), near=1)
    near = {(f"f{at:03d}", f"f{at + 1:03d}"): 0.5 for at in range(11)}
    near |= {("f000", "f011"): round(1 / 1.5, 4), ("f001", "f011"): round(1 / 1.5, 4)}
    assert pairs_with(found, "temporal") == near | {(other, one): strength for (one, other), strength in near.items()}
    assert found["f000", "f011"]["later"] == found["f011", "f000"]["earlier"] == 1
    assert found["f000", "f011"]["log_gap"] == pytest.approx(np.log(1.5) / 10)
    assert found["f000", "f011"]["log_distance"] == pytest.approx(np.log(12) / 10)
    assert found["f000", "f001"]["next_session"] == 1 and found["f000", "f011"]["next_session"] == 0
    assert {(kinds["same_session"], kinds["no_time"]) for kinds in found.values()} == {(0, 0)}
    assert found["f009", "f010"]["target_size"] == pytest.approx(np.log(1 + len("Fact 10")) / 10)
    assert found["f010", "f009"]["target_size"] == pytest.approx(np.log(1 + len("Fact 9")) / 10)
    [_, further], _ = related(turns, facts_of(turns, *facts), near=2)
    assert further["f000", "f002"]["temporal"] == pytest.approx(1 / 1.5 / 3)


def test_of_facts_without_a_time_it_is_known_that_they_have_none():
    turns = turns_of(*(message(f"Turn {at}", at=None, source_id=f"{at}") for at in range(2)))
    [_, found], _ = related(turns, facts_of(turns, *((f"Turn {at}", f"Fact {at}", {}) for at in range(2))))
    told = [
        found["f000", "f001"][name] for name in ("temporal", "no_time", "log_gap", "same_session", "later", "earlier")
    ]
    assert told == [1, 1, 0, 1, 1, 0]


def test_a_question_and_its_answer_are_related_whoever_else_spoke_between():
    turns = turns_of(
        *(
            message(text, at=at, speaker=speaker)
            for at, (speaker, text) in enumerate(
                [("Ana", "I have a dog. Do you have pets?"), ("Cy", "Lunch!"), ("Cy", "Soon."), ("Bo", "Two cats.")]
            )
        )
    )
    answer = ["Two cats.", "I have a dog. Do you have pets?"]
    facts = facts_of(
        turns,
        ("I have a dog. Do you have pets?", "Ana: I have a dog.", {}),
        ("Lunch!", "Cy: Lunch!", {}),
        ("Soon.", "Cy: Soon.", {}),
        (answer, "Ana: Do you have pets?\nBo: Two cats.", {}),
    )
    [_, found], _ = related(turns, facts, near=1)
    assert pairs_with(found, "asks") == {("f000", "f003"): 1} and pairs_with(found, "answers") == {("f003", "f000"): 1}
    assert pairs_with(found, "causal") == {("f000", "f003"): 0.8, ("f003", "f000"): 0.8}
    assert found["f000", "f003"]["temporal"] == 0 and found["f000", "f003"]["same_session"] == 1


@pytest.mark.parametrize(
    ("earlier", "later", "cause"),
    [
        ("I stay at home.", "It is because I am ill.", "f000"),
        ("I am ill.", "That's why I stay at home.", "f001"),
        ("我今天不去了。", "因为我病了。", "f000"),
        ("我病了。", "所以我今天不去了。", "f001"),
    ],
)
def test_words_say_what_is_the_cause_of_what(earlier, later, cause):
    turns = turns_of(message(f"I like it. {earlier} {later}", at=0))
    [text] = turns.column("text").to_pylist()
    rows = [(text, f"Ana: {part}", {}) for part in (later, earlier, "I like it.")]
    [_, found], _ = related(turns, facts_of(turns, *rows))
    [effect] = {"f000", "f001"} - {cause}
    assert pairs_with(found, "causes") == {(cause, effect): 0.5} and pairs_with(found, "caused_by") == {
        (effect, cause): 0.5
    }
    assert (
        found["f000", "f001"]["temporal"] == found["f001", "f002"]["temporal"] == 1 > found["f000", "f002"]["temporal"]
    )
    assert found["f000", "f001"]["later"] == found["f001", "f000"]["later"] == 0


CAUSES = [("f000", "f007"), ("f003", "f003"), ("f004", "f999")]
"""One is that of itself, and one is not known."""


def test_causes_that_the_log_names_and_successors_relate_what_nothing_else_does():
    turns = turns_of(*(message(f"Turn {at}", at=at * DAY, session=f"s{at}") for at in range(9)))
    rows = [(f"Turn {at}", f"Fact {at}", {"superseded_by": "f008"} if at == 1 else {}) for at in range(9)]
    causes = [{"namespace": "acme/ana", "fact_id": fact, "cause_id": cause} for fact, cause in CAUSES]
    causes = pa.Table.from_pylist(causes, CAUSE.arrow)
    [_, found], _ = related(turns, facts_of(turns, *rows), causes=causes, near=1)
    assert pairs_with(found, "causes") == {("f007", "f000"): 1} and pairs_with(found, "caused_by") == {
        ("f000", "f007"): 1
    }
    assert pairs_with(found, "causal") == {("f000", "f007"): 1, ("f007", "f000"): 1}
    assert pairs_with(found, "succession") == {("f001", "f008"): 1, ("f008", "f001"): 1}
    assert found["f001", "f008"]["semantic"] == 1
    assert pairs_with(found, "target_superseded").keys() == {("f000", "f001"), ("f002", "f001"), ("f008", "f001")}


def test_facts_are_related_by_rare_terms_to_the_next_ones_that_have_them():
    turns = turns_of(*(message(f"Turn {at}", at=at * DAY, session=f"s{at:02d}") for at in range(60)))
    terms = {at: ["photos" if at < 30 else "Photo"] for at in (3, 13, 33, 53)} | {
        at: ["day"] for at in range(14, 58, 2)
    }
    rows = [
        (f"Turn {at}", f"Fact {at}", {"keywords": terms.get(at, []), "entities": ["X1"] if at in (3, 50) else []})
        for at in range(60)
    ]
    [_, found], _ = related(turns, facts_of(turns, *rows), near=1, same_term=1)
    rarity = {having: np.log(1 + 60 / having) / np.log(61) for having in (2, 4)}
    far = {(int(one[1:]), int(other[1:])) for one, other in found if int(other[1:]) - int(one[1:]) > 1}
    assert far == {(3, 13), (13, 33), (33, 53), (3, 50)}
    assert found["f003", "f013"]["entity"] == pytest.approx(rarity[4], abs=1e-5)
    assert found["f003", "f013"]["shared_terms"] == pytest.approx(rarity[4] / (1 + rarity[4]), abs=1e-5)
    assert found["f013", "f003"]["target_rarest"] == pytest.approx(rarity[2], abs=1e-5)


def test_facts_are_related_to_the_nearest_and_know_how_near_they_are():
    turns = turns_of(*(message(f"Turn {at}", at=at * DAY, session=f"s{at}") for at in range(6)))
    facts = facts_of(turns, *((f"Turn {at}", f"Fact {at}", {}) for at in range(6)))
    shift = [0.0, 0.9, 0.1, 0.7, 0.3, 2.0]
    vectors = {f"f{at:03d}": np.cos(shift[at]) * AXES[0] + np.sin(shift[at]) * AXES[1] for at in range(5)}
    [_, found], _ = related(turns, facts, fact_vectors=vectors_of("fact", vectors), near=1, similar=1)
    nearest = {("f000", "f002"): 1, ("f002", "f000"): 1, ("f001", "f003"): 1, ("f003", "f001"): 1, ("f004", "f002"): 1}
    assert pairs_with(found, "nearest") == nearest
    assert pairs_with(found, "nearest_back") == {(other, one): rank for (one, other), rank in nearest.items()}
    assert found["f002", "f004"]["semantic"] == pytest.approx(np.cos(0.2), abs=1e-5)
    assert found["f001", "f002"]["cosine"] == pytest.approx(np.cos(0.8), abs=1e-5)
    assert found["f001", "f002"]["semantic"] == 0
    assert found["f000", "f002"]["target_hub"] == pytest.approx(np.log(3) / 10)
    assert found["f004", "f005"]["cosine"] == 0


def test_facts_of_one_episode_or_topic_know_it():
    turns = turns_of(*(message(f"Turn {at}", at=at * DAY, session=f"s{at}") for at in range(4)))
    members = [
        ("episode", "e0", "f000"),
        ("episode", "e0", "f001"),
        ("episode", "e1", "f002"),
        ("episode", "e2", "f003"),
    ]
    members += [("topic", "t0", "e0"), ("topic", "t0", "e1"), ("topic", "t1", "e2")]
    rows = [
        {"namespace": "acme/ana", "kind": kind, "hyperedge_id": edge, "node_id": node, "role": "core", "weight": 1.0}
        | {"node_kind": "fact" if kind == "episode" else "episode"}
        for kind, edge, node in members
    ]
    incidences = conform(pa.Table.from_pylist(rows, INCIDENCE.arrow), INCIDENCE)
    facts = facts_of(turns, *((f"Turn {at}", f"Fact {at}", {}) for at in range(4)))
    [_, found], _ = related(turns, facts, incidences=incidences)
    told = {(one, other): (kinds["same_episode"], kinds["same_topic"]) for (one, other), kinds in found.items()}
    assert (told["f000", "f001"], told["f001", "f002"], told["f002", "f003"]) == ((1, 1), (0, 1), (0, 0))


def test_speakers_of_two_facts():
    turns = turns_of(
        *(message(f"Turn {at}", at=at, speaker=who) for at, who in enumerate(["Ana", "Ana", "Bo", None, None]))
    )
    facts = facts_of(turns, *((f"Turn {at}", f"Fact {at}", {}) for at in range(5)))
    [_, found], _ = related(turns, facts, near=1)
    told = {pair: (kinds["same_speaker"], kinds["no_speaker"]) for pair, kinds in found.items()}
    assert [told[f"f{at:03d}", f"f{at + 1:03d}"] for at in range(4)] == [(1, 0), (0, 0), (0, 1), (0, 1)]


def talk(count, namespace="acme/ana", **fields):
    said = [(at, f"s{at // 5:03d}") for at in range(count)]
    return [
        message(
            f"I bought the {('red', 'blue')[at % 2]} lamp number {at % 7} in Lisbon. Did you see it?",
            **{"at": at * 600, "speaker": ("Ana", "Bo")[at % 2], **fields},
            session=session,
            namespace=namespace,
            source_id=f"{namespace}-{at}",
        )
        for at, session in said
    ]


def tables_of(turns):
    graph = graph_of(turns, HashEncoder())
    vectors = embed_turns(turns, HashEncoder(), 32)[0]
    return RelateTables(turns, vectors, graph.facts, graph.base, graph.incidences, CAUSE.empty())


@pytest.mark.parametrize("fields", [{}, {"at": None}, {"speaker": None}, {"at": None, "speaker": None, "role": "user"}])
@pytest.mark.parametrize("vectors", ["all", "none", "equal"])
@pytest.mark.parametrize("count", [1, 2, 23])
def test_little_is_known_and_yet_every_node_has_an_outcome(count, vectors, fields):
    tables = tables_of(turns_of(*talk(count, **fields)))
    given = {"turn_vectors": tables.turn_vectors, "fact_vectors": tables.fact_vectors}
    if vectors == "none":
        given = {}
    elif vectors == "equal":
        given = {
            f"{level}_vectors": vectors_of(level, dict.fromkeys(nodes.column(f"{level}_id").to_pylist(), ROUNDED))
            for level, nodes in (("turn", tables.turns), ("fact", tables.facts))
        }
    [of_turns, of_facts], outcomes = related(tables.turns, tables.facts, incidences=tables.incidences, **given)
    if count == 1:
        assert of_turns == {} and "empty" in outcomes.column("outcome").to_pylist()
    else:
        assert of_turns and of_facts


def test_tables_without_rows_give_tables_without_rows():
    turns = turns_of(message("Hello!")).slice(0, 0)
    [of_turns, of_facts], outcomes = related(turns)
    assert (of_turns, of_facts, outcomes.num_rows) == ({}, {}, 0)


def test_a_fact_without_a_turn_is_refused_by_name():
    turns = turns_of(message("one", at=0), message("two", at=1))
    with pytest.raises(GraphError, match="fact f000 cites no turn"):
        related(turns, facts_of(turns, ("one", "One", {"turn_ids": ["nowhere"]})))


def rows_of(graph, namespace):
    return graph.filter(pa.compute.equal(graph.column("namespace"), namespace)).to_pylist()


def test_a_namespace_is_related_as_if_it_were_alone():
    both = tables_of(turns_of(*talk(19), *talk(23, "acme/bo")))
    made = relate(both, RelateConfig(), "english")
    for namespace, count in (("acme/ana", 19), ("acme/bo", 23)):
        alone = relate(tables_of(turns_of(*talk(count, namespace))), RelateConfig(), "english")
        for together, own in zip(made, alone, strict=True):
            assert rows_of(together, namespace) == own.to_pylist()


def test_the_order_of_rows_makes_no_difference():
    tables = tables_of(turns_of(*talk(40)))
    shuffle = np.random.default_rng(3).permutation
    mixed = {
        name: getattr(tables, name).take(pa.array(shuffle(getattr(tables, name).num_rows)))
        for name in ("turn_vectors", "fact_vectors", "incidences")
    }
    other = RelateTables(turns_of(*reversed(talk(40))), facts=tables.facts, causes=tables.causes, **mixed)
    for one, same in zip(
        relate(tables, RelateConfig(), "english"), relate(other, RelateConfig(), "english"), strict=True
    ):
        assert one.equals(same)


@pytest.mark.parametrize("equal", [True, False])
def test_relations_grow_with_the_facts_even_if_all_are_alike(equal):
    """All facts share a term, and all vectors are equal or lie near one direction."""
    counts = []
    for count in (100, 200, 400):
        turns = turns_of(*(message(f"Turn {at}", at=at, session=f"s{at // 10:03d}") for at in range(count)))
        facts = facts_of(
            turns, *((f"Turn {at}", f"Fact {at}", {"keywords": ["lamp", f"a{at // 9}"]}) for at in range(count))
        )
        rng = np.random.default_rng(2)
        vectors = {f"f{at:03d}": AXES[0] + (0 if equal else 0.3) * rng.standard_normal(16) for at in range(count)}
        vectors = {node: vector / np.linalg.norm(vector) for node, vector in vectors.items()}
        [of_turns, of_facts], _ = related(turns, facts, fact_vectors=vectors_of("fact", vectors))
        degree = np.unique([one for one, _ in of_facts], return_counts=True)[1]
        assert degree.max() <= 4 * 2 + 3 * 10 + 2 * 2 * 2
        counts.append((len(of_turns), len(of_facts)))
    for before, after in pairwise(counts):
        assert all(more / less < 2.2 for less, more in zip(before, after, strict=True))
