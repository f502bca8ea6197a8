"""How a frontier is trained, as arrays that travel to any process: steps, and how what was learned is validated."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hgmem_core.data_parallel import ALONE, DataParallel
from hgmem_core.frontier import FrontierWeights, grow
from hgmem_core.frontier_policy import (
    FrontierNetwork,
    FrontierQuestion,
    FrontierTraining,
    PreparedQuestion,
    draw,
    listwise_loss,
    warm_bonus,
)
from hgmem_core.namespace_index import TieOrder
from hgmem_core.ranking import Rows, best_rows
from hgmem_core.recipes import Routed
from hgmem_core.reinforce import seed_of
from hgmem_core.run_config import TrainConfig
from hgmem_core.training_run import TrainingRun

_BEST = 10
"""Validation counts the evidence among so many turns; see `hgmem_core.training_run.VALIDATED`."""


class FrontierTrainer:
    """Trains epoch by epoch.

    Several workers may train together. They get the same questions, settings and seed, each takes its share of every
    batch, and their gradients are averaged: parameters stay equal on all. What is drawn for a question depends on the
    seed, the epoch and the question alone, so training goes on from `state_dict` as if it had not ended, and the number
    of workers changes nothing but the order in which numbers are added. Torch is fastest with one thread, see
    `hgmem_core.reinforce.one_thread`.
    """

    def __init__(
        self,
        questions: Sequence[FrontierQuestion],
        settings: FrontierTraining,
        seed: int,
        parallel: DataParallel = ALONE,
    ) -> None:
        """Draw the network's parameters. Questions without evidence, or that find no relation, are left out.

        Args:
            questions: To learn from.
            settings: How to train.
            seed: Of all that is drawn.
            parallel: Which of several workers this one is, and where its tensors are.

        Raises:
            ValueError: There is no question to learn from.
        """
        graphs = {id(question.graph): question.graph for question in questions}
        vectors = {key: torch.tensor(graph.vectors, device=parallel.device) for key, graph in graphs.items()}
        with_evidence = [question for question in questions if len(question.evidence)]
        prepared = [PreparedQuestion(one, settings.facts, vectors[id(one.graph)]) for one in with_evidence]
        self._questions = [one for one in prepared if len(one.source)]
        if not self._questions:
            raise ValueError(
                f"none of the {len(questions)} questions has evidence and finds a fact that has a relation: there is "
                "nothing to learn a frontier from"
            )
        self.settings, self.epochs = settings, 0
        self._seed, self._parallel = seed, parallel
        dimension = with_evidence[0].graph.vectors.shape[1]
        self._network = FrontierNetwork(dimension, settings, torch.Generator().manual_seed(seed)).to(parallel.device)
        self._network.read_like(self._questions)
        others = [*self._network.of_bonuses, *self._network.of_drawing]
        groups = (others, 0.0), (self._network.residuals, settings.decay)
        self._optimiser = torch.optim.AdamW(
            [{"params": values, "weight_decay": decay} for values, decay in groups], lr=settings.rate
        )

    @property
    def is_warm(self) -> bool:
        """Tell whether the epoch that runs, or was the last, is one of the warm start."""
        return self.epochs <= self.settings.warm_epochs

    def epoch(self) -> dict[str, float]:
        """Learn once from every question.

        Returns:
            The means over all of them of the `listwise loss` and, once there are draws, of what a draw `earned`.
        """
        self.epochs += 1
        order = np.random.default_rng([self._seed, self.epochs]).permutation(len(self._questions))
        batches = np.array_split(order, max(1, len(order) // self.settings.batch))
        told = sum((self._step(batch.tolist()) for batch in batches), np.zeros(2))
        listwise, earned = self._parallel.mean((told * self._parallel.weight(len(order))).tolist())
        return {"listwise loss": listwise} if self.is_warm else {"listwise loss": listwise, "earned": earned}

    def weights(self) -> FrontierWeights:
        """Return what was learned so far, as arrays of its own."""
        return self._network.weights()

    def state_dict(self) -> dict[str, Any]:
        """Return all that training goes on from, as tensors and plain values; the next epoch changes them in place."""
        return {
            "epochs": self.epochs,
            "network": self._network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; questions, settings and seed are those that it was made with."""
        self.epochs = state["epochs"]
        self._network.load_state_dict(state["network"])
        self._optimiser.load_state_dict(state["optimiser"])

    def _step(self, batch: Sequence[int]) -> npt.NDArray[np.float64]:
        """Update the parameters after a batch; return the sums of listwise loss and of what was earned, of its own."""
        network = self._network
        told = np.zeros(2)
        self._optimiser.zero_grad()
        for number in self._parallel.share(batch):
            loss, listwise, earned = self._loss(number)
            torch.autograd.backward(loss * self._parallel.weight(len(batch)))
            told += float(listwise.detach()), earned
        learning = [*network.of_bonuses, *network.residuals, *([] if self.is_warm else network.of_drawing)]
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in learning]
        self._parallel.average(gradients)
        for one, gradient in zip(learning, gradients, strict=True):
            one.grad = gradient
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        self._optimiser.step()
        return told

    def _loss(self, number: int) -> tuple[Tensor, Tensor, float]:
        """Return the loss of a question, the listwise loss in it, and what its draws earned in the mean."""
        one, network, settings = self._questions[number], self._network, self.settings
        if self.is_warm:
            listwise = listwise_loss(network, one, warm_bonus(network.of_relations(one), one, settings.warm_facts))
            return listwise, listwise, 0.0
        generator = torch.Generator(self._parallel.device).manual_seed(seed_of(self._seed, self.epochs, number))
        drawn = draw(network, one, settings, generator)
        listwise = listwise_loss(network, one, drawn.bonus)
        return drawn.policy_loss + settings.listwise_share * listwise, listwise, float(drawn.earned.mean())


