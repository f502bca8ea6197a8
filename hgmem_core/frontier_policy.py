"""What a question teaches the frontier of `hgmem_core.frontier`: a listwise loss at first, then a policy gradient, too.

Warm start: the most probable facts are expanded in the order of flat search, and the network learns what bonus puts the
evidence first (listwise cross-entropy over the turns). Then facts to expand are drawn, from a softmax with a learned
temperature over the open facts and stopping, several times a question; what a draw earns is the recall and nDCG at ten
of the order that comes out, less a cost for each fact that was expanded, and is compared with the other draws of the
same question (RLOO; Ahmadian et al., ACL 2024). The listwise loss stays beside it, since bonuses are no actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from hgmem_core.frontier import INPUTS, Field, FrontierWeights, inputs_of, leaving_relations
from hgmem_core.lexical import Floats, Ints
from hgmem_core.relations import Relations


@dataclass(frozen=True, slots=True)
class FrontierTraining:
    """How to train.

    Attributes:
        hidden: Units of the network's two hidden layers.
        rank: Of the residual of two vectors.
        facts: The most probable facts of a question, which may be expanded in training.
        warm_facts: Those that are in the warm start.
        warm_epochs: The first epochs, which are the warm start.
        epochs: Of both, where nothing else says how many.
        draws: Of a question at a time, at least 2.
        budget: Facts that a draw expands at most.
        batch: Questions for an update, of all workers together.
        rate: Adam's learning rate.
        ndcg_share: What nDCG counts beside recall in what a draw earns.
        cost: Of each fact that is expanded.
        listwise_share: Of the listwise loss beside the policy gradient.
        decay: Weight decay of the residual, which draws it towards none.
    """

    hidden: tuple[int, int] = (32, 16)
    rank: int = 8
    facts: int = 120
    warm_facts: int = 60
    warm_epochs: int = 6
    epochs: int = 9
    draws: int = 4
    budget: int = 24
    batch: int = 16
    rate: float = 2e-3
    ndcg_share: float = 0.5
    cost: float = 0.001
    listwise_share: float = 0.3
    decay: float = 1e-2

    def __post_init__(self) -> None:
        """Refuse what cannot be trained with."""
        if self.draws < 2:
            raise ValueError(f"draws is {self.draws}: a draw is compared with others, so there must be at least 2")
        for name in ("facts", "budget", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class FrontierGraph:
    """The facts of a namespace; its questions share one, also where they travel to.

    Attributes:
        relations: Of the facts, layout RICH.
        vectors: Of the facts, unit or zeros, float32 `[facts, dimension]`.
        turns: The row of each fact's best turn, -1 for a fact that no longer stands, int64 `[facts]`.
    """

    relations: Relations
    vectors: Floats
    turns: Ints

    @classmethod
    def of(cls, field: Field) -> "FrontierGraph":
        """Take what all questions of a namespace have in common."""
        return cls(field.relations, field.vectors(np.arange(len(field.turns))), field.turns)


@dataclass(frozen=True, slots=True)
class FrontierQuestion:
    """A question with its evidence; for the arrays see `hgmem_core.frontier.Field`.

    Attributes:
        graph: Of its namespace.
        odds: Of every turn by flat search, float32 `[turns]`.
        question: Its unit vector, float32 `[dimension]`.
        intent: Of the question, float32 `[4]`.
        evidence: Rows of the turns that hold it, distinct.
    """

    graph: FrontierGraph
    odds: Floats
    question: Floats
    intent: Floats
    evidence: Ints

    @property
    def field(self) -> Field:
        """What it finds."""
        graph = self.graph
        return Field(
            graph.relations, lambda facts: graph.vectors[facts], graph.turns, self.odds, self.question, self.intent
        )


class PreparedQuestion:
    """A question as tensors: the relations of its most probable facts, padded by fact."""

    def __init__(self, question: FrontierQuestion, most: int, vectors: Tensor) -> None:
        """Prepare a question.

        Args:
            question: With evidence.
            most: Facts that may be expanded.
            vectors: Of all facts of its namespace, `[facts, dimension]`; the other tensors are where they are.
        """

        def tensor(array: npt.NDArray[Any]) -> Tensor:
            return torch.tensor(array, device=vectors.device)

        field = question.field
        standing = np.flatnonzero(field.turns >= 0)
        order = standing[np.lexsort((standing, -field.odds[field.turns[standing]]))][:most]
        edges, source = leaving_relations(field, order)
        sources, targets = order[source], field.relations.targets[edges]
        counts = np.bincount(source, minlength=len(order))
        slots = np.full((len(order), max(1, int(counts.max(initial=0)))), len(edges), np.int64)
        slots[source, np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)] = np.arange(len(source))
        turns = len(field.odds)
        self.odds = tensor(field.odds)
        self.turn_of_fact = tensor(field.turns[order])
        self.inputs = tensor(inputs_of(field, edges, sources))
        self.source = tensor(source)
        self.rows = tensor(np.append(field.turns[targets], turns))  # the padding leads to a turn behind all
        self.slots = tensor(slots)
        facts, inverse = np.unique(np.concatenate([sources, targets]), return_inverse=True)
        self._vectors, self._facts = vectors, tensor(facts)
        self.ends = tensor(inverse.reshape(2, -1))
        self.is_evidence = tensor(np.isin(np.arange(turns), question.evidence))

    @property
    def vectors(self) -> Tensor:
        """Those that `ends` number; kept once for all questions of a namespace."""
        return self._vectors[self._facts]


class FrontierNetwork(nn.Module):
    """w of relations, the bound below which nothing is expanded, and two temperatures."""

    def __init__(self, dimension: int, settings: FrontierTraining, generator: torch.Generator) -> None:
        """Draw the parameters for vectors of a dimension."""
        super().__init__()
        first, second = settings.hidden
        self.mean = nn.Parameter(torch.zeros(len(INPUTS)), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(len(INPUTS)), requires_grad=False)
        self.first = nn.Linear(len(INPUTS), first)
        self.second = nn.Linear(first, second)
        self.third = nn.Linear(second, 1)
        with torch.no_grad():
            for layer in (self.first, self.second):
                bound = layer.in_features**-0.5
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.zero_()
            # Nobody speaks for anybody to begin with, so that the first order is that of flat search.
            self.third.weight.zero_()
            self.third.bias.fill_(-3.0)
        self.source_residual = nn.Parameter(torch.randn(settings.rank, dimension, generator=generator) * 0.1)
        self.target_residual = nn.Parameter(torch.zeros(settings.rank, dimension))
        self.stop = nn.Parameter(torch.tensor(-6.0))
        self.log_temperature = nn.Parameter(torch.tensor(0.0))
        self.log_sharpness = nn.Parameter(torch.tensor(0.0))

    @property
    def residuals(self) -> list[nn.Parameter]:
        """What decays."""
        return [self.source_residual, self.target_residual]

    @property
    def of_drawing(self) -> list[nn.Parameter]:
        """What only draws learn."""
        return [self.stop, self.log_temperature]

    @property
    def of_bonuses(self) -> list[nn.Parameter]:
        """What the warm start learns, too, but for the residuals."""
        layers = (self.first, self.second, self.third)
        return [*(values for layer in layers for values in layer.parameters()), self.log_sharpness]

    def read_like(self, questions: Sequence[PreparedQuestion]) -> None:
        """Learn in which range inputs lie."""
        count = sum(len(one.inputs) for one in questions)
        totals = [one.inputs.sum(0, dtype=torch.float64) for one in questions]
        mean = torch.stack(totals).sum(0) / count
        squares = [(one.inputs - mean).square().sum(0) for one in questions]
        self.mean.data = mean.float()
        self.scale.data = (torch.stack(squares).sum(0) / count).sqrt().float().clamp_min(1e-3)

    def of_relations(self, one: PreparedQuestion) -> Tensor:
        """Return w of every relation of a question and 0 for the padding, `[relations + 1]`."""
        hidden = (one.inputs - self.mean) / self.scale
        hidden = torch.relu(self.second(torch.relu(self.first(hidden))))
        vectors = one.vectors
        ours = (vectors @ self.source_residual.T)[one.ends[0]]
        theirs = (vectors @ self.target_residual.T)[one.ends[1]]
        w = functional.softplus(self.third(hidden)[:, 0] + (ours * theirs).sum(1))
        return functional.pad(w, (0, 1))

    def weights(self) -> FrontierWeights:
        """Return what was learned so far, as arrays of its own."""

        def array(values: Tensor) -> Floats:
            return np.asarray(values.detach().cpu().numpy().copy(), np.float32)

        first, second, third = self.first, self.second, self.third
        return FrontierWeights(
            array(self.mean), array(self.scale), array(first.weight), array(first.bias), array(second.weight),
            array(second.bias), array(third.weight[0]), array(third.bias[0]), array(self.source_residual),
            array(self.target_residual), array(self.stop),
        )  # fmt: skip


def warm_bonus(w: Tensor, one: PreparedQuestion, most: int) -> Tensor:
    """Return the bonus of every turn when the most probable facts are expanded with the odds of flat search."""
    speaks = one.source < most
    sure = torch.sigmoid(one.odds[one.turn_of_fact[one.source[speaks]]])
    return torch.zeros_like(one.odds).scatter_reduce(0, one.rows[:-1][speaks], w[:-1][speaks] * sure, "amax")


def listwise_loss(network: FrontierNetwork, one: PreparedQuestion, bonus: Tensor) -> Tensor:
    """Return the cross-entropy of the evidence under a softmax of odds and bonus, `[..., turns]`, its mean."""
    logs = functional.log_softmax((one.odds + bonus) * network.log_sharpness.exp(), dim=-1)
    return -logs[..., one.is_evidence].mean()


@dataclass(frozen=True, slots=True)
class Draws:
    """Draws of a question: the bonus that each gave, `[draws, turns]`, what each earned, `[draws]`, and their loss."""

    bonus: Tensor
    earned: Tensor
    policy_loss: Tensor


def draw(
    network: FrontierNetwork, one: PreparedQuestion, settings: FrontierTraining, generator: torch.Generator
) -> Draws:
    """Draw facts to expand, several times."""
    w, draws, facts = network.of_relations(one), settings.draws, len(one.turn_of_fact)
    every = torch.arange(draws, device=w.device)
    bonus = w.new_zeros(draws, len(one.odds) + 1)
    closed = torch.zeros(draws, facts + 1, dtype=torch.bool, device=w.device)  # the last is to stop
    going = torch.ones(draws, dtype=torch.bool, device=w.device)
    log_prob, spent = w.new_zeros(draws), w.new_zeros(draws)
    stop = network.stop.expand(draws, 1)
    odds = functional.pad(one.odds, (0, 1))
    for _ in range(min(settings.budget, facts)):
        scores = (odds + bonus)[:, one.turn_of_fact]
        logits = torch.cat([scores, stop], 1) / network.log_temperature.exp()
        logs = functional.log_softmax(logits.masked_fill(closed, -1e9), 1)
        chosen = torch.multinomial(logs.detach().exp(), 1, generator=generator)[:, 0]
        log_prob = log_prob + torch.where(going, logs[every, chosen], 0.0)
        going = going & (chosen < facts)
        if not going.any():
            break
        spent = spent + going
        closed = closed.clone()  # what it was is part of the gradient
        closed[every[going], chosen[going]] = True
        fact = torch.where(going, chosen, 0)
        edges = one.slots[fact]
        given = w[edges] * torch.sigmoid(scores[every, fact])[:, None] * going[:, None]
        bonus = bonus.scatter_reduce(1, one.rows[edges], given, "amax")
    bonus = bonus[:, :-1]
    earned = earned_by((one.odds + bonus).detach(), one.is_evidence, settings.ndcg_share) - settings.cost * spent
    advantage = (earned - earned.mean()) * (draws / (draws - 1))
    return Draws(bonus, earned, -(advantage * log_prob).mean())


def earned_by(scores: Tensor, is_evidence: Tensor, ndcg_share: float) -> Tensor:
    """Return recall plus a share of nDCG at ten of each order, `[draws]`."""
    ten = min(10, scores.shape[1])
    hits = is_evidence[scores.topk(ten, dim=1).indices].float()
    total = int(is_evidence.sum())
    discounts = 1 / torch.log2(torch.arange(2, ten + 2, device=scores.device))
    return hits.sum(1) / total + ndcg_share * (hits * discounts).sum(1) / discounts[:total].sum()
