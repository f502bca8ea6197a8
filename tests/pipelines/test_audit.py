"""Texts are found wherever a store may hold them, and nowhere else."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgmem_core.dense import to_faiss
from pipelines import audit as audit_module
from pipelines.audit import Texts, audit
from pipelines.files import files_below
from pipelines.progress import Silent

CANARY = "Ünsichtbar: der rote Fink №7"


def write_parquet(path):
    steps = pa.array([[{"said": "none"}, {"said": f"it says {CANARY}!"}], []])
    pq.write_table(pa.table({"steps": steps}), path, compression="zstd", use_dictionary=True)


def write_arrow(path):
    table = pa.table({"name": pa.array(["a", f"b {CANARY}", "a"]).dictionary_encode()})
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)


def write_gzip(path):
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(f"one\n{CANARY}\n")


WRITERS = {
    "steps.parquet": write_parquet,
    "names.arrow": write_arrow,
    "manifest.json": lambda path: path.write_text(json.dumps({"a": [{"b": CANARY}]})),
    "keys.json": lambda path: path.write_text(json.dumps({CANARY: 1})),
    "job.jsonl": lambda path: path.write_text('{"a": 1}\n' + json.dumps({"a": CANARY}) + "\n"),
    "log.jsonl.gz": write_gzip,
    "turn.faiss": lambda path: path.write_bytes(bytes(to_faiss(np.ones((2, 3), np.float32))) + CANARY.encode()),
    ".draft": lambda path: path.write_text(f"left {CANARY}", encoding="utf-8"),
}


def look(root, *texts):
    return audit(root, files_below(root), Texts(texts), Silent())


@pytest.mark.parametrize("name", WRITERS)
def test_a_text_is_found_in_every_kind_of_file(tmp_path, name):
    (tmp_path / "deep" / "folder").mkdir(parents=True)
    WRITERS[name](tmp_path / "deep" / "folder" / name)
    made = look(tmp_path, CANARY, "nobody said this")
    assert {(one.path, one.text) for one in made.found} == {(f"deep/folder/{name}", CANARY)}
    assert (made.files, made.unreadable) == (1, [])
    assert made.bytes == (tmp_path / "deep" / "folder" / name).stat().st_size


def test_a_text_is_found_where_pieces_of_a_file_meet_and_at_its_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(audit_module, "PIECE_BYTES", 16)
    for place in range(40):
        (tmp_path / "file.bin").write_bytes(b"." * place + b"a canary of some length" + b"." * (40 - place))
        assert len(look(tmp_path, "a canary of some length", "another one of some length").found) == 1


def test_short_texts_and_names_of_files_are_looked_at(tmp_path):
    (tmp_path / "a-finch.json").write_text("[]")
    (tmp_path / "b.json").write_text('["ab"]')
    assert {(one.path, one.where) for one in look(tmp_path, "ab").found} == {("b.json", "bytes"), ("b.json", "values")}
    assert [(one.path, one.where) for one in look(tmp_path, "a-finch").found] == [("a-finch.json", "name")]
    with pytest.raises(ValueError, match="an empty text is everywhere"):
        Texts([""])


def test_what_cannot_be_decoded_is_told_and_its_bytes_are_looked_at(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no parquet, but a canary")
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.tar").write_bytes(b"anything")
    made = look(tmp_path, "but a canary")
    assert [(one.path, one.where) for one in made.found] == [("a.parquet", "bytes")]
    assert made.unreadable == ["a.parquet", "b.json"]
    assert made.undecoded == {".tar": 1}
