"""Forgetting in a store: what is hidden at once, what later imports and builds leave out, what stays as it was."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest

from hgmem_core.config import InputConfig
from hgmem_core.model_config import EncoderConfig
from hgmem_core.recipes import MODEL_FREE
from hgmem_core.stage_config import SkillsConfig
from pipelines import build as build_module
from pipelines.encoders import open_encoder
from pipelines.forget import NothingToForget, Selection, forget, restore
from pipelines.imports import read_imports
from pipelines.progress import Silent
from pipelines.retriever import Retriever
from pipelines.skill_evolve import evolve_skills
from pipelines.store import Store, StoreError
from pipelines.tombstone_files import number_of_tombstones
from pipelines.versions import current_version, open_version
from tests.pipelines.logs import NOW, config_of, files_of, import_only, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_config, write_runs

ENCODER = open_encoder(EncoderConfig(name="static"))
ANA, BO = "acme/ana", "acme/bo"
CANARY = "zanzibarquartz"
QUESTION = f"What about the red bicycle and the {CANARY}?"


def log_rows():
    """The rows of a log; some of Ana's and one of Bo's have a word that no other has."""
    found = rows()
    for row in found:
        if (row["user"], row["id"]) in (("ana", "m1"), ("ana", "m6"), ("bo", "m2")):
            row["text"] = f"My {CANARY} is {row['text']} Tell nobody of the {CANARY}."
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", log_rows())))
    return folder


@pytest.fixture
def folder(built, tmp_path):
    shutil.copytree(built, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def store(folder):
    return Store.open(folder / "store")


def rebuilt(folder, *logs):
    return run(config_of(folder / "store", folder / "log.jsonl", *logs))


def retriever(store):
    return Retriever(open_version(store), ENCODER)


def answers(of, namespace, question=QUESTION):
    """Everything that any recipe says of a question, times apart."""
    told = []
    for recipe in MODEL_FREE:
        for context_tokens in (None, 2_000):
            found = of.search(namespace, question, recipe, 50, explain=True, context_tokens=context_tokens).as_dict()
            told.append({**found, "timings_ms": None, "version": None})
    return json.dumps(told, default=str)


def turns_of(of, namespace):
    index = of.namespace(namespace)
    return [] if index is None else [text for text in index.column("text").to_pylist() if text]


def ids_of(store, namespace, *source_ids):
    index = retriever(store).namespace(namespace)
    ids = dict(zip(index.column("source_id").to_pylist(), index.column("turn_id").to_pylist(), strict=True))
    return tuple(ids[one] for one in source_ids)


CONTAINING = Selection(ANA, contains=CANARY.upper())


def test_what_contains_a_text_is_hidden_at_once_and_nobody_else_notices(store):
    before, served = retriever(store), retriever(store)
    assert CANARY in answers(before, ANA).replace(QUESTION, "")
    theirs = answers(before, BO)
    hidden = ids_of(store, ANA, "m1", "m6")
    change = forget(store, CONTAINING, NOW)
    assert (change.turns, change.sessions, change.tombstones, change.number) == (2, 2, 2, 1)
    assert change.facts > 0 and change.summaries > 0
    for asked in (retriever(store), served):
        asked.refresh_tombstones()
        found = answers(asked, ANA)
        assert CANARY not in found.replace(QUESTION, "")
        assert not [id for id in hidden if id in found]
        assert "red bicycle" in found.replace(QUESTION, "")
        assert answers(asked, BO) == theirs
        assert len(turns_of(asked, BO)) == 12 and len(turns_of(asked, ANA)) == 10


def test_a_retriever_that_is_not_told_to_look_again_goes_on_as_it_began(store):
    served = retriever(store)
    forget(store, CONTAINING, NOW)
    assert len(turns_of(served, ANA)) == 12
    served.with_models({}).refresh_tombstones()
    assert len(turns_of(served, ANA)) == 10


def test_whoever_had_read_a_tombstone_that_is_lost_says_so_once_and_goes_on_hiding_what_it_hid(store):
    served = retriever(store)
    forget(store, Selection(ANA, session="s1"), NOW)
    served.refresh_tombstones()
    assert len(turns_of(served, ANA)) == 8
    (store.root / "tombstones" / "000001.json").unlink()
    with pytest.raises(StoreError, match=r"tombstones/000001\.json was there and is gone: restore it"):
        served.refresh_tombstones()
    served.refresh_tombstones()
    assert len(turns_of(served, ANA)) == 8
    forget(store, CONTAINING, NOW)  # takes the number of the one that is lost
    served.refresh_tombstones()
    assert len(turns_of(served, ANA)) == 7 and CANARY not in str(turns_of(served, ANA))


@pytest.mark.parametrize(
    ("selection", "left"),
    [
        (Selection(ANA), 0),
        (Selection(ANA, session="s1"), 8),
        (Selection(ANA, source_ids=("m1", "m2")), 10),
        (Selection(ANA, session="s0", source_ids=("m1",)), 11),
        (Selection(ANA, speaker="Bo"), 6),
        (Selection(ANA, before=datetime(2024, 3, 2, tzinfo=UTC)), 8),
        (Selection(ANA, session="s1", speaker="Bo", contains="NUMBER 5"), 11),
    ],
)
def test_each_way_to_say_what_is_hidden_restored_and_left_out_of_the_next_build(folder, store, selection, left):
    tried = forget(store, selection, NOW, dry_run=True)
    assert number_of_tombstones(store) == 0
    change = forget(store, selection, NOW)
    assert replace(change, number=None) == tried
    assert change.turns == 12 - left
    assert len(turns_of(retriever(store), ANA)) == left
    version = open_version(rebuilt(folder).store)
    every = [name for bucket in version.manifest["buckets"] for name in version.open_bucket(int(bucket)).namespaces()]
    assert (ANA in every) == bool(left)
    if left:
        [reader] = [version.open_bucket(version.bucket_of(ANA))]
        assert len(reader.open(ANA)) == left  # without a look at tombstones
    assert len(turns_of(retriever(store), BO)) == 12
    again = forget(store, selection, NOW)
    assert again.number is None or selection.names_all
    back = restore(store, selection, NOW)  # of which nothing is in the store any more
    assert (back.turns, back.tombstones) == (0, change.tombstones)
    assert len(turns_of(retriever(store), ANA)) == left
    rebuilt(folder)
    assert sorted(turns_of(retriever(store), ANA)) == sorted(row["text"] for row in log_rows() if row["user"] == "ana")


def test_turns_by_id_and_an_unknown_one(store):
    [turn] = ids_of(store, ANA, "m4")
    with pytest.raises(NothingToForget, match="no turn 'nobody'"):
        forget(store, Selection(ANA, turns=(turn, "nobody")), NOW)
    assert number_of_tombstones(store) == 0
    assert forget(store, Selection(ANA, turns=(turn, "nobody")), NOW, allow_unknown=True).tombstones == 2
    assert len(turns_of(retriever(store), ANA)) == 11
    again = forget(store, Selection(ANA, turns=(turn,)), NOW)
    assert (again.number, again.turns) == (None, 0)
    with pytest.raises(NothingToForget, match="no tombstone in force names turn 'somebody'"):
        restore(store, Selection(ANA, turns=(turn, "somebody")), NOW)
    assert restore(store, Selection(ANA, turns=(turn,)), NOW).turns == 1


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (Selection("acme/nobody"), "no message and no run"),
        (Selection(ANA, session="s9"), "no session 's9'"),
        (Selection(ANA, source_ids=("m1", "m99")), "no message with the id 'm99'"),
        (Selection(ANA, session="s1", source_ids=("m1",)), "no message with the id 'm1'"),
        (Selection(ANA, trajectories=("r1",)), "no run 'r1'"),
        (Selection(ANA, speaker="Nobody"), "no message that fits"),
        (Selection(ANA, contains="never said"), "no message and no run that fits"),
    ],
)
def test_what_never_was_is_an_error_that_names_it(store, selection, said):
    with pytest.raises(NothingToForget, match=said):
        forget(store, selection, NOW)
    with pytest.raises(NothingToForget, match="nothing was restored"):
        restore(store, selection, NOW)
    assert number_of_tombstones(store) == 0


def test_the_namespace_is_unknown_then(store):
    forget(store, Selection(ANA), NOW)
    asked = retriever(store)
    assert asked.search(ANA, QUESTION).reason == "unknown_namespace"
    assert asked.namespaces() == [BO, "acme/chen"]


def test_a_build_that_began_before_does_not_bring_it_back(folder, store, monkeypatch):
    publish = build_module.publish

    def meanwhile(*arguments):
        forget(store, Selection(ANA), NOW)
        return publish(*arguments)

    monkeypatch.setattr(build_module, "publish", meanwhile)
    more = write_jsonl(folder / "more.jsonl", [{**rows()[0], "id": "new", "text": "New and old."}])
    assert rebuilt(folder, more).built.is_new
    monkeypatch.undo()
    assert len(open_version(store).open_bucket(open_version(store).bucket_of(ANA)).open(ANA)) == 13
    assert turns_of(retriever(store), ANA) == []
    assert rebuilt(folder, more).built.turns == 24
    assert turns_of(retriever(store), ANA) == []


def tables(store, stage):
    """The tables of turns and facts, whichever outputs they are in."""
    return [
        pq.read_table(path).drop_columns(["ingested_at"] if stage == "merge" else []).to_pylist()
        for path in sorted((store.root / "outputs" / stage).glob("*/*s.parquet"))
        if path.name in ("turns.parquet", "facts.parquet", "episodes.parquet", "topics.parquet")
    ]


def test_a_rebuild_is_that_of_a_log_without_what_is_forgotten(folder, store, tmp_path):
    forget(store, CONTAINING, NOW)
    forget(store, Selection("acme/chen", session="s2"), NOW)
    version = open_version(rebuilt(folder).store)
    left = [
        row
        for row in log_rows()
        if not (row["user"] == "ana" and CANARY in row["text"]) and (row["user"], row["session"]) != ("chen", "s2")
    ]
    other = open_version(run(config_of(tmp_path / "other", write_jsonl(tmp_path / "left.jsonl", left))).store)
    for name in ("acme/ana", "acme/bo", "acme/chen"):
        one, two = (own.open_bucket(own.bucket_of(name)).open(name) for own in (version, other))
        assert one.nodes.drop_columns(["ingested_at"]).equals(two.nodes.drop_columns(["ingested_at"]))
        assert one.graph.nodes.equals(two.graph.nodes)
        for graph in ("turn", "fact"):
            assert (one.relations(graph).targets == two.relations(graph).targets).all()
    summed = version.manifest["outcomes"]["merge"]
    assert sum(summed.values()) == summed["ok"] == len(left)  # the others are no rows of any import any more


def test_untouched_buckets_and_namespaces_are_not_made_again(folder, store):
    before = open_version(store).manifest["buckets"]
    forget(store, CONTAINING, NOW)
    done = rebuilt(folder)
    after = open_version(store).manifest["buckets"]
    touched = str(open_version(store).bucket_of(ANA))
    assert {bucket for bucket in before if before[bucket] != after[bucket]} == {touched}
    assert done.built.report.made["merge"] == 1
    assert rebuilt(folder).built.report.made.total() == 0


def outcomes_of(store, number):
    folder = read_imports(store)[number - 1].folder
    return [row for path in sorted(folder.glob("outcomes-*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_the_same_log_in_another_file_brings_nothing_back(folder, store):
    forget(store, CONTAINING, NOW)
    again = write_jsonl(folder / "again.jsonl", [*log_rows(), {**rows()[0], "id": "x", "text": "One more."}])
    imported = rebuilt(folder, again).imported
    assert imported.outcomes == {"ok": 35, "partial": 0, "empty": 2, "fallback": 0, "rejected": 0}
    assert imported.reasons == {"forgotten": 2}
    assert imported.turns == 35
    found = {row["row_id"]: row["reason"] for row in outcomes_of(store, 2) if row["outcome"] == "empty"}
    assert found == {"again.jsonl:2": "forgotten", "again.jsonl:7": "forgotten"}
    assert len(turns_of(retriever(store), ANA)) == 11
    assert CANARY not in answers(retriever(store), ANA).replace(QUESTION, "")


def test_raw_texts_of_refused_rows_of_a_forgotten_namespace_are_not_kept(folder, store):
    forget(store, Selection(ANA), NOW)
    chats = [
        {"user": user, "messages": [{"role": "user", "content": "Hello."}, {"content": f"No role, but {CANARY}."}]}
        for user in ("ana", "bo")
    ]
    log = write_jsonl(folder / "chats.jsonl", chats)
    config = config_of(folder / "store", imports={"max_reject_rate": 1.0})
    other = InputConfig(format="openai", paths=[str(log)], namespace="acme/{user}")
    imported = import_only(config.model_copy(update={"inputs": [other]}))
    assert (imported.outcomes["ok"], imported.outcomes["empty"], imported.outcomes["rejected"]) == (1, 1, 2)
    paths = read_imports(store)[1].folder.glob("rejects-*.parquet")
    raws = {row["namespace"]: row["raw"] for path in paths for row in pq.read_table(path).to_pylist() if row["raw"]}
    assert list(raws) == [BO]


def test_a_damaged_import_is_mended_though_tombstones_came_since(folder, store):
    [first] = read_imports(store)
    damaged = next(first.folder.glob("bucket-*.parquet"))
    content = damaged.read_bytes()
    forget(store, CONTAINING, NOW)
    damaged.write_bytes(b"")
    done = rebuilt(folder)
    assert done.imported.mended == 1
    assert damaged.read_bytes() == content
    assert len(turns_of(retriever(store), ANA)) == 10


def test_a_damaged_import_that_left_something_out_is_mended(folder, store):
    forget(store, CONTAINING, NOW)
    again = write_jsonl(folder / "again.jsonl", [*log_rows(), {**rows()[0], "id": "x", "text": "One more."}])
    rebuilt(folder, again)
    restore(store, CONTAINING, NOW)
    second = read_imports(store)[1]
    before = {path.name: path.read_bytes() for path in second.folder.iterdir()}
    for path in second.folder.glob("bucket-*.parquet"):
        path.unlink()
    assert rebuilt(folder, again).imported.mended == 1
    assert {path.name: path.read_bytes() for path in second.folder.iterdir()} == before


@pytest.mark.parametrize(("session", "turns"), [(None, 12), ("s1", 4)])
def test_all_that_is_there_is_forgotten_though_the_clock_jumped_back(folder, store, session, turns):
    selection, early = Selection(ANA, session=session), datetime(2020, 1, 1, tzinfo=UTC)
    assert forget(store, selection, early).turns == turns
    assert len(turns_of(retriever(store), ANA)) == 12 - turns
    assert forget(store, selection, early).turns == 0
    rebuilt(folder)
    again = write_jsonl(folder / "again.jsonl", log_rows()[::-1])
    rebuilt(folder, again)
    assert len(turns_of(retriever(store), ANA)) == 12 - turns
    restore(store, selection, early)
    rebuilt(folder, again)
    assert len(turns_of(retriever(store), ANA)) == 12


def test_a_run_of_an_agent_that_is_dated_ahead_is_forgotten_with_its_namespace(learnt, tmp_path):
    store = Store.open(shutil.copytree(learnt / "store", tmp_path / "store"))
    assert retriever(store).skills(ANA, TASK, SkillsConfig()).skills
    assert forget(store, Selection(ANA), datetime(2020, 1, 1, tzinfo=UTC)).trajectories == 12
    assert retriever(store).skills(ANA, TASK, SkillsConfig()).reason == "unknown_namespace"


def test_a_person_who_comes_back_is_remembered_again(folder, store):
    forget(store, Selection(ANA), NOW)
    later = NOW + timedelta(days=1)
    new = {**rows()[0], "id": "m1", "time": later.isoformat(), "text": "I am back."}
    more = write_jsonl(folder / "more.jsonl", [new, *log_rows()])
    rebuilt(folder, more)
    assert turns_of(retriever(store), ANA) == ["I am back."]
    assert forget(store, Selection(ANA), NOW + timedelta(days=2)).turns == 1
    assert turns_of(retriever(store), ANA) == []


def test_what_is_said_again_of_the_same_thing_brings_back_no_earlier_source(folder, store):
    old = ids_of(store, ANA, "m1", "m6")
    forget(store, CONTAINING, NOW)
    new = {**rows()[0], "id": "again", "session": "s9", "text": f"Again I have a {CANARY}."}
    rebuilt(folder, write_jsonl(folder / "more.jsonl", [new]))
    asked = retriever(store)
    found = answers(asked, ANA)
    assert not [id for id in old if id in found]
    index = asked.namespace(ANA)
    sources = index.column("source_id").to_pylist()
    assert "again" in sources and not {"m1", "m6"} & set(sources)
    texts = index.graph.column("fact", "text").to_pylist()
    told = [fact for fact, text in enumerate(texts) if CANARY in text]
    assert told
    assert {sources[row] for fact in told for row in index.graph.turns_of_fact.of(fact)} == {"again"}


def test_an_id_that_was_forgotten_can_be_added_again_once_it_is_restored(folder, store):
    forget(store, Selection(ANA, source_ids=("m1",)), NOW)
    new = {**rows()[0], "id": "m1", "session": "s0", "text": "I said it again."}
    first = write_jsonl(folder / "first.jsonl", [new])
    assert rebuilt(folder, first).imported.outcomes["empty"] == 1
    assert "I said it again." not in turns_of(retriever(store), ANA)
    restore(store, Selection(ANA, source_ids=("m1",)), NOW)
    done = rebuilt(folder, first)
    assert "I said it again." in turns_of(retriever(store), ANA)
    assert done.imported.outcomes["ok"] == 2  # that of the first log, which was erased, and that of the other
    assert rebuilt(folder, first).imported.number is None


def test_what_is_restored_is_imported_from_the_log_and_nothing_else_of_it(folder, store):
    """Else an old log would undo what was edited since."""
    again = write_jsonl(folder / "again.jsonl", [*rows(), {**rows()[0], "id": "x", "text": "One more."}])
    forget(store, Selection(ANA, source_ids=("m1", "m2")), NOW)
    rebuilt(folder, again)
    edit = write_jsonl(folder / "edit.jsonl", [{**rows()[0], "id": "m3", "text": "Edited."}])
    rebuilt(folder, again, edit)
    restore(store, Selection(ANA, source_ids=("m1",)), NOW)
    imported = rebuilt(folder, again, edit).imported
    assert (imported.files, imported.known_files) == (2, 1)
    assert imported.outcomes == {"ok": 2, "partial": 0, "empty": 71, "fallback": 0, "rejected": 0}
    assert imported.reasons == {"imported before": 34 + 35, "forgotten": 2}
    shown = turns_of(retriever(store), ANA)
    assert "Edited." in shown
    assert rows()[1]["text"] in shown and rows()[2]["text"] not in shown
    last = read_imports(store)[-1]
    content = {path.name: path.read_bytes() for path in last.folder.iterdir()}
    shutil.rmtree(last.folder)
    assert rebuilt(folder, again, edit).imported.mended == 1
    assert {path.name: path.read_bytes() for path in last.folder.iterdir()} == content


def test_what_was_erased_and_restored_comes_back_whatever_was_erased_before_its_log_came(folder, store):
    first, second = Selection(ANA, source_ids=("m1",)), Selection(ANA, contains="tea with lemon")
    said = {row["id"]: row["text"] for row in log_rows() if row["user"] == "ana"}
    forget(store, first, NOW)
    rebuilt(folder)
    restore(store, first, NOW)
    forget(store, second, NOW)
    run(config_of(store.root))
    assert len(turns_of(retriever(store), ANA)) == 9
    imported = rebuilt(folder).imported
    assert (imported.outcomes["ok"], imported.reasons) == (1, {"imported before": 33, "forgotten": 2})
    assert said["m1"] in turns_of(retriever(store), ANA) and said["m2"] not in turns_of(retriever(store), ANA)
    assert rebuilt(folder).imported.number is None
    restore(store, second, NOW)
    assert rebuilt(folder).imported.outcomes["ok"] == 2
    assert sorted(turns_of(retriever(store), ANA)) == sorted(said.values())
    assert rebuilt(folder).imported.number is None


def test_an_import_that_was_erased_is_mended_without_what_was_erased(folder, store):
    forget(store, Selection(ANA, source_ids=("m1",)), NOW)
    rebuilt(folder)
    restore(store, Selection(ANA, source_ids=("m1",)), NOW)
    forget(store, Selection(ANA, source_ids=("m2",)), NOW)
    rebuilt(folder)
    for one in read_imports(store):
        shutil.rmtree(one.folder)
    assert rebuilt(folder).imported.mended == 2
    assert len(turns_of(retriever(store), ANA)) == 11
    assert not [path for path in store.root.rglob("bucket-*.parquet") if rows()[2]["text"] in str(pq.read_table(path))]


def test_what_was_asked_for_can_be_restored_in_part_and_is_written_nowhere(folder, store):
    forget(store, Selection(ANA, source_ids=("m1", "m2")), NOW)
    forget(store, CONTAINING, NOW)
    rebuilt(folder)
    written = "".join(path.read_text() for path in (store.root / "tombstones").iterdir())
    assert CANARY not in written.lower() and "m1" not in written
    assert restore(store, Selection(ANA, source_ids=("m1",)), NOW).tombstones == 1
    with pytest.raises(NothingToForget, match="nothing was restored"):
        restore(store, Selection(BO, contains=CANARY), NOW)
    assert restore(store, Selection(ANA, contains=CANARY), NOW).tombstones == 1
    rebuilt(folder)
    assert len(turns_of(retriever(store), ANA)) == 11


def test_everything_forgotten_leaves_an_empty_version(folder, store):
    for name in (ANA, BO, "acme/chen"):
        forget(store, Selection(name), NOW)
    done = rebuilt(folder)
    assert (done.built.turns, done.built.namespaces) == (0, 0)
    asked = retriever(store)
    assert asked.namespaces() == []
    assert asked.search(BO, QUESTION).reason == "unknown_namespace"
    restore(store, Selection(BO), NOW)
    assert rebuilt(folder).built.turns == 12
    assert len(turns_of(retriever(store), BO)) == 12


def test_forgetting_waits_for_no_lease_and_changes_no_file(folder, store, monkeypatch):
    before = files_of(store.root)
    publish = build_module.publish
    monkeypatch.setattr(build_module, "publish", lambda *one: forget(store, Selection(ANA), NOW) and publish(*one))
    rebuilt(folder)
    after = files_of(store.root)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"tombstones/000001.json"}


def test_an_older_version_hides_it_too(folder, store):
    _, older = current_version(store)
    more = write_jsonl(folder / "more.jsonl", [{**rows()[0], "id": "x", "text": "One more."}])
    rebuilt(folder, more)
    forget(store, CONTAINING, NOW)
    rebuilt(folder, more)
    found = answers(Retriever(open_version(store, older), ENCODER), ANA)
    assert CANARY not in found.replace(QUESTION, "")


TASK = "Put a hot fork on the table"


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learnt")
    found = runs()
    for one in found:
        if one["user"] == "ana" and one["id"] == "heat-egg":
            one["task"] = f"Put a hot {CANARY} on the table"
            one["steps"][0]["action"] = f"go to {CANARY} 1"
    run(runs_config(folder / "store", write_runs(folder / "runs.jsonl", found)))
    return folder


def skills_of(of, namespace):
    told = []
    for recipe in ("skills/full", "skills/dense", "skills/bm25"):
        settings = config_of("x").skills.model_copy(update={"recipe": recipe, "skills": 50, "trajectories": 50})
        # The plan is made of what was asked.
        unlike = dict.fromkeys(("timings_ms", "version", "plan"))
        told.append({**of.skills(namespace, f"{TASK} {CANARY}", settings).as_dict(), **unlike})
    return json.dumps(told, default=str)


@pytest.mark.parametrize(
    "selection", [Selection(ANA, trajectories=("heat-egg",)), Selection(ANA, contains=CANARY), Selection(ANA)]
)
def test_runs_lessons_and_skills_are_hidden_too(learnt, tmp_path, selection):
    shutil.copytree(learnt, tmp_path / "copy")
    store = Store.open(tmp_path / "copy" / "store")
    served = retriever(store)
    assert CANARY in skills_of(served, ANA)
    assert "heat-egg" in skills_of(served, ANA)
    theirs = skills_of(served, BO)
    change = forget(store, selection, NOW)
    assert change.trajectories == (1 if selection != Selection(ANA) else 12)
    assert change.skills > 0 or selection != Selection(ANA)
    served.refresh_tombstones()
    for asked in (served, retriever(store)):
        assert CANARY not in skills_of(asked, ANA)
        assert "heat-egg" not in skills_of(asked, ANA)
        assert skills_of(asked, BO) == theirs
    done = run(runs_config(store.root, tmp_path / "copy" / "runs.jsonl"))
    assert done.built.trajectories == 24 - change.trajectories
    index = open_version(store).open_skills(open_version(store).bucket_of(ANA))
    assert CANARY not in repr([table.to_pydict() for table in vars_of(index)])
    restore(store, selection, NOW)
    run(runs_config(store.root, tmp_path / "copy" / "runs.jsonl"))
    assert "heat-egg" in skills_of(retriever(store), ANA)


def test_evolution_joins_nothing_that_is_forgotten_to_what_is_not(tmp_path):
    found = runs()
    alone = {**found[0], "id": "alone", "task_id": "alone", "steps": [{"action": f"{CANARY} the egg 1"}]}
    merging = {"merge_from": 0.0, "raw_floor": -1.0, "most_merged": 1.0}
    log = write_runs(tmp_path / "runs.jsonl", [*found, alone])
    config = runs_config(tmp_path / "store", log, skills={"evolution": merging})
    run(config)
    store = Store.open(tmp_path / "store")
    assert CANARY in skills_of(retriever(store), ANA)
    forget(store, Selection(ANA, trajectories=("alone",)), NOW)
    before, theirs = skills_of(retriever(store), ANA), skills_of(retriever(store), BO)
    assert CANARY not in before
    done = evolve_skills(config, ENCODER, None, 3, NOW, Silent())
    assert CANARY not in skills_of(retriever(store), ANA)
    assert skills_of(retriever(store), ANA) == before
    assert done.left == [ANA]
    assert skills_of(retriever(store), BO) != theirs
    run(config)
    assert evolve_skills(config, ENCODER, None, 3, NOW, Silent()).left == []
    assert skills_of(retriever(store), ANA) != before


class _Forgetting(Silent):
    """Forgets a run as soon as work begins."""

    def __init__(self, store):
        self.store = store

    def start(self, stage, total):
        forget(self.store, Selection(ANA, trajectories=("heat-egg",)), NOW)


def test_what_is_forgotten_while_skills_evolve_is_not_published(learnt, tmp_path):
    shutil.copytree(learnt, tmp_path / "copy")
    store = Store.open(tmp_path / "copy" / "store")
    config, before = runs_config(store.root, tmp_path / "copy" / "runs.jsonl"), current_version(store)
    with pytest.raises(StoreError, match="forgotten meanwhile, so nothing was published"):
        evolve_skills(config, ENCODER, None, 1, NOW, _Forgetting(store))
    assert current_version(store) == before


def vars_of(index):
    graphs = [index.open(name) for name in index.namespaces()] if index else []
    return [
        getattr(graph.tables, name) for graph in graphs for name in ("trajectories", "lessons", "skills", "subtasks")
    ]
