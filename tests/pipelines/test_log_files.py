import gzip
import json
import os
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.config import InputConfig
from hgmem_core.messages import LogRow
from pipelines import log_rows
from pipelines.log_files import LogFileError, check_columns, expand_paths, open_rows


def config(format="jsonl", namespace="acme", **columns):
    return InputConfig(format=format, paths=["log"], namespace=namespace, columns=columns)


@pytest.fixture
def write(tmp_path):
    """Writes a file of the given content, a table as Parquet, and returns its path."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, pa.Table):
            pq.write_table(content, path)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def rows(path, format="jsonl"):
    return list(open_rows(path, config(format)))


# JSON lines


def test_lines_become_rows_with_their_numbers_and_blank_ones_are_passed_over(write):
    path = write("chat.jsonl", '\ufeff{"text": "one"}\n\n  \r\n{"text": "two"}\r\n{"text": "three"}')
    assert rows(path) == [
        LogRow("chat.jsonl:1", {"text": "one"}),
        LogRow("chat.jsonl:4", {"text": "two"}),
        LogRow("chat.jsonl:5", {"text": "three"}),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "caf\xe9"}', "not UTF-8"),
        (b'{"text": "cut off', "not JSON"),
        (b'{"text": "a"} {"text": "b"}', "not JSON"),
        (b"[" * 100_000, "not usable JSON"),
        (b"[" * 300 + b"]" * 300, "nested more than 100 deep"),
        (b'{"n": ' + b"9" * 5_000 + b"}", "not usable JSON"),
    ],
)
def test_a_bad_line_is_a_row_with_an_error_and_the_next_ones_go_on(write, line, reason):
    before, bad, after = rows(write("chat.jsonl", b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n'))
    assert (bad.row_id, bad.value) == ("chat.jsonl:2", None)
    assert reason in bad.error
    assert bad.raw.encode()[:8] == line[:8]
    assert len(bad.raw) <= 2_000
    assert (before.value, after.value) == ({"text": "before"}, {"text": "after"})


def test_a_line_beyond_the_limit_is_a_row_with_an_error(write, monkeypatch):
    monkeypatch.setattr(log_rows, "MAX_LINE_BYTES", 100)
    lines = [json.dumps({"text": "x" * size}) for size in (10, 87, 88, 5_000_000, 10)]
    short, exact, long, longest, last = rows(write("chat.jsonl", "\n".join(lines)))
    assert [row.error is None for row in (short, exact, long, longest, last)] == [True, True, False, False, True]
    assert "longer than" in longest.error
    assert longest.raw.startswith('{"text": "xxx')
    assert last.row_id == "chat.jsonl:5"


def test_not_a_number_is_null_and_large_integers_are_kept(write):
    (row,) = rows(write("chat.jsonl", '{"a": NaN, "b": -Infinity, "c": 12345678901234567890123}'))
    assert row.value == {"a": None, "b": None, "c": 12345678901234567890123}


def test_a_moderate_nesting_is_kept(write):
    deepest, flat, deeper = rows(
        write(
            "chat.jsonl",
            "\n".join(["[" * 100 + "1" + "]" * 99 + ",{}]", "[" + "{}," * 200 + "1]", "[" * 101 + "]" * 101]),
        )
    )
    assert (deepest.error, flat.error) == (None, None)
    assert "nested" in deeper.error


def test_lines_may_be_compressed(write):
    assert rows(write("chat.jsonl.gz", gzip.compress(b'{"text": "one"}\n')))[0].value == {"text": "one"}


def test_a_cut_off_compressed_file_is_refused(write):
    content = "".join(f'{{"text": "{number * 7919}"}}\n' for number in range(5_000))
    path = write("chat.jsonl.gz", gzip.compress(content.encode())[:-20])
    with pytest.raises(LogFileError, match=r"chat.jsonl.gz: cannot be read"):
        rows(path)


@given(st.binary(max_size=60))
def test_any_bytes_are_rows_or_a_refused_file(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("log") / "chat.jsonl"
    path.write_bytes(content)
    for format in ("jsonl", "csv", "openai", "parquet"):
        try:
            found = rows(str(path), format)
        except LogFileError as error:
            assert str(path) in str(error)
        else:
            assert len({row.row_id for row in found}) == len(found)
            assert all((row.value is None) or (row.error is None) for row in found)


# CSV


def test_csv_records_become_rows_named_by_the_line_they_start_on(write):
    path = write("chat.csv", '\ufeffid,text\n1,"two\nlines, one ""field"""\n\n2,plain\n')
    assert rows(path, "csv") == [
        LogRow("chat.csv:2", {"id": "1", "text": 'two\nlines, one "field"'}),
        LogRow("chat.csv:5", {"id": "2", "text": "plain"}),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"2,one,too many", "3 fields and the header 2"),
        (b"2", "1 fields and the header 2"),
        (b"  ", "1 fields and the header 2"),
        (b"2,caf\xe9", "not UTF-8: column 'text'"),
        (b'2,"quoted" badly', "not CSV"),
    ],
)
def test_a_bad_csv_row_is_a_row_with_an_error_and_the_next_ones_go_on(write, line, reason):
    before, bad, after = rows(write("chat.csv", b"id,text\n1,before\n" + line + b"\n3,after\n"), "csv")
    assert (bad.row_id, bad.value) == ("chat.csv:3", None)
    assert reason in bad.error
    (bad.raw or "").encode()
    assert (before.value["text"], after.value["text"]) == ("before", "after")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ('3,"open\n4,four\n\n6,six\n', "not CSV: unexpected end of data"),
        ('3,"open\n4,four\n\n6,"six"\n7,seven\n', "not CSV: ',' expected after"),
        ('3,"open\n4,four\n\n6,six",too many\n7,seven\n', "3 fields and the header 2"),
    ],
)
def test_every_line_that_an_open_quote_swallows_is_an_error_of_its_own(write, broken, reason):
    good, *found = rows(write("chat.csv", "id,text\n2,two\n" + broken), "csv")
    bad = [row for row in found if row.error]
    assert good.error is None
    assert [row.row_id for row in bad] == ["chat.csv:3", "chat.csv:4", "chat.csv:6"]
    assert [row.raw[:2] for row in bad] == ["3,", "4,", "6,"]
    assert {row.error for row in bad} == {bad[0].error}
    assert reason in bad[0].error
    assert "lines 3 to 6 were read as one row" in bad[0].error
    assert [row.value["text"] for row in found[3:]] == (["seven"] if "7,seven" in broken else [])


