import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgmem_core.config import config_from
from hgmem_core.schemas import TURN
from pipelines.encoders import open_encoder
from pipelines.import_stage import ImportFailed
from pipelines.retriever import Retriever
from pipelines.store import Store, StoreError, open_arrow
from pipelines.versions import open_version
from tests.pipelines.logs import NOW, config_of, files_of, rows, run, write_jsonl

QUESTIONS = ["Who told me about the red bicycle?", "Lisbon harbour", "What did Bo say about tea?"]


def answers(done, config):
    retriever = Retriever(open_version(done.store), open_encoder(config.encoder))
    return {
        (namespace, question, recipe): [
            (hit.turn_id, hit.score, hit.text) for hit in retriever.search(namespace, question, recipe, k=20).hits
        ]
        for namespace in retriever.namespaces()
        for question in QUESTIONS
        for recipe in ("bm25", "dense", "untrained")
    }


def test_a_log_becomes_answers_that_cite_their_turns(tmp_path):
    config = config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows()))
    done = run(config)
    assert (done.built.turns, done.built.namespaces, done.built.is_new) == (36, 3, True)
    assert done.imported.outcomes == {"ok": 36, "partial": 0, "empty": 0, "fallback": 0, "rejected": 0}
    retriever = Retriever(open_version(done.store), open_encoder(config.encoder))
    hit = retriever.search("acme/bo", "the red bicycle, number 5", "bm25").hits[0]
    assert (hit.source_id, hit.session_id, hit.speaker) == ("m5", "s1", "Bo")
    assert hit.text == "bo told me about the red bicycle, number 5."
    assert hit.said_at.isoformat() == "2024-03-02T18:01:00+00:00"


def test_two_builds_give_equal_files_and_a_second_run_does_nothing(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", rows())
    first, second = config_of(tmp_path / "one", log), config_of(tmp_path / "two", log)
    done = run(first)
    run(second, now=NOW + timedelta(days=400))
    assert run(first, now=NOW + timedelta(days=1)).built.version == done.built.version
    before = files_of(tmp_path / "one")
    again = run(first, now=NOW + timedelta(days=2))
    assert (again.imported.number, again.imported.known_files, again.built.is_new) == (None, 1, False)
    assert again.built.report.made.total() == 0
    assert files_of(tmp_path / "one") == before
    others = files_of(tmp_path / "two")
    assert others.keys() == before.keys()
    differing = {path for path in before if before[path] != others[path]}
    # Only what holds the time of import or of the job differs, and manifests that list the digests of those files.
    holders = ("nodes.arrow", "turns.parquet", "manifest.json", "imports/000001.json", "current/000001.json")
    assert all(path.endswith(holders) or "/import/" in path for path in differing)
    for path in differing:
        if path.endswith(("nodes.arrow", "turns.parquet")):
            read = open_arrow if path.endswith(".arrow") else pq.read_table
            one, two = (read(tmp_path / store / path).drop_columns(["ingested_at"]) for store in ("one", "two"))
            assert one == two


def test_permuted_rows_and_another_bucket_count_change_no_id_and_no_result(tmp_path):
    shuffled = rows()
    random.Random(5).shuffle(shuffled)
    configs = [
        config_of(tmp_path / "a", write_jsonl(tmp_path / "log.jsonl", rows()), buckets=3),
        config_of(tmp_path / "b", write_jsonl(tmp_path / "shuffled.jsonl", shuffled), buckets=3),
        config_of(tmp_path / "c", tmp_path / "log.jsonl", buckets=1),
        config_of(tmp_path / "d", tmp_path / "log.jsonl", buckets=64, run={"workers": 4}),
    ]
    results = [answers(run(config), config) for config in configs]
    assert len(results[0]) == 27
    assert all(results[0].values())
    assert results[1:] == results[:1] * 3


def test_a_grown_log_adds_its_new_turns_and_moves_no_id(tmp_path):
    first = config_of(tmp_path / "store", write_jsonl(tmp_path / "march.jsonl", rows(count=8)))
    before = answers(run(first), first)
    grown = config_of(tmp_path / "store", write_jsonl(tmp_path / "april.jsonl", rows(count=12)))
    done = run(grown)
    fresh = config_of(tmp_path / "fresh", tmp_path / "april.jsonl")
    assert done.built.turns == 36
    assert answers(done, grown) == answers(run(fresh), fresh)
    ids = {turn for hits in answers(done, grown).values() for turn, *_ in hits}
    assert {turn for hits in before.values() for turn, *_ in hits} <= ids
    assert done.built.report.outcomes["merge"] == {"ok": 36, "empty": 24}


def test_only_buckets_that_changed_are_built_again(tmp_path):
    config = config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows()), buckets=64)
    buckets = run(config).built.report.made["index"]
    more = config_of(tmp_path / "store", write_jsonl(tmp_path / "more.jsonl", rows(users=("dee",))), buckets=64)
    report = run(more).built.report
    assert (report.made["index"], report.reused["index"]) == (1, buckets)


