"""Why a turn that was looked for is not among the first."""

import numpy as np
import pytest

from hgmem_core.ranking import Ranking
from pipelines.retriever import Retriever
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.versions import open_version
from pipelines.worst_questions import _why
from tests.pipelines.logs import config_of, rows, run, write_jsonl

SUBJECTS = (
    "The harbour master paints his red boat.",
    "My aunt bakes rye bread.",
    "The telescope shows Saturn's rings.",
)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("worst")
    several = [
        {**row, "text": SUBJECTS[place % 3], "session": f"s{place % 3}"} for place, row in enumerate(rows(("ana",), 12))
    ]
    run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", several)))
    found = Retriever(open_version(Store.open(folder / "store")), StaticEncoder()).namespace("acme/ana")
    assert len(set(found.episode.tolist())) > 1
    return found


def ranking(topics=(), episodes=()):
    none = np.empty(0, np.int64)
    return Ranking(
        none, none.astype(np.float32), topics=np.array(topics, np.int64), episodes=np.array(episodes, np.int64)
    )


def test_the_level_at_which_it_was_lost_is_named(index):
    row, episode = 0, int(index.episode[0])
    members = index.graph.episodes_of_topic
    topics = range(len(members.offsets) - 1)
    its = [topic for topic in topics if episode in members.of_all(np.array([topic]))]
    others = [topic for topic in topics if topic not in its]
    other_episodes = [one for one in set(index.episode.tolist()) if one != episode]
    assert its and others

    def why(rank=None, **chosen):
        return _why(index, ranking(**chosen), row, rank)

    assert why(rank=40, topics=others) == "cut"
    assert why(topics=others, episodes=other_episodes) == "topic_missed"
    assert why(topics=its, episodes=other_episodes) == "episode_missed"
    assert why(topics=its, episodes=[episode]) == "never_found"
    assert why() == "never_found"  # of a recipe that chooses neither
