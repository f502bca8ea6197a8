from datetime import UTC, datetime

import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import LogRow, Message


def read(*samples, time_zone="UTC"):
    rows = [LogRow(f"chats.json:{number}", sample) for number, sample in enumerate(samples, 1)]
    return list(IMPORTERS["locomo"](rows, InputConfig(format="locomo", paths=["chats.json"], time_zone=time_zone)))


def sample(sample_id="pair-1", **conversation):
    return {"sample_id": sample_id, "conversation": {"speaker_a": "Oona", "speaker_b": "Piet", **conversation}}


def turn(dia_id="D1:1", text="Ahoy!", speaker="Oona", **fields):
    return {"dia_id": dia_id, "text": text, "speaker": speaker, **fields}


def test_a_turn_becomes_a_message():
    chat = sample(
        session_3_date_time="1:56 pm on 8 May, 2023", session_3=[turn("D3:1"), turn("D3:2", "Ahoy yourself", "Piet")]
    )
    first, second = read(chat, time_zone="Europe/Paris")
    assert first == Message(
        row_id="chats.json:1:session_3[0]",
        namespace="locomo/pair-1",
        session_id="session_003",
        text="Ahoy!",
        source_id="D3:1",
        sequence=0,
        speaker="Oona",
        said_at=datetime(2023, 5, 8, 11, 56, tzinfo=UTC),
        time_zone="Europe/Paris",
    )
    assert (second.sequence, second.speaker, second.said_at) == (1, "Piet", first.said_at)


def test_sessions_come_by_number_and_their_names_sort_so():
    sessions = {f"session_{number}": [turn(f"D{number}:1")] for number in (10, 2, 1, 11)}
    names = [message.session_id for message in read(sample(**sessions))]
    assert names == ["session_001", "session_002", "session_010", "session_011"]
    assert names == sorted(names)


def test_labels_are_never_read():
    chat = sample(
        session_1=[
            turn(query="SECRET", evidence="SECRET", img_url=["https://example.org/a.png"], blip_caption="a boat")
        ],
        session_1_observation=[turn(text="SECRET")],
        session_1_summary="SECRET",
        events_session_1=[turn(text="SECRET")],
    )
    label = [{"question": "SECRET", "answer": "SECRET", "text": "SECRET"}]
    results = read(chat | {"qa": label, "event_summary": label, "observation": label, "session_summary": label})
    assert len(results) == 1
    assert "SECRET" not in str(results)


def test_a_picture_is_an_attachment_with_its_caption_and_first_address():
    (result,) = read(sample(session_1=[turn(img_url=["https://example.org/a.png", "b"], blip_caption="a boat")]))
    assert result.attachments == ({"type": "image", "caption": "a boat", "url": "https://example.org/a.png"},)


@pytest.mark.parametrize("fields", [{"text": None}, {"text": ""}])
def test_a_picture_without_words_is_kept(fields):
    (result,) = read(sample(session_1=[turn(blip_caption="a boat") | fields]))
    assert (result.text, result.attachments) == ("", ({"type": "image", "caption": "a boat"},))


def test_a_turn_with_neither_words_nor_picture_is_empty():
    (result,) = read(sample(session_1=[turn(text=None, img_url=[], blip_caption=None)]))
    assert result.outcome == "empty"


@pytest.mark.parametrize("date", [{}, {"session_1_date_time": None}, {"session_1_date_time": "some day"}])
def test_a_session_without_a_date_has_no_time_and_a_note(date):
    (result,) = read(sample(session_1=[turn()], **date))
    assert (result.said_at, result.time_zone) == (None, None)
    assert "session_1" in result.note


@pytest.mark.parametrize("bad", [None, "Ahoy!", 5, ["Ahoy!"], turn(text=7)])
def test_a_malformed_turn_is_rejected_alone(bad):
    before, result, after = read(sample(session_3=[turn("D3:1"), bad, turn("D3:3")]))
    assert (result.outcome, result.row_id) == ("rejected", "chats.json:1:session_3[1]")
    assert (before.source_id, after.source_id) == ("D3:1", "D3:3")


@pytest.mark.parametrize("bad", [None, "", "a/b", True])
def test_turns_of_a_sample_without_a_usable_id_are_rejected_one_by_one(bad):
    results = read(sample(sample_id=bad, session_1=[turn(), turn("D1:2")]))
    assert [result.outcome for result in results] == ["rejected", "rejected"]
    assert "sample_id" in results[0].reason


@pytest.mark.parametrize("bad", [None, 5, [], {}, {"sample_id": "x"}, {"sample_id": "x", "conversation": []}])
def test_a_malformed_sample_is_rejected_and_the_next_one_read(bad):
    result, message = read(bad, sample(session_1=[turn()]))
    assert (result.outcome, result.row_id) == ("rejected", "chats.json:1")
    assert message.text == "Ahoy!"


def test_a_session_that_is_no_list_is_rejected_and_one_with_only_a_date_is_nothing():
    results = read(
        sample(session_1="lost", session_2=[turn()], session_3_date_time="1:56 pm on 8 May, 2023", session_4=None)
    )
    assert [result.row_id for result in results] == ["chats.json:1:session_1", "chats.json:1:session_2[0]"]


def test_damaged_text_is_repaired_and_noted():
    (result,) = read(
        sample(session_1_date_time="2023-05-08", session_1=[turn(text="half \ud83d", speaker=" Oona\x00")])
    )
    assert (result.text, result.speaker) == ("half \ufffd", "Oona")
    assert "surrogates" in result.note


def test_an_unreadable_row_is_rejected():
    config = InputConfig(format="locomo", paths=["chats.json"])
    (result,) = IMPORTERS["locomo"]([LogRow("chats.jsonl:4", None, "not JSON", "{")], config)
    assert (result.outcome, result.reason, result.raw) == ("rejected", "not JSON", "{")
