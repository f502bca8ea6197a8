"""Text of logs, questions and language models: whatever it says, it is read, and what is found lies inside of it."""

from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from hgmem_core.chat import Reply
from hgmem_core.dates import find_times
from hgmem_core.dates_chinese import RULES as CHINESE
from hgmem_core.dates_english import RULES as ENGLISH
from hgmem_core.dates_japanese import RULES as JAPANESE
from hgmem_core.extract_llm import Facts
from hgmem_core.group_llm import TopicAnswer
from hgmem_core.loose_json import read_value
from hgmem_core.own_words import own_words
from hgmem_core.query_analysis import analyse_query
from hgmem_core.redaction import emails, phones
from hgmem_core.replies import read_reply
from hgmem_core.segment_llm import Episodes
from hgmem_core.skills_llm import Decomposition, Distillation
from hgmem_core.statements import lexicon, speaker_names, split_sentences
from hgmem_core.statements import read as read_sentences
from hgmem_core.text import clean, split_text
from hgmem_core.times import parse_time
from hgmem_core.tokens import tokenizer
from tests.fuzz.target import Target, text_of

SAID_AT = datetime(2024, 5, 8, 11, 56, tzinfo=UTC)
LOG = (datetime(2023, 1, 1, tzinfo=UTC), datetime(2024, 6, 1, tzinfo=UTC))
_ZONES = (ZoneInfo("UTC"), ZoneInfo("America/Havana"), ZoneInfo("Pacific/Apia"))
_ANSWERS = (Facts, Episodes, TopicAnswer, Decomposition, Distillation)
_TOKENIZE = tokenizer("english")
_WORDS = lexicon("english")


def _read_loose_json(data: bytes) -> None:
    text = text_of(data)
    for start, sign in enumerate(text):
        if sign in "[{":
            found = read_value(text, start)
            assert found.start == start < found.end <= len(text)
            return


def _read_reply(data: bytes) -> None:
    """What stands before a line of dashes is the reasoning."""
    before, _, after = text_of(data).rpartition("\n---\n")
    for finish in ("stop", "length"):
        for answer_type in _ANSWERS:
            reading = read_reply(Reply(after, before or None, finish), answer_type)
            assert (reading.fault is None) == (not reading.faults)
            assert reading.answer is not None or reading.fault is not None
            assert all(0 < len(fault) <= 200 for fault in reading.faults)
            "".join(reading.faults).encode()
            if reading.answer is not None:
                reading.answer.model_dump_json().encode()


def _read_dates(data: bytes) -> None:
    text = text_of(data)
    for zone in _ZONES:
        for said_at in (SAID_AT, None):
            mentions = find_times(text, said_at, zone)
            for mention in mentions:
                assert text.startswith(mention.phrase, mention.place) and mention.phrase
                assert text.startswith(mention.core, mention.core_place)
                assert mention.is_placed == (mention.start is not None or mention.end is not None)
                assert mention.start is None or mention.end is None or mention.start < mention.end
            assert all(one.place + len(one.phrase) <= other.place for one, other in pairwise(mentions))


def _read_question(data: bytes) -> None:
    text = text_of(data)
    for today, log in ((SAID_AT, LOG), (None, None)):
        found = analyse_query(text, ["Ana", "Bo Berg", "李雷", text[:20]], today, log)
        assert found.time_from is None or found.time_until is None or found.time_from < found.time_until
        assert abs(sum(found.intent) - 1) < 1e-6 and min(found.intent) > 0
        assert found.sub_queries[0] == text and set(found.speakers) <= set(range(4))


def _read_time(data: bytes) -> None:
    text = text_of(data)
    for zone in _ZONES:
        for unit in ("auto", "ns"):
            try:
                found = parse_time(text, zone, unit)
            except ValueError as error:
                assert type(error) is ValueError and str(error)
                continue
            assert found is None or found.tzinfo is UTC


def _read_text(data: bytes) -> None:
    """A turn's text on its way to the index and to facts."""
    cleaned, _ = clean(text_of(data))
    cleaned.encode()
    assert clean(cleaned) == (cleaned, None)
    assert "".join(split_text(cleaned, 100)) == cleaned
    assert all(term and term.encode() for term in _TOKENIZE(cleaned))
    for hook in (emails, phones):
        assert hook(hook(cleaned)) == hook(cleaned)
    assert "".join("".join(split_sentences(cleaned)).split()) == "".join(cleaned.split())
    read_sentences(own_words(cleaned), _WORDS, speaker_names(["Ana"]))


_TIMES = tuple(sorted({trigger for rule in (*ENGLISH, *CHINESE, *JAPANESE) for trigger in rule.triggers}))

TARGETS = {
    "loose-json": Target(_read_loose_json, words=(r"\u", r"\ud83d", r"\x", "NaN", "```json")),
    "replies": Target(_read_reply, words=("<think>", "</think>", "```json", '{"facts":[', "\n---\n", '"turns":')),
    "dates": Target(_read_dates, words=(*_TIMES, " of ", "2023", "the ", "三", "月", "日")),
    "questions": Target(_read_question, words=(*_TIMES, "before ", "after ", "之前", "When did Ana ", "and ")),
    "times": Target(_read_time, words=("2024-05-08T", "13:56", "pm", "GMT", "+0200", "May", "年", "月")),
    "turn-text": Target(_read_text, words=("@", "> ", "```", "wrote:", "\u200d", "\U000e0041", "+49 170", "e\u0301")),
}
