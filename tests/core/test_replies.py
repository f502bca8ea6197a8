import json
import time
from typing import Annotated, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, Field

from hgmem_core.chat import Reply
from hgmem_core.passes import schema_of
from hgmem_core.replies import read_reply


class Item(BaseModel):
    statement: str
    turns: list[int] = []
    queries: list[str] = []
    weight: Annotated[float, Field(ge=0, le=1)] = 0.5


class Items(BaseModel):
    facts: list[Item]


class Member(BaseModel):
    episode: int
    title: str = ""


class Topic(BaseModel):
    title: str
    members: list[Member]
    merges: list[Item] = []
    misfits: list[int] = []


class Intent(BaseModel):
    intent: Literal["why", "when", "other"]
    parts: list[str]


class Preferences(BaseModel):
    facts: list[Item] = []
    tone: str = "plain"


TEA, ROOF = "Ada likes tea.", "Bo mended the roof."
ONE = json.dumps({"facts": [{"statement": TEA}]})
TWO = json.dumps({"facts": [{"statement": TEA, "turns": [1, 2]}, {"statement": ROOF, "weight": 0.25}]})
NONE = '{"facts": []}'
FENCED = f"```json\n{ONE}\n```"
BLANKS = "\n  " * 400


def read(text, answer_type=Items, reasoning=None, finish_reason="stop"):
    return read_reply(Reply(text, reasoning, finish_reason), answer_type)


def statements(reading):
    return [item.statement for item in reading.answer.facts]


def outcome(reading):
    """What a caller goes by: the statements that were found, the fault, whether more may be missing."""
    return (None if reading.answer is None else statements(reading)), reading.fault, reading.is_cut


