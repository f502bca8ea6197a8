"""Training epoch by epoch, until questions that are held back are answered no better: early stopping, and its curve."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from hgmem_core.run_config import TrainConfig

VALIDATED = "recall@10"
"""What validation measures, in percent."""

Arrays = Mapping[str, npt.NDArray[Any]]


class Weights(Protocol):
    """What was learned."""

    def as_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays of its own, by name."""
        ...


class Learner(Protocol):
    """Learns in epochs, and goes on from a state as if it had not stopped."""

    def epoch(self) -> dict[str, float]:
        """Learn from every question once; return measures of it."""
        ...

    def weights(self) -> Weights:
        """Return what was learned so far."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that learning goes on from."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        ...


@dataclass(frozen=True, slots=True)
class RunState:
    """All that a training goes on from.

    Attributes:
        learner: Of `Learner.state_dict`; the next epoch changes it in place.
        best: The arrays that found most so far; None before the first look.
        progress: The rest, JSON-ready.
    """

    learner: dict[str, Any]
    best: Arrays | None
    progress: dict[str, Any]


class TrainingRun:
    """Trains epoch by epoch, looks at the questions that are held back, keeps the best weights, and knows when to end.

    Attributes:
        curve: A row for each epoch from 1 with what the learner measured, and with `recall@10` of the questions held
            back where these were looked at; before it a row of epoch 0, as they were answered untrained.
    """

    def __init__(self, learner: Learner, validate: Callable[[], float] | None, config: TrainConfig) -> None:
        """Begin nothing yet.

        Args:
            learner: Learns.
            validate: Returns the recall of what was learned so far; None without questions that are held back, where
                training goes through all epochs and the last weights count.
            config: How long.
        """
        self.curve: list[dict[str, float]] = []
        self._learner, self._validate, self._config = learner, validate, config
        self._best: Arrays | None = None
        self._reached, self._without_gain = -1.0, 0

    @property
    def epochs(self) -> int:
        """How many are over."""
        return int(self.curve[-1]["epoch"]) if self.curve else 0

    @property
    def is_over(self) -> bool:
        """Tell whether all epochs are over, or there was no gain for too long."""
        return self.epochs >= self._config.epochs or self._without_gain >= self._config.patience

    def next_epoch(self) -> dict[str, float]:
        """Train for an epoch and return its row of the curve."""
        if not self.curve and self._validate is not None:
            self.curve.append({"epoch": 0, VALIDATED: self._validate()})
        row = {"epoch": self.epochs + 1, **self._learner.epoch()}
        is_last = row["epoch"] == self._config.epochs
        if self._validate is not None and (is_last or row["epoch"] % self._config.validate_epochs == 0):
            row[VALIDATED] = self._validate()
            self._without_gain += 1
            if row[VALIDATED] > self._reached:
                self._reached, self._without_gain = row[VALIDATED], 0
                self._best = self._learner.weights().as_dict()
        self.curve.append(row)
        return row

    def weights(self) -> Arrays:
        """Return the arrays that found most of what was held back; without a look at that the last ones."""
        return self._learner.weights().as_dict() if self._best is None else self._best

    def state(self) -> RunState:
        """Return all that training goes on from."""
        progress = {"curve": self.curve, "reached": self._reached, "without_gain": self._without_gain}
        return RunState(self._learner.state_dict(), self._best, progress)

    def load(self, state: RunState) -> None:
        """Go on from a state; learner, questions and configuration are those that it was made with."""
        self._learner.load_state_dict(state.learner)
        self._best = state.best
        self.curve = [dict(row) for row in state.progress["curve"]]
        self._reached, self._without_gain = state.progress["reached"], state.progress["without_gain"]
