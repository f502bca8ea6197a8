"""The README holds: its commands run as they stand, and its tables are those of the committed results."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.readme import ROOT, with_results

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


def run(block, folder):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block], cwd=folder, env=environment, capture_output=True, text=True
    )


def commands(word):
    return next(block for block in BLOCKS if word in block)


def test_tables_are_those_of_the_committed_results():
    assert with_results(README) == README


def test_what_the_public_interface_names_is_there():
    listed = (ROOT / "docs" / "api.md").read_text(encoding="utf-8").partition("<!-- names -->")[2]
    names = re.findall(r"`([a-z_]+\.[a-z_.]+)\.([A-Za-z_]+)`", listed.partition("<!-- end -->")[0])
    assert len(names) > 20
    assert [f"{module}.{name}" for module, name in names if not hasattr(importlib.import_module(module), name)] == []


def test_the_two_first_commands_set_up_everything_by_themselves():
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv .venv && .venv/bin/pip")]
    assert [line.rpartition(" && ")[2] for line in commands] == [
        ".venv/bin/python -m jobs.quickstart",
        ".venv/bin/python -m pytest -q",
    ]


def test_the_example_log_gives_the_answer_that_it_should(tmp_path):
    for word in ("cat > chats.jsonl", "cat > memory.toml"):
        done = run(commands(word), tmp_path)
        assert done.returncode == 0, done.stderr
    assert "I moved to Lisbon last week." in done.stdout
    assert "Carol" not in done.stdout
    asked = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.DOTALL)
    assert "I moved to Lisbon last week." in run(f"python - <<'END'\n{asked[1]}\nEND", tmp_path).stdout
    answer = run(commands("--answer"), tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "I moved to Lisbon last week." in answer.stdout
    context = run(commands("--context-tokens"), tmp_path)
    assert context.returncode == 0, context.stderr
    assert "2 May, 2024:" in context.stdout
    forgotten = run(commands("jobs.forget"), tmp_path)
    assert forgotten.returncode == 0, forgotten.stderr
    assert "1 turn of 1 session" in forgotten.stdout


def test_import_without_a_configuration(tmp_path):
    run(commands("cat > chats.jsonl"), tmp_path)
    done = run(commands("jobs.import_logs"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "turns 4" in done.stdout


@pytest.mark.skipif("HGMEM_DATA" not in os.environ, reason="HGMEM_DATA names no folder with the real data")
def test_the_evaluation_command(tmp_path):
    (tmp_path / "locomo6.json").symlink_to(Path(os.environ["HGMEM_DATA"]).resolve() / "locomo" / "locomo6.json")
    done = run(commands("jobs.evaluate"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.json").exists()


def test_named_files_exist():
    for name in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / name).exists(), name


def test_every_module_has_its_place_in_the_tree():
    modules = set(re.findall(r"(\w+\.py)", (ROOT / "docs" / "modules.md").read_text(encoding="utf-8")))
    present = {path.name for folder in ("hgmem_core", "pipelines") for path in (ROOT / folder).glob("*.py")}
    assert modules == present - {"__init__.py"}
