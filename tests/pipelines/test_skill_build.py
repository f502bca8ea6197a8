"""Runs of agents, from logs to a version that is asked: imported, learned from, indexed, and kept apart from turns."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from hgmem_core.chat import Reply
from hgmem_core.model_config import PriceConfig
from hgmem_core.schemas import TRAJECTORY
from hgmem_core.skill_index import NODE_TABLES, SKILL_TABLES
from hgmem_core.skill_recipes import SKILL_RECIPES
from hgmem_core.stage_config import SkillsConfig
from pipelines import skill_stages
from pipelines.encoders import open_encoder
from pipelines.import_stage import ImportFailed
from pipelines.ledger import ledger
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from pipelines.retriever import Retriever
from pipelines.skill_memory import skill_memory
from pipelines.static import StaticEncoder
from pipelines.store import Store, StoreError
from pipelines.versions import SKILL_INDEX_FILES, VersionError, open_version
from tests.pipelines.llm_marks import WORDPIECE
from tests.pipelines.logs import COLUMNS, NOW, config_of, files_of, import_only, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_config, runs_input, write_runs
from tests.pipelines.scripted_model import ScriptedChat
from tests.pipelines.scripted_server import ScriptedServer
from tests.pipelines.test_damage import LATER, damage
from tests.pipelines.test_incremental import ABOUT, manifest_of

TASK = "Put a hot fork on the table"
USERS = tuple(f"user{number:02d}" for number in range(8))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    return run(runs_config(folder / "store", write_runs(folder / "runs.jsonl", runs())))


@pytest.fixture(scope="module")
def retriever(built):
    return Retriever(open_version(built.store), StaticEncoder())


def merged(store):
    """Every trajectory of a store of one version."""
    return [row for path in store.root.glob("outputs/merge_runs/*/*s.parquet") for row in read_runs(path)]


def read_runs(path):
    return pq.read_table(path).to_pylist() if path.name == "trajectories.parquet" else []


def outcomes_of(store, stage):
    found = [pq.read_table(path).to_pylist() for path in store.root.glob(f"outputs/{stage}/*/outcomes*.parquet")]
    return {row["row_id"]: (row["outcome"], row["reason"]) for table in found for row in table}


# Import.


def test_every_run_of_every_format_is_imported_and_accounted_for(tmp_path):
    call = {"id": "1", "type": "function", "function": {"name": "cancel_order", "arguments": '{"id": "W1"}'}}
    airline = [
        {"role": "system", "content": "Be polite."},
        {"role": "user", "content": "Cancel my order, please."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "cancelled"},
    ]
    (tmp_path / "airline.json").write_text(json.dumps([{"task_id": 3, "reward": 1.0, "traj": airline}]))
    turns = {"actions": ["SHOW TABLES", "SELECT 1"], "observations": ["pets", "1"], "rewards": [0.0, 1.0]}
    shell = {"7": {"query": "How many pets are there?", "turn_history": turns, "summary": {"max_reward": 1.0}}}
    (tmp_path / "shell.json").write_text(json.dumps(shell))
    log = write_runs(tmp_path / "runs.jsonl", [*runs(("ana",)), {"user": "ana", "task": "Wait", "steps": []}])
    more = [
        runs_input(tmp_path / "airline.json", format="tau-bench", namespace="acme/desk"),
        runs_input(tmp_path / "shell.json", format="intercode", namespace="acme/desk"),
    ]
    done = run(runs_config(tmp_path / "store", log, more=more))
    assert done.imported.outcomes == {"ok": 14, "partial": 0, "empty": 1, "fallback": 0, "rejected": 0}
    assert (done.imported.trajectories, done.imported.turns) == (14, 0)
    assert (done.built.trajectories, done.built.namespaces, done.built.turns) == (14, 2, 0)
    assert {row["namespace"] for row in merged(done.store)} == {"acme/ana", "acme/desk"}
    told = outcomes_of(done.store, "import")
    assert len(told) == 15
    assert told["runs.jsonl:13"] == ("empty", "the run has no steps")


def test_long_texts_are_cut_and_the_run_says_so(tmp_path):
    [one, *_] = runs(("ana",))
    one["steps"][0]["observation"] = "x" * 10_000_000
    log = write_runs(tmp_path / "runs.jsonl", [one])
    done = run(runs_config(tmp_path / "store", log, imports={"max_step_chars": 1000}))
    [row] = merged(done.store)
    assert len(row["steps"][0]["observation"]) < 1_100
    assert row["steps"][1]["observation"] == "You did 1."
    assert outcomes_of(done.store, "import")["runs.jsonl:1"] == (
        "partial",
        "1 texts of more than 1,000 characters cut to their ends",
    )


def test_equal_runs_of_a_file_stay_two_and_a_file_imported_again_adds_none(tmp_path):
    same = [{name: value for name, value in one.items() if name != "id"} for one in [runs(("ana",))[0]] * 2]
    log = write_runs(tmp_path / "runs.jsonl", same)
    done = run(runs_config(tmp_path / "store", log))
    assert done.built.trajectories == 2
    (tmp_path / "copy").mkdir()
    again = run(runs_config(tmp_path / "store", log, write_runs(tmp_path / "copy" / "more.jsonl", [*same, same[0]])))
    assert again.built.trajectories == 3


def test_the_latest_import_of_a_run_wins(tmp_path):
    first, second = runs(("ana",)), runs(("ana",))[:1]
    second[0]["outcome"] = "failure"
    logs = [write_runs(tmp_path / "a.jsonl", first), write_runs(tmp_path / "b.jsonl", second)]
    run(runs_config(tmp_path / "store", logs[0]))
    done = run(runs_config(tmp_path / "store", *logs))
    assert done.built.trajectories == len(first)
    index = open_version(done.store).open_skills(open_version(done.store).bucket_of("acme/ana"))
    rows = index.open("acme/ana").tables.trajectories.to_pylist()
    assert {row["source_id"]: row["outcome"] for row in rows}[first[0]["id"]] == "failure"
    assert sum(row["outcome"] == "failure" for row in rows) == len(first) // 2 + 1


def test_the_limit_of_steps_counts_for_runs_and_that_of_turns_for_messages(tmp_path):
    logs = [write_runs(tmp_path / "runs.jsonl", runs())]
    chat = {"format": "jsonl", "paths": [str(write_jsonl(tmp_path / "chat.jsonl", rows()))], "namespace": "acme/{user}"}
    run(runs_config(tmp_path / "store", *logs, more=[chat]))
    again = {"max_step_chars": 5_000}
    done = run(runs_config(tmp_path / "store", *logs, more=[chat], imports=again))
    assert (done.imported.files, done.imported.known_files) == (1, 1)
    done = run(runs_config(tmp_path / "store", *logs, more=[chat], imports={**again, "max_turn_chars": 5_000}))
    assert (done.imported.files, done.imported.known_files, done.imported.turns) == (1, 1, 36)


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"outcome": "solved"}, "ok"),
        ({"outcome": 0.3}, "ok"),
        ({"outcome": None}, "partial"),
        ({"outcome": "perhaps"}, "partial"),
        ({"steps": ["look", {"action": {"type": "weird", "call": 7}}]}, "partial"),
        ({"steps": None}, "empty"),
        ({"steps": "look"}, "rejected"),
        ({"task": None}, "rejected"),
    ],
)
def test_bad_input_is_accounted_for(tmp_path, changes, outcome):
    log = write_runs(tmp_path / "runs.jsonl", [*runs(), {**runs()[0], "id": "odd", **changes}])
    done = run(runs_config(tmp_path / "store", log, imports={"max_reject_rate": 0.1}))
    assert done.imported.outcomes == {"ok": 24, "partial": 0, "empty": 0, "fallback": 0, "rejected": 0} | {
        outcome: 24 * (outcome == "ok") + 1
    }


def test_one_run_alone_is_a_memory(tmp_path):
    done = run(runs_config(tmp_path / "store", write_runs(tmp_path / "runs.jsonl", runs(("ana",))[:1])))
    found = Retriever(open_version(done.store), StaticEncoder()).skills("acme/ana", TASK)
    assert [lesson.source_id for lesson in found.lessons] == ["heat-egg"]
    assert found.skills


def test_a_log_in_which_nothing_can_be_used_says_so(tmp_path):
    log = write_runs(tmp_path / "runs.jsonl", [{"user": "ana", "task": "Wait", "steps": []}])
    with pytest.raises(StoreError, match=r"no run of an agent had a step"):
        run(runs_config(tmp_path / "store", log))
    broken = write_runs(tmp_path / "broken.jsonl", [{"user": "ana", "steps": []}])
    with pytest.raises(ImportFailed, match="1 of 1 rows were rejected"):
        run(runs_config(tmp_path / "other", broken))


# Build.


@pytest.mark.parametrize("namespace", ["acme/ana", "acme/bo"])
def test_a_build_gives_what_its_runs_alone_teach(built, namespace):
    trajectories = [row for row in merged(built.store) if row["namespace"] == namespace]
    table = pq.read_table(next(built.store.root.glob("outputs/merge_runs/*/trajectories.parquet")))
    alone = table.schema.empty_table().from_pylist(trajectories, schema=TRAJECTORY.arrow)
    expected = skill_memory(alone, StaticEncoder(), "english", 32)
    version = open_version(built.store)
    graph = version.open_skills(version.bucket_of(namespace)).open(namespace)
    for name in SKILL_TABLES:
        rows = getattr(expected.tables, name).to_pylist()
        for row in rows:
            row.pop("steps", None)
        assert getattr(graph.tables, name).to_pylist() == rows, name
    for name in NODE_TABLES:
        assert np.allclose(getattr(graph.vectors, name), getattr(expected.vectors, name), atol=1e-6), name


def test_every_row_of_every_stage_is_accounted_for(built):
    told = built.built.report.outcomes
    skills, mentions = built.built.skills, sum(told["dedup"].values())
    assert (
        told["merge_runs"]
        == told["decompose"]
        == told["skills"]
        == told["encode_runs"]
        == told["index_skills"]
        == {"ok": 24}
    )
    assert told["dedup"] == {"ok": skills, "empty": mentions - skills}
    assert told["utility"] == {"ok": 24 + skills + sum(told["encode_subtasks"].values())}
    manifest = manifest_of(built)
    assert manifest["outcomes"] == told
    assert {name: manifest["skills"][name] for name in ("trajectories", "skills", "namespaces")} == {
        "trajectories": 24,
        "skills": skills,
        "namespaces": 2,
    }
    assert manifest["skills"]["recipes"] == sorted(SKILL_RECIPES)


def test_a_second_rebuild_makes_nothing(tmp_path):
    config = runs_config(tmp_path / "store", write_runs(tmp_path / "runs.jsonl", runs()))
    first = run(config)
    before = files_of(tmp_path / "store")
    second = run(config, LATER)
    assert second.built.report.made.total() == 0
    assert (second.built.version, second.built.is_new) == (first.built.version, False)
    assert files_of(tmp_path / "store") == before


def test_turns_and_runs_of_one_namespace_do_not_touch_each_other(tmp_path):
    chat = write_jsonl(tmp_path / "chat.jsonl", rows())
    log = write_runs(tmp_path / "runs.jsonl", runs())
    with_columns = {"format": "jsonl", "paths": [str(chat)], "namespace": "acme/{user}", "columns": COLUMNS}
    both = run(runs_config(tmp_path / "both", log, more=[with_columns]))
    alone = {"chat": run(config_of(tmp_path / "chat", chat)), "runs": run(runs_config(tmp_path / "runs", log))}
    assert (both.built.turns, both.built.trajectories, both.built.namespaces) == (36, 24, 3)
    for name, index in (("chat", manifest_of(alone["chat"])), ("runs", manifest_of(alone["runs"])["skills"])):
        own = manifest_of(both) if name == "chat" else manifest_of(both)["skills"]
        assert own["buckets"] == index["buckets"]
        for about in index["buckets"].values():
            for file in about["files"]:
                path = f"{about['folder']}/{file}"
                assert (tmp_path / "both" / path).read_bytes() == (tmp_path / name / path).read_bytes()
    assert "skills" not in manifest_of(alone["chat"])
    assert not list((tmp_path / "chat").glob("outputs/*skills*"))
    retriever = Retriever(open_version(both.store), StaticEncoder())
    assert retriever.search("acme/ana", "the red bicycle", "bm25").hits
    assert retriever.skills("acme/ana", TASK).skills
    assert retriever.skills("acme/chen", TASK).reason == "unknown_namespace"


def test_what_makes_one_skill_of_two_is_a_setting(tmp_path):
    log = write_runs(tmp_path / "runs.jsonl", runs())
    strict = run(runs_config(tmp_path / "store", log, skills={"same_from": 1.0}))
    loose = run(runs_config(tmp_path / "store", log, skills={"same_from": 0.0}))
    assert loose.built.skills < strict.built.skills
    assert loose.built.version != strict.built.version
    assert loose.built.report.made["encode_skills"] == 0


# A language model.

MODEL = {"engine": "http", "model": "scripted", "tokenizer": str(WORDPIECE), "stages": ["decompose", "skills"]}


def build_with(chat, root, *logs, **llm):
    settings = runs_config(root, *logs, buckets=1, llm={**MODEL, **llm})
    return rebuild(settings, StaticEncoder(), NOW, Silent(), chat)


def table_of(store, stage, name):
    [path] = store.root.glob(f"outputs/{stage}/*/{name}.parquet")
    return pq.read_table(path).to_pylist()


def test_a_model_plans_tasks_and_distils_runs(tmp_path):
    chat = ScriptedChat()
    log = write_runs(tmp_path / "runs.jsonl", runs())
    done = build_with(chat, tmp_path / "store", log)
    assert {request.stage for request in chat.asked} == {"decompose", "skills"}
    assert all("-> You did 0." in request.user for request in chat.asked if request.stage == "skills")
    assert {row["text"] for row in table_of(done.store, "decompose", "subtasks")} == {
        "Find the thing: Look where it may be."
    }
    told = done.built.report
    assert told.outcomes["decompose"] == told.outcomes["skills"] == {"ok": 24}
    assert done.built.skills == 2  # the same one for each of two namespaces
    found = Retriever(open_version(done.store), StaticEncoder()).skills("acme/ana", TASK)
    assert [skill.name for skill in found.skills] == ["Take it there"]
    assert {lesson.text for lesson in found.lessons} == {"It was decided by whether the thing came to its place."}
    again = ScriptedChat()
    build_with(again, tmp_path / "store", log)
    assert again.asked == []
    sums = {row["stage"]: row for row in ledger(done.store, PriceConfig()).to_dicts()}
    assert sums["skills"]["rows"] == sums["skills"]["passes"] == 24


def test_where_a_model_does_not_answer_the_embedded_engine_stands_in(tmp_path):
    def spoil(request, text):
        is_first = request.namespace == "acme/ana" and "hot egg" in request.user
        return Reply("I'd rather not.", None, "stop", 5, 3) if is_first else None

    log = write_runs(tmp_path / "runs.jsonl", runs())
    done = build_with(ScriptedChat(spoil=spoil), tmp_path / "store", log)
    alone = run(runs_config(tmp_path / "alone", log, buckets=1))
    for stage in ("decompose", "skills"):
        assert done.built.report.outcomes[stage] == {"fallback": 1, "ok": 23}
        rejects = table_of(done.store, stage, "rejects")
        assert [row["raw"] for row in rejects] == ["I'd rather not."] * 3
    [fell] = [row_id for row_id, (outcome, _) in outcomes_of(done.store, "skills").items() if outcome == "fallback"]
    for stage, name in (("decompose", "subtasks"), ("skills", "lessons"), ("skills", "mentions")):
        own, embedded = (
            [{**row, "position": None} for row in table_of(one.store, stage, name) if row["trajectory_id"] == fell]
            for one in (done, alone)
        )
        assert own == embedded != []


def test_a_model_that_takes_no_part_changes_nothing(tmp_path):
    log = write_runs(tmp_path / "runs.jsonl", runs())
    chat = ScriptedChat()
    done = build_with(chat, tmp_path / "store", log, stages=["segment"])
    assert chat.asked == []
    assert done.built.version == run(runs_config(tmp_path / "alone", log, buckets=1)).built.version


# Queries.


@pytest.mark.parametrize("recipe", SKILL_RECIPES)
def test_every_recipe_finds_skills_and_says_where_they_are_from(retriever, recipe):
    found = retriever.skills("acme/ana", TASK, SkillsConfig(recipe=recipe))
    assert found.recipe == recipe
    assert found.reason is None
    best = found.skills[0]
    assert best.polarity == "positive"
    assert "put in/on" in best.name
    assert {one.polarity for one in found.mistakes} <= {"negative"}
    assert sorted(one.rank for one in [*found.skills, *found.mistakes]) == list(
        range(1, len(found.skills) + len(found.mistakes) + 1)
    )
    assert {"heat-egg", "heat-pan"} <= set(best.taught_by)
    assert (best.shown, best.succeeded) == (4, 4)
    assert 0.5 < best.utility <= 1
    assert best.text in found.context
    json.dumps(found.as_dict())


def test_skills_that_are_not_of_the_task_rank_behind(retriever):
    found = retriever.skills("acme/ana", "Look at the egg under the lamp", SkillsConfig(recipe="skills/bm25"))
    weights = [skill.weight for skill in sorted([*found.skills, *found.mistakes], key=lambda skill: skill.rank)]
    assert weights == sorted(weights, reverse=True)


def test_numbers_of_the_settings_win_over_those_of_the_recipe(retriever):
    found = retriever.skills("acme/ana", TASK, SkillsConfig(trajectories=1, subtasks=1, skills=1))
    assert len([*found.skills, *found.mistakes]) == 1
    assert len(found.lessons) <= 2
    alone = retriever.skills("acme/ana", TASK, SkillsConfig(recipe="skills/dense", trajectories=3))
    assert alone.lessons == []


def test_a_context_keeps_to_its_budget_and_says_what_it_left_out(retriever):
    wide = retriever.skills("acme/ana", TASK, SkillsConfig(context_tokens=10_000))
    assert wide.left_out == 0
    assert all(skill.in_context for skill in [*wide.skills, *wide.mistakes])
    narrow = retriever.skills("acme/ana", TASK, SkillsConfig(context_tokens=100))
    assert 0 < narrow.context_tokens <= 100 < wide.context_tokens
    assert narrow.left_out > 0
    for skill in [*narrow.skills, *narrow.mistakes]:
        assert skill.in_context == (skill.text in narrow.context)


def test_words_of_one_namespace_do_not_weigh_in_another(tmp_path, retriever):
    settings = SkillsConfig(recipe="skills/bm25")
    log = write_runs(tmp_path / "runs.jsonl", runs(("ana",)))
    alone = Retriever(open_version(run(runs_config(tmp_path / "store", log)).store), StaticEncoder())
    one, other = (asked.skills("acme/ana", TASK, settings) for asked in (alone, retriever))
    assert one.skills == other.skills
    assert one.mistakes == other.mistakes


def test_nothing_to_find_has_a_reason(retriever):
    assert retriever.skills("acme/nobody", TASK).reason == "unknown_namespace"
    assert retriever.skills("acme/ana", "").reason == "no_query_terms"
    assert retriever.skills("acme/ana", "xylophone", SkillsConfig(recipe="skills/bm25")).reason == "no_match"
    with pytest.raises(ValueError, match="the namespace is empty"):
        retriever.skills("", TASK)


def test_tasks_and_plans_are_queries_to_an_encoder_that_tells_queries_from_documents(tmp_path):
    with ScriptedServer(models={"scripted": None}) as server:
        http = {"url": server.url, "retries": 1, "give_up_minutes": 0.0}
        encoder = {"name": "http", "model": "scripted", "http": http}
        prefixes = {"query_prefix": "query: ", "document_prefix": "passage: "}
        log = write_runs(tmp_path / "runs.jsonl", runs(("ana",))[:4])
        run(runs_config(tmp_path / "store", log, encoder={**encoder, **prefixes}))
        sent = [text for request in server.log_of("/v1/embeddings")[1:] for text in request.body["input"]]
    task = "Put a hot egg on the table for ana."
    step = task.removesuffix(".")  # the whole plan is this one
    counts = {text: sent.count(text) for text in sent if text.endswith((task, step))}
    assert counts == {f"query: {task}": 1, f"query: {step}": 1, f"passage: {step}": 1}


# Several namespaces.


def ids(found):
    return [one.skill_id for one in sorted([*found.skills, *found.mistakes], key=lambda one: one.rank)]


def test_one_namespace_in_a_list_answers_as_it_does_alone(retriever):
    alone, listed = (retriever.skills(asked, TASK) for asked in ("acme/ana", ["acme/ana", "acme/ana"]))
    assert {**listed.as_dict(), "timings_ms": {}} == {**alone.as_dict(), "timings_ms": {}}
    assert alone.namespaces == ["acme/ana"]


def test_several_namespaces_take_turns_and_say_whose_each_thing_is(retriever):
    settings = SkillsConfig(recipe="skills/full", context_tokens=300)
    ana, bo = (retriever.skills(f"acme/{user}", TASK, settings) for user in ("ana", "bo"))
    both = retriever.skills(["acme/bo", "acme/ana"], TASK, settings)
    assert both.namespaces == ["acme/bo", "acme/ana"]
    assert ids(both) == [ids(bo)[0], ids(ana)[0], ids(bo)[1], ids(ana)[1], ids(bo)[2]]
    whose = {skill.skill_id: skill.namespace for skill in [*both.skills, *both.mistakes]}
    assert whose == {name: "acme/ana" if name in ids(ana) else "acme/bo" for name in whose}
    for field in ("lessons", "subtasks"):
        given = [getattr(one, field) for one in (bo, ana)]
        found = [(one.namespace, one.text) for one in getattr(both, field)]
        assert len(found) == len(given[0]) + len(given[1])
        assert found[:2] == [("acme/bo", given[0][0].text), ("acme/ana", given[1][0].text)]
        assert [one.rank for one in getattr(both, field)] == list(range(1, len(found) + 1))
    assert both.context_tokens <= 300


def test_a_library_is_asked_beside_the_namespace_and_no_other_is(retriever):
    settings = SkillsConfig(libraries=["acme/bo"])
    alone = retriever.skills("acme/ana", TASK, settings)
    assert alone.namespaces == ["acme/ana"]  # whoever asks says which libraries may be read
    with_library = retriever.skills("acme/ana", TASK, settings, settings.libraries)
    assert with_library.namespaces == ["acme/ana", "acme/bo"]
    assert {skill.namespace for skill in with_library.skills} == {"acme/ana", "acme/bo"}
    assert retriever.skills("acme/ana", TASK, settings, ["acme/ana", "acme"]).namespaces == ["acme/ana"]
    assert retriever.skills("acme/chen", TASK, settings, ["acme/bo"]).namespaces == ["acme/bo"]


def test_eight_namespaces_at_most_are_asked(retriever):
    asked = ["acme/ana", *(f"acme/nobody{number}" for number in range(7))]
    found = retriever.skills(asked, TASK)
    assert ids(found) == ids(retriever.skills("acme/ana", TASK))
    for wrong in ([], [*asked, "acme/one-more"]):
        with pytest.raises(ValueError, match=f"{len(wrong)} namespaces are asked for skills; name 1 to 8"):
            retriever.skills(wrong, TASK)
    with pytest.raises(ValueError, match="the namespace is empty"):
        retriever.skills("acme/ana", TASK, libraries=[""])


def test_an_answer_has_the_plan_and_the_steps_of_past_runs_that_are_like_it(retriever):
    found = retriever.skills("acme/ana", "Put a hot fork on the table and look at the lamp.")
    assert len(found.plan) == 2
    stored = retriever.version.open_skills(retriever.version.bucket_of("acme/ana")).open("acme/ana").tables.subtasks
    steps = dict(zip(*(stored.column(name).to_pylist() for name in ("subtask_id", "text")), strict=True))
    assert {one.subtask_id: one.text for one in found.subtasks}.items() <= steps.items()
    cosines = [one.cosine for one in found.subtasks]
    assert cosines == sorted(cosines, reverse=True)
    assert len(cosines) == 5
    assert all(one.shown == 1 for one in found.subtasks)
    assert retriever.skills("acme/ana", TASK, SkillsConfig(recipe="skills/dense")).subtasks == []


# Growth.

CHANGES = {
    "a run that went on": [{**runs(("user03",))[0], "outcome": "failure"}],
    "new runs": [{**one, "id": f"new-{one['id']}"} for one in runs(("user02",), ("fork",))],
    "a new namespace": runs(("zoe",)),
    "the same again": runs(("user05",)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_log_gives_what_a_full_build_gives(tmp_path, change):
    first, second = write_runs(tmp_path / "a.jsonl", runs(USERS)), write_runs(tmp_path / "b.jsonl", CHANGES[change])
    run(runs_config(tmp_path / "grown", first))
    grown = run(runs_config(tmp_path / "grown", first, second))
    import_only(runs_config(tmp_path / "whole", first))
    whole = run(runs_config(tmp_path / "whole", first, second))
    assert whole.built.version == grown.built.version
    assert skill_outputs(whole) == skill_outputs(grown)
    assert whole.built.report.outcomes == grown.built.report.outcomes


def skill_outputs(done):
    """Every table and index of runs that a version is made of, as bytes."""
    found = {}
    for bucket, about in manifest_of(done)["skills"]["buckets"].items():
        index = done.store.find(done.store.root / about["folder"])
        for stage, identity in {**index.manifest["made_from"], "index_skills": index.identity}.items():
            paths = done.store.output_folder(stage, identity).iterdir()
            kept = (path for path in paths if path.name not in ABOUT)
            found |= {f"{bucket}/{stage}/{path.name}": path.read_bytes() for path in kept}
    return found


def test_only_changed_namespaces_are_computed(tmp_path, monkeypatch):
    first = write_runs(tmp_path / "a.jsonl", runs(USERS))
    second = write_runs(tmp_path / "b.jsonl", CHANGES["a run that went on"] + CHANGES["a new namespace"])
    run(runs_config(tmp_path / "store", first, buckets=2))
    computed = {}
    for name in ("merge_runs", "teach", "dedup_skills", "utility_of_members", "build_skill_index"):
        original = getattr(skill_stages, name)

        def counted(*arguments, name=name, original=original):
            tables = arguments[0] if name == "merge_runs" else [getattr(arguments[0], "trajectories", arguments[0])]
            found = {space for table in tables for space in table.column("namespace").to_pylist()}
            computed[name] = computed.get(name, set()) | found
            return original(*arguments)

        monkeypatch.setattr(skill_stages, name, counted)
    run(runs_config(tmp_path / "store", first, second, buckets=2))
    assert computed.keys() == {"merge_runs", "teach", "dedup_skills", "utility_of_members", "build_skill_index"}
    assert all(names == {"acme/user03", "acme/zoe"} for names in computed.values())


def test_new_turns_leave_the_skills_as_they_are(tmp_path):
    log = write_runs(tmp_path / "runs.jsonl", runs())
    first = run(runs_config(tmp_path / "store", log))
    chat = {"format": "jsonl", "paths": [str(write_jsonl(tmp_path / "chat.jsonl", rows()))], "namespace": "acme/{user}"}
    done = run(runs_config(tmp_path / "store", log, more=[chat]))
    assert done.built.report.made["index"] > 0 == done.built.report.made["index_skills"]
    assert manifest_of(done)["skills"] == manifest_of(first)["skills"]
    assert done.built.version != first.built.version


# Damage.


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original")
    run(runs_config(folder / "store", write_runs(folder / "runs.jsonl", runs()), buckets=1))
    return folder


@pytest.fixture
def config(original, tmp_path):
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return runs_config(tmp_path / "store", tmp_path / "runs.jsonl", buckets=1)


@pytest.mark.parametrize("name", SKILL_INDEX_FILES)
@pytest.mark.parametrize("how", ["truncated", "flipped", "missing"])
def test_a_damaged_skill_file_is_refused_by_name_and_mended(config, name, how):
    store = Store.open(config.store.root)
    before = files_of(store.root)
    [path] = store.root.glob(f"outputs/index_skills/*/{name}")
    damage(path, how)
    with pytest.raises(VersionError, match=name.replace(".", r"\.")):
        Retriever(open_version(store), open_encoder(config.encoder)).skills("acme/ana", TASK)
    with pytest.raises(VersionError, match=name.replace(".", r"\.")):
        list(open_version(store).verify())
    done = run(config, LATER)
    assert dict(+done.built.report.made) == {"index_skills": 1}
    assert files_of(store.root) == before


@pytest.mark.parametrize(
    ("damaged", "reader"),
    [
        ("merge_runs/*/trajectories", "skills"), ("merge_runs/*/trajectories", "decompose"),
        ("decompose/*/subtasks", "encode_plans"), ("skills/*/mentions", "dedup"),
        ("encode_skills/*/embeddings", "dedup"), ("dedup/*/skills", "utility"),
        ("utility/*/utilities", "index_skills"),
    ],
)  # fmt: skip
def test_a_damaged_input_of_a_stage_is_made_again_before_it_is_read(config, damaged, reader):
    store = Store.open(config.store.root)
    before = files_of(store.root)
    [path] = store.root.glob(f"outputs/{damaged}.*")
    [folder] = store.root.glob(f"outputs/{reader}/*")
    damage(path, "flipped")
    shutil.rmtree(folder)
    done = run(config, LATER)
    assert dict(+done.built.report.made) == {damaged.partition("/")[0]: 1, reader: 1}
    assert files_of(store.root) == before


@pytest.mark.parametrize("name", ["runs-00000.parquet", "run-digests-00000.parquet"])
def test_damaged_runs_of_an_import_are_refused_with_the_log_to_import_again(config, name):
    store = Store.open(config.store.root)
    before = files_of(store.root)
    [path] = store.root.glob(f"outputs/import/*/{name}")
    damage(path, "flipped")
    shutil.rmtree(store.root / "outputs" / "merge_runs")
    with pytest.raises(StoreError, match=rf"{name}.* import again .*runs\.jsonl"):
        run(config.model_copy(update={"inputs": []}))
    done = run(config, LATER)
    assert done.imported.mended == 1
    assert files_of(store.root) == before


def test_skills_of_another_revision_are_not_read(config, monkeypatch):
    store = Store.open(config.store.root)
    monkeypatch.setattr("pipelines.versions.SKILL_INDEX_REVISION", 99)
    with pytest.raises(VersionError, match=r"skills of index revision 1, this software reads 99: rebuild"):
        open_version(store)