GOOD = {
    "the object alone": ONE,
    "a fence and prose behind it": f"{FENCED}\nThat is the only fact.",
    "a fence and prose before it": f"Here is what I found:\n{FENCED}",
    "a fence without a language": f"```\n{ONE}\n```",
    "a fence that is not closed": f"```json\n{ONE}",
    "a fence on one line": f"```json {ONE} ```",
    "prose on both sides": f"Sure! {ONE} Anything else?",
    "braces in the prose": f"In the form {{facts}} or {{...}} or {{ }}: {ONE} and [1] [see] {{x}}",
    "thinking with braces": f"<think>maybe {{not json}} or {{'a': 1}}</think>\n{ONE}",
    "thinking with a draft": f'<think>perhaps {{"facts": [{{"statement": "draft"}}]}}?</think>{ONE}',
    "thinking whose quotes are odd": f'<think>like {{"facts": [{{"statement": "dra</think>{ONE}',
    "thinking whose start is in the prompt": f'So {{"facts": [{{"statement": "draft"}}]}} it is.</think>\n\n{ONE}',
    "such thinking that breaks off a string": f'Like {{"facts": [{{"statement": "...\n</think>\n{ONE}',
    "thinking twice": f"<think>a</think> Hm. <think>{{}}</think> {ONE}",
    "thinking that names the tag": f'<think>after </think> comes {{"facts": [{{"statement": "x"}}]}}</think>{ONE}',
    "empty thinking": f"<think>\n\n</think>\n\n{ONE}",
    "thinking in capitals": f'<Thinking>{{"facts": [{{"statement": "draft"}}]}}</Thinking>{ONE}',
    "a stray brace before it": "{" + ONE,
    "a stray bracket before it": "[" + ONE,
    "a stray brace behind it": ONE + "}]",
    "a list around it": f"[{ONE}]",
    "blanks behind it": ONE + BLANKS,
    "a byte order mark": "\ufeff" + ONE,
    "a bare list": '[{"statement": "Ada likes tea."}]',
    "a bare list in a fence": '```json\n[{"statement": "Ada likes tea."}]\n```',
    "a bare list behind prose": 'See [1] and [2]: [{"statement": "Ada likes tea."}]',
    "trailing commas": '{"facts": [{"statement": "Ada likes tea.", "turns": [1,],},],}',
    "unknown fields": '{"facts": [{"statement": "Ada likes tea.", "mood": NaN, "x": {"y": []}}], "note": "done"}',
    "escapes that JSON does not know": r'{"facts": [{"statement": "Ada likes te\x61."}]}',
    "the schema before it": f"{json.dumps(schema_of(Items))}\n{ONE}",
    "an unfinished form before it": f'Form: {{"facts": [...]}}\n{ONE}',
    "a form and an empty answer before it": f"Either {NONE} or:\n{ONE}",
    "an item before it": f'Items look like {{"statement": "x"}}: {ONE}',
    "a repeated key": '{"facts": [{"statement": "Ada likes tea."}], "facts": []}',
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_the_answer_is_found_and_nothing_is_wrong(text):
    reading = read(text)
    assert outcome(reading) == ([TEA], None, False)
    assert (reading.faults, reading.source) == ((), "content")


EMPTY = {
    "the object alone": NONE,
    "in a fence": f"```json\n{NONE}\n```",
    "behind prose": f"Small talk only. {NONE}",
    "behind thinking": f"<think>nothing here</think>{NONE}",
    "behind thinking that breaks off a string": f'So {{"facts": [{{"statement": "x"}}, {{"statement": "</think>{NONE}',
    "as a bare list": " [ ] ",
    "as a bare list in a fence behind thinking": "<think>[1]</think>\n```json\n[]\n```",
}


@pytest.mark.parametrize("text", EMPTY.values(), ids=EMPTY)
def test_nothing_to_tell_is_an_answer(text):
    reading = read(text)
    assert outcome(reading) == ([], None, False)
    assert reading.faults == ()


UNUSABLE = {
    "prose": ("I could not find any facts in this conversation.", "no_json"),
    "prose with brackets": ("The turns [] and [1] and {these} say nothing.", "no_json"),
    "nothing": ("", "no_json"),
    "nothing behind thinking": (f"<think>{ONE}</think>\nI have no answer.", "no_json"),
    "nothing behind thinking whose start is in the prompt": (f"{ONE} I think.</think> Sorry.", "no_json"),
    "the schema": (json.dumps(schema_of(Items)), "no_json"),
    "the schema with definitions last": (json.dumps(dict(reversed(schema_of(Items).items()))), "no_json"),
    "an object in single quotes": ("{'facts': [{'statement': 'x', 'turns': []}]}", "no_json"),
    "broken in its first item": ('{"facts": [{"statement": x {"y": 1}}]}', "bad_json"),
    "another object": ('{"answer": 42}', "bad_field"),
    "an empty object": ("{}", "bad_field"),
    "no list": ('{"facts": null}', "bad_field"),
    "a text for the list": ('{"facts": "Ada likes tea."}', "bad_field"),
    "a single item for the list": ('{"facts": {"statement": "Ada likes tea."}}', "bad_field"),
    "NaN for the list": ('{"facts": NaN}', "bad_field"),
    "only bad items": ('{"facts": [{"turns": [1]}, null]}', "bad_item"),
    "a list of texts": ('{"facts": ["Ada likes tea.", "Bo mended the roof."]}', "bad_item"),
}


@pytest.mark.parametrize(("text", "fault"), UNUSABLE.values(), ids=UNUSABLE)
def test_what_cannot_be_used_gives_no_answer_and_says_why(text, fault):
    reading = read(text)
    assert outcome(reading) == (None, fault, False)
    assert reading.faults


def test_prose_and_an_empty_answer_are_two_things():
    assert read("Nothing.").answer is None
    assert read(NONE).answer == Items(facts=[])


def test_a_request_that_was_refused_has_no_answer():
    reading = read_reply(Reply(ONE, None, "refused", refusal="the prompt is too long"), Items)
    assert outcome(reading) == (None, "refused", False)
    assert reading.faults == ("the prompt is too long",)


THINKING = {
    "a draft": f"<think>So perhaps {ONE} is",
    "no draft": "<think>The user likes",
    "a second thought": f"<think>a</think>Well, <think>{ONE}",
    "only the tag": "<think>",
    "another object before it": f'{{"n": 1}} <think>{ONE}',
    "another mark": f"[THINK]So perhaps {ONE}",
    "another tag": f"<reasoning>So perhaps {ONE}",
}


@pytest.mark.parametrize("text", THINKING.values(), ids=THINKING)
@pytest.mark.parametrize("finish_reason", ["length", "stop"])
def test_thinking_that_never_ends_is_no_answer(text, finish_reason):
    assert outcome(read(text, finish_reason=finish_reason)) == (None, "truncated_in_thinking", True)


@pytest.mark.parametrize(
    "marks",
    [
        "<think>{}</think>{}",
        "<thought>{}</thought>{}",
        "<Reasoning>{}</Reasoning>\n{}",
        "<analysis>{}</analysis>{}",
        "< think >{}</ think >{}",
        "<seed:think>{}</seed:think>{}",
        "[THINK]{}[/THINK]{}",
        "◁think▷{}◁/think▷{}",
        "<|begin_of_thought|>{}<|end_of_thought|>{}",
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>{}",
        "analysis{}assistantfinal{}",
        "{}[/THINK]{}",
    ],
)
def test_a_draft_in_the_thinking_is_not_the_answer_whatever_the_model_calls_it(marks):
    draft = json.dumps({"facts": [{"statement": "Perhaps Ada likes coffee."}]})
    assert outcome(read(marks.format(f"so {draft} or {{not json}}", ONE))) == ([TEA], None, False)


@pytest.mark.parametrize("content", [None, "", "\n\n"])
def test_thinking_that_never_ends_in_the_reasoning_is_no_answer(content):
    assert outcome(read(content, reasoning=f"So perhaps {ONE} is", finish_reason="length")) == (
        None,
        "truncated_in_thinking",
        True,
    )


def test_an_answer_before_further_thinking_is_kept():
    assert outcome(read(f"{ONE}<think>Was that all")) == ([TEA], None, False)


@pytest.mark.parametrize("content", [None, "", " \n"])
@pytest.mark.parametrize(
    "reasoning", [ONE, FENCED, f"First I thought.\n{ONE}", f'Say {{"facts": [{{"statement": "draft"}}]}}. No: {ONE}']
)
def test_an_answer_in_the_reasoning_is_found_where_the_content_is_blank(content, reasoning):
    reading = read(content, reasoning=reasoning)
    assert outcome(reading) == ([TEA], None, False)
    assert reading.source == "reasoning"


def test_an_answer_that_was_cut_off_in_the_reasoning_keeps_its_items():
    reading = read(None, reasoning=TWO[:-10], finish_reason="length")
    assert outcome(reading) == ([TEA], "truncated", True)
    assert reading.source == "reasoning"


def test_the_content_goes_before_the_reasoning():
    reading = read(NONE, reasoning=ONE)
    assert (reading.answer, reading.source) == (Items(facts=[]), "content")


def test_where_neither_gives_an_answer_the_object_that_was_found_is_told_of():
    reading = read('{"facts": 1}', reasoning='{"facts": [{"st')
    assert (reading.answer, reading.fault, reading.source) == (None, "bad_field", "content")
    reading = read(None, reasoning='{"facts": [{"st')
    assert (reading.answer, reading.fault, reading.source) == (None, "truncated", "reasoning")


def test_what_is_left_of_the_content_goes_before_the_reasoning():
    assert outcome(read(CUTS["in an item"], reasoning=TWO)) == ([TEA], "truncated", True)


def test_a_draft_in_the_reasoning_is_not_the_answer_of_a_content_that_has_none():
    assert outcome(read("I found nothing.", reasoning=f"I might say {ONE}")) == (None, "no_json", False)


def test_the_answer_in_the_reasoning_stands_in_for_a_content_that_is_gibberish():
    reading = read("}}``` facts", reasoning=ONE)
    assert (statements(reading), reading.source) == ([TEA], "reasoning")


KEPT = [
    "She wrote <reasoning> and [/THINK], then assistantfinal.",
    "run ```python\nprint({'a': [1]})\n``` and ```json\n{\"facts\": []}\n```",
    "the model wrote </think> and <think> and then stopped",
    "tab\tline\nbreak\r\n NUL\x00 bell\x07 escape\x1b",
    r"C:\users\new \"quoted\" \\ \u00e9 /slash",
    '{"facts": [{"statement": "inner"}]}',
    "你好，世界 😀 👩\u200d👧 שלום e\u0301 \u2028",
    " \n ",
]


@pytest.mark.parametrize("statement", KEPT)
@pytest.mark.parametrize("as_ascii", [True, False])
@pytest.mark.parametrize("frame", ["{}", "```json\n{}\n```", "Well:\n{}", "<think>so</think>{}", "{}\n</s> done"])
def test_a_statement_is_kept_character_by_character(statement, as_ascii, frame):
    text = frame.format(json.dumps({"facts": [{"statement": statement}]}, ensure_ascii=as_ascii))
    reading = read(text)
    assert outcome(reading) == ([statement], None, False)


@pytest.mark.parametrize("statement", KEPT)
def test_a_statement_is_kept_where_the_answer_is_cut_off_behind_it(statement):
    text = json.dumps({"facts": [{"statement": statement}, {"statement": statement}]}, ensure_ascii=False)
    assert outcome(read(text[:-4])) == ([statement], "truncated", True)


def test_control_characters_that_were_not_escaped_are_part_of_the_statement():
    assert statements(read('{"facts": [{"statement": "one\ntwo\x0b\x00\tthree"}]}')) == ["one\ntwo\x0b\x00\tthree"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"half \ud83d emoji", "half \ufffd emoji"),
        ("half \ud83d emoji", "half \ufffd emoji"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\ude00", "😀"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_what_comes_out_can_be_written_as_utf8(written, meant):
    reading = read(f'{{"facts": [{{"statement": "{written}"}}]}}')
    assert outcome(reading) == ([meant], None, False)
    assert reading.answer.model_dump_json().encode()


ITEMS = {
    "a field is missing": ('{"turns": [1]}', "statement: Field required"),
    "a number is too large": (
        '{"statement": "x", "weight": 7}',
        "weight: Input should be less than or equal to 1 (got 7)",
    ),
    "NaN": ('{"statement": "x", "weight": NaN}', "weight: NaN is no value of JSON"),
    "infinity": ('{"statement": "x", "weight": -Infinity}', "weight: -Infinity is no value of JSON"),
    "a huge integer": ('{"statement": "x", "turns": [' + "9" * 6000 + "]}", "turns 1: the number is too large"),
    "null for a text": ('{"statement": null}', "statement: Input should be a valid string (got null)"),
    "a text for a list": (
        '{"statement": "x", "queries": "why?"}',
        'queries: Input should be a valid list (got "why?")',
    ),
    "a number in a list of texts": (
        '{"statement": "x", "queries": ["a", 5]}',
        "queries 2: Input should be a valid string (got 5)",
    ),
    "null": ("null", "Input should be an object (got null)"),
    "a text": ('"Ada likes tea."', 'Input should be an object (got "Ada likes tea.")'),
    "a list": ("[1]", "Input should be an object (got a list)"),
    "a character that is lost": (r'{"statement": "\u4f60\u597"}', r"statement: a \u or \x escape is broken"),
    "quotes that are not escaped": ('{"statement": "she said "no" twice"}', "it is not well-formed JSON"),
    "deep nesting": (
        '{"statement": ' + "[" * 40 + "]" * 40 + "}",
        "statement: Input should be a valid string (got a list)",
    ),
}


@pytest.mark.parametrize(("item", "sentence"), ITEMS.values(), ids=ITEMS)
def test_a_bad_item_goes_alone_and_is_named(item, sentence):
    reading = read(f'{{"facts": [{{"statement": "{TEA}"}}, {item}, {{"statement": "{ROOF}"}}]}}')
    assert outcome(reading) == ([TEA, ROOF], "bad_item", False)
    assert reading.faults == (f"item 2 of facts: {sentence}",)


CUTS = {
    "in an item": '{"facts": [{"statement": "Ada likes tea."}, {"statement": "Bo me',
    "in a list of an item": '{"facts": [{"statement": "Ada likes tea."}, {"statement": "x", "turns": [1, 2',
    "behind a list of an item": '{"facts": [{"statement": "Ada likes tea."}, {"statement": "x", "turns": [1]',
    "behind an item": '{"facts": [{"statement": "Ada likes tea."}',
    "behind a comma": '{"facts": [{"statement": "Ada likes tea."},\n    ',
    "behind the list": '{"facts": [{"statement": "Ada likes tea."}]',
    "in an escape": '{"facts": [{"statement": "Ada likes tea."}, {"statement": "\\u4f',
    "behind a backslash": '{"facts": [{"statement": "Ada likes tea."}, {"statement": "\\',
    "in a number": '{"facts": [{"statement": "Ada likes tea."}, {"weight": 0.',
    "in a fence behind thinking": '<think>a</think>```json\n{"facts": [{"statement": "Ada likes tea."}, {"st',
    "in a bare list": '[{"statement": "Ada likes tea."}, {"statement": ',
    "behind a stray bracket": '[{"facts": [{"statement": "Ada likes tea."}, {"statement": ',
}


@pytest.mark.parametrize("text", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("finish_reason", ["length", "stop"])
def test_of_an_answer_cut_off_the_complete_items_are_kept(text, finish_reason):
    reading = read(text, finish_reason=finish_reason)
    assert outcome(reading) == ([TEA], "truncated", True)
    assert reading.faults == ("the answer ended too early, after item 1 of facts",)


def test_twelve_items_cut_off_in_the_ninth_are_eight():
    text = json.dumps({"facts": [{"statement": f"Fact number {number}."} for number in range(1, 13)]})
    reading = read(text[: text.index("number 9") + 4], finish_reason="length")
    assert outcome(reading) == ([f"Fact number {number}." for number in range(1, 9)], "truncated", True)


@pytest.mark.parametrize(
    "text", ['{"facts": [{"statement": "Ada', '{"facts": [', '{"facts"', '{"fa', "{", '[{"statement']
)
def test_an_answer_cut_off_before_anything_is_complete_is_none(text):
    assert outcome(read(text)) == (None, "truncated", True)


@pytest.mark.parametrize("blanks", [BLANKS, " " * 500, "\n" * 200, "\t\r\n" * 100])
@pytest.mark.parametrize(("text", "kept"), [(CUTS["behind an item"], [TEA]), ('{"facts": [', None)])
def test_blanks_without_end_are_told_from_other_cuts(text, kept, blanks):
    assert outcome(read(text + blanks, finish_reason="length")) == (kept, "blanks", True)


def test_prose_that_was_cut_off_may_have_become_an_answer():
    assert outcome(read("Let me see what there is to", finish_reason="length")) == (None, "no_json", True)


def test_of_an_object_that_breaks_the_items_before_are_kept():
    reading = read('{"facts": [{"statement": "Ada likes tea."}], oh no "x": 1}')
    assert outcome(reading) == ([TEA], "bad_json", False)
    assert "after item 1 of facts" in reading.faults[0]
    assert read('{"facts": [{"statement": "x"}], oh no', finish_reason="length").is_cut


def test_items_behind_the_end_of_the_answer_are_not_passed_over():
    text = f'{{"facts": [{{"statement": "{TEA}"}}]}}, {{"statement": "{ROOF}"}}]}}'
    assert outcome(read(text)) == ([TEA], "bad_json", False)


def test_of_two_objects_the_first_is_used_and_the_other_counted():
    other = json.dumps({"facts": [{"statement": ROOF}]})
    reading = read(f"{ONE}\n{other}")
    assert outcome(reading) == ([TEA], None, False)
    assert reading.ignored == len(other)
    assert read(ONE).ignored == 0


@pytest.mark.parametrize(
    "first", ['{"n": 1}', NONE, '{"facts": [{"statement": 5}]}', '{"facts": [{"statement": ...}]}', '{"facts": "none"}']
)
def test_an_object_that_gives_nothing_does_not_hide_one_that_does(first):
    assert statements(read(f"{first} {TWO}")) == [TEA, ROOF]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f'{{"facts": [{{"statement": "{TEA}"}}, null]}}', TWO),  # of two with items, the one that is right
        ('{"title": "a", "members": [0]}', '{"title": "b", "members": []}'),  # of two without, the one that is right
        ('{"title": 0, "members": []}', '{"title": "b", "members": [0]}'),  # of two that are wrong, what can be used
    ],
)
def test_of_two_objects_the_better_is_used(first, second):
    answer_type = Items if "facts" in first else Topic
    assert read(f"{first}\n{second}", answer_type).answer == read(second, answer_type).answer


