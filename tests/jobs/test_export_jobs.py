"""Exports of chat services and traces, as docs/logs.md has them imported."""

import json
from pathlib import Path

import pytest

from jobs import import_logs

EXPORTS = Path(__file__).parents[1] / "data" / "exports"


@pytest.mark.parametrize(
    ("arguments", "turns"),
    [
        (("chatgpt", EXPORTS / "chatgpt", "--namespace", "me"), 8),
        (("claude", EXPORTS / "claude" / "conversations.json", "--namespace", "me/{account.uuid}"), 7),
        (("slack", EXPORTS / "slack", "--namespace", "acme/{channel}"), 6),
        (("otel", EXPORTS / "otel" / "*.jsonl", "--namespace", "acme/{user.id}"), 9),
    ],
    ids=["chatgpt", "claude", "slack", "otel"],
)
def test_an_export_is_imported_as_shown(job, tmp_path, arguments, turns):
    code, out, _ = job(import_logs, *arguments, "--out", tmp_path / "store", "--json")
    imported = json.loads(out)
    assert (code, imported["turns"], imported["imported"]["outcomes"]["ok"]) == (0, turns, turns)


def test_a_log_without_sessions_is_cut_by_a_setting(job, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"text": "Ahoy", "time": "2024-05-08T09:00:00Z"}\n')
    arguments = ("jsonl", log, "--out", tmp_path / "store", "--namespace", "me", "--columns", "time=time")
    code, _, _ = job(import_logs, *arguments, "--set", "inputs.0.session_gap_minutes=60")
    assert code == 0
    code, _, error = job(import_logs, *arguments, "--set", "inputs.0.session_gap_minutes=-1")
    assert code != 0
    assert "inputs.0.session_gap_minutes" in error
