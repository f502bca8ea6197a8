"""The shuffle of an import: its memory is bounded, and rows that wait in files are those that would wait in memory."""

import pyarrow as pa

from pipelines import import_stage, spill
from tests.pipelines.logs import config_of, files_of, import_only, rows, write_jsonl
from tests.pipelines.runs import runs, runs_config, write_runs

USERS = tuple(f"user{number:02d}" for number in range(20))


def test_rows_that_wait_in_files_make_the_store_that_rows_in_memory_make(tmp_path, monkeypatch):
    log = write_jsonl(tmp_path / "log.jsonl", [*rows(USERS, 12), {"user": "ana", "text": " "}])
    chat = {"format": "jsonl", "paths": [str(log)], "namespace": "acme/{user}"}
    agents = write_runs(tmp_path / "runs.jsonl", runs(USERS[:3]))
    import_only(runs_config(tmp_path / "memory", agents, more=[chat], buckets=4))
    monkeypatch.setattr(spill, "SPILL_BYTES", 1)
    monkeypatch.setattr(import_stage, "CHUNK_CHARS", 100)
    import_only(runs_config(tmp_path / "files", agents, more=[chat], buckets=4))
    assert files_of(tmp_path / "files") == files_of(tmp_path / "memory")


def test_an_import_holds_no_more_rows_than_it_may(tmp_path, monkeypatch):
    bound = 1 << 18
    texts = [{**row, "text": row["text"] * 200} for row in rows(USERS, 32)]
    log = write_jsonl(tmp_path / "log.jsonl", texts)
    assert log.stat().st_size > 20 * bound
    held = []

    class Watched(spill.Spill):
        def add_rows(self, kind, table):
            super().add_rows(kind, table)
            held.append(pa.total_allocated_bytes() - before)

    monkeypatch.setattr(spill, "SPILL_BYTES", bound)
    monkeypatch.setattr(import_stage, "CHUNK_CHARS", bound)
    monkeypatch.setattr(import_stage, "Spill", Watched)
    before = pa.total_allocated_bytes()
    assert import_only(config_of(tmp_path / "store", log)).outcomes["ok"] == 640
    assert 0 < max(held) < 8 * bound
