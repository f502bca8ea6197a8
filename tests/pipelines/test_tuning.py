import json

import pytest

from hgmem_core.config import config_from
from hgmem_core.metrics import METRICS
from hgmem_core.recipes import Blend
from hgmem_core.search import Filters, hits_of, rank_turns
from hgmem_core.tasks.locomo import read_questions
from hgmem_core.tasks.task import TaskError
from pipelines import tuning
from pipelines.encoders import open_encoder
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from pipelines.retriever import Retriever
from pipelines.versions import open_version
from tests.pipelines.logs import NOW

TOPICS = ["a kitten called Pip", "my new violin", "the lemon harvest", "a trip to Odessa Bay", "an exam in May"]


def sample(name):
    turns = [
        {"speaker": ("Ana", "Bo")[at % 2], "dia_id": f"D1:{at + 1}", "text": f"I told you about {topic}, {name}."}
        for at, topic in enumerate(TOPICS)
    ]
    asked = [
        {"question": f"Who spoke of {topic}?", "evidence": [f"D1:{at + 1}"], "category": 1 + 3 * (at % 2)}
        for at, topic in enumerate(TOPICS)
    ]
    conversation = {"session_1_date_time": "1:56 pm on 1 May, 2023", "session_1": turns}
    return {"sample_id": name, "conversation": conversation, "qa": asked}


def opened(tmp_path, names):
    samples = [sample(name) for name in names]
    (tmp_path / "locomo.json").write_text(json.dumps(samples))
    inputs = [{"format": "locomo", "paths": [str(tmp_path / "locomo.json")]}]
    config = config_from({"store": {"root": str(tmp_path / "s")}, "encoder": {"name": "static"}, "inputs": inputs})
    encoder = open_encoder(config.encoder)
    done = rebuild(config, encoder, NOW, Silent())
    return Retriever(open_version(done.store), encoder), read_questions(samples)


def test_constants_are_chosen_on_one_half_and_reported_on_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(
        tuning, "GRID", {"fact": (0.2, 0.6), "episode": (0.1,), "topic": (0.0,), "other_speaker": (1.0,)}
    )
    retriever, questions = opened(tmp_path, ["c1", "c2", "c3"])
    result = tuning.tune(retriever, questions, Silent())
    assert [half["chosen_on"] for half in result["halves"]] == [["locomo/c1", "locomo/c3"], ["locomo/c2"]]
    assert result["settings"] == 2
    for half, reported in zip(result["halves"], ({"locomo/c2"}, {"locomo/c1", "locomo/c3"}), strict=True):
        scores = []
        for row in questions.queries.to_pylist():
            if row["namespace"] in reported:
                recipe = Blend("x", **half["constants"])
                index = retriever.namespace(row["namespace"])
                ranking = rank_turns(index, retriever.analyse(row["text"], recipe), recipe, Filters(), 10)
                relevant = [
                    turn["turn_id"] for turn in questions.qrels.to_pylist() if turn["query_id"] == row["query_id"]
                ]
                scores.append(METRICS["ndcg@10"]([hit.turn_id for hit in hits_of(index, ranking)], relevant))
        assert half["ndcg@10"] == pytest.approx(sum(scores) / len(scores), abs=0.01)


def test_one_conversation_cannot_be_halved(tmp_path):
    retriever, questions = opened(tmp_path, ["c1"])
    with pytest.raises(TaskError, match="at least two conversations; there are 1"):
        tuning.tune(retriever, questions, Silent())
