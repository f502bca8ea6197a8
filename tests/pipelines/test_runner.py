import sys
import threading

import pyarrow as pa
import pytest

from hgmem_core.schemas import OUTCOME, conform
from pipelines.runner import Produced, Report, Runner, Stage
from pipelines.store import Store


def outcomes(count):
    rows = [
        {"namespace": "acme", "stage": "stage", "row_id": str(row), "outcome": "ok", "reason": None, "passes": 1}
        for row in range(count)
    ]
    return conform(pa.Table.from_pylist(rows), OUTCOME)


def produced(value, calls):
    def work():
        calls.append(value)
        return Produced({"x.parquet": pa.table({"a": [value]})}, outcomes(2), {"digest": str(value)})

    return work


def test_a_report_counts_right_from_many_threads():
    report = Report()
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: [report.add("merge", {"ok": 1}, 1.0, False) for _ in range(2_000)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    assert report.as_dict() == {"merge": {"outcomes": {"ok": 16_000}, "seconds": 16_000.0, "made": 16_000, "reused": 0}}


@pytest.mark.parametrize("damage", ["shorter", "flipped"])
def test_a_reused_output_is_made_again_when_it_turns_out_damaged(tmp_path, damage):
    store, calls = Store.make(tmp_path, 1), []
    first = Runner(store).run(Stage("stage", 1, {}), ["a"], produced(7, calls))
    path = first.folder / "x.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:-1] if damage == "shorter" else content[:-1] + b"?")
    runner = Runner(store)
    output = runner.sound(runner.run(Stage("stage", 1, {}), ["a"], produced(7, calls)))
    assert output.table("x.parquet").to_pydict() == {"a": [7]}
    assert path.read_bytes() == content
    assert calls == [7, 7]
    report = runner.report.as_dict()["stage"]
    assert (report["outcomes"], report["made"], report["reused"]) == ({"ok": 2}, 1, 0)


def test_an_output_without_a_manifest_is_unfinished(tmp_path):
    store, calls = Store.make(tmp_path, 1), []
    first = Runner(store).run(Stage("stage", 1, {}), ["a"], produced(7, calls))
    for content in (None, "{}", "{", '{"files": {}, "outcomes": {}}', "[]"):
        (first.folder / "manifest.json").unlink()
        if content is not None:
            (first.folder / "manifest.json").write_text(content)
        again = Runner(store).run(Stage("stage", 1, {}), ["a"], produced(7, calls))
        assert again.manifest == first.manifest == store.find(first.folder).manifest
    assert len(calls) == 6
    assert list((tmp_path / "tmp").iterdir()) == []
