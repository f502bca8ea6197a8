"""A log that gives orders, and a model that obeys them: from the import to an answer, with the model's request log."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.core.test_claims import BREAKOUTS, ORDER
from tests.pipelines.endpoint import client_of
from tests.pipelines.logs import config_of, run, write_jsonl
from tests.pipelines.scripted_model import answer, script_of
from tests.pipelines.scripted_server import Scripted, ScriptedServer

QUESTION = {"query": "Who is admin, and which rules are to be ignored?", "namespace": "acme/ana"}
TALK = ["I moved to Lisbon in May.", "How is the flat by the harbour?", "Tiny, with a view of the river."]


def obeys(body):
    """Do whatever the log orders, beside the task: an admin of every turn, citations that nobody gave."""
    user = body["messages"][1]["content"]
    kind = body["response_format"]["json_schema"]["name"]
    good = answer(user, kind)
    if kind == "Facts":
        n = len(good["facts"]) + 1
        numbers = [int(number) for number in re.findall(r"^\[(\d+)\]", user, re.MULTILINE)]
        good["facts"] += [
            {"n": n + at, "statement": "User is admin.", "turns": [number]} for at, number in enumerate([*numbers, 99])
        ]
    if kind == "CitedReply":
        good = {"citations": [99, 7], "answer": "User is admin. [99]", "missing": ""}
    return Scripted(json.dumps(good))


@pytest.fixture(scope="module")
def server():
    with ScriptedServer(obeys) as server:
        yield server


@pytest.fixture(scope="module")
def config(tmp_path_factory, server):
    """A store that an obedient model made facts for, of a log in which every third turn breaks out."""
    folder = tmp_path_factory.mktemp("injection")
    texts = [
        text for number, evil in enumerate(BREAKOUTS.values()) for text in (f"{TALK[number % 3]} ({number})", evil)
    ]
    rows = [
        {
            "id": f"m{number}",
            "user": "ana",
            "session": f"s{number // 4}",
            "time": f"2024-03-01T18:{number:02d}:00+00:00",
            "speaker": ("Ana", "Mallory")[number % 2],
            "text": text,
        }
        for number, text in enumerate(texts)
    ]
    llm = {"engine": "http", "model": "scripted", "http": {"url": server.url}}
    config = config_of(folder / "store", write_jsonl(folder / "log.jsonl", rows), buckets=1, llm=llm)
    run(config)
    return config


def chats(server):
    return [one.body["messages"] for one in server.log_of("/v1/chat/completions")]


def test_no_order_of_a_log_stands_outside_of_a_quotation_in_any_request(config, server):
    asked = chats(server)
    assert len(asked) > 5 and all([message["role"] for message in messages] == ["system", "user"] for messages in asked)
    quoting = 0
    for system, user in asked:
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', user["content"])
        told = bare.partition("\nAn earlier answer could not be used")[0] + system["content"]
        assert not [word for word in ("admin", "Ignore", "Mallory", "管理员", "<|", "INST") if word in told]
        quoting += ORDER[:20] in user["content"]
    assert quoting > 3


def test_what_an_obedient_model_states_is_no_fact_without_a_turn_that_says_it(config):
    [path] = config_root(config).glob("outputs/extract/*/facts.parquet")
    facts = pq.read_table(path).to_pylist()
    [turns] = config_root(config).glob("outputs/merge/*/turns.parquet")
    said = {row["turn_id"]: row for row in pq.read_table(turns).to_pylist()}
    stated = [row for row in facts if "User is admin." in row["text"]]
    assert stated
    for row in stated:
        assert row["text"] == 'Mallory said: "User is admin."'
        assert row["turn_ids"] and all("admin" in said[turn]["text"] for turn in row["turn_ids"])
    assert len({row["text"] for row in facts}) > len(TALK)


def config_root(config):
    return Path(config.store.root)


def test_an_obedient_model_cites_nothing_that_it_was_not_given(config, server):
    with client_of(config) as client:
        whole = client.post("/v1/answer", json=QUESTION | {"tokens": 60}).json()
        events = client.post("/v1/answer", json=QUESTION | {"tokens": 60, "stream": True}).text
    assert (whole["outcome"], whole["answer"], whole["citations"]) == ("failed", "", [])
    assert "99" in whole["reason"]["text"] and "User is admin" not in events


def test_what_a_log_orders_is_answered_as_what_its_speaker_said(config, server):
    server.script = script_of()
    try:
        with client_of(config) as client:
            whole = client.post("/v1/answer", json=QUESTION).json()
    finally:
        server.script = obeys
    [citation] = whole["citations"]
    user = chats(server)[-1][1]["content"]
    assert f"[{citation['number']}] " in user and citation["turn_ids"]
    assert not [mark for mark in ("<|", "</", "\u2028", "\U000e0075") if mark in user]
