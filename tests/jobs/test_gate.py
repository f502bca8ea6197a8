"""One's own questions, and gates on what they find: in evaluations and in rebuilds."""

import json
import re
import shutil
from datetime import UTC, datetime

import jsonschema
import pytest

import pipelines.rebuild
from hgmem_core.config import parse_config
from jobs import evaluate, forget, rebuild, versions
from jobs.readme import ROOT
from pipelines.encoders import open_encoder
from pipelines.progress import Silent
from pipelines.store import Store
from pipelines.versions import open_version
from tests.jobs.test_evaluate import SCHEMA
from tests.jobs.test_readme import run

CHATS = [
    ("alice", "s1", "m1", "I moved to Lisbon last week."),
    ("alice", "s1", "m2", "How do you like the food there?"),
    ("alice", "s1", "m3", "The grilled sardines are wonderful."),
    ("alice", "s2", "m1", "My sister Rosa plays the cello."),
    ("alice", "s2", "m4", "She practises every morning."),
    ("bob", "s1", "m1", "The boiler broke again on Monday."),
    ("bob", "s1", "m2", "I called the plumber."),
]
QUESTIONS = [
    {"query": "What are the sardines like?", "namespace": "acme/alice", "turns": ["m3"], "group": "food"},
    {"query": "Who plays the cello?", "namespace": "acme/alice", "turns": [{"session": "s2", "id": "m1"}]},
    {"query": "When did the boiler break?", "namespace": "acme/bob", "turns": ["m1"], "group": "home"},
]
MEMORY = """
[store]
root = "{folder}/store"
[encoder]
name = "static"
[[inputs]]
format = "jsonl"
paths = ["{folder}/chats*.jsonl"]
namespace = "acme/{{user}}"
columns = {{ session = "session", id = "id" }}
"""
GATE = """
[gate]
data = "{folder}/mine.jsonl"
recipe = "bm25"
at_least = {at_least}
not_worse = {not_worse}
"""


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Memory:
    """A configuration, its logs and its questions in a folder."""

    def __init__(self, folder, job):
        self.folder, self.job = folder, job
        self.config = folder / "memory.toml"
        self.questions = folder / "mine.jsonl"
        self.says(MEMORY)
        self.logs("chats.jsonl", CHATS)
        write_lines(self.questions, QUESTIONS)

    def says(self, text, **fields):
        self.config.write_text(text.format(folder=self.folder, **fields), encoding="utf-8")

    def gates(self, at_least=(), not_worse=False):
        fields = {"at_least": json.dumps(list(at_least)), "not_worse": json.dumps(not_worse)}
        self.says(MEMORY + GATE, **fields)

    def logs(self, name, chats):
        rows = [dict(zip(("user", "session", "id", "text"), chat, strict=True)) for chat in chats]
        write_lines(self.folder / name, rows)

    def rebuild(self, *arguments):
        code, out, err = self.job(rebuild, self.config, "--json", *arguments)
        return code, json.loads(out) if out else None, " ".join(err.split())

    def ask(self, *arguments):
        out = self.folder / "r.json"
        out.unlink(missing_ok=True)
        code, _, err = self.job(
            evaluate, "questions", "--data", self.questions, "--config", self.config, "--recipes", "bm25",
            "--out", out, *arguments,
        )  # fmt: skip
        result = json.loads(out.read_text()) if out.exists() else None
        if result is not None:
            jsonschema.validate(result, SCHEMA)
        return code, result, " ".join(err.split())

    def current(self):
        return open_version(Store.open(str(self.folder / "store"), "")).id


@pytest.fixture(scope="module")
def built_store(tmp_path_factory):
    """The store of the first build, once for all tests."""
    memory = Memory(tmp_path_factory.mktemp("memory"), None)
    config = parse_config(memory.config.read_text())
    pipelines.rebuild.rebuild(config, open_encoder(config.encoder), datetime(2026, 1, 1, tzinfo=UTC), Silent())
    return memory.folder / "store"


@pytest.fixture
def memory(tmp_path, job, built_store):
    shutil.copytree(built_store, tmp_path / "store")
    return Memory(tmp_path, job)


@pytest.fixture
def unbuilt(tmp_path, job):
    return Memory(tmp_path, job)


def test_own_questions_are_asked_of_the_current_version(memory):
    code, result, err = memory.ask()
    assert code == 0, err
    assert (result["task"], result["index_version"]) == ("questions", memory.current())
    rows = {row["group"]: row for row in result["results"]}
    assert {group: row["n"] for group, row in rows.items()} == {"all": 3, "food": 1, "home": 1}
    assert rows["all"]["recall@10"] == 100
    assert result["evidence"] == {
        "questions": 3,
        "questions_left_out": 0,
        "evidence": 3,
        "evidence_missing": 0,
    }