def test_lines_in_a_field_beyond_the_limit_are_errors_of_their_own(write, monkeypatch):
    monkeypatch.setattr(log_rows, "MAX_LINE_BYTES", 100)
    found = rows(write("chat.csv", 'id,text\n2,"open\n' + "".join(f"{n},{'x' * 40}\n" for n in range(3, 9))), "csv")
    assert [row.row_id for row in found] == [f"chat.csv:{number}" for number in range(2, 9)]
    assert [row.error is None for row in found] == [False] * 4 + [True] * 3


def test_a_text_of_several_lines_that_is_not_utf_8_is_one_row(write):
    bad, good = rows(write("chat.csv", b'id,text\n2,"caf\xe9\nau lait"\n4,four\n'), "csv")
    assert (bad.row_id, bad.error, good.row_id) == ("chat.csv:2", "not UTF-8: column 'text'", "chat.csv:4")


def test_a_csv_field_of_megabytes_is_read(write):
    (row,) = rows(write("chat.csv", "id,text\n1," + "x" * 5_000_000 + "\n"), "csv")
    assert len(row.value["text"]) == 5_000_000


def test_a_csv_line_beyond_the_limit_is_refused(write, monkeypatch):
    monkeypatch.setattr(log_rows, "MAX_LINE_BYTES", 1_000)
    with pytest.raises(LogFileError, match="longer than 1,000"):
        rows(write("chat.csv", "id,text\n1," + "x" * 2_000), "csv")


def test_a_csv_file_with_only_a_header_has_no_rows(write):
    assert rows(write("chat.csv", "id,text\n"), "csv") == []


# Parquet


