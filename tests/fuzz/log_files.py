"""Log files of every format, from bytes to rows of tables: what is wrong with a row is said in its outcome."""

import io
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS, TRAJECTORY_IMPORTERS
from hgmem_core.importers.slack import SlackRow, read_slack, slack_names
from hgmem_core.messages import Dropped, LogRow, Message
from hgmem_core.trajectories import Run, cut_long_texts, merge_runs, number_equal_runs, trajectories_table
from hgmem_core.turns import merge_imports, messages_table, number_equals
from pipelines.feedback_files import read_feedback
from pipelines.import_stage import ImportFailed
from pipelines.log_files import check_columns, open_rows
from pipelines.log_rows import LogFileError, json_value
from tests.fuzz.target import Target, text_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_LONGEST_TEXT = 1_000
_COLUMNS = {name: name for name in ("session", "id", "sequence", "time", "speaker", "role", "attachments", "call_id")}
_FOLDER = tempfile.TemporaryDirectory(prefix="hgmem-fuzz-")

# By parser: the format, and the path of the file in its folder.
_FILES = {
    "jsonl": ("jsonl", "log.jsonl"),
    "gzip": ("jsonl", "log.jsonl.gz"),
    "csv": ("csv", "log.csv"),
    "openai": ("openai", "log.json"),
    "chatgpt": ("chatgpt", "conversations.json"),
    "claude": ("claude", "conversations.json"),
    "slack": ("slack", "harbour/2024-05-08.json"),
    "chatgpt-zip": ("chatgpt", "export.zip"),
    "slack-zip": ("slack", "export.zip"),
    "otel": ("otel", "traces.json"),
    "locomo": ("locomo", "locomo.json"),
    "longmemeval": ("longmemeval", "longmemeval.json"),
    "hotpotqa": ("hotpotqa", "hotpotqa.json"),
    "musique": ("musique", "musique.json"),
    "trajectories": ("trajectories", "runs.jsonl"),
    "tau-bench": ("tau-bench", "runs.json"),
    "intercode": ("intercode", "runs.json"),
    "alfworld": ("alfworld", "runs.json"),
}
_NO_JSON = ("csv", "gzip", "chatgpt-zip", "slack-zip")


def _reader(name: str, format: str, path: str) -> Callable[[bytes], None]:
    columns = _COLUMNS if format in ("jsonl", "csv") else {}
    config = InputConfig(format=format, paths=["log"], namespace="acme", columns=columns, session_gap_minutes=30)
    file = Path(_FOLDER.name, name, path)
    file.parent.mkdir(parents=True)

    def read(data: bytes) -> None:
        file.write_bytes(data)
        try:
            check_columns(str(file), config)
            rows = list(open_rows(str(file), config))
        except LogFileError as error:
            assert str(file) in str(error)
            return
        importer = {**IMPORTERS, **TRAJECTORY_IMPORTERS}[format]
        check_results(rows, list(importer(iter(rows), config)))

    return read


def check_results(rows: list[LogRow], results: list[Message | Run | Dropped]) -> None:
    """Fail unless every row has results, each says what it is for, and those that are kept become rows of tables."""
    told = [result.row_id for result in results]
    for row in rows:
        assert any(name.startswith(row.row_id) for name in told), f"{row.row_id} is lost in silence"
    outcomes = Counter("dropped" if isinstance(result, Dropped) else "kept" for result in results)
    for result in results:
        if isinstance(result, Dropped):
            assert result.reason and result.outcome in ("empty", "rejected")
            pa.array([result.row_id, result.reason, result.raw, result.namespace], pa.large_string())
    messages = [result for result in results if isinstance(result, Message)]
    runs = [cut_long_texts(result, _LONGEST_TEXT) for result in results if isinstance(result, Run)]
    assert len(messages) + len(runs) == outcomes["kept"]
    if messages:
        table = number_equals(messages_table(messages, 0, NOW, _LONGEST_TEXT))
        turns = merge_imports([table])[0]
        assert merge_imports([table, table])[0].equals(turns), "importing a file again changes the turns"
    if runs:
        table = number_equal_runs(trajectories_table(runs, 0, NOW))
        assert merge_runs([table, table])[0].equals(merge_runs([table])[0]), "importing a file again changes the runs"


def _read_slack_names(data: bytes) -> None:
    """A message among people and channels of whom the export says anything: the bytes are both, and its text."""
    value, error = json_value(data)
    if error is None:
        names = slack_names(value, [value])
        row = LogRow("day:1", SlackRow("harbour", names, {"type": "message", "user": "U1", "text": text_of(data)}))
        config = InputConfig(format="slack", paths=["log"], namespace="acme")
        check_results([row], list(read_slack([row], config)))


def _read_feedback(data: bytes) -> None:
    file = Path(_FOLDER.name, "feedback.jsonl")
    file.write_bytes(data)
    try:
        found = read_feedback(file, 1.0)
    except (LogFileError, ImportFailed) as error:
        assert str(file) in str(error)
        return
    lines = sum(1 for line in io.BytesIO(data) if line.removeprefix(b"\xef\xbb\xbf").strip())
    assert found.rows.num_rows + sum(found.rejected.values()) == lines
    json.dumps(dict(found.rejected)).encode()


TARGETS = {
    name: Target(_reader(name, format, path), is_json=name not in _NO_JSON) for name, (format, path) in _FILES.items()
} | {
    "slack-names": Target(_read_slack_names, is_json=True, words=("<@U1>", "<#C1|", "<!here>", "&lt;")),
    "feedback": Target(_read_feedback, is_json=True),
}
