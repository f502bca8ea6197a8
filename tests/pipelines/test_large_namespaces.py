"""A namespace large enough for an IVF index, from its log to its answers; the size is set small here."""

import shutil

import numpy as np
import pytest

from hgmem_core.encoding import encode_queries
from hgmem_core.recipes import MODEL_FREE
from hgmem_core.search import Filters
from pipelines.encoders import open_encoder
from pipelines.forget import Selection, forget
from pipelines.progress import Silent
from pipelines.rebuild import erase
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.synthetic import SyntheticLog, questions
from pipelines.versions import VersionError, open_version
from tests.pipelines.logs import NOW, config_of, files_of, rows, run, write_jsonl

PROPAGATION = config_of("unused").propagate.weight
LARGE = {"index": {"ivf_from": 400}}
SAID, ASKED = (questions(SyntheticLog(700, 1, seed), 0, 40) for seed in (1, 2))


def logs(folder):
    """A log of one large and two small namespaces, and a later one that is about a small one alone."""
    large = [
        row
        | {
            "id": f"x{number}",
            "session": f"s{number // 9}",
            "text": f"{SAID[number % 40]} {row['text']} Ticket {number}.",
        }
        for number, row in enumerate(rows(("large",), 12) * 60)
    ]
    one = write_jsonl(folder / "one.jsonl", large + rows(("ana", "zoe")))
    two = write_jsonl(folder / "two.jsonl", [row | {"id": f"y{row['id']}", "session": "s9"} for row in rows(("ana",))])
    return one, two


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    one, two = logs(folder)
    flat = run(config_of(folder / "flat", one, two, buckets=1))
    large = run(config_of(folder / "store", one, two, buckets=1, **LARGE))
    return folder, flat, large


def retriever_of(done):
    config = config_of("unused")
    return Retriever(open_version(done.store, done.built.version), open_encoder(config.encoder))


def test_the_manifest_tells_what_was_measured(built):
    _, flat, large = built
    [about] = open_version(flat.store).manifest["buckets"].values()
    assert "large" not in about
    assert not [name for name in about["files"] if name.startswith("ivf")]
    [about] = open_version(large.store).manifest["buckets"].values()
    turns = next(one for one in about["large"] if one["vectors"] == "vectors")
    assert (turns["level"], turns["rows"], turns["first_row"]) == ("turn", 720, 24)  # behind those of acme/ana
    assert turns["recall"] >= 0.98
    assert 1 <= turns["probed"] <= turns["lists"] // 2
    assert {name for one in about["large"] for name in one["files"]} <= about["files"].keys()


def test_the_other_files_are_those_of_a_flat_index(built):
    folder, _, _ = built
    flat, large = (
        {
            path.split("/", 3)[3]: content
            for path, content in files_of(folder / name).items()
            if "outputs/index/" in path
        }
        for name in ("flat", "store")
    )
    same = flat.keys() - {"manifest.json"}
    assert {name: large[name] for name in same} == {name: flat[name] for name in same}
    assert {name.split("-")[0] for name in large.keys() - flat.keys()} == {"ivf"}


@pytest.mark.parametrize("recipe", MODEL_FREE)
def test_answers_are_those_of_a_flat_index(built, recipe):
    _, flat, large = built
    one, other = retriever_of(flat), retriever_of(large)
    shared = []
    for text in ASKED[:8]:
        expected = [hit.turn_id for hit in one.search("acme/large", text, recipe, k=10).hits]
        found = [hit.turn_id for hit in other.search("acme/large", text, recipe, k=10).hits]
        shared.append(len(set(found) & set(expected)) / max(len(expected), 1))
        assert one.search("acme/ana", text, recipe).hits == other.search("acme/ana", text, recipe).hits
    assert np.mean(shared) >= 0.9


@pytest.mark.parametrize("recipe", ["dense", "hybrid-window", "hypergraph", "hypermem:no-topic-no-episode-stage"])
def test_a_filter_holds_and_loses_no_hit(built, recipe):
    _, flat, large = built
    session = Filters(session_id="s40")
    text = ASKED[0]
    found = retriever_of(large).search("acme/large", text, recipe, k=9, filters=session).hits
    assert {hit.session_id for hit in found} == {"s40"}
    expected = retriever_of(flat).search("acme/large", text, recipe, k=9, filters=session).hits
    assert {hit.turn_id for hit in found} == {hit.turn_id for hit in expected}


@pytest.fixture
def short_lists(monkeypatch):
    """So short that even this namespace is asked by its inverted lists, and no filter has all rows scored instead."""
    monkeypatch.setattr("hgmem_core.sharded.EXACT_ROWS", 0)
    for place in ("search", "blend"):
        monkeypatch.setattr(f"hgmem_core.{place}.DEPTH", 8)


