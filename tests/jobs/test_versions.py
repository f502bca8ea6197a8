"""The versions of a store as a person handles them."""

import json

import pytest

from jobs import audit, query, rebucket, versions
from pipelines.store import Store
from pipelines.versions import open_version
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_config, write_runs


@pytest.fixture
def store(tmp_path):
    for user in ("ana", "bo"):
        run(config_of(tmp_path / "store", write_jsonl(tmp_path / f"{user}.jsonl", rows(users=(user,)))))
    return tmp_path / "store"


def listed(job, store):
    return json.loads(job(versions, store, "list", "--json")[1])["versions"]


def asked(job, store):
    found = job(query, "the red bicycle", "--store", store, "--namespace", "acme/bo", "--json")[1]
    return json.loads(found)["version"]


def test_a_rollback_changes_who_answers_and_the_list_says_so(job, store):
    first, second = (one["version"] for one in listed(job, store))
    assert asked(job, store) == second
    code, out, _ = job(versions, store, "rollback", first)
    assert (code, asked(job, store)) == (0, first)
    assert "number 3" in out
    code, out, _ = job(versions, store, "list")
    lines = [line for line in out.splitlines() if line.startswith((first, second))]
    assert (code, len(lines)) == (0, 2)
    assert lines[0].split()[:3] == [f"{first}*", "1", "3"]
    assert lines[1].split()[:5] == [second, "2", "2026-01-01", "00:00", "24"]
    assert [one["is_current"] for one in listed(job, store)] == [True, False]


def test_ids_stay_whole_on_a_terminal_of_80_columns(job, store, monkeypatch):
    ids = [one["version"] for one in listed(job, store)]
    monkeypatch.setattr(versions.console, "width", 80)
    _, out, _ = job(versions, store, "list")
    assert all(one in out for one in ids)
    assert max(map(len, out.splitlines())) <= 80


def test_a_store_without_a_version_says_so(job, tmp_path):
    Store.make(tmp_path / "empty", 2)
    code, out, _ = job(versions, tmp_path / "empty", "list")
    assert (code, out) == (0, "no version yet: rebuild the store\n")


def test_a_version_is_shown_with_what_made_it_and_what_is_in_it(job, store):
    code, out, _ = job(versions, store, "show")
    current = listed(job, store)[1]["version"]
    assert code == 0
    for line in (f"version {current}", "turns 24", "encoder static, 256 dimensions", "current yes", "pointers 2"):
        assert line in out.splitlines()
    manifest = json.loads(job(versions, store, "show", current, "--json")[1])["manifest"]
    assert (manifest["version"], manifest["turns"]) == (current, 24)


def test_a_comparison_counts_and_names_what_came(job, store):
    first, second = (one["version"] for one in listed(job, store))
    code, out, _ = job(versions, store, "diff", first, second)
    assert code == 0
    assert [line.split() for line in out.splitlines() if line.startswith(("namespaces", "turns"))] == [
        ["namespaces", "1", "0", "0"], ["turns", "12", "0", "0"]
    ]  # fmt: skip
    assert "acme/bo added" in out
    found = json.loads(job(versions, store, "diff", second, first, "--json")[1])
    assert found["namespaces"] == {"added": 0, "removed": 1, "changed": 0}
    assert found["totals"]["turns"] == {"added": 0, "removed": 12, "changed": 0}
    assert found["by_namespace"]["acme/bo"]["state"] == "removed"
    assert "acme/bo" not in job(versions, store, "diff", first, second, "--namespaces", 0)[1]


def test_pruning_says_what_it_frees_and_the_rest_answers(job, store):
    first, second = (one["version"] for one in listed(job, store))
    told = json.loads(job(versions, store, "prune", "--keep", 1, "--dry-run", "--json")[1])
    assert (told["versions"], told["dry_run"], len(listed(job, store))) == ([first], True, 2)
    code, out, _ = job(versions, store, "prune", "--keep", 1)
    assert code == 0
    assert f"versions {first}" in out
    assert "freed " in out
    assert [one["version"] for one in listed(job, store)] == [second] == [asked(job, store)]


