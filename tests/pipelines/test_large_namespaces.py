"""A namespace large enough for an IVF index, from its log to its answers; the size is set small here."""

import pytest

from hgmem_core.recipes import MODEL_FREE
from hgmem_core.search import Filters
from pipelines.encoders import open_encoder
from pipelines.retriever import Retriever
from pipelines.synthetic import SyntheticLog, questions
from pipelines.versions import VersionError, open_version
from tests.pipelines.logs import config_of, files_of, rows, run, write_jsonl

LARGE = {"index": {"ivf_from": 400}}
SAID, ASKED = (questions(SyntheticLog(700, 1, seed), 0, 40) for seed in (1, 2))


def logs(folder):
    """A log of one large and two small namespaces, and a later one that is about a small one alone."""
    large = [
        row | {"id": f"x{number}", "session": f"s{number // 9}", "text": f"{SAID[number % 40]} {row['text']}"}
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
    for text in ASKED[:8]:
        expected = [hit.turn_id for hit in one.search("acme/large", text, recipe, k=10).hits]
        found = [hit.turn_id for hit in other.search("acme/large", text, recipe, k=10).hits]
        assert len(set(found) & set(expected)) >= 9 * len(expected) // 10
        assert one.search("acme/ana", text, recipe).hits == other.search("acme/ana", text, recipe).hits


@pytest.mark.parametrize("recipe", ["dense", "hybrid-window", "hypergraph", "hypermem:no-topic-no-episode-stage"])
def test_a_filter_holds_and_loses_no_hit(built, recipe):
    _, flat, large = built
    session = Filters(session_id="s40")
    text = ASKED[0]
    found = retriever_of(large).search("acme/large", text, recipe, k=9, filters=session).hits
    assert {hit.session_id for hit in found} == {"s40"}
    expected = retriever_of(flat).search("acme/large", text, recipe, k=9, filters=session).hits
    assert {hit.turn_id for hit in found} == {hit.turn_id for hit in expected}


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