def test_another_object_does_not_hide_that_the_answer_was_cut_off():
    assert outcome(read('{"n": 1} {"facts": [{"statement')) == (None, "truncated", True)


def test_another_answer_is_no_item_though_items_have_fields_of_that_name():
    reading = read('{"title": "a", "members": []} {"title": "b", "members": []}', Topic)
    assert (reading.answer, reading.fault) == (Topic(title="a", members=[]), None)


def test_the_lists_of_a_repeated_key_are_joined():
    reading = read(f'{{"facts": [{{"statement": "{TEA}"}}], "facts": [{{"statement": "{ROOF}"}}]}}')
    assert outcome(reading) == ([TEA, ROOF], None, False)


def test_of_a_repeated_key_the_last_value_counts():
    assert statements(read(f'{{"facts": [{{"statement": "x", "statement": "{TEA}"}}]}}')) == [TEA]


def test_a_bad_field_beside_the_lists_leaves_no_answer():
    for title in ("null", "NaN", "[]"):
        reading = read(f'{{"title": {title}, "members": [{{"episode": 1}}]}}', Topic)
        assert (reading.answer, reading.fault) == (None, "bad_field")
        assert reading.faults[0].startswith("title: ")


def test_a_missing_field_beside_the_lists_leaves_no_answer():
    reading = read('{"members": [{"episode": 1}]}', Topic)
    assert (reading.answer, reading.fault, reading.faults) == (None, "bad_field", ("title: Field required",))