def test_a_store_of_runs_alone_is_shown_compared_and_pruned(job, tmp_path):
    store = tmp_path / "store"
    for user in ("ana", "bo"):
        done = run(runs_config(store, write_runs(tmp_path / f"{user}.jsonl", runs(users=(user,)))))
    first, second = (one["version"] for one in listed(job, store))
    code, out, _ = job(versions, store, "show")
    assert code == 0
    for line in (f"version {second}", "turns 0", f"skills {done.built.skills} of 24 runs"):
        assert line in out.splitlines()
    found = json.loads(job(versions, store, "diff", first, second, "--json")[1])
    assert found["namespaces"] == {"added": 1, "removed": 0, "changed": 0}
    assert found["totals"]["turns"] == {"added": 0, "removed": 0, "changed": 0}
    skills = found["totals"]["skills"]["added"]
    assert skills > 0
    code, out, _ = job(versions, store, "diff", first, second)
    assert code == 0
    assert f"{skills} skills added: " in out
    assert job(versions, store, "prune", "--keep", 1)[0] == 0
    assert [one["version"] for one in listed(job, store)] == [second]
    assert list(open_version(Store.open(store)).verify())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["rollback", "0123456789abcdef"], 1, "has no version '0123456789abcdef'"),
        (["show", "nonsense"], 1, "has no version 'nonsense'"), (["prune", "--keep", "0"], 2, "--keep: 0"),
        (["diff", "a", "b", "--namespaces", "-1"], 2, "--namespaces: -1"), (["nonsense"], 2, "invalid choice"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_in_one_message(job, store, arguments, code, said):
    found, _, err = job(versions, store, *arguments)
    assert found == code
    assert said in err
    assert "Traceback" not in err


def test_a_store_of_objects_is_told_by_its_address(job, tmp_path, monkeypatch):
    mirrored = Store.make(tmp_path / "mirror", 2)
    monkeypatch.setattr(Store, "__str__", lambda store: "s3://bucket/memory")
    monkeypatch.setattr(Store, "open", lambda root, *cache: mirrored)
    assert json.loads(job(versions, "s3://bucket/memory", "list", "--json")[1])["store"] == "s3://bucket/memory"


def test_a_store_is_named_by_its_configuration_too(job, bucket, tmp_path):
    url = f"{bucket}/store"
    done = run(config_of(url, write_jsonl(tmp_path / "log.jsonl", rows(users=("ana",)))))
    config = tmp_path / "memory.toml"
    config.write_text(f'[store]\nroot = "{url}"\ncache = "{tmp_path / "mirrors"}"\n')
    assert [one["version"] for one in listed(job, config)] == [done.built.version]
    assert list((tmp_path / "mirrors").iterdir())
    cache = ["--set", f"store.cache={tmp_path / 'others'}"]
    assert job(versions, url, *cache, "list")[0] == 0
    assert job(audit, url, *cache, "--text", "ana told me")[0] == 1
    assert list((tmp_path / "others").rglob("turns.parquet"))
    code, _, err = job(versions, url, "--set", "store.cash=x", "list")
    assert (code, "store.cash: unknown key" in err) == (2, True)


def test_a_folder_that_is_no_store_is_refused(job, tmp_path):
    code, _, err = job(versions, tmp_path, "list")
    assert (code, "is no store" in err) == (1, True)


def test_other_buckets_are_told_and_asked_for_in_the_configuration(job, store, tmp_path):
    config = tmp_path / "memory.toml"
    config.write_text(f'[store]\nroot = "{store}"\nbuckets = 3\n')
    found = json.loads(job(rebucket, config, "--buckets", 5, "--json")[1])
    assert (found["before"], found["after"], found["imports"], found["rows"]) == (3, 5, 2, 24)
    code, out, _ = job(rebucket, config, "--buckets", 5)
    assert code == 0
    assert f"set store.buckets = 5 in {config}" in out
    code, _, err = job(rebucket, config, "--buckets", 0)
    assert (code, "--buckets: 0 is not between 1" in err) == (2, True)
