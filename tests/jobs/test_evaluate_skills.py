"""The skill evaluation on logs written for it in each format, and on the real data where that is at hand."""

import json
import os
from pathlib import Path

import jsonschema
import pytest

from hgmem_core.recipes import RecipeError
from hgmem_core.tasks.task import TaskError
from jobs import evaluate
from pipelines import skill_held_out

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "evaluation.schema.json").read_text())
STATIC = ("--set", "encoder.name=static")


def household_games():
    """Six games, of which every second one fails; four are learned from."""
    games = []
    for place, (kind, thing) in enumerate(
        [("heat", "brick"), ("cool", "brick"), ("heat", "bowl"), ("cool", "bowl")] * 2
    ):
        verb, good = ("warm", place % 4 < 2)
        end = f"put {thing} 1 in/on bench 2" if good else "look around"
        lines = [
            f"Your task is to: put a {verb if kind == 'heat' else 'cold'} {thing} {place} on bench.",
            f"> take {thing} 1 from crate 1",
            "Taken.",
            f"> {kind} {thing} 1 with machine 1",
            "Done.",
            f"> {end}",
            "Good.",
        ]
        name = f"{kind}_then_place-Thing{place}-None-Bench-{place}/trial"
        games.append({"name": name, "result": str(good), "traj": "\n".join(lines)})
    return games


def database_runs():
    runs = {}
    for place in range(8):
        reward = 1.0 if place % 2 == 0 else 0.0
        actions = ["SHOW TABLES", f"SELECT name FROM cats WHERE age > {place}" if reward else "SELECT * FROM dogs"]
        runs[str(place)] = {
            "environment": "ic_sql" if place < 7 else "ic_bash",
            "dataset": "./data/dev.json",
            "task_id": place,
            "query": f"Which cats are older than {place}?",
            "turn_history": {"actions": actions, "observations": ["[('cats',)]", "[('Tom',)]"], "rewards": [0, reward]},
            "summary": {"max_reward": reward},
        }
    return runs