def test_an_answer_with_several_lists_keeps_what_is_complete_of_each():
    text = '{"title": "Tea", "members": [{"episode": 1}, {"episode": 2}], "merges": [{"statement": "x"}, {"sta'
    reading = read(text, Topic)
    assert reading.answer == Topic(
        title="Tea", members=[Member(episode=1), Member(episode=2)], merges=[Item(statement="x")]
    )
    assert reading.faults == ("the answer ended too early, after item 1 of merges",)


def test_a_list_that_the_end_was_before_is_empty():
    reading = read('{"title": "Tea", "misfits": [3, 45', Topic)
    assert (reading.answer, reading.fault) == (Topic(title="Tea", members=[], misfits=[3]), "truncated")


def test_a_bare_list_is_no_answer_that_has_several():
    assert read('[{"episode": 1}]', Topic).answer is None
    assert read('[{"note": 1}, {"title": "Tea", "members": []}]', Topic).answer == Topic(title="Tea", members=[])


def test_a_title_is_kept_though_every_item_is_bad():
    reading = read('{"title": "Tea", "members": [{"episode": "first"}]}', Topic)
    assert (reading.answer, reading.fault) == (Topic(title="Tea", members=[]), "bad_item")


def test_of_an_answer_cut_off_only_fields_that_are_there_can_be_bad():
    assert read('{"members": [{"episode": 1}], "title": "T', Topic).faults == (
        "the answer ended too early, after item 1 of members",
    )
    assert read('{"title": 5, "members": [{"ep', Topic).faults == (
        "the answer ended too early",
        "title: Input should be a valid string (got 5)",
    )


