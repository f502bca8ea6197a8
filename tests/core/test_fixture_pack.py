"""The small invented inputs that tests share, each with what is to come of it."""

import json
from pathlib import Path

import pytest

from hgmem_core.chat import Reply
from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import LogRow, Message
from hgmem_core.replies import read_reply
from tests.core.test_replies import Items, outcome

DATA = Path(__file__).parents[1] / "data"
REPLIES = sorted((DATA / "replies").iterdir())


def lines(name):
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


@pytest.mark.parametrize("row", lines("times.jsonl"), ids=lambda row: row["id"])
def test_the_time_of_a_row_is_read_in_its_zone_or_left_out(row):
    settings = {"namespace": "acme", "time_zone": row["zone"], "columns": {"time": "time", "id": "id"}}
    config = InputConfig(format="jsonl", paths=["times.jsonl"], **settings)
    (message,) = IMPORTERS["jsonl"]([LogRow("times:1", row)], config)
    assert isinstance(message, Message)
    assert (message.said_at and message.said_at.isoformat()) == row["utc"]
    assert (message.note is None) == (row["utc"] is not None or row["time"] is None)


@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.stem)
def test_a_reply_is_read_as_it_is_meant_and_what_is_lost_is_told(path):
    told = json.loads(path.read_text("utf-8"))
    reply = told["reply"]
    reading = read_reply(
        Reply(reply["text"], reply.get("reasoning"), reply.get("finish_reason", "stop")),
        Items,
    )
    assert outcome(reading) == (told["statements"], told["fault"], told["is_cut"])


def test_the_pack_has_a_reply_for_each_case():
    assert [path.stem[:2] for path in REPLIES] == [f"{number:02d}" for number in range(1, 20)]
