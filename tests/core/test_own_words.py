import pytest

from hgmem_core.own_words import own_words


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("> I hate tea.\nI love it.", "I love it."),
        (">I hate tea.\n> > You too?\nI love it.", "I love it."),
        ("Before.\n>>> all of the rest\nand this", "Before."),
        ("Agreed.\n\nOn Tue, X wrote:\n> I hate tea.\n> Really.", "Agreed.\n"),
        (
            "Agreed.\n\nOn Tue, 7 May 2024 at 09:14, Bo Lind <bo@example.org>\nwrote:\n\n> I hate tea.\nBye.",
            "Agreed.\n\n\nBye.",
        ),
        ("Agreed.\nOn Tue, May 7, 2024, Bo wrote:\nI hate tea.\nI sold the boat.", "Agreed."),
        ("Ja.\nAm 7. Mai 2024 um 09:14 schrieb Bo Lind <bo@example.org>:\n> Kommst du?", "Ja."),
        ("Oui.\nLe 7 mai 2024 à 09:14, Bo a écrit :\n> Tu viens ?", "Oui."),
        ("好的。\n2024年5月7日，小王写道：\n> 我讨厌茶。", "好的。"),
        ("FYI\n---------- Forwarded message ---------\nFrom: Bo\nSubject: boat\n\nI sold the boat.", "FYI"),
        ("FYI\nBegin forwarded message:\n\nI sold the boat.", "FYI"),
        ("FYI\n-----Original Message-----\nI sold the boat.", "FYI"),
        ("See below.\n\nFrom: Bo\nSent: Tuesday\nTo: Ana\nSubject: boat\n\nI sold the boat.", "See below.\n"),
        ("Run this:\n```python\nname = 'Bo'\n```\nIt works.", "Run this:\nIt works."),
        ("Run this:\n~~~\n```\nname\n~~~\nIt works.", "Run this:\nIt works."),
        ("Cut off:\n```\nname = 'Bo'", "Cut off:"),
        ("Then ```name = 'Bo'``` works.", "Then   works."),
    ],
)
def test_code_and_what_others_said_are_left_out(text, own):
    assert own_words(text) == own


@pytest.mark.parametrize(
    "text",
    [
        "I moved to Lisbon.",
        ">:( no tea left",
        ">5 people came",
        "a > b, and x --> y",
        "On Tuesday: tea. She wrote a book.",
        "I go from: the harbour",
        "From: Lisbon\nTo: Porto\nDate: 3 May\nWe leave early.",
        "Use `name` here.",
        "This ``` is a fence, they say.",
        "~~~\nSee you at the sea.",
        "~~~ ahoy ~~~\nSee you at the sea.",
        "~~~好的\n明天见。",
    ],
)
def test_what_is_said_stays_as_it_is(text):
    assert own_words(text) == text


@pytest.mark.parametrize(
    "line", ["> a\n", "```\n", "~~~a\n", "On x wrote:\n", "From: a\n", "a ```b``` ", ">" * 50, "On a "]
)
def test_a_million_characters_take_a_moment(line):
    assert len(own_words(line * (1_000_000 // len(line)))) <= 1_000_000