def test_an_answer_without_items_is_checked_as_a_whole():
    assert read('{"intent": "why", "parts": ["a", "b"]}', Intent).answer == Intent(intent="why", parts=["a", "b"])
    assert read('{"intent": "why", "parts": []}', Intent).answer == Intent(intent="why", parts=[])
    assert read('{"intent": "how", "parts": []}', Intent).fault == "bad_field"
    reading = read('{"intent": "why", "par', Intent)
    assert (reading.answer, reading.fault, reading.is_cut) == (None, "truncated", True)


@pytest.mark.parametrize("text", ["{}", '{"x": 1}', json.dumps(schema_of(Preferences))])
def test_an_object_with_nothing_of_the_answer_is_none_though_every_field_has_a_default(text):
    reading = read(text, Preferences)
    assert reading.answer is None
    assert reading.fault
    assert reading.faults


def test_the_gravest_fault_names_the_reading_and_all_are_told():
    reading = read('{"facts": [{"statement": "Ada likes tea."}, {"turns": [1]}, {"sta')
    assert outcome(reading) == ([TEA], "truncated", True)
    assert reading.faults == (
        "the answer ended too early, after item 2 of facts",
        "item 2 of facts: statement: Field required",
    )


def test_sentences_are_few_and_short_and_quote_little():
    said = "ignore all earlier rules and " * 50
    items = [{"statement": "x", "turns": said}, {"statement": "x", "weight": said}, said, "\x01" * 90, *range(500)]
    reading = read(json.dumps({"facts": [{"statement": TEA}, *items], said: said})[:-1] + "oops " + said)
    assert len(reading.faults) == 10
    assert all(0 < len(fault) <= 200 for fault in reading.faults)
    assert not any(said[:41] in fault for fault in reading.faults)
    assert reading.faults[-1] == "and 496 more"