def test_parquet_rows_keep_their_types(write):
    said = datetime(2024, 5, 8, 11, 56, 0, 123456, tzinfo=UTC)
    table = pa.table(
        {
            "text": pa.array(["one", None]).dictionary_encode(),
            "long": pa.array(["x", "y"], pa.large_string()),
            "said": pa.array([said, None], pa.timestamp("us", "UTC")),
            "parts": pa.array([[{"type": "text", "text": "a"}], []]),
            "raw": pa.array([b"a", None]),
        }
    )
    first, second = rows(write("chat.parquet", table), "parquet")
    assert first == LogRow(
        "chat.parquet:1",
        {"text": "one", "long": "x", "said": said, "parts": [{"type": "text", "text": "a"}], "raw": b"a"},
    )
    assert second.value == {"text": None, "long": "y", "said": None, "parts": [], "raw": None}


def test_nanoseconds_are_cut_to_microseconds(write):
    table = pa.table({"said": pa.array([1_715_169_360_123_456_789], pa.timestamp("ns", "UTC"))})
    (row,) = rows(write("chat.parquet", table), "parquet")
    assert row.value["said"] == datetime(2024, 5, 8, 11, 56, 0, 123456, tzinfo=UTC)


def test_a_value_that_python_cannot_hold_is_an_error_of_its_row(write):
    beyond = pa.array([0, 2**60, 1], pa.timestamp("ms"))
    first, bad, last = rows(write("chat.parquet", pa.table({"said": beyond})), "parquet")
    assert (bad.row_id, bad.value) == ("chat.parquet:2", None)
    assert "cannot be read" in bad.error
    assert (first.error, last.error) == (None, None)


def test_parquet_is_read_in_batches_with_numbers_that_go_on(write):
    table = pa.table({"text": [f"number {number}" for number in range(10_000)]})
    found = rows(write("chat.parquet", table), "parquet")
    assert [found[index].row_id for index in (0, 4_096, 9_999)] == [
        "chat.parquet:1",
        "chat.parquet:4097",
        "chat.parquet:10000",
    ]
    assert found[9_999].value == {"text": "number 9999"}


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_parquet_column_in_an_unknown_time_zone_refuses_the_file(write, unit, nested):
    kind = pa.timestamp(unit, "Foo/Bar")
    said = pa.array([[{"at": 0}]], pa.list_(pa.struct([("at", kind)]))) if nested else pa.array([0], kind)
    path = write("chat.parquet", pa.table({"text": ["one"], "said": said}))
    with pytest.raises(LogFileError, match=r"chat.parquet: the column 'said' has the time zone 'Foo/Bar'"):
        rows(path, "parquet")


def test_parquet_times_may_have_offsets(write):
    (row,) = rows(write("chat.parquet", pa.table({"said": pa.array([0], pa.timestamp("us", "+02:00"))})), "parquet")
    assert row.value["said"] == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_parquet_file_without_rows_has_none(write):
    assert rows(write("chat.parquet", pa.table({"text": pa.array([], pa.string())})), "parquet") == []


# JSON documents

TALK = {"messages": [{"role": "user", "content": "Ahoy"}]}


@pytest.mark.parametrize(
    ("document", "values"),
    [
        (TALK, [TALK]),
        ([TALK, TALK], [TALK, TALK]),
        ({"conversations": [TALK, TALK]}, [TALK, TALK]),
        (TALK["messages"], [TALK["messages"]]),
        ([*TALK["messages"], 5], [[*TALK["messages"], 5]]),
        ([TALK["messages"], TALK["messages"]], [TALK["messages"], TALK["messages"]]),
        ([], []),
    ],
)
def test_a_document_holds_one_conversation_or_many(write, document, values):
    found = rows(write("chat.json", json.dumps(document)), "openai")
    assert [row.value for row in found] == values
    assert [row.row_id for row in found] == [f"chat.json:{number}" for number in range(1, len(values) + 1)]


def test_a_document_of_samples_is_a_list_or_a_single_one(write):
    sample = {"sample_id": "pair-1", "conversation": {}}
    assert [row.value for row in rows(write("a.json", json.dumps([sample, sample])), "locomo")] == [sample, sample]
    assert [row.value for row in rows(write("b.json", json.dumps(sample)), "locomo")] == [sample]


