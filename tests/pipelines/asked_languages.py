"""Talks in other languages than English, with questions and the turns that answer them."""

import json
from pathlib import Path

from pipelines.encoders import open_encoder
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.versions import open_version
from tests.pipelines.logs import config_of, run, write_jsonl

DATA = Path(__file__).parents[1] / "data"
TALK = "acme/talk"


def read(name):
    """The turns of a talk, and its questions with the ids of the turns that answer them."""
    rows = [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]
    turns = [row | {"user": "talk"} for row in rows if "text" in row]
    return turns, [(row["question"], set(row["evidence"])) for row in rows if "question" in row]


def built(folder, turns, encoder):
    """A retriever over the turns, and the encoder's name is that of the configuration."""
    config = config_of(folder / "store", write_jsonl(folder / "log.jsonl", turns), buckets=1, encoder={"name": encoder})
    run(config)
    return Retriever(open_version(Store.open(config.store.root)), open_encoder(config.encoder))


def recall(retriever, questions, recipe, k):
    """The share of the turns that answer a question among the first `k`, as a mean over the questions."""
    shares = []
    for question, evidence in questions:
        hits = retriever.search(TALK, question, recipe=recipe, k=k).hits
        shares.append(len(evidence & {hit.source_id for hit in hits}) / len(evidence))
    return sum(shares) / len(shares)
