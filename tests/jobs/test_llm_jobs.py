"""Jobs with a language model behind a server, as a person runs them."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from jobs import ledger, rebuild
from tests.jobs.test_jobs import CONFIG as WITHOUT_MODEL
from tests.pipelines.logs import rows, write_jsonl
from tests.pipelines.scripted_model import script_of
from tests.pipelines.scripted_server import Scripted, ScriptedServer

CONFIG = (
    WITHOUT_MODEL
    + """
[llm]
engine = "http"
model = "scripted"
[llm.http]
url = "{url}"
retries = 1
"""
)


@pytest.fixture
def server():
    with ScriptedServer(script_of()) as server:
        yield server


@pytest.fixture
def config(tmp_path, server):
    log = write_jsonl(tmp_path / "log.jsonl", rows(count=16))
    path = tmp_path / "memory.toml"
    path.write_text(CONFIG.format(root=tmp_path / "store", log=log, url=server.url))
    return path


def test_a_rebuild_says_what_the_model_took_and_the_ledger_agrees(job, config, server):
    code, out, _ = job(rebuild, config, "--json", "--set", "llm.prices.prompt=2.0")
    stages = json.loads(out)["stages"]
    assert code == 0
    assert stages["extract"]["outcomes"] == {"ok": 12}
    assert stages["extract"]["calls"]["calls"] == 12
    answered = [one for one in server.log if one.path == "/v1/chat/completions"][1:]
    asked = sum(stages[stage].get("calls", {"calls": 0})["calls"] for stage in stages)
    assert asked == len(answered)
    code, out, _ = job(ledger, config, "--json", "--set", "llm.prices.prompt=2.0")
    kept = {row["stage"]: row for row in json.loads(out)["calls"]}
    assert code == 0
    assert sum(row["prompt_tokens"] for row in kept.values()) == sum(one.prompt_tokens for one in answered)
    assert kept["extract"]["cost"] == pytest.approx(2e-6 * kept["extract"]["prompt_tokens"])
    code, out, _ = job(ledger, config, "--by", "both")
    assert code == 0
    assert "acme/chen" in out
    assert "prompt tokens" in out


def test_the_summary_shows_calls_for_people(job, config):
    code, out, _ = job(rebuild, config)
    assert code == 0
    [line] = [
        line.split() for line in out.splitlines() if line.split()[:2] == ["extract", "12"] and "made" not in line
    ][1:]
    assert line[0] == "extract"
    assert int(line[2].replace(",", "")) > 1_000
    again = job(rebuild, config)[1]
    assert "prompt tokens" not in again


def test_how_much_a_model_thinks_shows_in_the_ledger_and_in_the_log_of_the_job(job, config, server, tmp_path):
    good = script_of()

    def told(thinking):
        server.script = lambda body: replace(good(body), reasoning="let me see" if thinking == "on" else None)
        root = tmp_path / thinking
        settings = ("--set", f"store.root={root}", "--set", f"llm.thinking={thinking}")
        assert job(rebuild, config, *settings)[0] == 0
        rows = json.loads(job(ledger, config, "--json", *settings)[1])["calls"]
        [tried] = [
            event
            for path in (root / "logs").iterdir()
            for event in map(json.loads, path.read_text().splitlines())
            if event["event"] == "model_tried"
        ]
        return {row["thinking_tokens"] / row["calls"] for row in rows}, tried["thinking_tokens"]

    assert told("on") == ({3}, 3)
    assert told("off") == ({0}, 0)


def test_answers_that_lie_in_the_reasoning_are_used_and_counted(job, config, server, tmp_path):
    good = script_of()
    server.script = lambda body: replace(good(body), text=None, reasoning=good(body).text)
    code, out, _ = job(rebuild, config, "--json")
    assert (code, json.loads(out)["stages"]["extract"]["outcomes"]) == (0, {"ok": 12})
    rows = json.loads(job(ledger, config, "--json")[1])["calls"]
    assert [row["in_reasoning"] for row in rows] == [row["calls"] for row in rows]
    [log] = (tmp_path / "store" / "logs").iterdir()
    events = map(json.loads, log.read_text().splitlines())
    assert [event["source"] for event in events if event["event"] == "model_tried"] == ["reasoning"]


def test_a_dry_run_asks_nothing_and_writes_nothing(job, config, server, tmp_path):
    code, out, _ = job(rebuild, config, "--dry-run", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["stages"]["segment"]["calls"] > 0
    assert found["stages"]["extract"]["prompt_tokens"] > 1_000
    assert server.log == []
    assert not (tmp_path / "store").exists()
    code, out, _ = job(rebuild, config, "--dry-run", "--set", "llm.prices.prompt=1.0")
    assert code == 0
    assert "cost" in out
    code, _, err = job(rebuild, config, "--dry-run", "--set", "llm.engine=none", "--set", "llm.model=")
    assert code == 2
    assert "llm.engine" in err


def test_an_interrupt_does_not_wait_for_a_slow_server(config, server, tmp_path):
    good = script_of()
    server.script = lambda body: good(body) if _is_self_test(body) else Scripted(hangs=True)
    command = [sys.executable, "-m", "jobs.rebuild", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while len(server.log_of("/v1/chat/completions")) < 3 and process.poll() is None:
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "stopped; what was finished is kept" in err


def _is_self_test(body):
    return body["response_format"]["json_schema"]["name"] == "Door"


REFUSALS = {
    "url": ({"set": ["llm.http.url=http://127.0.0.1:9/v1"]}, "llm.http.url"),
    "path": ({"set": ["llm.http.url={root}/v2"]}, "llm.http.url"),
    "key": ({"key": "secret"}, "llm.http.key_variable"),
    "missing variable": ({"set": ["llm.http.key_variable=NO_SUCH_KEY"]}, "NO_SUCH_KEY"),
    "model": ({"set": ["llm.model=other"]}, "llm.model"),
    "context": ({"set": ["llm.context_tokens=200000"]}, "llm.context_tokens"),
    "no chat template": (
        {
            "answer": Scripted(
                status=400, message="As of transformers v4.44, default chat template is no longer allowed"
            )
        },
        "chat template",
    ),
    "schema": ({"answer": Scripted(status=400, message="response_format is not supported")}, "llm.guided"),
    "gibberish": ({"answer": Scripted("{[ ```")}, "structured outputs"),
    "tokenizer": ({"set": ["llm.tokenizer=/nowhere/tokenizer.json"]}, "llm.tokenizer"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_model_that_cannot_be_used_is_told_in_one_line_and_nothing_is_written(job, config, server, tmp_path, case):
    change, named = REFUSALS[case]
    server.key = change.get("key")
    if "answer" in change:
        server.script = lambda body: change["answer"]
    overrides = [part.format(root=server.root) for one in change.get("set", []) for part in ("--set", one)]
    code, out, err = job(rebuild, config, *overrides)
    assert code not in (0, 2)
    [line] = [line for line in err.splitlines() if line.startswith("error:")]
    assert named in line
    assert err.count("\n") == 1
    assert out == ""
    assert "secret" not in err
    assert not (tmp_path / "store").exists()
