import errno
import io
import json
import logging
import pickle
import re
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from hgmem_core import __version__
from pipelines import job_log
from pipelines.import_stage import ImportFailed
from pipelines.job_log import (
    BucketDone,
    Checked,
    EngineChosen,
    JobFailed,
    JobStarted,
    LeaseTaken,
    Retried,
    StageFinished,
    log_path,
    open_job_log,
)
from pipelines.store import Store, StoreError
from tests.pipelines.logs import config_of, rows, run, write_jsonl

CANARY = "canary"


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_log_holds_one_event_a_line_with_its_time_and_facts(tmp_path):
    path = tmp_path / "logs" / "a.jsonl"
    with open_job_log("rebuild", path) as log:
        log.write(EngineChosen("local", 1234))
        log.write(BucketDone("merge", 3, 0.12345, 40, made=False, peak_memory=7))
        log.write(Retried("buckets", None, 2, "WorkerCrashedError"))
        assert len(lines(path.read_text())) == 4  # as it happens, not at the end
    events = lines(path.read_text())
    assert [event["event"] for event in events] == [
        "job_started", "engine_chosen", "bucket_done", "retried", "job_finished",
    ]  # fmt: skip
    times = [datetime.fromisoformat(event.pop("at")) for event in events]
    assert times == sorted(times)
    assert datetime.now(UTC) - times[0] < timedelta(minutes=5)
    assert events[0] == {"event": "job_started", "level": "info", "what": "rebuild", "hgmem": __version__}
    assert events[2] == {
        "event": "bucket_done", "level": "info", "stage": "merge", "bucket": 3, "seconds": 0.123, "rows": 40,
        "made": False, "peak_memory": 7,
    }  # fmt: skip
    assert (events[3]["level"], events[3]["bucket"], events[3]["error"]) == ("warning", None, "WorkerCrashedError")


def test_a_failed_job_names_the_class_of_its_error_and_not_what_it_says():
    stream = io.StringIO()
    with pytest.raises(StoreError), open_job_log("rebuild", stream=stream):
        raise StoreError(f"{CANARY} is no number")
    last = lines(stream.getvalue())[-1]
    assert (last["event"], last["level"], last["error"]) == ("job_failed", "error", "StoreError")
    assert CANARY not in stream.getvalue()


@pytest.mark.parametrize("name", ["I moved to Lisbon", "acme/alice", "chats.jsonl\n", "", "é", "x" * 65])
def test_what_could_be_a_text_a_namespace_or_a_path_is_withheld(name):
    stream = io.StringIO()
    with open_job_log("rebuild", stream=stream) as log:
        for event in (JobStarted(name), LeaseTaken(name, 1, taken_over=True), Retried(name, 1, 1, name)):
            log.write(event)
        log.write(LeaseTaken("node-1.example_x", 1, taken_over=False))
    *withheld, kept, _ = lines(stream.getvalue())[1:]
    assert [event.get("what", event.get("host", event.get("error"))) for event in withheld] == ["(withheld)"] * 3
    assert kept["host"] == "node-1.example_x"


def test_no_text_namespace_speaker_session_or_file_name_of_a_rebuild_is_in_its_log(tmp_path):
    hidden = [
        {**row, "id": f"{CANARY}{number}", "user": CANARY, "session": CANARY, "speaker": CANARY,
         "text": f"{CANARY} {row['text']}"}
        for number, row in enumerate(rows())
    ]  # fmt: skip
    config = config_of(tmp_path / "store", write_jsonl(tmp_path / f"{CANARY}.jsonl", hidden))
    built = run(config).built
    bad = config_of(tmp_path / "other", write_jsonl(tmp_path / "bad.jsonl", [*hidden, {"text": CANARY}]))
    with pytest.raises(ImportFailed):
        run(bad)
    [log], [failed] = ((tmp_path / name / "logs").iterdir() for name in ("store", "other"))
    assert CANARY not in log.read_text() + failed.read_text()
    events = lines(log.read_text())
    assert [event["event"] for event in events].count("bucket_done") == len(built.report.records) > 10
    assert {"job_started", "lease_taken", "checked", "engine_chosen", "stage_finished"} <= {
        one["event"] for one in events
    }
    [published] = [event for event in events if event["event"] == "published"]
    assert (published["version"], published["turns"], published["moved"]) == (built.version, 36, True)
    assert lines(failed.read_text())[-1]["error"] == "ImportFailed"


def test_events_come_from_workers_and_many_threads(tmp_path):
    events = [BucketDone("merge", bucket, 0.1, 1, made=True, peak_memory=7) for bucket in range(200)]
    events = pickle.loads(pickle.dumps(events))
    with open_job_log("rebuild", tmp_path / "a.jsonl") as log:
        threads = [threading.Thread(target=lambda one=one: [log.write(event) for event in one]) for one in
                   (events[:100], events[100:])]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    written = lines((tmp_path / "a.jsonl").read_text())[1:-1]
    assert sorted(event["bucket"] for event in written) == list(range(200))


def test_other_software_neither_sees_the_log_nor_writes_to_it(caplog):
    stream = io.StringIO()
    with caplog.at_level(logging.DEBUG), open_job_log("rebuild", stream=stream) as log:
        log.write(StageFinished("merge", 1.0, 2, 3, 4))
        logging.getLogger("hgmem.job").warning(CANARY)
    assert [record.message for record in caplog.records] == [CANARY]
    assert len(lines(stream.getvalue())) == 3


def test_without_a_place_nothing_is_written(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_job_log("rebuild") as log:
        log.write(Checked("disk", 1, 2))
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "logs").write_text("")
    with pytest.raises(StoreError, match=r"the job's log .*a\.jsonl cannot be written: "):
        open_job_log("rebuild", tmp_path / "logs" / "a.jsonl").__enter__()

    class Full(io.StringIO):
        is_full = False

        def write(self, text):
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(text)

    stream = Full()
    with pytest.raises(OSError, match="No space left"), open_job_log("rebuild", stream=stream) as log:
        stream.is_full = True
        log.write(JobFailed(1.0, "Error"))


def test_names_of_logs_sort_by_time_and_differ(tmp_path):
    store = Store.make(tmp_path, 1)
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=1)))
    first, second = log_path(store, at), log_path(store, at)
    assert first.parent == tmp_path / "logs"
    assert re.fullmatch(r"20260102T020405Z-[0-9a-f]{8}\.jsonl", first.name)
    assert first != second


def test_every_event_has_its_own_name():
    kinds = job_log.Event.__args__
    stream = io.StringIO()
    with open_job_log("rebuild", stream=stream) as log:
        for kind in kinds:
            log.write(kind(**dict.fromkeys(kind.__dataclass_fields__)))
    assert len({event["event"] for event in lines(stream.getvalue())}) == len(kinds)
