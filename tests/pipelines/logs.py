"""Writes small invented logs and stores for the pipeline tests."""

import json
from datetime import UTC, datetime

from hgmem_core.config import config_from
from pipelines.encoders import open_encoder
from pipelines.import_stage import import_logs
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from pipelines.run import open_run

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = {"id": "id", "session": "session", "time": "time", "speaker": "speaker"}
TOPICS = ("the red bicycle", "a harbour in Lisbon", "tea with lemon", "the violin lesson", "my sister's garden")


def rows(users=("ana", "bo", "chen"), count=12):
    """Rows of a log; each user's texts differ."""
    return [
        {
            "id": f"m{number}",
            "user": user,
            "session": f"s{number // 4}",
            "time": f"2024-03-0{1 + number // 4}T18:{number % 4:02d}:00+00:00",
            "speaker": ("Ana", "Bo")[number % 2],
            "text": f"{user} told me about {TOPICS[number % 5]}, number {number}.",
        }
        for user in users
        for number in range(count)
    ]


def write_jsonl(path, content):
    path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    return path


def config_of(root, *logs, buckets=3, **sections):
    inputs = [{"format": "jsonl", "paths": [str(log)], "namespace": "acme/{user}", "columns": COLUMNS} for log in logs]
    tree = {"store": {"root": str(root), "buckets": buckets}, "encoder": {"name": "static"}, "inputs": inputs}
    return config_from({**tree, **sections})


def run(config, now=NOW):
    return rebuild(config, open_encoder(config.encoder), now, Silent())


def import_only(config):
    """Import the logs of a configuration, and build nothing."""
    with open_run("import", config, NOW, Silent()) as run:
        return import_logs(run, config.inputs, config.imports, NOW)


def files_of(root):
    """Every file of a store by its relative path, with its bytes; the logs of jobs apart."""
    paths = [path for path in root.rglob("*") if path.is_file() and path.parent != root / "logs"]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
