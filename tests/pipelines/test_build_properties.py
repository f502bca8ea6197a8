"""What a build may not depend on: the order of rows, how they lie in files, buckets, and when things were forgotten."""

import json
import shutil
from collections import defaultdict

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.model_config import EncoderConfig
from pipelines.encoders import open_encoder
from pipelines.files import open_arrow
from pipelines.forget import Selection, forget, restore
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.versions import open_version
from tests.pipelines.logs import NOW, config_of, import_only, rows, run, write_jsonl

ENCODER = open_encoder(EncoderConfig(name="static"))
USERS = ("ana", "bo", "chen")
QUESTIONS = ("Who told me about the red bicycle, number 5?", "the violin lesson or tea with lemon")

NOT_COMPARED = {"timings_ms": None, "version": None}

# None says the same as another, so that each can be restored by itself.
SELECTIONS = {
    Selection("acme/ana", session="s1"): lambda row: row["user"] == "ana" and row["session"] == "s1",
    Selection("acme/ana", source_ids=("m0", "m2")): lambda row: row["user"] == "ana" and row["id"] in ("m0", "m2"),
    Selection("acme/ana", contains="NUMBER 9."): lambda row: row["user"] == "ana" and row["id"] == "m9",
    Selection("acme/bo"): lambda row: row["user"] == "bo",
    Selection("acme/chen", speaker="Bo"): lambda row: row["user"] == "chen" and row["speaker"] == "Bo",
}
FORGOTTEN = st.lists(st.sampled_from(list(SELECTIONS)), min_size=1, max_size=4, unique=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", rows())))
    return folder


def tables_of(root):
    """Every row that the stages of a store wrote, by stage and file, whatever its bucket and its time of import."""
    found = defaultdict(list)
    for path in sorted((root / "outputs").rglob("*")):
        stage = path.relative_to(root / "outputs").parts[0]
        if stage in ("import", "index") or path.name in ("lineage.parquet", "outcomes.parquet"):
            continue
        if path.suffix in (".parquet", ".arrow"):
            table = pq.read_table(path) if path.suffix == ".parquet" else open_arrow(path)
            kept = table.drop_columns([name for name in ("ingested_at",) if name in table.column_names])
            found[f"{stage}/{path.name}"] += map(repr, kept.to_pylist())
    return {name: sorted(content) for name, content in found.items()}


def answers(store):
    """Everything that is answered to each user, times and the version's name apart."""
    retriever = Retriever(open_version(store), ENCODER)
    told = [
        {
            **retriever.search(f"acme/{user}", question, recipe, 50, explain=True).as_dict(),
            "timings_ms": 0,
            "version": 0,
        }
        for user in USERS
        for question in QUESTIONS
        for recipe in ("hypergraph", "hybrid")
    ]
    return json.dumps(told, default=str)


def copied(folder, tmp_path_factory):
    return shutil.copytree(folder, tmp_path_factory.mktemp("copy") / "copy")


CUTS = st.lists(st.integers(1, 35), max_size=2, unique=True).map(sorted)


@settings(max_examples=3)
@given(st.permutations(rows()), CUTS, st.sampled_from([1, 7]))
def test_rows_in_any_order_in_any_files_and_buckets_give_the_same_tables(built, tmp_path_factory, order, cuts, buckets):
    folder = tmp_path_factory.mktemp("other")
    parts = [order[start:stop] for start, stop in zip([0, *cuts], [*cuts, None], strict=True)]
    logs = [write_jsonl(folder / f"part{number}.jsonl", part) for number, part in enumerate(parts)]
    run(config_of(folder / "store", *logs, buckets=buckets))
    tables = tables_of(folder / "store")
    wanted = tables_of(built / "store")
    assert len(wanted["merge/turns.parquet"]) == 36 and len(wanted) >= 12
    assert tables == wanted


@settings(max_examples=4)
@given(FORGOTTEN, st.data())
def test_what_is_forgotten_is_never_shown_and_what_is_restored_is_as_before(built, tmp_path_factory, forgotten, data):
    store = Store.open(copied(built, tmp_path_factory) / "store")
    before = answers(store)
    for selection in forgotten:
        forget(store, selection, NOW)
    hidden = answers(store)
    for row in rows():
        is_forgotten = any(SELECTIONS[selection](row) for selection in forgotten)
        assert (row["text"] in hidden) != is_forgotten and row["text"] in before
    for selection in data.draw(st.permutations(forgotten)):
        restore(store, selection, NOW)
    assert answers(store) == before


@settings(max_examples=2)
@given(FORGOTTEN, st.data())
def test_it_does_not_matter_in_what_order_or_whether_before_a_build_things_are_forgotten(
    built, tmp_path_factory, forgotten, data
):
    folder = copied(built, tmp_path_factory)
    later = Store.open(folder / "store")
    for selection in forgotten:
        forget(later, selection, NOW)
    run(config_of(folder / "store", folder / "log.jsonl"))
    config = config_of(folder / "earlier", folder / "log.jsonl")
    import_only(config)
    earlier = Store.open(folder / "earlier")
    for selection in data.draw(st.permutations(forgotten)):
        forget(earlier, selection, NOW)
    run(config)
    left = [row for row in rows() if not any(SELECTIONS[selection](row) for selection in forgotten)]
    assert [open_version(store).manifest["turns"] for store in (later, earlier)] == [len(left)] * 2
    told = answers(later)
    assert told == answers(earlier)
    assert all((row["text"] in told) == (row in left) for row in rows())
