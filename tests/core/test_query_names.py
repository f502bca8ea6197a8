import pytest

from hgmem_core.query_names import find_names

SPEAKERS = ["Ana Lee", "Melanie", "Mark", "May", "小明", "user"]


def names(text, speakers=SPEAKERS):
    return [(found.name, found.speaker) for found in find_names(text, speakers)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What did Ana Lee's sister buy?", [("Ana Lee", 0)]),
        ("What did Ana buy?", [("Ana Lee", 0)]),
        ("What did Mel and her dog eat?", [("Melanie", 1)]),
        ("what did melanie eat?", [("Melanie", 1)]),
        ("WHAT DID MELANIE EAT?", [("Melanie", 1)]),
        ("What did Ｍｅｌａｎｉｅ eat?", [("Melanie", 1)]),
        ("Did Mel mark the day?", [("Melanie", 1)]),
        ("Did Mark mark the day?", [("Mark", 2)]),
        ("小明去了哪里？", [("小明", 4)]),
        ("Ana在北京做了什么？", [("Ana Lee", 0)]),
        ("What did the user ask?", [("user", 5)]),
        ("may I ask?", []),
        ("What did she sow in Mar?", []),
        ("Use the map", []),
        ("What does lee mean to Melanie?", [("Melanie", 1)]),
        ("Has she been to Melbourne?", [("Melbourne", None)]),
        ("Is San Marino near San Diego?", [("San Marino", None), ("San Diego", None)]),
    ],
)
def test_a_speaker_is_named(text, found):
    assert names(text) == found


def test_a_part_that_two_share_names_neither():
    assert names("What did Lee buy?", ["Ana Lee", "Bo Lee"]) == [("Lee", None)]
    assert names("What did Bo Lee buy?", ["Ana Lee", "Bo Lee"]) == [("Bo Lee", 1)]
    assert names("What did Mel buy?", ["Melanie", "Melissa"]) == [("Mel", None)]


def test_a_part_of_a_longer_name_is_no_speaker():
    assert names("Where is San Marino?", ["Sandra"]) == [("San Marino", None)]


def test_a_month_is_no_speaker_where_it_is_a_time():
    text = "What did May sow in May?"
    assert names(text) == [("May", 3), ("May", 3)]
    [found] = find_names(text, SPEAKERS, [(text.index("in May"), len(text) - 1)])
    assert text[: found.start] == "What did "


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('Who read "the old sea" in Lyon\'s library?', ["the old sea", "Lyon"]),
        ("谁读过《红楼梦》？", ["红楼梦"]),
        ("Compare Lyon and Paris", ["Lyon", "Paris"]),
        ("Where is Lyon's Grand Hall?", ["Lyon", "Grand Hall"]),
        ("Who runs the Bank of Lyon?", ["Bank of Lyon"]),
        ("Did it rain on Monday in June?", []),
        ("", []),
        ("😀 \ud800", []),
    ],
)
def test_other_names_and_titles(text, found):
    assert [name for name, _ in names(text)] == found


def test_places_are_those_of_the_names():
    text = 'Did Mel show Ana\'s friend "the old sea" in Lyon, or 小明?'
    found = find_names(text, SPEAKERS)
    assert [text[mention.start : mention.end] for mention in found] == ["Mel", "Ana", "the old sea", "Lyon", "小明"]