@pytest.mark.parametrize("recipe", ["dense", "hypermem:no-topic-no-episode-stage"])
def test_turns_that_pass_a_filter_are_found_in_whatever_list_they_are(built, short_lists, recipe):
    _, flat, large = built
    for text in ASKED[:10]:
        asked = {"recipe": recipe, "k": 8, "filters": Filters(session_id="s40")}
        found = retriever_of(large).search("acme/large", text, **asked).hits
        assert {hit.session_id for hit in found} == {"s40"}
        expected = retriever_of(flat).search("acme/large", text, **asked).hits
        assert [hit.turn_id for hit in found] == [hit.turn_id for hit in expected]


def test_facts_that_pass_are_found_in_whatever_list_they_are(built, short_lists):
    _, _, large = built
    graph = retriever_of(large).namespace("acme/large").graph
    assert graph.is_large("fact")
    passes = np.random.default_rng(2).random(graph.counts["fact"]) < 0.02
    missed = 0
    for vector in encode_queries(open_encoder(config_of("unused").encoder), ASKED):
        found = graph.nearest("fact", vector, PROPAGATION, 5, passes)
        assert passes[found].all()
        cosines = graph.cosines("fact", vector, PROPAGATION)
        missed += np.sort(cosines[found])[-5] < np.sort(cosines[passes])[-5] - 1e-6
    assert missed <= len(ASKED) // 20


@pytest.mark.parametrize("recipe", ["dense", "hypergraph", "hypermem:no-topic-no-episode-stage"])
def test_what_is_forgotten_is_in_no_list_any_more(built, tmp_path, short_lists, recipe):
    """And what is nearest then is found in its place, as without lists."""
    _, flat, large = built
    hits = retriever_of(flat).search("acme/large", ASKED[0], recipe, k=60).hits
    forgotten = {hit.source_id for hit in hits}
    answers = []
    for done in (flat, large):
        store = Store.open(shutil.copytree(done.store.root, tmp_path / done.store.root.name))
        forget(store, Selection("acme/large", source_ids=tuple(forgotten)), NOW)
        asked = Retriever(open_version(store), open_encoder(config_of("unused").encoder))
        answers.append(asked.search("acme/large", ASKED[0], recipe, k=8).hits)
    expected, found = answers
    assert len(found) == 8
    assert all(hit.text for hit in found) and not {hit.source_id for hit in found} & forgotten
    assert found[0].turn_id == expected[0].turn_id
    if recipe != "hypergraph":  # of which other facts count as no nearer than the last one that was near
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=1e-5)


@pytest.mark.parametrize("now", [False, True], ids=["rebuilt", "erased"])
def test_after_turns_are_gone_each_fact_is_found_by_its_own_vector(built, tmp_path, now):
    """The rows behind it have other numbers then, in every list."""
    folder, _, large = built
    store = Store.open(shutil.copytree(large.store.root, tmp_path / "store"))
    forget(store, Selection("acme/large", source_ids=("x0", "x7")), NOW)
    config = config_of(store.root, folder / "one.jsonl", folder / "two.jsonl", buckets=1, **LARGE)
    encoder = open_encoder(config.encoder)
    if now:
        erase(config, encoder, NOW, Silent())
    else:
        run(config)
    asked = Retriever(open_version(store), encoder)
    index = asked.namespace("acme/large")
    assert (len(index), index.is_large, index.hidden) == (718, True, None)
    assert not {"x0", "x7"} & set(index.column("source_id").to_pylist())
    graph = index.graph
    assert graph.is_large("fact")
    for fact in range(0, graph.counts["fact"], 40):
        [vector] = graph.fact_vectors(np.array([fact]))
        found = graph.nearest("fact", vector, 0.0, 5, None)
        assert graph.cosines("fact", vector, 0.0, found).max() > 0.9999


def test_a_build_after_news_of_another_namespace_keeps_the_index(built, tmp_path, monkeypatch):
    _, _, large = built
    one, two = logs(tmp_path)
    run(config_of(tmp_path / "store", one, buckets=1, **LARGE))

    def never(*_):
        raise AssertionError("the index of a namespace without news was built again")

    monkeypatch.setattr("hgmem_core.ivf.build_ivf", never)
    grown = run(config_of(tmp_path / "store", one, two, buckets=1, **LARGE))
    assert grown.built.version == large.built.version
    ours, theirs = (open_version(done.store).manifest["buckets"]["0"] for done in (grown, large))
    assert ours["large"] == theirs["large"]
    assert ours["files"] == theirs["files"]


def test_a_damaged_ivf_file_is_refused_by_name(tmp_path):
    one, _ = logs(tmp_path)
    done = run(config_of(tmp_path / "store", one, buckets=1, **LARGE))
    [path] = (tmp_path / "store").glob("outputs/index/*/ivf-000-000.faiss")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(VersionError, match=r"ivf-000-000\.faiss has sha256"):
        retriever_of(done).search("acme/large", "the red bicycle")
