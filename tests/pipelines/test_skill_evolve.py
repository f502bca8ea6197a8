"""Evolution of a store's skills: what is judged, what the new version holds, and the way back."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from hgmem_core.config import EvolutionConfig, SkillsConfig
from hgmem_core.section import ConfigError
from hgmem_core.skill_index import SKILL_TABLES
from pipelines.feedback_files import read_feedback
from pipelines.lease import LeaseHeld, hold_lease
from pipelines.progress import Silent
from pipelines.retriever import Retriever
from pipelines.skill_evolve import evolve_skills
from pipelines.skill_memory import encode_distinct
from pipelines.static import StaticEncoder
from pipelines.store import Store, StoreError
from pipelines.versions import current_version, open_version, point_to
from tests.pipelines.logs import COLUMNS, NOW, config_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_config, write_runs
from tests.pipelines.test_skill_build import outcomes_of

ANA, BO = "acme/ana", "acme/bo"
TASK = "Put a hot fork on the table"


@pytest.fixture
def config(tmp_path):
    config = runs_config(tmp_path / "store", write_runs(tmp_path / "runs.jsonl", runs()))
    run(config)
    return config


@pytest.fixture
def store(config):
    return Store.open(config.store.root)


@pytest.fixture
def graphs(store):
    def opened(version=None):
        """The skill graph of each user."""
        own = open_version(store, version)
        return {name: own.open_skills(own.bucket_of(name)).open(name) for name in (ANA, BO)}

    return opened


def evolved(config, feedback=None, cycles=1):
    return evolve_skills(config, StaticEncoder(), feedback, cycles, NOW, Silent())


@pytest.fixture
def told(tmp_path):
    def write(*shown):
        """Feedback of rows (namespace, query, node, outcome, steps) on skills."""
        names = ("namespace", "query_id", "node_id", "outcome", "n_steps")
        always = {"node_kind": "skill", "shown_at": "2024-04-01T00:00:00Z"}
        content = [{**dict(zip(names, row, strict=True)), **always} for row in shown]
        path = tmp_path / "feedback.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
        return read_feedback(path, 0.0)

    return write


def ids_of(graph):
    return graph.ids("skill").to_pylist()


def failures(skill, count=3, namespace=ANA):
    return [(namespace, f"q{number}", skill, "failure", 9) for number in range(count)]


def decisions_of(done):
    return [row for path in done.decisions for row in pq.read_table(path).to_pylist()]


def test_a_skill_that_only_failed_is_pruned_and_no_longer_found(config, store, graphs, told):
    gone = ids_of(graphs()[ANA])[0]
    done = evolved(config, told(*failures(gone), (ANA, "q9", gone, "failure", 2)))
    after = graphs()
    assert gone not in ids_of(after[ANA])
    assert gone not in after[ANA].tables.incidences.column("node_id").to_pylist()
    assert done.pruned == 1
    found = Retriever(open_version(store), StaticEncoder()).skills(ANA, TASK, SkillsConfig())
    assert found.version == done.version
    assert gone not in {skill.skill_id for skill in (*found.skills, *found.mistakes)}
    row = next(row for row in decisions_of(done) if row["decision"] == "prune")
    assert (row["node_id"], row["shown"], row["cycle"]) == (gone, 4, 0)
    assert outcomes_of(store, "evolve")[gone] == ("empty", row["reason"])


def test_evolution_keeps_as_many_versions_as_the_settings_say(config, store, graphs, told):
    gone = ids_of(graphs()[ANA])[0]
    settings = config.store.model_copy(update={"keep_versions": 1})
    done = evolved(config.model_copy(update={"store": settings}), told(*failures(gone)))
    assert store.version_ids() == [done.version]
    assert list(open_version(store).verify())
    assert gone not in ids_of(graphs()[ANA])
    assert all(path.exists() for path in done.decisions)
    assert run(config).built.report.made.total() == 0


def test_counts_are_those_of_the_feedback(config, graphs, told):
    skill = ids_of(graphs()[ANA])[0]
    evolved(config, told((ANA, "q1", skill, "success", 4), (ANA, "q2", skill, "failure", 8)), cycles=1)
    tables = graphs()[ANA].tables
    known = {row["node_id"]: row for row in tables.utilities.to_pylist()}
    into = [row["skill_id"] for row in tables.skills.to_pylist()]
    assert sum(known[one]["shown"] for one in into) == 2
    assert sum(known[one]["succeeded"] for one in into) == 1
    one = next(known[one] for one in into if known[one]["shown"])
    assert (one["mean_steps"], one["utility"]) == (6.0, pytest.approx(0.7 * 0.5 + 0.3 * 0.5))


@pytest.mark.parametrize("unknown", [[], [(BO, "q1", "none", "success", 4)]])
def test_a_namespace_without_feedback_on_its_nodes_stays_as_it_is(config, graphs, told, unknown):
    before = graphs()[BO]
    evolved(config, told(*failures(ids_of(graphs()[ANA])[0]), *unknown))
    after = graphs()[BO]
    assert all(getattr(after.tables, name).equals(getattr(before.tables, name)) for name in SKILL_TABLES)
    assert np.array_equal(after.vectors.skills, before.vectors.skills)


def test_a_replay_judges_and_merges_and_its_counts_add_up(config, store):
    judged = sum(open_version(store).manifest["skills"][name] for name in ("skills", "subtasks"))
    done = evolved(config, cycles=3)
    assert done.merged > 0
    assert done.after == done.before - done.pruned - done.merged
    version = open_version(store)
    assert version.manifest["skills"]["skills"] == done.after
    assert sum(done.report.outcomes["evolve"].values()) == judged
    merged = [row for row in outcomes_of(store, "evolve").values() if "merged into" in (row[1] or "")]
    assert len(merged) > done.merged
    assert done.report.outcomes["evolve"] == {"ok": judged}
    assert done.feedback["ok"] > 0
    assert done.feedback["empty"] == done.feedback["rejected"] == 0
    assert version.manifest["outcomes"]["feedback"] == done.feedback


def test_the_vectors_stay_with_their_nodes(config, graphs):
    evolved(config, cycles=3)
    for graph in graphs().values():
        said = [f"{row['name']}: {row['text']}" for row in graph.tables.skills.to_pylist()]
        assert np.allclose(graph.vectors.skills, encode_distinct(StaticEncoder(), said, 64), atol=1e-6)
        plans = graph.tables.subtasks.column("text").to_pylist()
        assert np.allclose(graph.vectors.subtasks, encode_distinct(StaticEncoder(), plans, 64), atol=1e-6)


def test_the_manifest_says_how_it_was_made(config, store, graphs, told):
    old = open_version(store)
    feedback = told(*failures(ids_of(graphs()[ANA])[0]))
    done = evolved(config, feedback, cycles=2)
    new = open_version(store)
    about = new.manifest["skills"]["evolved"]
    assert (about["from"], about["cycles"], about["rule"]["prune_below"]) == (old.id, 2, 0.2)
    assert about["feedback"] == {"sha256": feedback.sha256, "rows": 3}
    assert done.evolved_from == old.id
    differing = {name for name in new.manifest if new.manifest[name] != old.manifest.get(name)}
    assert differing == {"version", "checksum", "skills", "outcomes"}
    assert any(path.endswith("decisions.parquet") for path in new.verify())


def test_the_rule_is_a_setting_and_part_of_the_version(config, store, graphs, told):
    learnt = current_version(store)[1]
    skill = ids_of(graphs()[ANA])[0]
    # Two successes in three, so its utility is at least 0.7 * 2 / 3.
    feedback = told(
        (ANA, "q1", skill, "failure", 4), (ANA, "q2", skill, "success", 4), (ANA, "q3", skill, "success", 4)
    )
    versions = {}
    for name, rule in {
        "default": {},
        "strict": {"prune_below": 0.99, "fewest_shown": 3},
        "strict, later": {"prune_below": 0.99, "fewest_shown": 4},
        "apart": {"most_merged": 0.0},
    }.items():
        point_to(store, learnt)
        settings = config.skills.model_copy(update={"evolution": EvolutionConfig(**rule)})
        done = evolved(config.model_copy(update={"skills": settings}), feedback)
        about = open_version(store).manifest["skills"]["evolved"]["rule"]
        assert about == EvolutionConfig(**rule).model_dump()
        versions[name] = done.version, done.pruned, done.merged > 0
    assert {name: told[1:] for name, told in versions.items()} == {
        "default": (0, True), "strict": (1, True), "strict, later": (0, True), "apart": (0, False),
    }  # fmt: skip
    assert len({version for version, *_ in versions.values()}) == 4


def test_to_fail_fast_is_no_merit_where_only_successes_count(config, store, graphs, told):
    learnt, (fast, slow) = current_version(store)[1], ids_of(graphs()[ANA])[:2]
    shown = [(ANA, f"q{number}", fast, "failure", 2) for number in range(4)]
    feedback = told(*shown, (ANA, "q8", slow, "failure", 20), (ANA, "q9", slow, "success", 20))
    gone = {}
    for successes_only in (False, True):
        point_to(store, learnt)
        rule = EvolutionConfig(successes_only=successes_only, most_merged=0.0)
        evolved(config.model_copy(update={"skills": config.skills.model_copy(update={"evolution": rule})}), feedback)
        gone[successes_only] = fast not in ids_of(graphs()[ANA])
    assert gone == {False: False, True: True}


def test_the_turns_are_those_of_the_version_before(tmp_path):
    log = write_runs(tmp_path / "runs.jsonl", runs())
    chat = {"format": "jsonl", "paths": [str(write_jsonl(tmp_path / "chat.jsonl", rows()))], "columns": COLUMNS}
    chat["namespace"] = "acme/{user}"
    config = runs_config(tmp_path / "store", log, more=[chat])
    run(config)
    store = Store.open(config.store.root)
    before = open_version(store).manifest["buckets"]
    evolved(config)
    assert before
    assert open_version(store).manifest["buckets"] == before


def test_rollback_leads_back(config, store, graphs):
    old, before = current_version(store)[1], {name: ids_of(graph) for name, graph in graphs().items()}
    new = evolved(config, cycles=3).version
    assert current_version(store)[1] == new != old
    point_to(store, old)
    assert {name: ids_of(graph) for name, graph in graphs().items()} == before
    point_to(store, new)
    assert {name: ids_of(graph) for name, graph in graphs().items()} != before


def test_a_rebuild_begins_with_the_logs_again_and_evolution_is_repeated(config, store):
    old, new = current_version(store)[1], evolved(config).version
    assert run(config).built.version == current_version(store)[1] == old
    again = evolved(config)
    assert (again.version, again.is_new, again.report.made["evolve"]) == (new, True, 0)


def test_new_runs_after_evolution_give_what_they_give_without_it(config, store, tmp_path):
    evolved(config, cycles=3)
    log = write_runs(tmp_path / "more.jsonl", runs(("bo",), ("fork", "plate")))
    grown = runs_config(tmp_path / "store", tmp_path / "runs.jsonl", log)
    built = run(grown).built
    assert built.is_new
    assert run(runs_config(tmp_path / "other", tmp_path / "runs.jsonl", log)).built.version == built.version


def test_an_evolved_index_names_the_one_that_a_rebuild_goes_on_from(config, store, graphs, told):
    learnt = {about["folder"] for about in open_version(store).manifest["skills"]["buckets"].values()}
    evolved(config)
    done = evolved(config, told(*(row for name in (ANA, BO) for row in failures(ids_of(graphs()[name])[0], 1, name))))
    made_from = [store.find(path.parent).manifest["made_from"]["index_skills"] for path in done.decisions]
    assert {f"outputs/index_skills/{identity}" for identity in made_from} == learnt


def test_feedback_on_a_merged_skill_is_credited_to_the_one_it_is_now(config, graphs, told):
    merge = next(row for row in decisions_of(evolved(config)) if row["decision"] == "merge")
    if merge["into_id"] == merge["node_id"]:
        merge = {**merge, "node_id": merge["other_id"]}
    namespace, gone, into = merge["namespace"], merge["node_id"], merge["into_id"]
    assert gone not in ids_of(graphs()[namespace])
    shown = [(namespace, "q1", gone, "success", 4), (namespace, "q1", into, "success", 4)]
    shown.append((namespace, "q2", gone, "failure", 4))
    done = evolved(config, told(*shown))
    assert done.feedback == {"ok": 3, "empty": 0, "rejected": 0}
    known = {row["node_id"]: row for row in graphs()[namespace].tables.utilities.to_pylist()}
    assert (known[into]["shown"], known[into]["succeeded"]) == (2, 1)


def test_decisions_of_earlier_evolution_are_kept_and_cycles_go_on(config, graphs, told):
    first = evolved(config)
    graph = graphs()[ANA]
    done = evolved(config, told(*failures(ids_of(graph)[0]), (ANA, "q9", ids_of(graph)[0], "failure", 2)))
    rows = decisions_of(done)
    assert {row["cycle"] for row in rows} == {0, 1}
    kept = [row for row in decisions_of(first) if row["namespace"] == ANA]
    assert [row for row in rows if row["cycle"] == 0 and row["namespace"] == ANA] == kept


def test_other_feedback_on_the_way_gives_another_version(config, store, graphs, told):
    """Equal feedback at the end, but what was evolved before was judged by other feedback."""
    learnt, (one, other) = current_version(store)[1], ids_of(graphs()[ANA])[:2]
    last = [(ANA, "q1", ids_of(graphs()[ANA])[2], "success", 4)]
    versions = set()
    for skill in (one, other):
        point_to(store, learnt)
        evolved(config, told(*failures(skill), (ANA, "q9", skill, "failure", 2)))
        versions.add(evolved(config, told(*last)).version)
        assert skill not in ids_of(graphs()[ANA])
    assert len(versions) == 2


def test_rows_of_unknown_nodes_and_namespaces_are_counted(config, graphs, told):
    skill = ids_of(graphs()[ANA])[0]
    shown = told((ANA, "q1", skill, "success", 4), (ANA, "q1", "none", "success", 4), ("acme/eve", "q", "x", 1, 1))
    done = evolved(config, replace(shown, rejected={"bad": 2}))
    assert done.feedback == {"ok": 1, "empty": 2, "rejected": 2}
    assert done.reasons["bad"] == 2
    assert 2 in [count for reason, count in done.reasons.items() if "no such node" in reason]


def test_feedback_on_nothing_that_is_there_publishes_nothing(config, store, told):
    before = current_version(store)
    with pytest.raises(StoreError, match="none of the 3 rows"):
        evolved(config, told(*failures("none")))
    assert current_version(store) == before


def test_a_replay_of_evolved_skills_is_refused(config):
    evolved(config)
    with pytest.raises(StoreError, match="evolved already"):
        evolved(config)


def test_a_recipe_that_knows_the_end_cannot_be_replayed(config):
    settings = config.skills.model_copy(update={"recipe": "skills/full:utility"})
    with pytest.raises(ConfigError, match="cannot be replayed"):
        evolved(config.model_copy(update={"skills": settings}))


def test_a_store_without_skills_is_refused(tmp_path):
    config = config_of(tmp_path / "chat", write_jsonl(tmp_path / "chat.jsonl", rows()))
    run(config)
    with pytest.raises(StoreError, match="has no skills"):
        evolved(config)


def test_a_store_that_another_job_holds_is_left_alone(config, store):
    before = current_version(store)
    with hold_lease(store, "rebuild", NOW), pytest.raises(LeaseHeld, match="in use: rebuild"):
        evolved(config)
    assert current_version(store) == before


def test_a_damaged_evolved_index_is_made_again(config, store):
    learnt, new = current_version(store)[1], evolved(config)
    point_to(store, learnt)
    path = new.decisions[0].parent / "skills.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = evolved(config)
    assert again.version == new.version
    assert list(open_version(store).verify())
