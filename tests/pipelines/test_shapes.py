"""Talks of every shape through the whole way: whose the facts are, what makes none, and what is found all the same."""

import time
from pathlib import Path

import polars as pl
import pytest

from hgmem_core.config import config_from
from pipelines.encoders import open_encoder
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from pipelines.retriever import Retriever
from pipelines.versions import open_version
from tests.pipelines.llm_marks import WORDPIECE
from tests.pipelines.logs import NOW, import_only, run, write_jsonl
from tests.pipelines.scripted_model import ScriptedChat

LLM = {"engine": "http", "model": "scripted", "tokenizer": str(WORDPIECE)}
COLUMNS = {name: name for name in ("id", "session", "time", "speaker", "role")}
QUOTING = (
    "Same here.\n\nOn Tue, 7 May 2024 at 09:14, Bo Lind <bo@example.org> wrote:\n> I am allergic to walnuts.\n"
    "> My locker is number nineteen.\n\nI will bring the red kayak."
)
FORWARDING = "For your files.\n\n---------- Forwarded message ---------\nFrom: Bo\n\nI sold my piano to Mira."
CODE = (
    "Please run this:\n\n```python\nharbour = 'The wharf master owns eleven parrots.'\n\n\nprint(harbour)\n```\n"
    "The build is red."
)


def config_of(folder, messages, chat=None, **fields):
    """A configuration for a log of messages, which is written, and a store beside it."""
    log = write_jsonl(folder / "log.jsonl", messages)
    columns = {key: name for key, name in COLUMNS.items() if any(name in message for message in messages)}
    one = {"format": "jsonl", "paths": [str(log)], "namespace": "acme/crew", "columns": columns, **fields}
    tree = {"store": {"root": str(folder / "store"), "buckets": 1}, "encoder": {"name": "static"}, "inputs": [one]}
    return config_from(tree if chat is None else {**tree, "llm": LLM})


class Memory:
    """A log of messages, built and opened."""

    def __init__(self, folder: Path, messages, chat=None, **fields):
        self.config = config_of(folder, messages, chat, **fields)
        encoder = open_encoder(self.config.encoder)
        self.done = run(self.config) if chat is None else rebuild(self.config, encoder, NOW, Silent(), chat)
        self.retriever = Retriever(open_version(self.done.store), encoder)
        self.root = folder / "store"

    def facts(self):
        """The text of every fact."""
        files = sorted(self.root.glob("outputs/consolidate/*/facts.parquet"))
        return [text for file in files for text in pl.read_parquet(file)["text"].to_list()]

    def turns(self):
        files = sorted(self.root.glob("outputs/merge/*/turns.parquet"))
        return pl.concat([pl.read_parquet(file) for file in files])

    def found(self, question, recipe="bm25"):
        """The texts of the turns that a question finds."""
        return [hit.text for hit in self.retriever.search("acme/crew", question, recipe, k=10).hits]


def say(speaker, text, minute=0, **fields):
    return {"speaker": speaker, "text": text, "time": f"2024-05-08T09:{minute:02d}:00Z", "session": "s", **fields}


def test_of_two_or_of_many_everyone_has_their_own_facts(tmp_path):
    talk = [
        say("Ana", "I moved to Bergen in March.", 0),
        say("Bo", "I keep bees behind the old mill.", 1),
        say("Chen", "My daughter plays the viola on Sundays.", 2),
        say("Ana", "I repair accordions for a living.", 3),
        say("Dora", "Where do you keep your boat, Bo?", 4),
        say("Bo", "In the north harbour, next to the crane.", 5),
    ]
    facts = Memory(tmp_path, talk).facts()
    whose = {
        "Ana": ["moved to Bergen", "repair accordions"],
        "Bo": ["keep bees", "north harbour"],
        "Chen": ["plays the viola"],
    }
    for speaker, statements in whose.items():
        for statement in statements:
            lines = [line for fact in facts for line in fact.split("\n") if statement in line]
            assert lines
            assert all(line.startswith(f"{speaker}: ") for line in lines)


@pytest.mark.parametrize("engine", ["embedded", "llm"])
def test_a_system_prompt_says_nothing_of_anybody_and_is_found(tmp_path, engine):
    talk = [
        say("system", "The user is called Walter and owns a vineyard in Porto.", 0, role="system"),
        say("developer", "The user prefers metric units and short answers.", 1, role="developer"),
        say("user", "I have two greyhounds called Flint and Ember.", 2, role="user"),
    ]
    chat = ScriptedChat() if engine == "llm" else None
    memory = Memory(tmp_path, talk, chat)
    assert any("greyhounds" in fact for fact in memory.facts())
    assert not any(word in fact for fact in memory.facts() for word in ("Walter", "vineyard", "metric"))
    assert memory.found("vineyard in Porto")[0] == talk[0]["text"]
    if chat is not None:
        asked = [request.user for request in chat.asked if request.stage == "extract"]
        assert asked
        assert not any("vineyard" in user for user in asked)


def test_a_session_of_nothing_but_instructions_is_built_with_a_model(tmp_path):
    talk = [say("system", "Answer in Norwegian, always.", 0, role="system")]
    memory = Memory(tmp_path, talk, ScriptedChat())
    assert memory.facts() == []
    assert memory.done.built.report.outcomes["extract"] == {"empty": 1}