def test_every_row_of_a_messy_log_has_one_outcome(tmp_path):
    log = tmp_path / "log.jsonl"
    write_jsonl(log, [*rows(users=("ana",)), {"user": "ana", "text": " \n"}, {"text": "whose?"}, {"user": "a/../b"}])
    with log.open("ab") as file:
        file.write(b'{"user": "ana", "text": "\xff"}\nnot json\n')
    config = config_of(tmp_path / "store", log, imports={"max_reject_rate": 0.5})
    done = run(config)
    assert done.imported.outcomes == {"ok": 12, "partial": 0, "empty": 1, "fallback": 0, "rejected": 4}
    folder = next((tmp_path / "store" / "outputs" / "import").iterdir())
    outcomes = pq.read_table(sorted(folder.glob("outcomes-*.parquet"))).to_pylist()
    rejects = pq.read_table(sorted(folder.glob("rejects-*.parquet"))).to_pylist()
    assert len(outcomes) == 17
    assert {row["row_id"] for row in outcomes if row["outcome"] == "rejected"} == {
        f"log.jsonl:{number}" for number in (14, 15, 16, 17)
    }
    assert {row["source_id"] for row in rejects} == {f"log.jsonl:{number}" for number in range(13, 18)}
    assert all(row["final"] and row["reason"] for row in rejects)


