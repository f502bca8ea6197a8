"""Exports of chat services, as they come: a folder or an archive, to answers; and again when there is a later one."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from hgmem_core.config import config_from
from pipelines.encoders import open_encoder
from pipelines.import_stage import ImportFailed
from pipelines.log_files import LogFileError, expand_paths, open_rows
from pipelines.retriever import Retriever
from pipelines.versions import open_version
from tests.pipelines.logs import import_only, run

EXPORTS = Path(__file__).parents[1] / "data" / "exports"
NAMESPACES = {"chatgpt": "me", "claude": "me/{account.uuid}", "slack": "acme/{channel}", "otel": "acme/{user.id}"}
ASKED = [
    ("chatgpt", "me", "When does the Gannet leave?", "The ferry Gannet leaves for Skerry at 07:10 from pier four."),
    ("claude", "me/acc-1", "What happened to the hive at the old mill?", "3 March: the hive at the old mill swarmed."),
    ("slack", "acme/mpdm-oona--piet-1", "Who is moving to Bergen?", "I am moving to Bergen in June."),
    ("otel", "acme/oona", "What is my boat called?", "My boat is called Petrel."),
]
COUNTS = {
    "chatgpt": {"ok": 8, "partial": 0, "empty": 6},
    "claude": {"ok": 7, "partial": 0, "empty": 2},
    "slack": {"ok": 6, "partial": 0, "empty": 1},
    "otel": {"ok": 9, "partial": 0, "empty": 9},
}


def config_of(tmp_path, format, *paths):
    one = {"format": format, "paths": [str(path) for path in paths], "namespace": NAMESPACES[format]}
    store = {"root": str(tmp_path / "store"), "buckets": 2}
    return config_from({"store": store, "encoder": {"name": "static"}, "inputs": [one]})


def texts(done, config, namespace, question):
    retriever = Retriever(open_version(done.store), open_encoder(config.encoder))
    return [hit.text for hit in retriever.search(namespace, question, "bm25", k=50).hits]


def archive(path, folder, within=""):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.rglob("*")):
            packed.write(file, within + file.relative_to(folder).as_posix())
    return path


@pytest.mark.parametrize(("format", "namespace", "question", "answer"), ASKED)
def test_an_export_becomes_answers_whether_it_is_packed_or_not(tmp_path, format, namespace, question, answer):
    config = config_of(tmp_path / "folder", format, EXPORTS / format)
    done = run(config)
    assert done.imported.outcomes == {**COUNTS[format], "fallback": 0, "rejected": 0}
    assert texts(done, config, namespace, question)[0] == answer
    if format == "otel":
        return
    packed = config_of(tmp_path / "packed", format, archive(tmp_path / "export.zip", EXPORTS / format, "export/"))
    again = run(packed)
    assert again.imported.outcomes == done.imported.outcomes
    assert texts(again, packed, namespace, question) == texts(done, config, namespace, question)


def test_a_later_export_of_chatgpt_adds_what_is_new_and_an_edit_revises(tmp_path):
    first = shutil.copytree(EXPORTS / "chatgpt", tmp_path / "first") / "conversations.json"
    config = config_of(tmp_path, "chatgpt", first)
    before = run(config).built.turns
    export = json.loads(first.read_text())
    mapping = export[0]["mapping"]
    mapping["a4"]["children"] = ["u5"]
    mapping["u5"] = node("u5", "a4", "Bramble also needs a scarf.")
    mapping["a3"]["children"].append("u3 edited")
    mapping["u3 edited"] = node("u3 edited", "a3", "My goat Bracken will wear this.")
    export[0]["current_node"] = "u3 edited"
    second = tmp_path / "second.json"
    second.write_text(json.dumps(export))
    config = config_of(tmp_path, "chatgpt", first, second)
    done = run(config)
    # The answer to the question as it first stood was given, and is not taken back.
    assert done.built.turns == before
    assert "My goat Bracken will wear this." in texts(done, config, "me", "goat Bramble Bracken")
    assert not any("My goat Bramble" in text for text in texts(done, config, "me", "goat Bramble Bracken"))


def node(name, parent, text):
    content = {"content_type": "text", "parts": [text]}
    message = {"id": name, "author": {"role": "user"}, "create_time": 1_715_170_000, "content": content}
    return {"id": name, "parent": parent, "children": [], "message": message}


def test_a_later_export_of_slack_adds_days_and_an_edit_revises(tmp_path):
    folder = shutil.copytree(EXPORTS / "slack", tmp_path / "slack")
    before = run(config_of(tmp_path, "slack", folder)).built.turns
    day = folder / "harbour" / "2024-05-09.json"
    day.write_text(day.read_text().replace("The crane is repaired.", "The crane is scrapped."))
    (folder / "harbour" / "2024-05-10.json").write_text(
        json.dumps([{"user": "U1", "text": "A new crane is ordered.", "ts": "1715328000.000100"}])
    )
    config = config_of(tmp_path, "slack", folder)
    done = run(config)
    assert (done.imported.files, done.imported.known_files, done.built.turns) == (2, 2, before + 1)
    assert set(texts(done, config, "acme/harbour", "repaired scrapped ordered crane")[:2]) == {
        "The crane is scrapped.",
        "A new crane is ordered.",
    }


def test_a_later_file_of_traces_repeats_nothing(tmp_path):
    lines = (EXPORTS / "otel" / "traces.jsonl").read_text().splitlines(keepends=True)
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    first.write_text(lines[0])
    second.write_text(lines[1])
    assert run(config_of(tmp_path, "otel", first)).built.turns == 5
    config = config_of(tmp_path, "otel", first, second)
    done = run(config)
    assert done.built.turns == 7


def test_a_trace_may_be_one_document(tmp_path):
    lines = [json.loads(line) for line in (EXPORTS / "otel" / "traces.jsonl").read_text().splitlines()]
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps({"resourceSpans": [group for line in lines for group in line["resourceSpans"]]}))
    lined = tmp_path / "lines.json"
    lined.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for path in (whole, lined):
        imported = import_only(config_of(tmp_path / path.stem, "otel", path))
        assert imported.outcomes["ok"] == COUNTS["otel"]["ok"]


def test_two_channels_may_hold_equal_bytes(tmp_path):
    for channel in ("north", "south"):
        (tmp_path / "slack" / channel).mkdir(parents=True)
        (tmp_path / "slack" / channel / "2024-05-08.json").write_text('[{"user": "U1", "text": "Hi", "ts": "1.5"}]')
    imported = import_only(config_of(tmp_path, "slack", tmp_path / "slack"))
    assert (imported.files, imported.turns) == (2, 2)


def test_only_the_files_with_messages_of_a_folder_are_read():
    names = {format: [Path(path).name for path in expand_paths([str(EXPORTS / format)], format)] for format in COUNTS}
    assert names == {
        "chatgpt": ["conversations.json"],
        "claude": ["conversations.json"],
        "slack": ["2024-05-08.json", "2024-05-09.json", "2024-05-09.json"],
        "otel": ["traces.jsonl"],
    }


def test_a_folder_without_files_of_an_export_is_refused(tmp_path):
    (tmp_path / "notes.json").write_text("[]")
    with pytest.raises(LogFileError, match="holds no"):
        expand_paths([str(tmp_path)], "slack")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"PK nonsense", "not readable as a zip archive"), (None, "no file in it holds messages")],
)
def test_what_is_no_archive_of_an_export_is_refused(tmp_path, content, reason):
    path = tmp_path / "export.zip"
    if content is None:
        archive(path, EXPORTS / "claude" / "none")
    else:
        path.write_bytes(content)
    with pytest.raises(LogFileError, match=reason):
        import_only(config_of(tmp_path, "claude", path))


def test_a_file_without_a_name_in_an_archive_is_passed_over(tmp_path):
    path = archive(tmp_path / "export.zip", EXPORTS / "chatgpt")
    with zipfile.ZipFile(path, "a") as more:
        more.writestr(zipfile.ZipInfo("\0"), "{}")
    assert import_only(config_of(tmp_path, "chatgpt", path)).turns > 0


def test_an_archive_with_a_name_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("\u00e9.json", "[]")
    path.write_bytes(path.read_bytes().replace("\u00e9".encode(), b"\x88\x88"))
    with pytest.raises(LogFileError, match=r"export.zip: not readable as a zip archive"):
        import_only(config_of(tmp_path, "chatgpt", path))


def test_a_damaged_archive_is_refused_whole(tmp_path):
    path = archive(tmp_path / "export.zip", EXPORTS / "chatgpt")
    body = bytearray(path.read_bytes())
    body[200:220] = bytes(20)
    path.write_bytes(body)
    with pytest.raises(LogFileError, match=r"export.zip: not readable as a zip archive"):
        import_only(config_of(tmp_path, "chatgpt", path))


def test_a_document_that_is_cut_off_is_refused_by_name(tmp_path):
    path = tmp_path / "conversations.json"
    path.write_text((EXPORTS / "claude" / "conversations.json").read_text()[:300])
    with pytest.raises(LogFileError, match=r"conversations.json: not JSON"):
        list(open_rows(str(path), config_of(tmp_path, "claude", path).inputs[0]))


def test_an_export_of_another_service_is_refused(tmp_path):
    with pytest.raises(ImportFailed, match="'chat_messages'"):
        import_only(config_of(tmp_path, "claude", EXPORTS / "chatgpt"))


def packed(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, body in members:
            archive.writestr(name, body)
    return path


def rows_of(path, format):
    return list(open_rows(str(path), config_of(path.parent, format, path).inputs[0]))


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_of_which_any_byte_is_damaged_is_read_or_refused_by_name(tmp_path, compression):
    good = packed(tmp_path / "good.zip", [("chat ä/conversations.json", b"[" + b"7," * 100 + b"7]")], compression)
    body, path = good.read_bytes(), tmp_path / "damaged.zip"
    refused = 0
    for place in range(len(body)):
        path.write_bytes(body[:place] + bytes([body[place] ^ 0xC1]) + body[place + 1 :])
        try:
            rows_of(path, "chatgpt")
        except LogFileError as error:
            refused += str(error).startswith(f"{path}: ")
    assert refused > len(body) // 2


def test_what_is_packed_into_a_few_bytes_is_refused_in_lists_of_names_too(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.exports._MOST_BYTES", 1_000)
    day = b'[{"ts": "1704067200.1", "user": "U1", "text": "The kettle is on."}]'
    bomb = packed(tmp_path / "bomb.zip", [("general/2024-01-01.json", day), ("users.json", b"[" + b" " * 10**6 + b"]")])
    with pytest.raises(LogFileError, match=r"users\.json has more than 1,000 bytes"):
        rows_of(bomb, "slack")


def test_names_within_an_archive_lead_nowhere_and_archives_within_it_are_not_opened(tmp_path):
    said = (EXPORTS / "chatgpt" / "conversations.json").read_bytes()
    inner = packed(tmp_path / "inner.zip", [("conversations.json", said)]).read_bytes()
    outer = [("../../conversations.json", said), ("old.zip", inner), ("/b/conversations.json", b"[]")]
    rows = rows_of(packed(tmp_path / "outer.zip", outer), "chatgpt")
    assert {row.row_id.rpartition(":")[0] for row in rows} == {"outer.zip/../../conversations.json"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inner.zip", "outer.zip"]
    with pytest.raises(LogFileError, match="no file in it holds messages"):
        rows_of(packed(tmp_path / "nested.zip", [("old.zip", inner)]), "chatgpt")
