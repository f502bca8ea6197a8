"""What changes in a log is computed again and nothing else, and the result is that of a full build."""

import random

import pytest

from pipelines import stages
from pipelines.files import open_arrow
from pipelines.versions import open_version
from tests.pipelines.logs import config_of, import_only, rows, run, write_jsonl

USERS = tuple(f"user{number:02d}" for number in range(12))


def versions_outputs(done):
    """Every table and index that a version is made of, as bytes."""
    store = done.store
    found = {}
    for bucket, about in manifest_of(done)["buckets"].items():
        index = store.find(store.root / about["folder"])
        for stage, identity in {**index.manifest["made_from"], "index": index.identity}.items():
            paths = store.output_folder(stage, identity).iterdir()
            found |= {f"{bucket}/{stage}/{path.name}": path.read_bytes() for path in paths if path.name not in ABOUT}
    return found


ABOUT = {"manifest.json", "lineage.parquet", "outcomes.parquet"}
"""These tell how an output was made, which may have been from an earlier union that says the same."""


def manifest_of(done):
    return open_version(done.store, done.built.version).manifest


def late(user, number, text):
    """A message between two others, delivered after them."""
    return {
        "id": f"late{number}",
        "user": user,
        "session": f"s{number // 4}",
        "time": f"2024-03-0{1 + number // 4}T18:{number % 4:02d}:30+00:00",
        "speaker": "Ana",
        "text": text,
    }


CHANGES = {
    "new turns at the end": [row | {"id": f"new-{row['id']}", "session": "s9"} for row in rows(("user03",), 3)],
    "a new namespace": rows(("zoe",), 6),
    "a late message": [late("user05", 5, "The red bicycle was stolen last Friday.")],
    "an edited message": [rows(("user07",), 12)[4] | {"text": "No, it was a violin, and it cost 300 euros."}],
    "an edit that says the same": [rows(("user07",), 12)[4]],
    "out of order, in two namespaces": [
        row | {"id": f"o{row['id']}"} for row in reversed(rows(("user01", "user02"), 4))
    ],
}


@pytest.mark.parametrize("buckets", [1, 5])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_log_gives_what_a_full_build_gives(tmp_path, change, buckets):
    first, second = write_jsonl(tmp_path / "a.jsonl", rows(USERS)), write_jsonl(tmp_path / "b.jsonl", CHANGES[change])
    run(config_of(tmp_path / "grown", first, buckets=buckets))
    grown = run(config_of(tmp_path / "grown", first, second, buckets=buckets))
    import_only(config_of(tmp_path / "whole", first, buckets=buckets))
    whole = run(config_of(tmp_path / "whole", first, second, buckets=buckets))
    assert whole.built.version == grown.built.version
    assert versions_outputs(whole) == versions_outputs(grown)
    assert whole.built.report.outcomes == grown.built.report.outcomes


def test_only_changed_namespaces_are_computed(tmp_path, monkeypatch):
    first = write_jsonl(tmp_path / "a.jsonl", rows(USERS))
    second = write_jsonl(tmp_path / "b.jsonl", CHANGES["a late message"] + CHANGES["a new namespace"])
    run(config_of(tmp_path / "store", first, buckets=2))
    computed = {}
    for name in ("segment", "extract", "consolidate", "group", "propagate", "relate", "build_index", "merge_imports"):
        original = getattr(stages, name)

        def counted(*arguments, name=name, original=original):
            tables = arguments[0] if name == "merge_imports" else [getattr(arguments[0], "turns", arguments[0])]
            found = {space for table in tables for space in table.column("namespace").to_pylist()}
            computed[name] = computed.get(name, set()) | found
            return original(*arguments)

        monkeypatch.setattr(stages, name, counted)
    run(config_of(tmp_path / "store", first, second, buckets=2))
    assert all(names == {"acme/user05", "acme/zoe"} for names in computed.values())
    assert len(computed) == 8


def test_a_parent_that_is_damaged_or_of_other_settings_gives_nothing(tmp_path):
    first = write_jsonl(tmp_path / "a.jsonl", rows(USERS))
    second = write_jsonl(tmp_path / "b.jsonl", CHANGES["a late message"])
    config = config_of(tmp_path / "store", first, buckets=1)
    served = manifest_of(run(config))["buckets"]["0"]["folder"]
    for path in (tmp_path / "store").glob("outputs/*/*/*.[pa]*"):
        if "import" not in path.parts:
            content = path.read_bytes()
            path.write_bytes(content[:40] + b"?" + content[41:])
    grown = run(config_of(tmp_path / "store", first, second, buckets=1))
    other = config_of(tmp_path / "store", first, second, buckets=1, index={"b": 0.5})
    changed = run(other)
    whole = run(config_of(tmp_path / "whole", first, second, buckets=1))
    assert grown.built.turns == whole.built.turns
    assert (tmp_path / "store" / served / "turn.faiss").exists(), "what is served was removed, and not made again"
    texts = {}
    for done, root in ((grown, "store"), (whole, "whole")):
        index = done.store.root / manifest_of(done)["buckets"]["0"]["folder"] / "nodes.arrow"
        texts[root] = open_arrow(index).select(["turn_id", "text", "position"]).to_pylist()
    assert texts["store"] == texts["whole"]
    assert changed.built.version != grown.built.version


def test_a_random_history_ends_like_a_full_build(tmp_path):
    random_number = random.Random(7)
    everything = rows(USERS, 12)
    random_number.shuffle(everything)
    logs = []
    for number in range(4):
        part = everything[number * 36 : (number + 1) * 36]
        edits = [row | {"text": row["text"] + " Really."} for row in random_number.sample(everything, 3)]
        logs.append(write_jsonl(tmp_path / f"{number}.jsonl", part + edits))
        grown = run(config_of(tmp_path / "grown", *logs, buckets=3))
    assert grown.built.report.outcomes["index"] == {"ok": grown.built.turns}
    for number in range(1, 4):
        import_only(config_of(tmp_path / "whole", *logs[:number], buckets=3))
    whole = run(config_of(tmp_path / "whole", *logs, buckets=3))
    assert versions_outputs(whole) == versions_outputs(grown)