@pytest.mark.parametrize("name", ["chat.jsonl", "chat.ndjson"])
def test_conversations_may_stand_one_a_line(write, name):
    found = rows(write(name, f"{json.dumps(TALK)}\nbroken\n{json.dumps(TALK['messages'])}\n"), "openai")
    assert [row.value for row in found] == [TALK, None, TALK["messages"]]


def test_a_broken_document_is_refused(write):
    with pytest.raises(LogFileError, match=r"chat.json: not JSON"):
        rows(write("chat.json", '{"messages": ['), "openai")


def test_lines_named_as_a_document_are_refused_with_advice(write):
    with pytest.raises(LogFileError, match=r"name it .jsonl"):
        rows(write("chat.json", '{"messages": []}\n{"messages": []}'), "openai")


# Whole files


@pytest.mark.parametrize("format", ["jsonl", "csv", "openai", "locomo", "parquet"])
def test_a_missing_file_and_an_empty_one_are_refused(write, tmp_path, format):
    for path in (str(tmp_path / "nowhere.log"), write("empty.log", b""), str(tmp_path)):
        with pytest.raises(LogFileError, match=path):
            rows(path, format)


@pytest.mark.parametrize("format", ["jsonl", "csv", "openai"])
def test_a_binary_file_is_refused_as_text(write, format):
    for name, content in [
        ("a.log", pa.table({"text": ["one"]})),
        ("b.log", gzip.compress(b'{"text": "one"}')),
        ("c.log", "text\none".encode("utf-16")),
        ("d.log", bytes(range(32)) * 100 + bytes(500)),
    ]:
        with pytest.raises(LogFileError, match=f"{name}: not {format}"):
            rows(write(name, content), format)


@pytest.mark.parametrize("content", [b"text\none\n", b"PAR1 but not really PAR1"])
def test_text_is_refused_as_parquet(write, content):
    with pytest.raises(LogFileError, match="cannot be read as Parquet"):
        rows(write("chat.parquet", content), "parquet")


# Paths


def test_paths_are_files_patterns_and_folders_each_file_once(write, tmp_path):
    for name in (
        "logs/b.jsonl",
        "logs/a.jsonl",
        "logs/deep/c.jsonl",
        "logs/.hidden",
        "logs/_SUCCESS",
        "logs/_tmp/d.jsonl",
    ):
        write(name, "{}")
    inside = [str(tmp_path / "logs" / name) for name in ("a.jsonl", "b.jsonl", "deep/c.jsonl")]
    assert expand_paths([str(tmp_path / "logs")]) == inside
    assert expand_paths([f"{tmp_path}/logs/*.jsonl"]) == inside[:2]
    assert expand_paths([f"{tmp_path}/logs/**/*.jsonl"])[-1] != inside[0]
    assert expand_paths([inside[1], str(tmp_path / "logs")]) == [inside[1], inside[0], inside[2]]


def test_a_name_that_looks_like_a_pattern_is_that_file(write):
    path = write("chat[1].jsonl", "{}")
    assert expand_paths([path]) == [path]


def test_a_path_without_files_is_refused(tmp_path):
    for path in (str(tmp_path), f"{tmp_path}/*.jsonl", f"{tmp_path}/chat.jsonl"):
        with pytest.raises(LogFileError, match="`paths`"):
            expand_paths([path])