def test_too_many_rejects_fail_the_import_and_keep_nothing(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", [*rows(users=("ana",)), {"text": "whose?"}])
    config = config_of(tmp_path / "store", log)
    with pytest.raises(ImportFailed, match=r"1 of 13 rows were rejected, more than imports\.max_reject_rate=0\.02"):
        run(config)
    store = Store.open(tmp_path / "store")
    assert store.numbered("imports") == []
    assert not (tmp_path / "store" / "outputs").exists()
    with pytest.raises(StoreError, match="holds no messages yet"):
        run(config_of(tmp_path / "store"))


def test_files_whose_columns_are_of_unlike_types_make_one_log(tmp_path):
    times = [datetime(2024, 3, 1, 10, minute, tzinfo=UTC) for minute in range(3)]
    texts = [["red boat", "red kite", None], ["blue boat", "blue kite", "blue tent"], ["old boat", "old kite", "old"]]
    columns = [
        {"time": pa.array(times, pa.timestamp("ms", "Europe/Paris")), "id": [1, 2, 3], "attachments": pa.nulls(3)},
        {
            "time": [str(time) for time in times],
            "id": pa.array([4.0, 5.0, None]),
            "attachments": [[{"type": "image", "caption": "a sail"}], None, []],
        },
        {
            "time": pa.array([time.date() for time in times]),
            "id": pa.array(["7", "8", "9"]).dictionary_encode(),
            "attachments": ['[{"type": "file", "name": "plan.pdf"}]', None, "[]"],
        },
    ]
    kinds = [pa.string(), pa.large_string(), pa.string_view()]
    for number, (some, text, kind) in enumerate(zip(columns, texts, kinds, strict=True)):
        table = pa.table({"user": ["ana"] * 3, "text": pa.array(text, kind), **some})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    pq.write_table(table.slice(0, 0), tmp_path / "none.parquet")
    nulls = {name: pa.nulls(2) for name in table.column_names}
    pq.write_table(pa.table({**nulls, "text": ["whose?", "nobody's"]}), tmp_path / "nulls.parquet")
    names = {name: name for name in ("time", "id", "attachments")}
    one = {"format": "parquet", "paths": [str(tmp_path / "*.parquet")], "namespace": "acme/{user}", "columns": names}
    tree = {"store": {"root": str(tmp_path / "store"), "buckets": 1}, "encoder": {"name": "static"}, "inputs": [one]}
    done = run(config_from({**tree, "imports": {"max_reject_rate": 0.5}}))
    assert done.imported.outcomes == {"ok": 8, "partial": 0, "empty": 1, "fallback": 0, "rejected": 2}
    turns = pq.read_table(next((tmp_path / "store").glob("outputs/merge/*/turns.parquet")))
    assert turns.schema == TURN.arrow
    assert turns.schema.field("text").type == pa.large_string()
    kept = {row["text"]: row for row in turns.to_pylist()}
    assert kept.keys() == {text for part in texts for text in part if text}
    assert [kept[text]["source_id"] for text in ("red boat", "blue boat", "blue tent")] == ["1", "4", None]
    assert {kept[text]["said_at"] for text in ("red kite", "blue kite")} == {times[1]}
    assert '"a sail"' in kept["blue boat"]["attachments"]


def test_files_of_equal_names_keep_their_rows_apart(tmp_path):
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        write_jsonl(tmp_path / folder / "log.jsonl", rows(users=(folder,)))
    done = run(config_of(tmp_path / "store", tmp_path / "x" / "log.jsonl", tmp_path / "y" / "log.jsonl"))
    assert (done.imported.files, done.built.turns) == (2, 24)


def test_a_very_long_text_is_split_and_kept(tmp_path):
    text = "".join(f"Paragraph {number} about lemons and ships.\n\n" for number in range(60_000))
    row = {"id": "1", "user": "ana", "session": "s", "time": "2024-03-01T10:00:00Z", "speaker": "Ana", "text": text}
    done = run(config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", [row])))
    turns = pq.read_table(next((tmp_path / "store").glob("outputs/merge/*/turns.parquet")))
    assert "".join(turns.column("text").to_pylist()) == text.strip()
    assert done.built.turns == turns.num_rows > 50


def test_an_interrupted_import_is_taken_up_again(tmp_path, monkeypatch):
    config = config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows()))
    monkeypatch.setattr(Store, "append_numbered", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run(config)
    monkeypatch.undo()
    done = run(config)
    fresh = config_of(tmp_path / "fresh", tmp_path / "log.jsonl")
    assert answers(done, config) == answers(run(fresh), fresh)


def test_one_file_of_two_inputs_gives_two_sets_of_rows(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", [{"q": "why?", "a": "because", "at": n} for n in range(3)])
    inputs = [{"format": "jsonl", "paths": [str(log)], "namespace": "acme", "columns": {"text": name}} for name in "qa"]
    tree = {"store": {"root": str(tmp_path / "store")}, "encoder": {"name": "static"}, "inputs": inputs}
    assert run(config_from(tree)).built.turns == 6
    assert run(config_from(tree)).imported.number is None


def test_the_reasons_of_a_refused_import_are_those_of_its_rejected_rows(tmp_path):
    kept = [{**row, "time": "soon"} for row in rows(users=("ana",), count=9)]
    log = write_jsonl(tmp_path / "log.jsonl", [*kept, {"text": "whose?"}])
    with pytest.raises(ImportFailed, match="Most frequent: 1 x namespace column 'user' is not") as refused:
        run(config_of(tmp_path / "store", log))
    assert "soon" not in str(refused.value)


def test_a_log_without_a_single_text_says_so(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", [{**row, "text": ""} for row in rows(count=2)])
    with pytest.raises(StoreError, match="no row of what was imported had a text"):
        run(config_of(tmp_path / "store", log))


@pytest.mark.parametrize(
    ("section", "stage"),
    [
        ({"segment": {"max_turns": 3}}, "segment"),
        ({"extract": {"max_fact_chars": 64}}, "extract"),
        ({"consolidate": {"near_duplicate_cosine": 0.8}}, "consolidate"),
        ({"group": {"join": 0.9}}, "group"),
        ({"propagate": {"weight": 1.0}}, "propagate"),
        ({"relate": {"similar": 3}}, "relate"),
        ({"index": {"k1": 1.2}}, "index"),
    ],
)
def test_a_changed_setting_makes_its_stage_anew_and_nothing_before_it(tmp_path, section, stage):
    log = write_jsonl(tmp_path / "log.jsonl", rows(users=("ana",)))
    run(config_of(tmp_path / "store", log))
    report = run(config_of(tmp_path / "store", log, **section)).built.report
    order = list(report.outcomes)
    assert report.made[stage] == 1
    assert report.made["merge"] == report.made["encode_turns"] == 0
    assert all(report.made[earlier] == 0 for earlier in order[: order.index(stage)])
