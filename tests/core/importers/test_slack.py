from datetime import UTC, datetime

import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.importers.slack import SlackNames, SlackRow
from hgmem_core.messages import LogRow, Message

NAMES = SlackNames({"U1": "Oona", "U2": "Piet"}, {"harbour": "C1"})


def read(*messages, namespace="acme/{channel}", channel="harbour", names=NAMES):
    rows = [LogRow(f"d:{number}", SlackRow(channel, names, value)) for number, value in enumerate(messages, 1)]
    return list(IMPORTERS["slack"](rows, InputConfig(format="slack", paths=["d"], namespace=namespace)))


def say(text="", **fields):
    (result,) = read({"type": "message", "user": "U1", "ts": "1715155200.000200", "text": text, **fields})
    return result


def test_a_message_has_its_speakers_name_and_its_channel():
    assert say("Ahoy") == Message(
        row_id="d:1",
        namespace="acme/harbour",
        session_id="C1",
        text="Ahoy",
        source_id="1715155200.000200",
        role="user",
        speaker="Oona",
        said_at=datetime(2024, 5, 8, 8, 0, 0, 200, tzinfo=UTC),
        time_zone="UTC",
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<@U2> and <@U2|p>: hi", "@Piet and @Piet: hi"),
        ("<@U7|mira> <@U8>", "@mira @U8"),
        ("in <#C1|harbour>, <#C1>, <#C9>", "in #harbour, #harbour, #C9"),
        ("<!here> <!subteam^S1|@crew> <!date^17^{date}|8 May>", "@here @crew 8 May"),
        ("<https://example.org/a|our page>", "our page (https://example.org/a)"),
        ("<https://example.org/a|example.org/a> <https://example.org>", "https://example.org/a https://example.org"),
        ("<mailto:bo@example.org|bo@example.org>", "bo@example.org"),
        ("1 &lt; 2 &amp;&amp; 3 &gt; 2, &amp;lt; stays", "1 < 2 && 3 > 2, &lt; stays"),
        ("a < b > c", "a < b > c"),
    ],
)
def test_text_is_read_as_it_was_shown(text, shown):
    assert say(text).text == shown


def test_a_thread_is_a_session_and_what_it_answers_stays_in_the_channel():
    assert say("Broken!", thread_ts="1715155200.000200").session_id == "C1"
    assert say("Again?", thread_ts="1715150000.000100").session_id == "C1/1715150000.000100"
    broadcast = say("Again?", thread_ts="1715150000.000100", subtype="thread_broadcast")
    assert broadcast.session_id == "C1/1715150000.000100"


def test_an_edited_message_keeps_its_name():
    first, second = say("Ahoi"), say("Ahoy", edited={"user": "U1", "ts": "1715155300.000000"})
    assert (first.source_id, first.session_id) == (second.source_id, second.session_id)


@pytest.mark.parametrize("subtype", ["channel_join", "channel_topic", "pinned_item", "tombstone"])
def test_notices_of_slack_are_empty_with_their_kind(subtype):
    result = say("<@U1> has joined the channel", subtype=subtype)
    assert result.outcome == "empty"
    assert subtype in result.reason


def test_an_app_speaks_in_its_own_name_and_from_its_blocks():
    fields = {"user": None, "subtype": "bot_message", "bot_id": "B1", "username": "Forecast"}
    result = say(attachments=[{"title": "Wind", "text": "Gale &lt; 60 knots"}], **fields)
    assert (result.role, result.speaker, result.text) == ("assistant", "Forecast", "Wind\nGale < 60 knots")
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "Rain for <@U2>"}}]
    assert say(blocks=blocks, **fields).text == "Rain for @Piet"


def test_somebody_who_is_not_in_the_list_of_users_is_named_by_the_message():
    assert say("Hi", user="U9", user_profile={"real_name": "Hansen"}).speaker == "Hansen"
    assert say("Hi", user="U9").speaker == "U9"


def test_files_and_links_are_attachments():
    result = say(
        "See",
        files=[
            {"id": "F1", "name": "a.png", "title": "the tug", "mimetype": "image/png"},
            {"id": "F2", "name": "b.pdf"},
        ],
        attachments=[{"title": "The report", "from_url": "https://example.org"}],
    )
    assert result.attachments == (
        {"type": "image", "caption": "the tug", "id": "F1"},
        {"type": "file", "name": "b.pdf", "id": "F2"},
        {"type": "link", "name": "The report", "url": "https://example.org"},
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [(3, "must be an object"), ({"text": "Hi"}, "'ts'"), ({"ts": "1.0", "text": 1.5e400 > 1}, "text: ")],
)
def test_what_is_no_message_is_refused_with_the_reason(value, reason):
    (result,) = read(value)
    assert result.outcome == "rejected"
    assert reason in result.reason


def test_a_message_without_text_and_files_is_empty():
    assert say("  ").outcome == "empty"
