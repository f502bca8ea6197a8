"""When a training ends, what it keeps, and that it goes on as if it had not stopped."""

import json
from dataclasses import replace

import numpy as np
import pytest

from hgmem_core.run_config import TrainConfig
from hgmem_core.training_run import TrainingRun


class Counting:
    """Learns to count: its weights are the number of epochs."""

    def __init__(self):
        self.count = 0

    def epoch(self):
        self.count += 1
        return {"loss": 1 / self.count}

    def weights(self):
        return self

    def as_dict(self):
        return {"count": np.array([self.count])}

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def run_of(recalls=(), **config):
    """A training whose recall after so many epochs is scripted."""
    learner = Counting()
    return TrainingRun(learner, (lambda: recalls[learner.count]) if recalls else None, TrainConfig(**config))


def finished(run):
    while not run.is_over:
        run.next_epoch()
    return int(run.weights()["count"][0])


@pytest.mark.parametrize(
    ("recalls", "epochs", "kept"),
    [
        ((9, 1, 3, 2, 2, 2, 8, 9), 5, 2),  # three looks without gain; what was before training is not kept
        ((0, 1, 2, 3, 4, 5, 6, 7), 7, 7),
        ((0, 2, 2, 2, 2, 2, 2, 2), 4, 1),  # as much as before is no gain
        ((0, 0, 0, 0, 0, 0, 0, 0), 4, 1),
    ],
)
def test_training_ends_when_looks_find_no_more_and_keeps_the_best(recalls, epochs, kept):
    run = run_of(recalls, epochs=7, validate_epochs=1, patience=3)
    assert finished(run) == kept
    assert run.epochs == epochs
    assert run.curve[0] == {"epoch": 0, "recall@10": recalls[0]}
    assert run.curve[1:] == [
        {"epoch": epoch, "loss": 1 / epoch, "recall@10": recalls[epoch]} for epoch in range(1, epochs + 1)
    ]


def test_looks_are_apart_and_the_last_epoch_is_looked_at():
    run = run_of(range(20), epochs=8, validate_epochs=3, patience=1)
    assert finished(run) == 8
    assert [row["epoch"] for row in run.curve if "recall@10" in row] == [0, 3, 6, 8]


def test_without_questions_held_back_the_last_weights_count():
    run = run_of(epochs=30, validate_epochs=1, patience=1)
    assert finished(run) == 30
    assert run.curve == [{"epoch": epoch, "loss": 1 / epoch} for epoch in range(1, 31)]


@pytest.mark.parametrize("stopped_after", range(6))
def test_a_training_goes_on_as_if_it_had_not_stopped(stopped_after):
    recalls = (0, 3, 1, 2, 5, 4, 4, 9)
    settings = {"epochs": 7, "validate_epochs": 1, "patience": 2}
    whole, first, second = (run_of(recalls, **settings) for _ in range(3))
    for _ in range(stopped_after):
        if not first.is_over:
            first.next_epoch()
    state = first.state()
    second.load(replace(state, progress=json.loads(json.dumps(state.progress))))
    assert finished(second) == finished(whole) == 1
    assert second.curve == whole.curve
    assert whole.epochs == 3