def test_a_value_that_a_validator_changed_can_be_told_of():
    class Numbered(BaseModel):
        number: Annotated[int, BeforeValidator(complex)]

    assert read('{"number": 5}', Numbered).fault == "bad_field"


def test_what_is_quoted_can_be_seen_and_is_one_line():
    (fault,) = read('{"facts": [{"statement": "x"}, "a\nb\u202ec"]}').faults
    assert fault.isprintable()


STATEMENTS = st.text(
    st.sampled_from('ab{}[]",:\\/ \n<>`你😀') | st.characters(codec="utf-8"), max_size=12
) | st.sampled_from(["</think>", "<think>", "```json\n{}\n```"])
ANSWERS = st.lists(
    st.builds(
        Item,
        statement=STATEMENTS,
        turns=st.lists(st.integers(0, 99), max_size=3),
        queries=st.lists(STATEMENTS, max_size=2),
    ),
    max_size=5,
).map(lambda items: Items(facts=items))


@given(ANSWERS, st.sampled_from([None, 2]), st.booleans(), st.data())
def test_an_answer_cut_anywhere_keeps_the_items_that_were_closed(answer, indent, as_ascii, data):
    pieces = [
        json.dumps(item.model_dump(), indent=indent, ensure_ascii=as_ascii, separators=(", ", ": "))
        for item in answer.facts
    ]
    text = '{"facts": [' + ", ".join(pieces)
    closed_at = [len('{"facts": [' + ", ".join(pieces[: number + 1])) for number in range(len(pieces))]
    cut = data.draw(st.integers(1, len(text)))
    reading = read((text + "]}")[:cut], finish_reason="length")
    kept = [item for item, end in zip(answer.facts, closed_at, strict=True) if end <= cut]
    assert reading.answer == (Items(facts=kept) if kept else None)
    assert (reading.fault, reading.is_cut) == ("truncated", True)


