from hgmem_core.embeddings import context_texts
from hgmem_core.ranking import Query
from hgmem_core.tokens import tokenizer
from pipelines.encoder_examples import LOOKALIKES, tuning_examples
from tests.core.fixtures import HashEncoder, message, reader_of, turns_of


def index_of(*texts):
    turns = turns_of(*(message(text, at=at) for at, text in enumerate(texts)))
    return reader_of(turns, HashEncoder()).open("acme/ana")


def query(text):
    return Query(text, tuple(tokenizer("english")(text)), None)


def test_each_evidence_turn_is_an_example_against_turns_that_share_its_words():
    said = [f"my garden has {number} roses and much tea" for number in range(20)]
    index = index_of(*said, "it rains")
    texts = context_texts(index.nodes)
    examples = tuning_examples(index, texts, query("Which roses are in the garden?"), "q1", [20, 3, 3])
    assert [example.document for example in examples] == [texts[3], texts[20]]
    assert {(example.query, example.question) for example in examples} == {("Which roses are in the garden?", "q1")}
    for example in examples:
        assert LOOKALIKES - 1 <= len(example.negatives) <= LOOKALIKES
        assert set(example.negatives) <= set(texts[:20]) - {texts[3]}


def test_a_question_without_evidence_gives_none():
    index = index_of("tea", "rain")
    assert tuning_examples(index, context_texts(index.nodes), query("tea?"), "q1", []) == []
    [only] = tuning_examples(index, context_texts(index.nodes), query("tea?"), "q1", [0])
    assert only.negatives == (context_texts(index.nodes)[1],)
