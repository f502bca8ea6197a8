"""Redaction on the way into a store: nothing of what hooks take out is in any file."""

import json
import sys

import pyarrow.parquet as pq
import pytest

from hgmem_core.config import config_from
from hgmem_core.section import ConfigError
from pipelines.files import open_arrow
from pipelines.import_stage import ImportFailed
from pipelines.imports import read_imports
from pipelines.store import Store
from tests.pipelines.logs import config_of, import_only, rows, run, write_jsonl
from tests.pipelines.runs import runs, runs_input, write_runs

HOOKS = ["hgmem_core.redaction:emails", "hgmem_core.redaction:phones"]
MAIL, NUMBER = "canary@example.org", "+49 151 80904071"

OWN = """
def mask(text):
    return text.replace("bicycle", "***")

mask.revision = {revision}

def fails(text):
    if "{mail}" in text:
        raise ValueError(text)
    return text

class Odd(ValueError):
    pass

def odd(text):
    if "{mail}" in text:
        raise Odd(text)
    return text

def broken(text):
    raise KeyError("key")

def silent(text):
    return None if "{mail}" in text else text

constant = 5
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of somebody's own hooks."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_hooks", raising=False)

    def write(revision=1):
        (tmp_path / "own_hooks.py").write_text(OWN.format(revision=revision, mail=MAIL))

    write()
    yield write
    sys.modules.pop("own_hooks", None)


def texts_of(root):
    for path in root.rglob("*"):
        if path.is_file():
            yield path.read_bytes()
            if path.suffix in (".parquet", ".arrow"):
                table = pq.read_table(path) if path.suffix == ".parquet" else open_arrow(path)
                yield str(table.to_pylist()).encode()


def holds(root, *words):
    return [word for word in words if any(word.encode() in text for text in texts_of(root))]


def told(store, kind):
    [path] = store.root.glob(f"outputs/import/*/{kind}-00000.parquet")
    return pq.read_table(path).to_pylist()


def log_of(folder, hooks):
    """A log with an address and a number in every place where a text can be, and rows of no use."""
    log = rows()
    log[0]["text"] = f"Write to {MAIL} or call {NUMBER}."
    log[1]["speaker"] = MAIL
    log += [{**log[2], "id": "bad", "time": f"when {MAIL} came"}, {**log[3], "id": "empty", "text": ""}]
    ran = runs(users=("ana",))
    ran[0]["task"] += f" and tell {MAIL}"
    ran[0]["steps"][0]["observation"] = f"You called {NUMBER}."
    path = folder / "log.jsonl"
    write_jsonl(path, log)
    with path.open("a") as file:
        file.write('{"text": "' + MAIL + '", broken\n')
    tree = config_of(folder / "store", path, buckets=1, imports={"redact": hooks, "max_reject_rate": 0.5}).model_dump()
    chosen = runs_input(write_runs(folder / "runs.jsonl", ran))
    return config_from({**tree, "inputs": [*tree["inputs"], chosen]})


def test_nothing_of_what_is_taken_out_is_in_any_file(tmp_path):
    done = run(log_of(tmp_path, []))
    assert holds(tmp_path / "store", MAIL, NUMBER) == [MAIL, NUMBER]
    assert done.imported.outcomes["rejected"] == 1
    other = tmp_path / "redacted"
    other.mkdir()
    again = run(log_of(other, HOOKS))
    assert holds(other / "store", MAIL, "canary", NUMBER, "80904071") == []
    assert again.imported.outcomes == done.imported.outcomes
    assert again.built.turns == done.built.turns
    raw = {row["raw"] for row in told(again.store, "rejects")}
    assert any(text is not None and text.startswith('{"text": "[email]') for text in raw)
    assert holds(other / "store", "Write to [email] or call [phone]") != []


@pytest.mark.parametrize(
    ("name", "why"), [("fails", "ValueError"), ("odd", "Odd"), ("silent", "it gave NoneType, not str")]
)
@pytest.mark.usefixtures("own")
def test_a_row_on_which_a_hook_fails_is_rejected_without_its_text(tmp_path, name, why):
    log = rows(users=("ana",))
    log[3]["text"] = f"Write to {MAIL}."
    settings = {"redact": [f"own_hooks:{name}"], "max_reject_rate": 0.5}
    done = run(config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", log), buckets=1, imports=settings))
    assert (done.imported.outcomes["rejected"], done.built.turns) == (1, 11)
    [row] = told(done.store, "rejects")
    assert (row["reason"], row["raw"]) == (f"redaction by own_hooks:{name} failed: {why}", None)
    assert (row["namespace"], row["source_id"]) == ("acme/ana", "log.jsonl:4")
    assert holds(tmp_path / "store", MAIL) == []


@pytest.mark.usefixtures("own")
def test_a_broken_hook_ends_the_job_and_nothing_is_kept(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", rows(users=("ana",)))
    with pytest.raises(KeyError):
        run(config_of(tmp_path / "store", log, imports={"redact": ["own_hooks:broken"]}))
    assert read_imports(Store.open(tmp_path / "store")) == []


@pytest.mark.usefixtures("own")
def test_too_many_failures_keep_nothing_and_quote_nothing(tmp_path):
    log = rows(users=("ana",))
    log[3]["text"] = f"Write to {MAIL}."
    with pytest.raises(ImportFailed, match="redaction by own_hooks:fails failed: ValueError") as failed:
        run(
            config_of(
                tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", log), imports={"redact": ["own_hooks:fails"]}
            )
        )
    assert MAIL not in str(failed.value)


def test_hooks_and_their_revisions_decide_what_is_imported_again(tmp_path, own):
    log = write_jsonl(tmp_path / "log.jsonl", rows())
    plain = config_of(tmp_path / "store", log)
    masked = config_of(tmp_path / "store", log, imports={"redact": ["own_hooks:mask"]})
    assert [import_only(config).files for config in (plain, plain, masked, masked)] == [1, 0, 1, 0]
    own(revision=2)
    del sys.modules["own_hooks"]
    assert import_only(masked).files == 1


@pytest.mark.usefixtures("own")
def test_hooks_go_in_order(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", [{**row, "text": "the bicycle of a@b.de"} for row in rows(count=1)])
    settings = {"redact": ["own_hooks:mask", HOOKS[0]]}
    store = run(config_of(tmp_path / "store", log, imports=settings)).store
    assert holds(store.root, "the *** of [email]", "bicycle", "a@b.de") == ["the *** of [email]"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_module:mask", "cannot be imported"), ("own_hooks:nothing", "nothing that can be called"),
        ("own_hooks:constant", "nothing that can be called"), ("own_hooks", r"imports\.redact"),
        ("own_hooks:a b", r"imports\.redact"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("own")
def test_a_hook_that_is_none_is_refused_before_anything_is_read(tmp_path, name, why):
    log = write_jsonl(tmp_path / "log.jsonl", rows())
    with pytest.raises(ConfigError, match=why):
        run(config_of(tmp_path / "store", log, imports={"redact": [name]}))
    assert not list((tmp_path / "store").glob("imports/*"))


def test_rows_are_named_as_before(tmp_path):
    log = write_jsonl(tmp_path / "log.jsonl", rows())
    for name, hooks in (("plain", []), ("redacted", HOOKS)):
        run(config_of(tmp_path / name, log, imports={"redact": hooks}))
    manifests = [
        json.loads(next((tmp_path / name).glob("versions/*/manifest.json")).read_text())
        for name in ("plain", "redacted")
    ]
    assert manifests[0]["version"] == manifests[1]["version"]
    assert Store.open(tmp_path / "plain").version_ids() == Store.open(tmp_path / "redacted").version_ids()