@pytest.mark.parametrize("engine", ["embedded", "llm"])
def test_what_somebody_quotes_or_forwards_is_not_said_by_them(tmp_path, engine):
    talk = [say("Ana", QUOTING, 0), say("Ana", FORWARDING, 1), say("Ana", "> I hate the sea\nNobody says that.", 2)]
    memory = Memory(tmp_path, talk, ScriptedChat() if engine == "llm" else None)
    facts = " ".join(memory.facts())
    assert "red kayak" in facts
    assert not any(word in facts for word in ("walnuts", "nineteen", "piano", "hate the sea"))
    assert memory.found("who is allergic to walnuts?")[0] == QUOTING
    assert memory.found("the piano that was sold")[0] == FORWARDING


@pytest.mark.parametrize("engine", ["embedded", "llm"])
def test_code_makes_no_facts_and_is_kept_as_it_was_written(tmp_path, engine):
    memory = Memory(tmp_path, [say("Ana", CODE, 0)], ScriptedChat() if engine == "llm" else None)
    facts = " ".join(memory.facts())
    assert "build is red" in facts
    assert "parrots" not in facts
    assert memory.found("eleven parrots") == [CODE]


@pytest.mark.parametrize("line", ["The crane at pier {n} lifts {n} tons.\n", "{n};"])
def test_a_paste_of_a_megabyte_is_built_in_seconds_and_found(tmp_path, line):
    paste = ""
    for number in range(10**6):
        if len(paste) > 1_000_000:
            break
        paste += line.format(n=number)
    began = time.process_time()
    memory = Memory(tmp_path, [say("Ana", "Here it is:", 0), say("Ana", f"{paste} The zebra is striped.", 1)])
    # A few seconds on an idle machine; what is quadratic would take hours.
    assert time.process_time() - began < 120
    pieces = memory.turns().filter(pl.col("text") != "Here it is:")["text"].to_list()
    assert "".join(pieces).split() == f"{paste} The zebra is striped.".split()
    assert len(memory.facts()) <= 16 * (len(pieces) + 1)
    assert "zebra" in memory.found("striped zebra")[0]


GAPPED = [
    {"text": "The regatta starts at noon.", "time": "2024-05-08T09:00:00Z", "id": "m1"},
    {"text": "I polish the trophy.", "time": "2024-05-08T09:20:00Z", "id": "m2"},
    {"text": "Nobody came to the regatta.", "time": "2024-05-08T12:00:00Z", "id": "m3"},
    {"text": "And it rained.", "id": "m4"},
]


def sessions(memory):
    turns = memory.turns().sort("session_id", "position")
    return [(name, group["text"].to_list()) for (name,), group in turns.group_by("session_id", maintain_order=True)]


def test_a_log_without_sessions_is_one_or_is_cut_by_silences(tmp_path):
    for folder in ("one", "cut"):
        (tmp_path / folder).mkdir()
    one, cut = Memory(tmp_path / "one", GAPPED), Memory(tmp_path / "cut", GAPPED, session_gap_minutes=60)
    texts = [message["text"] for message in GAPPED]
    assert sessions(one) == [("log", texts)]
    assert sessions(cut) == [
        ("log 2024-05-08T09:00:00+00:00", texts[:2]),
        ("log 2024-05-08T12:00:00+00:00", texts[2:]),
    ]
    assert set(one.turns()["turn_id"]) == set(cut.turns()["turn_id"])


def test_a_log_that_has_grown_at_both_ends_brings_no_turn_twice(tmp_path):
    import_only(config_of(tmp_path, GAPPED[1:], session_gap_minutes=60))
    more = [*GAPPED, {"text": "We try again in June.", "time": "2024-05-08T12:30:00Z", "id": "m5"}]
    grown = Memory(tmp_path, more, session_gap_minutes=60)
    assert [texts for _, texts in sessions(grown)] == [
        [message["text"] for message in more[:2]],
        [message["text"] for message in more[2:]],
    ]


def test_the_silences_of_one_namespace_are_not_those_of_another(tmp_path):
    log = write_jsonl(
        tmp_path / "log.jsonl",
        [
            {"user": user, "text": f"Hour {hour}.", "time": f"2024-05-08T{hour:02d}:{minute}:00Z"}
            for hour, user, minute in ((9, "ana", "00"), (9, "bo", "50"), (10, "ana", "10"), (10, "bo", "30"))
        ],
    )
    columns = {"time": "time"}
    one = {"format": "jsonl", "paths": [str(log)], "namespace": "{user}", "columns": columns, "session_gap_minutes": 60}
    store = {"root": str(tmp_path / "store"), "buckets": 1}
    run(config_from({"store": store, "encoder": {"name": "static"}, "inputs": [one]}))
    turns = pl.concat([pl.read_parquet(file) for file in (tmp_path / "store").glob("outputs/merge/*/turns.parquet")])
    assert dict(turns.group_by("namespace").agg(pl.col("session_id").n_unique()).iter_rows()) == {"ana": 2, "bo": 1}


def test_a_log_of_texts_alone_is_found_and_states_its_facts(tmp_path):
    texts = [
        "The lighthouse keeper retires in autumn.",
        "Her cat is called Soot.",
        "The lighthouse keeper retires in autumn.",
    ]
    memory = Memory(tmp_path, [{"text": text} for text in texts])
    assert memory.turns().sort("position")["text"].to_list() == texts
    assert memory.found("what is the cat called?")[0] == texts[1]
    assert "Her cat is called Soot." in memory.facts()
