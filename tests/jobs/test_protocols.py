"""Answers to a benchmark's questions, marked by a protocol, with a scripted model."""

import json

import jsonschema
import pytest

from jobs import evaluate
from tests.jobs.test_evaluate import SCHEMA
from tests.pipelines.scripted_judge import answers_and_marks
from tests.pipelines.scripted_server import ScriptedServer

QUESTIONS = 200
FEW = 20
THINGS = ("kettle", "violin", "lemon tree", "parrot", "canoe", "telescope", "quilt", "bicycle", "accordion", "lantern")
PLACES = ("Odessa", "Bergen", "Graz", "Lisbon", "Hanoi", "Quito", "Malmo", "Turin", "Cork", "Perth")


def locomo(questions=QUESTIONS, samples=4):
    """A file in LoCoMo's shape; of each five questions one is of every category."""
    found = []
    for sample in range(samples):
        sessions = {
            f"session_{number + 1}": [
                {
                    "speaker": ("Ana", "Bo")[turn % 2],
                    "dia_id": f"D{number + 1}:{turn + 1}",
                    "text": f"My {THINGS[turn]} number {number} came from {PLACES[(turn + sample) % 10]} last week.",
                }
                for turn in range(10)
            ]
            for number in range(5)
        }
        dates = {f"{name}_date_time": f"1:56 pm on {place + 1} May, 2023" for place, name in enumerate(sessions)}
        asked = []
        for number in range(questions // samples):
            turn, session, category = number % 10, number // 10, number % 5 + 1
            thing, place = THINGS[turn], PLACES[(turn + sample) % 10]
            question = {
                "question": f"Where did the {thing} number {session} come from?",
                "evidence": [f"D{session + 1}:{turn + 1}"],
                "category": category,
            }
            if category == 5:
                question |= {"question": f"Why does Zoe {session} dislike opera {turn}?", "adversarial_answer": place}
            else:
                question["answer"] = f"{place}; it is far" if category == 3 else place
            asked.append(question)
        found.append({"sample_id": f"conv-{sample}", "conversation": {**dates, **sessions}, "qa": asked})
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The data, and the stores of the first evaluations, which the others read."""
    folder = tmp_path_factory.mktemp("protocols")
    (folder / "locomo.json").write_text(json.dumps(locomo()))
    (folder / "few.json").write_text(json.dumps(locomo(FEW, samples=1)))
    return folder


@pytest.fixture(autouse=True)
def cache(monkeypatch, folder):
    monkeypatch.setattr(evaluate, "cache_folder", lambda name: folder / name)


@pytest.fixture
def ask(job, folder, tmp_path):
    """Evaluates under a protocol; gives the exit code, the result, the rows by question and the errors."""

    def run(url, protocol, *arguments, task="locomo", data=folder / "few.json"):
        out, answers = tmp_path / "r.json", tmp_path / "a.jsonl"
        model = (
            (
                "--set",
                "llm.engine=http",
                "--set",
                "llm.model=scripted",
                "--set",
                f"llm.http.url={url}",
                "--set",
                "llm.stages=[]",
            )
            if url
            else ()
        )
        code, _, err = job(
            evaluate, task, "--data", data, "--protocol", protocol, "--recipes", "bm25", "--context-tokens", "400",
            "--set", "encoder.name=static", *model, "--out", out, "--answers", answers, *arguments,
        )  # fmt: skip
        if code == 2 or not out.exists():
            return code, None, None, " ".join(err.split())
        result = json.loads(out.read_text())
        jsonschema.validate(result, SCHEMA)
        return code, result, [json.loads(line) for line in answers.read_text().splitlines()], " ".join(err.split())

    return run


@pytest.fixture
def server():
    with ScriptedServer(answers_and_marks()) as server:
        yield server


def without_times(value):
    if isinstance(value, dict):
        return {name: without_times(one) for name, one in value.items() if name not in ("seconds", "commit")}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def add_up(result):
    return all(
        row["asked"] == row["answered"] + row["abstained"] + row["failed"] for row in result["answers"]["results"]
    )


@pytest.mark.parametrize(("protocol", "asked"), [("hypermem", 160), ("hage", 200), ("locomo-f1", 200)])
def test_two_runs_over_200_questions_say_the_same_and_every_question_counts(ask, server, folder, protocol, asked):
    server.script = answers_and_marks(unanswered=0.1, unmarked=0.1)
    data = folder / "locomo.json"
    code, first, rows, err = ask(server.url, protocol, data=data)
    assert code == 0, err
    _, second, again, _ = ask(server.url, protocol, data=data)
    assert without_times(first) == without_times(second)
    assert without_times(rows) == without_times(again)
    whole = first["answers"]["results"][0]
    assert (whole["group"], whole["asked"], len(rows)) == ("asked", asked, asked)
    assert add_up(first)
    assert whole["failed"] == sum(row["outcome"] == "failed" for row in rows) > 0
    metric = "f1" if protocol == "locomo-f1" else "judge"
    assert whole[metric] == pytest.approx(sum(row[metric] for row in rows) / asked, abs=1e-3)
    assert all(row[metric] == 0 for row in rows if row["outcome"] == "failed")
    assert (whole["judge_failed"] > 0) == (metric == "judge")


def test_hypermem_leaves_category_5_out_and_judges_three_times(ask, server):
    _, result, rows, _ = ask(server.url, "hypermem")
    assert {row["group"] for row in rows} == set("1234")
    assert [row["group"] for row in result["answers"]["results"]] == ["asked", "1-4", "1", "2", "3", "4"]
    assert {len(row["judgements"]) for row in rows if row["outcome"] == "answered"} == {3}
    bodies = [one.body for one in server.log_of("/v1/chat/completions")]
    kinds = [body["response_format"]["json_schema"]["name"] for body in bodies]
    assert kinds.count("ReasonedReply") == FEW * 4 // 5
    assert kinds.count("Verdict") == 3 * sum(row["outcome"] == "answered" for row in rows)
    assert {body["temperature"] for body in bodies} == {0.0}
    assert result["answers"]["style"] == "steps"


def test_hage_takes_silence_on_category_5_for_right_without_a_judge(ask, server):
    _, _, rows, _ = ask(server.url, "hage")
    silent = [row for row in rows if row["group"] == "5"]
    assert {row["outcome"] for row in silent} == {"abstained"}
    assert {(row["judge"], len(row["judgements"])) for row in silent} == {(100.0, 0)}
    assert {row["judge"] for row in rows} <= {0.0, 20.0, 40.0, 60.0, 80.0, 100.0}


def test_tokens_and_prompts_are_told(ask, server):
    _, result, rows, _ = ask(server.url, "hage")
    log = server.log_of("/v1/chat/completions")
    spent = [one for one in log if one.body["response_format"]["json_schema"]["name"] == "CitedReply"]
    assert sum(row["prompt_tokens"] for row in rows) == sum(one.prompt_tokens for one in spent)
    assert set(result["answers"]["prompts"]) == {"answer_short", "judge_graded"}
    assert result["prompts_sha256"]
    assert result["answers"]["results"][0]["tokens"]["prompt"]["mean"] > 50


def test_another_model_may_judge(ask, server):
    with ScriptedServer(answers_and_marks(), models={"strict": 32_768}) as other:
        judge = ("--set", "judge.engine=http", "--set", "judge.model=strict", "--set", f"judge.http.url={other.url}")
        _, result, _, _ = ask(server.url, "hage", *judge)
        kinds = {one.body["response_format"]["json_schema"]["name"] for one in other.log_of("/v1/chat/completions")}
    assert "Grade" in kinds
    assert "CitedReply" not in kinds
    assert (result["answers"]["model"]["model"], result["answers"]["judge"]["model"]) == ("scripted", "strict")


def test_labels_reach_no_request_for_an_answer(ask, server, folder, tmp_path):
    samples = locomo(FEW, samples=1)
    for sample in samples:
        for question in sample["qa"]:
            question["answer"] = "SECRETLABEL"
    data = tmp_path / "labelled.json"
    data.write_text(json.dumps(samples))
    ask(server.url, "hage", data=data)
    told = {"CitedReply": "", "Grade": ""}
    for one in server.log_of("/v1/chat/completions"):
        kind = one.body["response_format"]["json_schema"]["name"]
        told[kind] = told.get(kind, "") + one.body["messages"][1]["content"]
    assert "SECRETLABEL" not in told["CitedReply"]
    assert "SECRETLABEL" in told["Grade"]


def test_words_are_counted_without_any_model_and_said_to_be_statements(ask):
    code, result, rows, err = ask("", "locomo-f1")
    assert code == 0, err
    assert {row["engine"] for row in rows} == {"extractive"}
    assert result["prompts_sha256"] is None
    assert (
        f"bm25: {FEW} of {FEW} questions are answered with statements word for word, not by a model"
        in result["warnings"]
    )
    assert 0 < result["answers"]["results"][0]["f1"] < 100


def test_what_cannot_be_asked_is_refused_before_any_work(ask, job, folder):
    assert "hypermem takes a judge: set llm.engine=http" in ask("", "hypermem")[3]
    code, _, _, err = ask("", "answer-f1")
    assert (code, "'answer-f1' is no protocol for locomo; there are hypermem, hage, locomo-f1" in err) == (2, True)
    code, _, err = job(evaluate, "locomo", "--data", folder / "locomo.json", "--style", "short")
    assert (code, "--style and --answers: go with --protocol" in " ".join(err.split())) == (2, True)


def test_a_floor_of_answers_can_gate(ask, server):
    code, result, _, err = ask(server.url, "hage", "--min", "asked/judge=99.9")
    assert code == 1
    assert "bm25, asked: judge is" in err
    assert result["gate"]["floors"][0]["group"] == "asked"
