import sys
import threading

import pyarrow as pa
import pytest

from hgmem_core.schemas import OUTCOME, TableSchema, conform
from pipelines.runner import Produced, Record, Report, Runner, Stage
from pipelines.store import DamagedOutput, Store


def outcomes(count):
    rows = [
        {"namespace": "acme", "stage": "stage", "row_id": str(row), "outcome": "ok", "reason": None, "passes": 1}
        for row in range(count)
    ]
    return conform(pa.Table.from_pylist(rows), OUTCOME)


class Part:
    """An input of two namespaces."""

    digest = "a"

    def digests(self):
        return {"acme": "1"}


def runner(store, told=None):
    return Runner(store, 3, {}, (told if told is not None else []).append, "job")


def make(runner, value, calls):
    schema = TableSchema("X", ("namespace",), pa.schema([("namespace", pa.large_string()), ("a", pa.int64())]))

    def work(fresh):
        assert fresh is None
        calls.append(value)
        table = pa.table({"namespace": ["acme"], "a": [value]}).cast(schema.arrow)
        return Produced({"x.parquet": table}, outcomes(2), {"x.parquet": schema})

    return runner.make(Stage("stage", 1, {}), [Part()], work)


def record(**changes):
    return Record(**{"stage": "merge", "bucket": 0, "outcomes": {"ok": 1}, "seconds": 1.0, "made": False, **changes})


def test_a_report_counts_right_from_many_threads():
    report = Report()
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: [report.add(record(bucket=number)) for number in range(2_000)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    expected = {"outcomes": {"ok": 2_000}, "seconds": 16_000.0, "made": 0, "reused": 2_000}
    assert report.as_dict() == {"merge": expected}


def test_an_output_that_was_made_counts_as_made_whenever_it_is_found_again():
    report = Report()
    assert report.add(record(made=False))
    assert not report.add(record(made=True, outcomes={"ok": 2}))
    assert not report.add(record(made=False, outcomes={"ok": 2}))
    assert report.as_dict()["merge"] == {"outcomes": {"ok": 2}, "seconds": 3.0, "made": 1, "reused": 0}


@pytest.mark.parametrize("damage", ["shorter", "flipped"])
def test_a_damaged_output_is_refused_by_its_reader_and_made_again_once_removed(tmp_path, damage):
    store, calls, told = Store.make(tmp_path, 1), [], []
    path = make(runner(store), 7, calls).folder / "x.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:-1] if damage == "shorter" else content[:-1] + b"?")
    again = runner(store, told)
    output = make(again, 7, calls)
    if damage == "flipped":  # the size alone does not tell
        with pytest.raises(DamagedOutput, match="sha256") as caught:
            again.read(output, "x.parquet")
        with pytest.raises(DamagedOutput):
            again.sound(output)
        again.remove(caught.value.folder)
        output = make(again, 7, calls)
    assert again.sound(output).table("x.parquet").to_pydict() == {"namespace": ["acme"], "a": [7]}
    assert path.read_bytes() == content
    assert calls == [7, 7]
    assert [one.made for one in told] == ([True] if damage == "shorter" else [False, True])


def test_an_output_without_a_manifest_is_unfinished(tmp_path):
    store, calls = Store.make(tmp_path, 1), []
    first = make(runner(store), 7, calls)
    for content in (None, "{}", "{", '{"files": {}, "outcomes": {}}', "[]"):
        (first.folder / "manifest.json").unlink()
        if content is not None:
            (first.folder / "manifest.json").write_text(content)
        again = make(runner(store), 7, calls)
        assert again.manifest == first.manifest == store.find(first.folder).manifest
    assert len(calls) == 6
    assert list((tmp_path / "tmp").iterdir()) == []