def test_a_pipe_is_refused_because_logs_are_read_several_times(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", tmp_path, f"{tmp_path}/*.jsonl"):
        with pytest.raises(LogFileError, match=r"pipe.jsonl: .*not a regular file.*save it to a file"):
            expand_paths([str(path)])


def test_a_file_whose_name_is_not_utf_8_is_refused_by_name(tmp_path):
    name = os.fsencode(tmp_path) + b"/caf\xe9.jsonl"
    with open(name, "wb") as file:
        file.write(b"{}")
    for path in (str(tmp_path), f"{tmp_path}/*.jsonl", os.fsdecode(name)):
        with pytest.raises(LogFileError, match=r"caf\\udce9.jsonl.*not UTF-8") as refusal:
            expand_paths([path])
        str(refusal.value).encode()


# Columns


def three_formats(write, columns):
    """The same one row in the three tabular formats."""
    yield "parquet", write("log.parquet", pa.table({name: [value] for name, value in columns.items()}))
    yield "jsonl", write("log.jsonl", json.dumps(columns))
    yield "csv", write("log.csv", f"{','.join(columns)}\n{','.join(columns.values())}\n")


def test_a_file_with_all_named_columns_passes(write):
    for format, path in three_formats(write, {"text": "Ahoy", "user": "oona", "at": "2024-05-08"}):
        check_columns(path, config(format, "acme/{user}", time="at"))


@pytest.mark.parametrize(
    ("namespace", "columns", "missing"), [("acme/{tenant}", {}, "tenant"), ("acme", {"text": "body"}, "body")]
)
def test_a_missing_text_or_namespace_column_is_named_with_those_there_are(write, namespace, columns, missing):
    for format, path in three_formats(write, {"text": "Ahoy", "user": "oona"}):
        with pytest.raises(LogFileError, match=f"{path}: no column '{missing}'.* there are 'text', 'user'"):
            check_columns(path, config(format, namespace, **columns))


def test_a_missing_optional_column_is_refused(write):
    for format, path in three_formats(write, {"text": "Ahoy", "user": "oona"}):
        with pytest.raises(LogFileError, match="no column 'at'"):
            check_columns(path, config(format, time="at"))


def test_an_optional_column_may_be_in_some_rows_only(write):
    lines = ['{"text": "one"}'] * 99
    check_columns(write("a.jsonl", "\n".join([*lines, '{"text": "two", "at": null}'])), config("jsonl", time="at"))
    with pytest.raises(LogFileError, match="no column 'at' in its first 100 rows"):
        check_columns(write("b.jsonl", "\n".join([*lines, *lines, '{"text": "", "at": 1}'])), config(time="at"))


def test_a_json_column_may_come_late_but_not_after_the_sample(write):
    lines = ['{"body": "no"}'] * 99
    check_columns(write("a.jsonl", "\n".join([*lines, '{"text": "yes"}'])), config())
    with pytest.raises(LogFileError, match="in its first 100 rows"):
        check_columns(write("b.jsonl", "\n".join([*lines, *lines, '{"text": "late"}'])), config())


def test_nested_columns_may_be_named_by_a_dotted_path(write):
    record = {"text": "Ahoy", "meta": {"org": "north"}}
    check_columns(write("a.jsonl", json.dumps(record)), config("jsonl", "{meta.org}"))
    path = write("a.parquet", pa.table({"text": ["Ahoy"], "meta": [{"org": "north", "team": {"name": "b"}}]}))
    check_columns(path, config("parquet", "{meta.org}/{meta.team.name}"))
    with pytest.raises(LogFileError, match=r"no column 'meta.unit'"):
        check_columns(path, config("parquet", "{meta.unit}"))


def test_a_column_that_occurs_twice_is_refused_if_it_is_used(write):
    path = write("a.csv", "text,user,user\nAhoy,a,b\n")
    check_columns(path, config("csv"))
    with pytest.raises(LogFileError, match="'user' occurs 2 times"):
        check_columns(path, config("csv", "acme/{user}"))


def test_a_json_document_is_refused_as_lines(write):
    for content in ('[\n  {"text": "one"},\n  {"text": "two"}\n]\n', '["one"]\n["two"]\n'):
        with pytest.raises(LogFileError, match="one object with named columns a line"):
            check_columns(write("a.jsonl", content), config())


def test_lines_that_are_all_broken_are_left_to_the_import(write):
    check_columns(write("a.jsonl", '{"text": "cut\n'), config())


def test_a_malformed_namespace_template_is_refused(write):
    with pytest.raises(LogFileError, match="braces"):
        check_columns(write("a.jsonl", '{"text": "Ahoy"}'), config("jsonl", "acme/{user"))


def test_other_formats_have_no_columns_to_check(write):
    check_columns(write("chat.json", json.dumps(TALK)), config("openai"))
