import json
from pathlib import Path

import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import LogRow, Message

DATA = Path(__file__).parents[2] / "data"
QUESTIONS = json.loads((DATA / "musique.json").read_text(encoding="utf-8"))
CORPUS = json.loads((DATA / "musique_corpus.json").read_text(encoding="utf-8"))


def read(*rows):
    numbered = [LogRow(f"mu.json:{number}", row) for number, row in enumerate(rows, 1)]
    return list(IMPORTERS["musique"](numbered, InputConfig(format="musique", paths=["mu.json"], namespace="musique/m")))


def test_a_paragraph_of_a_corpus_becomes_a_message():
    (message,) = read({"title": "Wray", "text": "Wray is a county."})
    assert message == Message(
        row_id="mu.json:1",
        namespace="musique/m",
        session_id=message.session_id,
        text="Wray\nWray is a county.",
        source_id=message.session_id,
    )


def test_questions_give_their_paragraphs_each_once():
    messages = read(*QUESTIONS)
    assert messages[5].row_id == "mu.json:2:paragraphs[1]"
    assert (len(messages), len({message.session_id for message in messages})) == (12, 5)
    assert {message.text for message in messages} < {message.text for message in read(*CORPUS)}


def test_labels_are_never_read():
    label = {"question": "SECRET", "question_decomposition": [{"answer": "SECRET"}], "answer": "SECRET", "id": "SECRET"}
    broken = {"title": "Wray", "is_supporting": "SECRET"}
    results = read({**QUESTIONS[0], **label}, {**label, "paragraphs": [broken]}, {**label, "paragraphs": "SECRET"})
    assert len(results) == 6
    assert "SECRET" not in str(results)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (None, "an object with 'title' and 'paragraph_text'"),
        ({"title": "Wray"}, "an object with 'title' and 'paragraph_text'"),
        ({"title": "Wray", "paragraph_text": None}, "the text is null"),
        ({"title": "", "paragraph_text": "A county."}, "the title is ''"),
    ],
)
def test_a_malformed_paragraph_is_rejected_alone(bad, reason):
    good = QUESTIONS[0]["paragraphs"][0]
    before, result, after = read({"paragraphs": [good, bad, good]})
    assert (result.outcome, result.row_id) == ("rejected", "mu.json:1:paragraphs[1]")
    assert reason in result.reason
    assert before.text == after.text


@pytest.mark.parametrize("bad", [None, 5, [], {}, {"paragraphs": "none"}, {"title": "Wray"}, {"text": "A county."}])
def test_a_malformed_row_is_rejected_and_the_next_one_read(bad):
    result, message = read(bad, CORPUS[0])
    assert (result.outcome, result.row_id) == ("rejected", "mu.json:1")
    assert "neither a question with a list of 'paragraphs' nor a paragraph" in result.reason
    assert message.text.startswith("Port Ansel\n")