def test_a_turn_of_two_sessions_is_asked_back(memory):
    write_lines(memory.questions, [{**QUESTIONS[1], "turns": ["m1"]}])
    code, _, err = memory.ask()
    assert code == 1
    assert """question 1: sessions 's1' and 's2' both have a turn 'm1'; write {"session": "s1", "id": "m1"}""" in err


def test_what_the_version_has_not_is_told_and_left_out(memory):
    memory.rebuild()
    gone = {**QUESTIONS[0], "turns": ["m99"]}
    other = {**QUESTIONS[0], "namespace": "acme/carol"}
    write_lines(memory.questions, [*QUESTIONS, gone, other])
    code, result, _ = memory.ask()
    assert code == 0
    assert result["evidence"]["questions_left_out"] == result["evidence"]["evidence_missing"] == 2
    assert [line.partition("mine.jsonl: ")[2] for line in result["warnings"][:2]] == [
        "question 4: the version has no turn 'm99' in 'acme/alice'",
        "question 5: the version has no namespace 'acme/carol'",
    ]
    write_lines(memory.questions, [gone])
    code, _, err = memory.ask()
    assert code == 1
    assert "the version has no turn of any question" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"query": "Who?", "namespace": "acme/alice"}, "question 1: not an object with query, namespace and a list"),
        ({**QUESTIONS[0], "turns": [True]}, "question 1: the turn True is neither an id nor an object"),
        ({**QUESTIONS[0], "group": 5}, "question 1: the group 5 is no text"),
        ({**QUESTIONS[0], "namespace": "acme//x"}, "question 1: "),
    ],
)
def test_a_line_that_is_no_question_is_named(memory, line, message):
    write_lines(memory.questions, [line])
    code, result, err = memory.ask()
    assert (code, result) == (1, None)
    assert f"mine.jsonl: {message}" in err


def test_a_floor_that_is_not_reached_fails_and_says_by_how_much(memory):
    assert memory.ask("--min", "recall@10=100")[0] == 0
    write_lines(memory.questions, [*QUESTIONS, {**QUESTIONS[0], "query": "Zzz?", "group": "odd"}])
    code, result, err = memory.ask("--min", "recall@10=80", "--min", "food/recall@5=100")
    assert code == 1
    assert "bm25, all: recall@10 is 75.00, 5.00 below 80" in err
    assert [one["passed"] for one in result["gate"]["floors"]] == [False, True]
    code, _, err = memory.ask("--min", "judge=80")
    assert (code, "judge was not measured; there are recall@5" in err) == (2, True)


def test_a_version_that_finds_less_is_worse(memory):
    first = memory.current()
    memory.logs("chats2.jsonl", [("alice", "s3", f"n{i}", f"What are the sardines like, {i}?") for i in range(40)])
    second = memory.rebuild()[1]["version"]
    write_lines(memory.questions, [{**QUESTIONS[0], "query": f"what are the sardines like {i}"} for i in range(12)])
    code, result, err = memory.ask("--not-worse-than", first)
    assert code == 1
    [found] = [one for one in result["gate"]["comparisons"] if one["metric"] == "recall@10"]
    assert (found["baseline"], found["difference"], found["ci95"]) == (first, -100, [-100, -100])
    assert f"bm25, all: recall@10 is 100.00 below version {first} (difference -100.00" in err
    assert memory.ask("--version", first, "--not-worse-than", second)[0] == 0


def test_questions_on_turns_that_the_earlier_version_has_not_are_not_compared(memory):
    first = memory.current()
    memory.logs("chats2.jsonl", [("alice", "s3", "n1", "I adopted a parrot called Kiwi.")])
    memory.rebuild()
    new = {"query": "What is the parrot called?", "namespace": "acme/alice", "turns": ["n1"]}
    write_lines(memory.questions, [*QUESTIONS, new])
    code, result, _ = memory.ask("--not-worse-than", first)
    assert code == 0
    assert f"1 of 4 questions need turns that version {first} has not: not compared" in result["warnings"]
    write_lines(memory.questions, [new])
    code, _, err = memory.ask("--not-worse-than", first)
    assert (code, f"version {first} holds the evidence of no question" in err) == (1, True)


@pytest.mark.parametrize("option", [("--min", "recall@10=1"), ("--not-worse-than", "x")])
def test_gates_go_with_retrieval_alone(memory, job, option):
    code, _, err = job(evaluate, "segmentation", "--data", memory.folder, *option)
    assert (code, "go with retrieval alone" in " ".join(err.split())) == (2, True)


