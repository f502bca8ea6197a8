"""A benchmark of small conversations for tests of training: each topic comes up four times, and one turn is meant."""

import json

from hgmem_core.config import config_from
from pipelines.encoders import open_encoder
from pipelines.evaluation import open_task
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from pipelines.retriever import Retriever
from pipelines.training import examples_of
from pipelines.versions import open_version
from tests.pipelines.logs import NOW

TOPICS = ("a kitten called Pip", "my new violin", "the lemon harvest", "a trip to Odessa Bay", "an exam in Latin")
SPEAKERS = ("Ana", "Bo")
SAID = ("What they say of {}, what does that say?", "It was {} again, all day.")
"""What is not meant, which is nearer to the question, and what is."""


def conversation(name):
    """Two days on which both speak of each topic; the questions ask for one of the four turns, in two categories."""
    sessions, questions = {}, []
    for day in (1, 2):
        turns = []
        for topic in TOPICS:
            for place, speaker in enumerate(SPEAKERS):
                turns.append(
                    {
                        "speaker": speaker,
                        "dia_id": f"D{day}:{len(turns) + 1}",
                        "text": SAID[(place + day) % 2].format(topic),
                    }
                )
                if (place + day) % 2:
                    questions.append(
                        {
                            "question": f"What does {speaker} say of {topic}?",
                            "evidence": [turns[-1]["dia_id"]],
                            "category": 4 if len(questions) % 3 else 1,
                        }
                    )
        sessions |= {f"session_{day}": turns, f"session_{day}_date_time": f"1:56 pm on {day} May, 2023"}
    return {"sample_id": name, "conversation": sessions, "qa": questions}


def write_benchmark(path, *names):
    path.write_text(json.dumps([conversation(name) for name in names]), encoding="utf-8")
    return path


class Small:
    """A benchmark of some conversations and the version that holds them."""

    def __init__(self, folder, *names, **sections):
        data = write_benchmark(folder / "small.json", *names)
        self.task = open_task("locomo", data)
        tree = {"store": {"root": str(folder / "store")}, "encoder": {"name": "static"}}
        self.config = config_from({**tree, **sections})
        self.encoder = open_encoder(self.config.encoder)
        done = rebuild(self.config.model_copy(update={"inputs": list(self.task.inputs)}), self.encoder, NOW, Silent())
        self.version = open_version(done.store)
        self.retriever = Retriever(self.version, self.encoder)

    @property
    def examples(self):
        return examples_of(self.retriever, self.task.questions, self.task.groups["1-4"])
