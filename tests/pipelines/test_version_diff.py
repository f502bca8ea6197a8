import shutil

import pytest

from pipelines.files import StoreError
from pipelines.store import Output, Store
from pipelines.version_diff import diff_versions
from pipelines.versions import open_version
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_config, write_runs

TEXT = "Ana says something quite else about the harbour."


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Three versions of a store: as it was, with a namespace more, and with another text of one message."""
    folder = tmp_path_factory.mktemp("versions")
    edited = rows(users=("ana",))
    edited[3]["text"] = TEXT
    logs = [rows(), rows(users=("dee",)), edited]
    paths = [write_jsonl(folder / f"{place}.jsonl", log) for place, log in enumerate(logs)]
    built = [run(config_of(folder / "store", path)) for path in paths]
    return [open_version(done.store, done.built.version) for done in built]


def table(version, stage, name):
    """A table of all buckets of a version, as rows by id."""
    found = {}
    for about in version.manifest["buckets"].values():
        index = version.store.find(version.store.root / about["folder"])
        output = version.store.find(version.store.output_folder(stage, index.manifest["made_from"][stage]))
        for row in output.table(f"{name}.parquet").to_pylist():
            found[row[f"{name[:-1]}_id"]] = row
    return found


def counts(change):
    return change.added, change.removed, change.changed


def test_a_new_namespace_comes_with_all_its_rows(versions):
    [found] = diff_versions(versions[0], versions[1])
    assert (found.namespace, found.state) == ("acme/dee", "added")
    of = {level: counts(change) for level, change in found.levels.items()}
    assert of == {"turns": (12, 0, 0), "episodes": (3, 0, 0), "facts": (12, 0, 0), "topics": (1, 0, 0)}
    ids = found.levels["facts"].examples["added"]
    facts = table(versions[1], "consolidate", "facts")
    assert len(ids) == 3
    assert {facts[one]["namespace"] for one in ids} == {"acme/dee"}
    [back] = diff_versions(versions[1], versions[0])
    assert (back.namespace, back.state, counts(back.levels["turns"])) == ("acme/dee", "removed", (0, 12, 0))


def test_an_edited_message_is_a_changed_turn_and_other_facts(versions):
    [found] = diff_versions(versions[1], versions[2])
    assert (found.namespace, found.state) == ("acme/ana", "changed")
    turn = found.levels["turns"]
    [changed] = turn.examples["changed"]
    assert counts(turn) == (0, 0, 1)
    assert table(versions[2], "merge", "turns")[changed]["text"] == TEXT
    before, after = (table(version, "consolidate", "facts") for version in versions[1:])
    facts = found.levels["facts"]
    assert counts(facts) == (len(after.keys() - before.keys()), len(before.keys() - after.keys()), 0)
    assert facts.examples == {
        "added": sorted(after.keys() - before.keys())[:3], "removed": sorted(before.keys() - after.keys())[:3]
    }  # fmt: skip


def test_equal_outputs_are_not_read(versions, monkeypatch):
    read, original = set(), Output.table

    def noted(self, name):
        read.add(self.folder)
        return original(self, name)

    monkeypatch.setattr(Output, "table", noted)
    assert list(diff_versions(versions[1], versions[1])) == []
    assert read == set()
    list(diff_versions(versions[1], versions[2]))
    folders = [{about["folder"] for about in version.manifest["buckets"].values()} for version in versions[1:]]
    equal = {versions[0].store.root / folder for folder in folders[0] & folders[1]}
    assert equal
    assert not equal & read


@pytest.mark.parametrize("buckets", [1, 2, 6])
def test_versions_of_other_numbers_of_buckets_are_compared_by_namespace(versions, tmp_path, buckets):
    edited = rows()
    edited[3]["text"] = TEXT
    logs = [write_jsonl(tmp_path / f"{place}.jsonl", log) for place, log in enumerate((rows(), edited))]
    done = run(config_of(tmp_path / "other", *logs, buckets=buckets))
    other = open_version(done.store)
    found = {one.namespace: one for one in diff_versions(versions[2], other)}
    assert {name: one.state for name, one in found.items()} == {"acme/dee": "removed"}
    found = {one.namespace: one for one in diff_versions(other, versions[1])}
    assert {name: one.state for name, one in found.items()} == {"acme/dee": "added", "acme/ana": "changed"}
    assert counts(found["acme/ana"].levels["turns"]) == (0, 0, 1)


def test_skills_are_compared_too(tmp_path):
    first = run(runs_config(tmp_path / "store", write_runs(tmp_path / "one.jsonl", runs(users=("ana",)))))
    second = run(runs_config(tmp_path / "store", write_runs(tmp_path / "two.jsonl", runs(users=("bo",)))))
    [found] = diff_versions(open_version(first.store, first.built.version), open_version(second.store))
    assert (found.namespace, found.state) == ("acme/bo", "added")
    assert counts(found.levels["skills"]) == (second.built.skills - first.built.skills, 0, 0)


def test_a_table_that_is_gone_or_damaged_is_named(versions, tmp_path):
    shutil.copytree(versions[0].store.root, tmp_path / "store")
    store = Store.open(tmp_path / "store")
    old, new = (open_version(store, version.id) for version in versions[1:])
    folders = {path.parent for path in store.root.glob("outputs/consolidate/*/facts.parquet")}
    for folder in folders:
        (folder / "facts.parquet").write_bytes(b"")
    with pytest.raises(StoreError, match=r"facts\.parquet"):
        list(diff_versions(old, new))
    for folder in folders:
        shutil.rmtree(folder)
    with pytest.raises(StoreError, match=r"outputs/consolidate/.* is gone or damaged"):
        list(diff_versions(old, new))