def call(name, **arguments):
    called = {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return [{"role": "assistant", "content": None, "tool_calls": [called]}, {"role": "tool", "content": "{}"}]


def desk_talks():
    talks = []
    for trial in range(2):
        for place in range(4):
            good = (place + trial) % 2 == 0
            wish = ("cancel", "change")[place % 2]
            gold = [{"name": "get_seat", "kwargs": {}}, {"name": f"{wish}_seat", "kwargs": {"seat": "gold-9"}}]
            talk = [{"role": "system", "content": "Be brief."}]
            talk.append({"role": "user", "content": f"Please {wish} seat number {place} for me."})
            talk += call("get_seat", seat=place) + call(f"{wish}_seat" if good else "transfer", seat=place)
            info = {"task": {"actions": gold, "instruction": "You are Ana."}}
            talks.append({"task_id": place, "trial": trial, "reward": float(good), "info": info, "traj": talk})
    return talks


def own_runs():
    return [
        {
            "task": f"Restart {unit} number {place}",
            "task_id": f"{unit}-{place}",
            "family": unit,
            "steps": [f"stop({unit}=1)", f"start({unit}=1)"] if place % 2 == 0 else ["wait 5"],
            "outcome": place % 2 == 0,
        }
        for place in range(4)
        for unit in ("printer", "router")
    ]


def logs():
    return {
        "alfworld/games.jsonl": household_games(),
        "intercode/runs.json": database_runs(),
        "intercode/sql_task_id_to_db.json": {str(place): "cats" for place in range(8)},
        "tau_bench_airline/talks.json": desk_talks(),
        "trajectories/runs.jsonl": own_runs(),
    }


def written(folder, content):
    for name, rows in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = "\n".join(map(json.dumps, rows)) if name.endswith(".jsonl") else json.dumps(rows)
        path.write_text(lines, encoding="utf-8")
    return folder


def evaluated(tmp_path, folder, *arguments):
    out = tmp_path / "r.json"
    assert evaluate.main(["skills", "--data", str(folder), "--out", str(out), *arguments]) == 0
    result = json.loads(out.read_text())
    jsonschema.validate(result, SCHEMA)
    return result


def test_each_format_is_a_dataset_with_recipes_beside_controls(tmp_path, capsys):
    folder = written(tmp_path / "data", logs())
    result = evaluated(tmp_path, folder, "--recipes", "skills/full,skills/dense,skills/bm25", *STATIC)
    assert list(result["datasets"]) == ["alfworld", "intercode/ic_sql", "tau_bench_airline", "trajectories"]
    assert result["warnings"] == ["intercode/ic_bash: no later task that an agent solved; nothing is measured"]
    controls = ["dense, filled", "lessons, filled", "lessons, covering", "skills/full, without lessons"]
    controls += ["random", "random, with lessons"]
    systems = [row["system"] for row in result["results"] if row["dataset"] == "tau_bench_airline"]
    assert systems == ["skills/full", "skills/dense", "skills/bm25", *controls]
    counts = result["datasets"]["tau_bench_airline"]
    assert [counts[name] for name in ("runs", "learned_tasks", "learned_runs", "held_out_runs", "solved_runs")] == [
        8, 2, 4, 4, 2,
    ]  # fmt: skip
    assert all(row["context_tokens"] <= 500 for row in result["results"])
    told = {(row["dataset"], row["system"]): row["coverage@500t"] for row in result["results"]}
    assert told["trajectories", "skills/full"] == 100
    assert "coverage@500t" in capsys.readouterr().out
    assert evaluated(tmp_path, folder, "--recipes", "skills/full,skills/dense,skills/bm25", *STATIC) == result


def test_differences_and_evolution_are_beside_the_first_recipe_and_chance(tmp_path):
    folder = written(tmp_path / "data", {"trajectories/runs.jsonl": own_runs()})
    result = evaluated(tmp_path, folder, "--recipes", "skills/dense,skills/full", "--evolve", "2", *STATIC)
    assert {row["baseline"] for row in result["skill_differences"]} == {"skills/dense"}
    [evolution] = result["evolution"]
    assert evolution["cycles"] == 2
    assert evolution["skills"] * evolution["removed_share"] == pytest.approx(
        evolution["pruned"] + evolution["merged_away"], abs=0.01
    )
    assert evaluated(tmp_path, folder, "--recipes", "skills/full", "--evolve", "0", *STATIC)["evolution"] == []


@pytest.fixture
def retrieved(monkeypatch):
    """What each search found, as texts, in the order of searches."""
    found = []
    search = skill_held_out.search_many

    def recorded(graph, queries, recipe):
        answers = search(graph, queries, recipe)
        texts = graph.tables.skills.column("text").to_pylist()
        for answer in answers:
            lessons = [graph.lessons[run] for run in answer.trajectories.tolist()]
            found.append((recipe.name, [texts[skill] for skill in answer.skills.tolist()], lessons))
        return answers

    monkeypatch.setattr(skill_held_out, "search_many", recorded)
    return found


def alter_outcomes(content):
    content["alfworld/games.jsonl"][-1]["result"] = "True"
    content["intercode/runs.json"]["5"]["summary"]["max_reward"] = 1.0
    for talk in content["tau_bench_airline/talks.json"]:
        if talk["task_id"] == 3:
            talk["reward"] = 1.0
    content["trajectories/runs.jsonl"][-1]["outcome"] = True


def alter_gold(content):
    for talk in content["tau_bench_airline/talks.json"]:
        talk["info"] = {"task": {"actions": [{"name": "upgrade_seat"}], "instruction": "You are Bo."}}
    for run in content["trajectories/runs.jsonl"]:
        run["family"] = "kettle"
    for run in content["intercode/runs.json"].values():
        run["turn_history"]["rewards"] = [1, 1]
    content["intercode/sql_task_id_to_db.json"] = {}


def alter_held_out_actions(content):
    for talk in content["tau_bench_airline/talks.json"]:
        if talk["task_id"] == 3:
            talk["traj"][2:] = call("secret", seat=1)
    content["alfworld/games.jsonl"][-1]["traj"] += "\n> smash window 1"
    content["trajectories/runs.jsonl"][-1]["steps"] = ["secret()"]


@pytest.mark.parametrize("alter", [alter_outcomes, alter_gold, alter_held_out_actions])
def test_no_label_changes_what_is_retrieved(tmp_path, retrieved, alter):
    content = logs()
    del content["intercode/runs.json"]["7"]
    arguments = ("--recipes", "skills/full,skills/bm25", "--evolve", "0", *STATIC)
    first = evaluated(tmp_path, written(tmp_path / "data", content), *arguments)
    before = list(retrieved)
    assert any("`" in text for _, texts, _ in before for text in texts)
    retrieved.clear()
    alter(content)
    second = evaluated(tmp_path, written(tmp_path / "data", content), *arguments)
    assert retrieved == before
    assert second["results"] != first["results"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({}, "no run of an agent"),
        ({"alfworld/games.jsonl": [{"name": "x", "result": True, "traj": 3}]}, "no run of an agent"),
        ({"trajectories/runs.jsonl": own_runs()[:1]}, "trajectories: no later task that an agent solved"),
        ({**logs(), "intercode/sql_task_id_to_db.json": ["cats"]}, r"sql_task_id_to_db\.json is no object"),
    ],
)
def test_a_folder_without_what_it_takes_is_refused(tmp_path, content, fault):
    folder = written(tmp_path, content)
    with pytest.raises(TaskError, match=fault):
        evaluate.main(["skills", "--data", str(folder), "--recipes", "skills/full", *STATIC])


def test_an_unknown_recipe_is_named_before_anything_is_read(tmp_path):
    with pytest.raises(RecipeError, match="skills/fall"):
        evaluate.main(["skills", "--data", str(tmp_path), "--recipes", "skills/fall", *STATIC])


@pytest.mark.skipif("HGMEM_DATA" not in os.environ, reason="HGMEM_DATA names no folder with the real data")
def test_the_full_recipe_covers_more_than_nearest_skills_and_chance_on_real_logs(tmp_path):
    """And a cycle of evolution takes a fifth of the skills, at clearly less loss than chance by skills alone."""
    data = Path(os.environ["HGMEM_DATA"]) / "trajectories"
    result = evaluated(tmp_path, data, "--recipes", "skills/full,skills/covering,skills/dense")
    wins = {
        other: {
            row["dataset"]
            for row in result["skill_differences"]
            if row["metric"] == "coverage@500t" and row["system"] == other and row["ci95"][1] < 0
        }
        for other in ("skills/dense", "random")
    }
    assert {"alfworld", "intercode/ic_sql", "tau_bench_airline"} <= wins["skills/dense"]
    assert {"alfworld", "intercode/ic_sql"} <= wins["random"]
    more, less = (
        {
            row["dataset"]
            for row in result["skill_differences"]
            if row["metric"] == "coverage@500t" and row["system"] == "skills/covering" and sign * row["ci95"][end] > 0
        }
        for sign, end in ((1, 0), (-1, 1))
    )
    assert {"intercode/ic_sql", "tau_bench_airline"} <= more
    assert less == set()
    for row in result["evolution"]:
        if row["dataset"] != "intercode/ic_bash":
            assert row["removed_share"] >= 0.2
            assert row["coverage@500t"]["without_lessons"]["ci95"][0] > 0
