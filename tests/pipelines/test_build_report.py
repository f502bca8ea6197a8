import json

import pytest

from pipelines.build_log import read_log
from pipelines.build_report import build_page
from pipelines.store import Store, StoreError
from pipelines.versions import open_version
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.reported import EVIL


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    said = {"id": "x2", "user": "ana", "session": "s9", "time": "2024-03-09T18:00:00+00:00", "speaker": "Ana"}
    said |= {"text": f"The wiki page says {EVIL} and nothing else."}
    log = write_jsonl(folder / "log.jsonl", [*rows(), said, {**said, "id": "x1", "time": EVIL}, EVIL])
    run(config_of(folder / "store", log, imports={"max_reject_rate": 0.5}))
    return folder / "store"


def version_of(root):
    return open_version(Store.open(root))


@pytest.fixture(scope="module")
def page(root):
    return build_page(version_of(root))


def section(page, title):
    [found] = [one for one in page.sections if one.title == title]
    return found


def table(page, title, name):
    [found] = [one for one in section(page, title).tables if one.title == name]
    return found


def test_what_matters_comes_first(page):
    assert [tile.value for tile in page.tiles[:2]] == ["3", "38"]
    said = [(one.text, one.tone) for one in page.findings]
    assert said[0][0].startswith("Counts reconcile: all ") and said[0][1] == "good"
    assert said[1][0].startswith("1 row was rejected, 1 in import for this reason: ") and said[1][1] == "bad"
    assert "Most of the work was " in said[2][0]


def test_outcomes_of_a_stage_add_up_to_its_rows(page):
    found = {row[0]: row[1:] for row in table(page, "What became of the rows", "Rows by stage").rows}
    assert found["import"] == ("not counted", "39", "37", "1", "–", "–", "1")
    assert found["merge"] == ("yes", "38", "38", "–", "–", "–", "–")
    for _, total, *outcomes in found.values():
        assert int(total) == sum(int(one) for one in outcomes if one != "–")


def test_a_rejected_row_is_told_with_its_reason_and_text(page):
    reasons = table(page, "What became of the rows", "Rejects of the imports").rows
    assert sorted(row[1:] for row in reasons) == [("kept in part", "1"), ("lost", "1")]
    examples = table(page, "What became of the rows", "Examples of rejects").rows
    assert {row[2] for row in examples} == {row[0] for row in reasons}
    assert {row[0] for row in examples} == {"import"}
    assert any("<img src=x" in row[3] for row in examples)


def test_what_was_merged_is_one_reason_whatever_the_ids(page):
    reasons = [row for row in table(page, "What became of the rows", "Reasons").rows if row[0] == "consolidate"]
    assert [row[1:3] for row in reasons] in ([], [("empty", "merged into an id")])


def test_counts_that_differ_from_the_manifest_are_said(root):
    version = version_of(root)
    version.manifest["outcomes"]["merge"]["ok"] += 1
    page = build_page(version)
    assert next(one.text for one in page.findings if one.tone == "bad") == (
        "Counts do not reconcile: files and manifest differ in merge."
    )
    assert dict(row[:2] for row in table(page, "What became of the rows", "Rows by stage").rows)["merge"] == "no"


def test_every_stage_has_its_time_and_the_memory_until_then(page):
    found = table(page, "Time and memory", "By stage").rows
    assert {row[0] for row in found} >= {"merge", "segment", "extract", "group", "relate", "index"}
    assert all(float(row[1]) >= 0 and float(row[2].replace(",", "")) > 10 and row[4] == "0" for row in found)


def test_sizes_weights_and_relations_are_drawn(page):
    charts = [chart.title for chart in section(page, "Episodes, topics and weights").charts]
    assert charts == [
        "Episodes", "Topics", "Facts of an episode", "Weights of episodes in topics", "Weights of facts in episodes",
    ]  # fmt: skip
    kinds = table(page, "Relations", "Relations by kind")
    assert kinds.columns == ("kind", "of turns", "of facts")
    assert [row[0] for row in kinds.rows] == ["temporal", "semantic", "causal", "entity", "all"]
    assert all(int(cell.split()[0].replace(",", "")) > 0 for cell in kinds.rows[0][1:])


def test_the_log_is_that_of_the_job_that_built_the_version(root, page):
    log = next(one for one in page.findings if one.text.startswith("Most of the work"))
    run(config_of(root, root.parent / "log.jsonl", imports={"max_reject_rate": 0.5}))  # without news
    assert log in build_page(version_of(root)).findings


def test_a_damaged_log_of_a_job_is_read_as_far_as_it_goes():
    events = [
        {"event": "engine_chosen", "engine": EVIL, "log_bytes": 7},
        {"event": "stage_finished", "stage": "merge", "seconds": 1.5, "rows": 3, "made": 2, "reused": 1},
    ]
    log = read_log("a.jsonl", [*map(json.dumps, events), "[]", '{"event": "stage_fini'])
    assert (log.engine, log.stages, log.seconds, log.unreadable) == (EVIL, {"merge": (1.5, 2, 1)}, None, 2)


def test_an_output_that_is_gone_is_named(tmp_path):
    run(config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows(("ana",)))))
    version = version_of(tmp_path / "store")
    [folder] = (tmp_path / "store" / "outputs" / "group").iterdir()
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=f"group/{folder.name} is gone or damaged: run the rebuild again"):
        build_page(version)
