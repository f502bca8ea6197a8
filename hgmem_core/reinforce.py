"""REINFORCE as HAGE trains its router and the features of its graphs' relations, and two better baselines.

The loss is the mean over walks of Σ_t -log π(a_t) · A_t, plus the anchor λ_a Σ |e - e0|² over all relations. With the
published baseline A_t is the discounted return from step t less a moving average of earlier returns. The two others
walk several times for a question and compare a walk's return with the others': `rloo` with their mean, `grpo` with the
mean of all in units of their standard deviation (one update for each walk, so there is no ratio to clip). Where all
walks of a question earn the same, the two learn nothing from it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hgmem_core.data_parallel import ALONE, DataParallel
from hgmem_core.hage import HageWeights
from hgmem_core.router import QueryRouter
from hgmem_core.walks import (
    Choose,
    Graphs,
    TrainingGraph,
    TrainingQuestion,
    WalkRules,
    Walks,
    by_chance,
    pad_graphs,
    pad_questions,
    roll_out,
)


@dataclass(frozen=True, slots=True)
class HageTraining:
    """How to train; the defaults are the published ones, but for `batch`, which was 1.

    Attributes:
        trains: What is learned: the router, the features of the graphs' relations under a router that stays as it was
            drawn, or both.
        baseline: `ema` as published, `rloo` or `grpo`.
        walks: Of a question at a time; more than 1 for the latter two.
        batch: Questions for an update.
        router_rate: Adam's learning rate of the router.
        feature_rate: Adam's learning rate of the relations' features.
        anchor: λ_a.
        discount: Of a reward one step later.
        average_decay: Of the moving average, at every walk.
        largest_norm: To which gradients are clipped.
        rules: Of walking.
    """

    trains: Literal["both", "router", "features"] = "both"
    baseline: Literal["ema", "rloo", "grpo"] = "ema"
    walks: int = 1
    batch: int = 16
    router_rate: float = 1e-3
    feature_rate: float = 1e-4
    anchor: float = 1.0
    discount: float = 0.99
    average_decay: float = 0.99
    largest_norm: float = 1.0
    rules: WalkRules = field(default_factory=WalkRules)

    def __post_init__(self) -> None:
        """Refuse what cannot be trained with."""
        if self.baseline != "ema" and self.walks == 1:
            raise ValueError(f"baseline {self.baseline!r} compares walks of a question: walks must be at least 2")
        for name in ("walks", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.rules.hops < 1:
            raise ValueError(f"rules.hops is {self.rules.hops}; it must be at least 1")


def discounted(rewards: Tensor, discount: float) -> Tensor:
    """Return the discounted sum of each step's reward and those after it, `[walks, hops]` as `rewards`."""
    returns = torch.zeros_like(rewards)
    later = rewards.new_zeros(len(rewards))
    for step in reversed(range(rewards.shape[1])):
        later = rewards[:, step] + discount * later
        returns[:, step] = later
    return returns


def leave_one_out(returns: Tensor) -> Tensor:
    """Return each walk's return less the mean of the question's others, `[questions, walks]`, walks > 1."""
    walks = returns.shape[1]
    return (returns - returns.mean(1, keepdim=True)) * (walks / (walks - 1))


def in_deviations(returns: Tensor) -> Tensor:
    """Return each walk's return less the mean of the question's, in standard deviations, `[questions, walks]`."""
    deviations = returns.std(1, correction=0, keepdim=True)
    return (returns - returns.mean(1, keepdim=True)) / (deviations + 1e-6)


def policy_loss(walks: Walks, advantages: Tensor) -> Tensor:
    """Return Σ_t -log π(a_t) · A_t of each walk, `[walks]`; advantages are `[walks, hops]`."""
    return -(walks.log_probs * advantages * walks.live).sum(1)


