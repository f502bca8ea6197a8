"""Training on Ray: workers that average, are lost, and go on; equal to one process all the same."""

import os
import signal
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from hgmem_core.config import parse_config
from hgmem_core.data_parallel import ALONE, DataParallel
from hgmem_core.frontier_training import RoutedTraining
from hgmem_core.hage_training import HeldOutQuestion, WalkTraining
from hgmem_core.namespace_index import TieOrder
from hgmem_core.recipes import RECIPES
from hgmem_core.reinforce import HageTraining
from hgmem_core.run_config import RunConfig
from hgmem_core.section import ConfigError
from hgmem_core.trained import TrainedModelError
from pipelines import ray_training
from pipelines.engine import ClusterError
from pipelines.preflight import PreflightError
from pipelines.progress import Silent
from pipelines.ray_training import read_state, train_on_ray, write_state
from tests.core.event_graphs import one_thread as one_thread  # a fixture
from tests.core.event_graphs import random_graph, random_question
from tests.core.frontier_fields import QUICK, held_out, teaching

EPOCHS = 7
DIES_AFTER = 3


@dataclass(frozen=True)
class Training:
    """A training of which the last worker dies after its third epoch, as often as there are lives in a folder.

    It waits for Ray to know of the checkpoint after the second.
    """

    learning: WalkTraining | RoutedTraining
    lives: Path
    folder: Path

    def start(self, parallel=ALONE):
        run = self.learning.start(parallel)
        next_epoch = run.next_epoch

        def next_epoch_or_die():
            if run.epochs == DIES_AFTER and parallel.rank == parallel.world_size - 1:
                for life in self.lives.iterdir():
                    while not list(self.folder.glob("*.json")):
                        time.sleep(0.05)
                    life.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
            return next_epoch()

        run.next_epoch = next_epoch_or_die
        return run


def mortal(folder, learning, lives):
    """The training in a folder of its own, in which the last worker dies so many times."""
    (folder / "lives").mkdir()
    for life in range(lives):
        (folder / "lives" / str(life)).touch()
    return Training(learning, folder / "lives", folder / "unfinished" / "run")


def schedule():
    return RunConfig().train.model_copy(update={"epochs": EPOCHS, "validate_epochs": 2})


def walks():
    rng = np.random.default_rng(0)
    graphs = [random_graph(rng, 12, 6) for _ in range(2)]
    asked = []
    for number in range(5):
        graph, question = graphs[number % 2], random_question(rng, 0, graphs[number % 2])
        cosines = graph.vectors @ question.vector
        ties, anchors = TieOrder.of(np.arange(12)), np.argsort(-cosines)[:1]
        asked.append(
            HeldOutQuestion(
                graph.relations, ties, question.vector, cosines, question.intent, anchors, np.unique(question.targets)
            )
        )
    questions = [random_question(rng, number % 2, graphs[number % 2]) for number in range(9)]
    settings = HageTraining(batch=3, router_rate=1e-2)
    return WalkTraining(graphs, questions, asked, RECIPES["hage"], settings, schedule(), 4)


def frontier():
    """Its warm start is over when a worker dies."""
    settings = replace(QUICK, warm_epochs=DIES_AFTER - 1, rate=5e-2)
    return RoutedTraining(teaching(17), held_out(teaching(5, 9)), RECIPES["routed"], settings, schedule(), 4)


def config(workers, retries):
    train = {"workers": workers, "epochs": EPOCHS, "checkpoint_epochs": 2, "retries": retries}
    return parse_config("", [f"run.train.{name}={value}" for name, value in train.items()]).run


class Notes(Silent):
    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def in_threads(learning, workers):
    """What workers come to that average in the memory of one process."""
    barrier, given, runs = threading.Barrier(workers), {}, {}

    def work(worker):
        def average(tensors):
            given[worker] = [tensor.clone() for tensor in tensors]
            barrier.wait(60)
            for place, tensor in enumerate(tensors):
                tensor.copy_(sum(own[place] for own in given.values()) / workers)
            barrier.wait(60)

        run = learning.start(DataParallel(worker, workers, average))
        while not run.is_over:
            run.next_epoch()
        runs[worker] = run

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return runs[0]


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_lost_workers_and_a_lost_run_change_nothing(tmp_path):
    """The second worker is killed twice; one loss is allowed, so that the run fails, and is started once more."""
    training, notes = mortal(tmp_path, walks(), 2), Notes()
    message = rf"with run.train.retries=1 \(.+\).*kept in {training.folder}: run this again to go on"
    with pytest.raises(ClusterError, match=message):
        train_on_ray(training, training.folder, config(2, 1), notes)
    assert notes.said == [f"a worker was lost: training goes on from epoch {DIES_AFTER}"]
    notes = Notes()
    done = train_on_ray(training, training.folder, config(2, 0), notes)
    assert notes.said == [f"an earlier run ended before it was over: training goes on from epoch {DIES_AFTER}"]
    assert_same(done, in_threads(training.learning, 2))
    with pytest.raises(PreflightError, match=r"run.train.workers=3 takes a CPU each; the cluster has room for 2"):
        train_on_ray(training, training.folder, config(3, 0), notes)


@pytest.mark.ray
@pytest.mark.usefixtures("local_ray")
def test_a_frontier_goes_on_where_a_worker_was_lost(tmp_path):
    training, notes = mortal(tmp_path, frontier(), 1), Notes()
    done = train_on_ray(training, training.folder, config(2, 1), notes)
    assert notes.said == [f"a worker was lost: training goes on from epoch {DIES_AFTER}"]
    assert_same(done, in_threads(training.learning, 2))
    assert "earned" in done.curve[-1]


def assert_same(done, expected):
    assert done.curve == expected.curve
    assert done.curve[-1]["epoch"] == EPOCHS
    assert done.weights.keys() == expected.weights().keys()
    for name, array in expected.weights().items():
        assert np.array_equal(done.weights[name], array), name


def test_the_same_training_twice_at_once_is_refused(tmp_path):
    with (
        ray_training._claimed(tmp_path / "one"),
        pytest.raises(TrainedModelError, match=r"going on already, with its checkpoints in .*one"),
        ray_training._claimed(tmp_path / "one"),
    ):
        pass
    with ray_training._claimed(tmp_path / "one"), ray_training._claimed(tmp_path / "other"):
        pass
    assert not list(tmp_path.glob("*.lock"))


@pytest.mark.parametrize("learning", [walks, frontier])
def test_a_state_is_read_as_it_was_written(tmp_path, learning):
    run, again = learning().start(), learning().start()
    for epoch in range(3):
        folder = tmp_path / str(epoch)
        folder.mkdir()
        write_state(run.state(), folder)
        if run.epochs < 2:
            assert read_state(folder).best is None
        run.next_epoch()
    again.load(read_state(folder))
    assert again.epochs == 2
    assert again.next_epoch() == run.curve[-1]
    assert again.curve == run.curve
    assert all(np.array_equal(again.weights()[name], array) for name, array in run.weights().items())


def test_how_to_train_is_checked():
    for setting in ("workers=0", "epochs=0", "patience=0", "checkpoint_epochs=0", "retries=-1"):
        with pytest.raises(ConfigError, match=f"run.train.{setting.partition('=')[0]}"):
            parse_config("", [f"run.train.{setting}"])