@given(ANSWERS, st.sampled_from(["{}", "So: {} there.", "```json\n{}\n```", "<think>{{}}</think>\n{}"]), st.booleans())
def test_a_whole_answer_is_read_as_it_was_written(answer, frame, as_ascii):
    text = json.dumps(answer.model_dump(), ensure_ascii=as_ascii)
    reading = read(frame.format(text))
    assert (reading.answer, reading.fault, reading.ignored) == (answer, None, 0)


PIECES = st.sampled_from(
    [
        *'{}[]",:\\ \nabc019.-',
        "<think>",
        "</think>",
        "```json",
        '"facts":',
        '{"statement":',
        r"\u",
        r"\ud83d",
        r"\x",
        "NaN",
    ]
)
ANY_TEXT = st.text(st.characters(codec=None), max_size=60) | st.lists(PIECES, max_size=40).map("".join)


def is_consistent(reading):
    """Whether a reading can be acted on: it says why it is not complete, and can be written down."""
    assert (reading.fault is None) == (not reading.faults)
    assert reading.answer is not None or reading.fault is not None
    assert all(0 < len(fault) <= 200 for fault in reading.faults)
    "".join(reading.faults).encode()
    if reading.answer is not None:
        reading.answer.model_dump_json().encode()
    return True


@settings(max_examples=400)
@given(ANY_TEXT, ANY_TEXT | st.none(), st.sampled_from(["stop", "length"]), st.sampled_from([Items, Topic, Intent]))
@example("[" * 200_000, "{" * 200_000, "length", Items)
@example('{"a":' * 200_000, '[{"statement":' * 100_000, "length", Items)
@example('{"facts":[' + "\0" * 80, None, "stop", Items)
@example('{"facts":' + "[" * 100_000 + "]" * 100_000 + "}", None, "stop", Items)
@example('{"facts":[' + "9" * 100_000 + "]}", None, "stop", Items)
def test_no_text_is_an_error(text, reasoning, finish_reason, answer_type):
    assert is_consistent(read(text, answer_type, reasoning, finish_reason))


