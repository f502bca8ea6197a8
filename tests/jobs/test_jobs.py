"""The jobs as a person runs them: arguments in, standard output, one message on an error, exit codes."""

import json
import os
import subprocess
import sys

import pytest

from hgmem_core.config import Config, to_toml
from jobs import benchmark, evaluate, import_logs, query, quickstart, rebuild
from tests.pipelines.logs import rows, write_jsonl

CONFIG = """
[store]
root = "{root}"
buckets = 2
[encoder]
name = "static"
[[inputs]]
format = "jsonl"
paths = ["{log}"]
namespace = "acme/{{user}}"
[inputs.columns]
id = "id"
session = "session"
time = "time"
speaker = "speaker"
"""


@pytest.fixture
def config(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", rows())
    path = tmp_path / "memory.toml"
    path.write_text(CONFIG.format(root=tmp_path / "store", log=log))
    return path


def test_from_a_configuration_to_an_answer(job, config, tmp_path):
    code, out, _ = job(rebuild, config, "--json")
    built = json.loads(out)
    assert code == 0
    assert built["turns"] == built["imported"]["outcomes"]["ok"] == 36
    assert built["stages"]["index"]["outcomes"] == {"ok": 36}
    asked = ["the harbour in Lisbon", "--store", tmp_path / "store", "--namespace", "acme/ana", "--recipe", "bm25"]
    code, out, _ = job(query, *asked, "--json", "--k", 2)
    hits = json.loads(out)["hits"]
    assert (code, len(hits)) == (0, 2)
    assert "harbour in Lisbon" in hits[0]["text"]
    code, out, _ = job(query, *asked, "--explain")
    assert code == 0
    assert "2024-03-01 18:01 UTC  Bo  s0 m1" in out
    assert "bm25/turn #1" in out


def test_a_second_rebuild_says_that_it_did_nothing(job, config):
    first = json.loads(job(rebuild, config, "--json")[1])
    second = json.loads(job(rebuild, config, "--json")[1])
    assert (first["published"], second["published"]) == (True, False)
    assert second["version"] == first["version"]
    assert {stage["made"] for stage in second["stages"].values()} == {0}
    assert "1 file was imported before and left out" in job(rebuild, config)[1]


def test_import_without_a_configuration_file(job, tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", [{"who": "ana", "body": "hello"}, {"who": "bo", "body": ""}])
    arguments = ["jsonl", log, "--out", tmp_path / "store", "--namespace", "acme/{who}", "--columns", "text=body"]
    code, out, _ = job(import_logs, *arguments, "--json")
    assert code == 0
    assert json.loads(out)["imported"]["outcomes"] == {"ok": 1, "partial": 0, "empty": 1, "fallback": 0, "rejected": 0}


def test_arguments_may_hold_any_character(job, tmp_path):
    name = '\U0001f9ea \x7f"q" \\ café'
    log = write_jsonl(tmp_path / f"{name}.jsonl", [{"text": "hello"}])
    store = tmp_path / name
    assert job(import_logs, "jsonl", log, "--out", store, "--namespace", "\U0001f9ea/café")[0] == 0
    assert store.is_dir()
    assert job(rebuild, minimal(tmp_path, store))[0] == 0
    asked = ["hello", "--namespace", "\U0001f9ea/café", "--store", store, "--recipe", "bm25", "--json"]
    assert len(json.loads(job(query, *asked)[1])["hits"]) == 1


def minimal(folder, root):
    """A configuration without inputs, for a store that has logs already."""
    path = folder / "minimal.toml"
    path.write_text(to_toml(Config(store={"root": str(root)}, encoder={"name": "static"})), encoding="utf-8")
    return path


def test_what_the_terminal_cannot_show_is_escaped(config, tmp_path):
    write_jsonl(tmp_path / "log.jsonl", [{**row, "text": "café \U0001f9ea"} for row in rows()])
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}

    def output(*command):
        command = [sys.executable, "-m", *map(str, command)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    output("jobs.rebuild", config)
    asked = ["jobs.query", "caf\xe9", "--store", tmp_path / "store", "--namespace", "acme/ana", "--recipe", "bm25"]
    assert "caf\\xe9" in output(*asked)
    assert json.loads(output(*asked, "--json"))["hits"][0]["text"].endswith("café \U0001f9ea")


def test_filters_by_time_speaker_and_session(job, config, tmp_path):
    job(rebuild, config)
    base = ["told me", "--store", tmp_path / "store", "--namespace", "acme/ana", "--json", "--k", 100]
    late = json.loads(job(query, *base, "--from", "2024-03-03T00:00+00:00", "--speaker", "Ana")[1])["hits"]
    assert {(hit["session_id"], hit["speaker"]) for hit in late} == {("s2", "Ana")}
    session = json.loads(job(query, *base, "--session", "s1")[1])["hits"]
    assert {hit["session_id"] for hit in session} == {"s1"}
    code, out, _ = job(query, *base, "--until", "2020-01-01T00:00+00:00")
    assert (code, json.loads(out)["reason"]) == (0, "nothing_passes_the_filters")


def test_a_context_for_a_prompt(job, config, tmp_path):
    job(rebuild, config)
    asked = ["the harbour in Lisbon", "--store", tmp_path / "store", "--namespace", "acme/ana"]
    code, out, _ = job(query, *asked, "--context-tokens", 60, "--json")
    context = json.loads(out)["context"]
    assert code == 0
    assert 0 < context["tokens"] <= 60
    assert all(statement["turn_ids"] for statement in context["statements"])
    code, out, _ = job(query, *asked, "--context-tokens", 60)
    assert out.startswith(context["text"].splitlines()[0])
    code, out, _ = job(query, *asked, "--as-of", "2024-03-01T23:00+00:00", "--json", "--k", 100)
    assert {hit["session_id"] for hit in json.loads(out)["hits"]} == {"s0"}


def test_printed_configuration(job, config):
    code, out, _ = job(rebuild, config, "--set", "retrieve.k=7", "--print-config")
    assert code == 0
    assert "k = 7" in out
    assert 'namespace = "acme/{user}"' in out


def test_wrong_use_is_exit_code_2_and_a_failed_job_1(job, config, tmp_path):
    store = tmp_path / "store"
    job(rebuild, config)
    asked = ["tea", "--store", store, "--namespace", "acme/ana"]
    deep = tmp_path / "deep.toml"
    deep.write_text("inputs = " + "[" * 3_000)
    cases = [
        (2, (rebuild, config, "--set", "store.bukets=3"), "store.bukets: unknown key"),
        (2, (rebuild, tmp_path / "none.toml"), "none.toml cannot be read"),
        (2, (query, *asked, "--recipe", "best"), "no recipe 'best'; there are default, bm25"),
        (2, (query, *asked, "--context-tokens", "0"), "--context-tokens: 0 is not at least 1"),
        (2, (query, *asked, "--k", "0"), "--k: 0 is not between 1 and 1000"),
        (2, (query, "tea", "--store", store, "--namespace", "../acme"), "'..' is not allowed"),
        (2, (query, *asked, "--from", "2024-03-01"), "has no time zone"),
        (2, (query, *asked, "--from", "yesterday"), "'yesterday' is not a time; write it like 2024-03-14T18:00+01:00"),
        (2, (query, *asked, "--encoder", "foo"), "invalid choice: 'foo'"),
        (2, (query, "caf\udce9", *asked[1:]), r"the argument 'caf\udce9' is not UTF-8"),
        (2, (rebuild, deep), "the configuration is nested too deeply"),
        (2, (rebuild, config, "--set", "store.root=" + "[" * 3_000), "store.root is nested too deeply"),
        (2, (rebuild, config, "--set", 'store.root="open'), "store.root is not TOML"),
        (2, (evaluate, "locomo", "--data", config, "--recipes", " , "), "--recipes names no recipe"),
        (2, (benchmark, "search", "--repeats", "0"), "'0' is not a whole number from 1 on"),
        (2, (benchmark, "build", "--namespaces", "-1"), "'-1' is not a whole number from 1 on"),
        (1, (benchmark, "search", "--data", config), "memory.toml cannot be read as LoCoMo's JSON"),
        (1, (benchmark, "search", "--data", tmp_path / "none.json"), "none.json cannot be read"),
        (2, (query, "tea", "--store", store), "--namespace"),
        (2, (import_logs, "xml", "a"), "invalid choice: 'xml'"),
        (1, (query, "tea", "--store", tmp_path / "none", "--namespace", "a"), "is no store"),
        (1, (query, *asked, "--version", "zzz"), "has no version 'zzz'"),
        (1, (query, *asked, "--encoder", "minilm"), "was built with another encoder"),
        (2, (import_logs, "jsonl", tmp_path / "log.jsonl", "--out", store), "namespace is missing"),
        (1, (import_logs, "jsonl", tmp_path / "none.jsonl", "--out", store, "--namespace", "a"), "none.jsonl"),
        (1, (import_logs, "openai", tmp_path / "log.jsonl", "--out", store, "--namespace", "a/{"), "log.jsonl"),
        (1, (rebuild, config, "--set", "store.buckets=5"), "was made with 2 buckets"),
        (1, (rebuild, config, "--set", "inputs.0.columns.text=message"), "message"),
        (1, (evaluate, "locomo", "--data", tmp_path / "log.jsonl", "--set", "encoder.name=static"), "log.jsonl"),
    ]
    for expected, (module, *arguments), message in cases:
        code, out, err = job(module, *arguments)
        assert (code, out) == (expected, ""), arguments
        assert message in " ".join(err.split()), arguments
        assert "Traceback" not in err


def test_quickstart_cites_turns_of_its_log_and_answers_its_questions(job, tmp_path):
    code, out, _ = job(quickstart, "--out", tmp_path / "store", "--json")
    result = json.loads(out)
    log = [json.loads(line) for line in (quickstart.HERE / "data" / "quickstart_log.jsonl").open(encoding="utf-8")]
    text_of = {row["id"]: row["text"] for row in log}
    assert code == 0
    assert len(log) >= 100
    assert len(result["answers"]) == result["questions"] == 20
    for answer in result["answers"]:
        assert [text_of[hit["source_id"]] for hit in answer["hits"]] == [hit["text"] for hit in answer["hits"]]
    assert result["answered"] == sum(answer["rank"] is not None for answer in result["answers"]) >= 17


def test_quickstart_shows_questions_and_cited_turns(job, tmp_path):
    arguments = ["--out", tmp_path / "store", "--set", "encoder.name=static"]
    code, out, _ = job(quickstart, *arguments)
    assert code == 0
    assert "of 20 with the right turn among the first 3" in " ".join(out.split())


@pytest.mark.parametrize("case", ["build", "search"])
def test_benchmarks_print_numbers_with_machine_and_commit(job, tmp_path, case):
    code, out, _ = job(benchmark, case, "--turns", 200, "--repeats", 1, "--json", "--out", tmp_path / "b.json")
    result = json.loads(out)
    assert code == 0
    assert json.loads((tmp_path / "b.json").read_text()) == result
    assert result["machine"]["cores"] >= 1
    assert {"commit", "turns"} <= result.keys()
    measured = {**result["cpu_ms_a_turn"], **result["ms_a_turn_by_stage"]} if case == "build" else result["p50_ms"]
    assert all(value > 0 for value in measured.values())


def test_jobs_run_as_modules(tmp_path):
    done = subprocess.run([sys.executable, "-m", "jobs.rebuild", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "usage: python -m jobs.rebuild" in done.stdout