class HageTrainer:
    """Trains step by step: one batch of questions walked for, one update.

    Several workers may train together. They get the same questions, settings and seed, each takes its share of every
    batch, and their gradients are averaged: parameters stay equal on all. What a step draws depends on the seed, the
    step and the worker alone, so training goes on from `state_dict` as if it had not ended. Steps are small: torch is
    fastest with `one_thread`, which the caller sets, since it holds for the whole process.
    """

    def __init__(
        self,
        graphs: Sequence[TrainingGraph],
        questions: Sequence[TrainingQuestion],
        settings: HageTraining,
        seed: int,
        parallel: DataParallel = ALONE,
    ) -> None:
        """Draw the router's parameters. Questions without a target are left out.

        Args:
            graphs: To walk on.
            questions: To walk for.
            settings: How to train.
            seed: Of all that is drawn.
            parallel: Which of several workers this one is, and where its tensors are.

        Raises:
            ValueError: No question has a target, or a graph or question is not as it should be.
        """
        asked = [question for question in questions if len(question.targets)]
        if not asked:
            raise ValueError(f"none of the {len(questions)} questions has a target: nothing can be learned from them")
        self.settings, self.steps = settings, 0
        device = parallel.device
        self._graphs: Graphs = pad_graphs(graphs, device)
        self._questions = pad_questions(asked, graphs, device)
        self._seed, self._parallel = seed, parallel
        generator = torch.Generator().manual_seed(seed_of(seed, 0, 0))
        sizes = self._questions.vectors.shape[1], self._graphs.features.shape[1]
        self.router = QueryRouter(*sizes, generator).to(device)
        self.router.requires_grad_(settings.trains != "features")
        self.features = torch.nn.Parameter(self._graphs.features.clone(), settings.trains != "router")
        self.average = torch.zeros((), device=device)
        router, features = list(self.router.parameters()), [self.features]
        rates = ((router, settings.router_rate), (features, settings.feature_rate))
        trained = [(values, rate) for values, rate in rates if values[0].requires_grad]
        self._trained = [one for values, _ in trained for one in values]
        self.optimiser = torch.optim.Adam([{"params": values, "lr": rate} for values, rate in trained])

    @property
    def steps_an_epoch(self) -> int:
        """Count the batches of all questions."""
        return -(-len(self._questions.vectors) // self.settings.batch)

    def epoch(self) -> dict[str, float]:
        """Walk once for every question; return the means of what `step` returns, over all workers."""
        steps = [self.step() for _ in range(self.steps_an_epoch)]
        means = self._parallel.mean([float(np.mean([step[name] for step in steps])) for name in steps[0]])
        return dict(zip(steps[0], means, strict=True))

    def step(self) -> dict[str, float]:
        """Walk for the next batch and learn from it.

        Returns:
            Means over this worker's walks: `loss` (of the policy), `return` (discounted), `success`.
        """
        numbers = self._next_batch()
        generator = torch.Generator(self._parallel.device).manual_seed(
            seed_of(self._seed, 1 + self.steps, self._parallel.rank)
        )
        own = self._parallel.share(numbers)
        # One start for all walks of a question: what they earn is compared.
        chosen = torch.rand(len(own), generator=generator, device=self._parallel.device) * self._questions.n_starts[own]
        starts = self._questions.starts[own, chosen.long()].repeat_interleave(self.settings.walks)
        asked = own.repeat_interleave(self.settings.walks)
        walks = self.walk(asked, starts, by_chance(generator))
        result = self.learn(walks, len(numbers) * self.settings.walks)
        self.steps += 1
        return result

    def walk(self, asked: Tensor, starts: Tensor, choose: Choose) -> Walks:
        """Walk without learning, see `hgmem_core.walks.roll_out`; questions are numbered without those left out."""
        rules = self.settings.rules
        return roll_out(self.router, self.features, self._graphs, self._questions, asked, starts, rules, choose)

    def learn(self, walks: Walks, walks_of_all: int) -> dict[str, float]:
        """Update the parameters after some walks; see `step`.

        Args:
            walks: Of this worker; those of a question one after the other.
            walks_of_all: How many all workers walked.
        """
        settings = self.settings
        returns = discounted(walks.rewards, settings.discount)
        total = policy_loss(walks, self._advantages(returns)).sum()
        loss = total * self._parallel.weight(walks_of_all)
        if self.features.requires_grad:
            loss = loss + settings.anchor * (self.features - self._graphs.features).square().sum()
        gradients = list(torch.autograd.grad(loss, self._trained))
        # A walk that began at its only target made no step and tells nothing.
        earned = torch.stack([returns[:, 0].sum(), walks.live[:, 0].sum()])
        self._parallel.average([*gradients, earned])
        for one, gradient in zip(self._trained, gradients, strict=True):
            one.grad = gradient
        torch.nn.utils.clip_grad_norm_(self._trained, settings.largest_norm)
        self.optimiser.step()
        decay = settings.average_decay ** (earned[1] * self._parallel.world_size)
        self.average = decay * self.average + (1 - decay) * earned[0] / earned[1].clamp(min=1)
        own = max(1, len(returns))
        return {
            "loss": float(total.detach()) / own,
            "return": float(returns[:, 0].sum()) / own,
            "success": float(walks.succeeded.sum()) / own,
        }

    def _advantages(self, returns: Tensor) -> Tensor:
        if self.settings.baseline == "ema":
            return returns - self.average
        compare = leave_one_out if self.settings.baseline == "rloo" else in_deviations
        own = compare(returns[:, 0].view(-1, self.settings.walks))
        return own.view(-1, 1).expand_as(returns)

    def _next_batch(self) -> Tensor:
        """Return the questions of the next step: each once in an epoch, in an order of its own, in like parts."""
        epoch, place = divmod(self.steps, self.steps_an_epoch)
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._questions.vectors))
        return torch.from_numpy(np.array_split(order, self.steps_an_epoch)[place]).to(self._parallel.device)

    def weights(self) -> HageWeights:
        """Return what was learned so far, as arrays of its own."""
        arrays = {name: values.detach().cpu().numpy().copy() for name, values in self.router.named_parameters()}
        return HageWeights(
            **arrays,
            features=self.features.detach()[: self._graphs.first_relation[-1]].cpu().numpy().copy(),
            first_relation=np.array(self._graphs.first_relation),
            cosine_share=np.array(self.settings.rules.cosine_share, np.float32),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all that training goes on from, as tensors and plain values; the next step changes them in place."""
        return {
            "steps": self.steps,
            "average": self.average,
            "router": self.router.state_dict(),
            "features": self.features.detach(),
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; graphs, questions, settings and seed are those that it was made with."""
        self.steps, self.average = state["steps"], state["average"].to(self._parallel.device)
        self.router.load_state_dict(state["router"])
        self.features.data.copy_(state["features"])
        self.optimiser.load_state_dict(state["optimiser"])


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread inside the `with`: threads that wait for each other make small steps slow."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def seed_of(*numbers: int) -> int:
    """Return a seed that depends on all the numbers; seeds of different numbers are unrelated."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