@settings(max_examples=300)
@given(ANSWERS, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3), PIECES), min_size=1, max_size=4))
def test_no_damage_to_an_answer_is_an_error(answer, damages):
    text = json.dumps(answer.model_dump(), ensure_ascii=False)
    for place, removed, inserted in damages:
        at = place % (len(text) + 1)
        text = text[:at] + inserted + text[at + removed :]
    assert is_consistent(read(text))


def test_no_stray_character_loses_an_item_silently():
    text = json.dumps({"facts": [{"statement": f"Fact {number}.", "turns": [number]} for number in range(4)]})
    for at in range(1, len(text)):
        for stray in '{}[]",:\\':
            reading = read(text[:at] + stray + text[at:])
            assert reading.fault is not None or len(reading.answer.facts) == 4, (at, stray)


@pytest.mark.parametrize(
    "piece",
    [
        "{",
        "[",
        '{"a":',
        '[{"a":',
        '"',
        "\\",
        '{"',
        '{"a":"',
        '{"a":1 x',
        '{"facts":[{x',
        "<think>",
        "</think>",
        "[THINK]",
        "<|channel|>final<|message|>",
        "< ",
        "null,",
        " ",
    ],
)
def test_hostile_replies_take_linear_time(piece):
    def seconds(size):
        text = '{"facts":[' + piece * (size // len(piece))
        start = time.thread_time()
        read(text, finish_reason="length")
        read(text[10:], finish_reason="length")
        return time.thread_time() - start

    # Quadratic work would take 64 times as long, and minutes.
    assert seconds(200_000) < 30 * seconds(25_000) + 3