def test_the_first_version_that_passes_its_gate_becomes_the_current_one(unbuilt):
    unbuilt.gates(["recall@10=100", "food/recall@5=100"], not_worse=True)
    code, result, err = unbuilt.rebuild()
    assert code == 0, err
    assert unbuilt.current() == result["version"]


def test_a_version_that_does_not_pass_is_kept_and_can_be_published_all_the_same(memory):
    first = memory.current()
    memory.gates(["recall@10=80"])
    memory.logs("chats2.jsonl", [("alice", "s3", f"n{i}", f"The sardines again, {i}.") for i in range(40)])
    write_lines(memory.questions, [{**QUESTIONS[0], "query": "The sardines again"}])
    code, result, err = memory.rebuild("--set", "store.keep_versions=1")
    assert code == 1
    assert memory.current() == first
    refused = result["version"]
    assert "does not pass the gate: bm25, all: recall@10 is 0.00, 80.00 below 80" in err
    command = f"python -m jobs.versions {memory.folder}/store rollback {refused}"
    assert command in err
    assert memory.rebuild()[0] == 1
    assert memory.job(versions, *command.split()[3:])[0] == 0
    assert memory.current() == refused
    assert memory.rebuild()[0] == 0


def test_a_version_that_is_worse_than_the_current_one_does_not_pass(memory):
    first = memory.current()
    memory.gates(not_worse=True)
    write_lines(memory.questions, [{**QUESTIONS[0], "query": f"what are the sardines like {i}"} for i in range(12)])
    memory.logs("chats2.jsonl", [("alice", "s3", f"n{i}", f"What are the sardines like, {i}?") for i in range(40)])
    code, _, err = memory.rebuild()
    assert (code, memory.current()) == (1, first)
    assert f"bm25, all: recall@10 is 100.00 below version {first}" in err


def test_questions_that_cannot_be_read_end_a_rebuild_before_any_work(unbuilt):
    unbuilt.gates(["recall@10=80"])
    unbuilt.questions.write_text('{"query": "Who?"}\n')
    code, _, err = unbuilt.rebuild()
    assert code == 1
    assert "mine.jsonl: question 1: not an object with query, namespace and a list of turns" in err
    assert not list((unbuilt.folder / "store" / "imports").glob("*/*"))


@pytest.mark.parametrize(
    ("at_least", "message"),
    [
        (["recall"], "gate.at_least: 'recall' is no floor"),
        (["mrr=10", "recal@10=70"], "gate.at_least: 'recal@10' is no metric of retrieval; there are recall@2,"),
        ([], "gate: the gate lets everything pass: set at_least"),
    ],
)
def test_a_gate_that_asks_nothing_is_refused(unbuilt, at_least, message):
    unbuilt.gates(at_least)
    code, _, err = unbuilt.rebuild()
    assert code == 2
    assert message in err


def test_what_is_forgotten_is_erased_whatever_the_gate_says(memory):
    first = memory.current()
    assert memory.job(forget, memory.config, "--namespace", "acme/bob", "--contains", "plumber")[0] == 0
    memory.gates(["recall@10=100"])
    write_lines(memory.questions, [{**QUESTIONS[2], "query": "Zzz?"}])
    code, result, err = memory.rebuild()
    assert code == 1, err
    assert result["erased"] == 1
    assert memory.current() == first
    write_lines(memory.questions, [{**QUESTIONS[2], "turns": ["m2"]}])
    assert "the version has no turn of any question" in memory.ask()[2]


README_LIKE = [
    {"user": user, "session": "s1", "id": number, "text": text}
    for user, number, text in [
        ("alice", "m1", "I live in Lisbon now."),
        ("alice", "m2", "How is the new flat?"),
        ("bob", "m3", "Peanuts are fine with me."),
        ("bob", "m4", "I am allergic to walnuts."),
    ]
]


def test_the_documented_commands_run(unbuilt, monkeypatch):
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    [gate] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(unbuilt.folder)
    write_lines(unbuilt.folder / "chats.jsonl", README_LIKE)
    assert unbuilt.rebuild()[0] == 0
    for block in blocks:
        done = run(block, unbuilt.folder)
        assert done.returncode == 0, done.stderr
    asked = json.loads((unbuilt.folder / "r.json").read_text())
    assert [row["n"] for row in asked["results"] if row["recipe"] == "bm25"] == [2, 1]
    with unbuilt.config.open("a", encoding="utf-8") as file:
        file.write(gate)
    write_lines(unbuilt.folder / "chats2.jsonl", [{**README_LIKE[1], "id": "m5", "text": "The kitchen is tiny."}])
    code, result, err = unbuilt.rebuild()
    assert code == 0, err
    assert unbuilt.current() == result["version"]
