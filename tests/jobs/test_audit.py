"""The command that looks for texts in a store."""

import json

import pytest

from jobs import audit
from tests.pipelines.logs import config_of, import_only, rows, write_jsonl


@pytest.fixture
def store(tmp_path):
    import_only(config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows()), buckets=2))
    return tmp_path / "store"


def test_it_says_where_a_text_is(store, capsys):
    assert audit.main([str(store), "--text", "ana told me", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert {one["where"] for one in told["found"]} == {"column text"}
    assert told["files"] == len([path for path in store.rglob("*") if path.is_file()])
    assert audit.main([str(store), "--text", "ana told me"]) == 1
    assert "(column text) holds 'ana told me'" in capsys.readouterr().out


def test_it_finds_nothing_where_nothing_is(store, tmp_path, capsys):
    (tmp_path / "canaries.txt").write_text("a canary that nobody said\n\nanother one, that nobody said\n")
    assert audit.main([str(store), "--file", str(tmp_path / "canaries.txt")]) == 0
    assert "looked for 2 texts in" in capsys.readouterr().out


def test_without_a_text_it_says_what_to_do(store):
    with pytest.raises(ValueError, match="say what to look for: --text TEXT, or --file FILE"):
        audit.main([str(store)])