@dataclass(frozen=True, slots=True)
class HeldOutField:
    """A question that is searched for as after training.

    Attributes:
        question: With the odds of trees that never saw it, and at least one turn of evidence.
        candidates: Rows of the turns that the trees ordered.
        ties: The order of turns that are equally good.
    """

    question: FrontierQuestion
    candidates: Rows
    ties: TieOrder

    def recall(self, weights: FrontierWeights, recipe: Routed) -> float:
        """Return the share of the evidence among the ten best turns, in percent."""
        field = self.question.field
        bonus = grow(field, weights, recipe.budget).bonus
        is_found = bonus > 0
        is_found[self.candidates] = True
        best = best_rows(field.odds + bonus, np.flatnonzero(is_found), _BEST, self.ties)
        return 100.0 * float(np.isin(self.question.evidence, best).mean())


@dataclass(frozen=True, slots=True)
class RoutedTraining:
    """Everything that a training takes.

    Attributes:
        questions: To learn from.
        held_out: Questions that tell when to stop; none trains to the end.
        recipe: How they are searched for.
        settings: How to learn.
        config: How long: its epochs take the place of those of `settings`, and the warm start counts among them.
        seed: Of all that is drawn.
    """

    questions: Sequence[FrontierQuestion]
    held_out: Sequence[HeldOutField]
    recipe: Routed
    settings: FrontierTraining
    config: TrainConfig
    seed: int

    def start(self, parallel: DataParallel = ALONE) -> TrainingRun:
        """Return the training at its beginning; see `FrontierTrainer`.

        Raises:
            ValueError: There is no question to learn from.
        """
        trainer = FrontierTrainer(self.questions, self.settings, self.seed, parallel)

        def validate() -> float:
            weights = trainer.weights()
            [mean] = parallel.mean([sum(one.recall(weights, self.recipe) for one in parallel.share(self.held_out))])
            return mean * parallel.world_size / len(self.held_out)

        return TrainingRun(trainer, validate if self.held_out else None, self.config)
