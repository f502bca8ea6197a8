"""How the frontier of `hgmem_core.frontier` learns: a listwise warm start, then policy gradient on final recall.

Warm start: the most probable facts are expanded in the order of flat search, and the network learns what bonus puts the
evidence first (listwise cross-entropy over the turns). Then facts to expand are drawn, from a softmax with a learned
temperature over the open facts and stopping, several times a question; what a draw earns is the recall and nDCG at ten
of the order that comes out, less a cost for each fact that was expanded, and is compared with the other draws of the
same question (RLOO; Ahmadian et al., ACL 2024). The listwise loss stays beside it, since bonuses are no actions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hgmem_core.frontier import INPUTS, Field, FrontierWeights, inputs_of, leaving_relations
from hgmem_core.lexical import Floats, Ints


@dataclass(frozen=True, slots=True)
class FrontierTraining:
    """How to train.

    Attributes:
        hidden: Units of the network's two hidden layers.
        rank: Of the residual of two vectors.
        facts: The most probable facts of a question, which may be expanded in training.
        warm_facts: Those that are in the warm start.
        warm_epochs: Epochs of the warm start.
        epochs: Of the policy gradient after it.
        draws: Of a question at a time, at least 2.
        budget: Facts that a draw expands at most.
        batch: Questions for an update.
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
    epochs: int = 3
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


@dataclass(frozen=True, slots=True)
class FrontierQuestion:
    """A question with its evidence.

    Attributes:
        field: What it finds.
        evidence: Rows of the turns that hold it, at least one.
    """

    field: Field
    evidence: Ints


class _Prepared:
    """A question as tensors: the relations of its most probable facts, padded by fact."""

    def __init__(self, question: FrontierQuestion, most: int) -> None:
        field = question.field
        standing = np.flatnonzero(field.turns >= 0)
        order = standing[np.lexsort((standing, -field.odds[field.turns[standing]]))][:most]
        edges, sources = leaving_relations(field, order)
        targets = field.relations.targets[edges]
        place = {fact: at for at, fact in enumerate(order.tolist())}
        source = np.array([place[fact] for fact in sources.tolist()], np.int64)
        counts = np.bincount(source, minlength=len(order))
        slots = np.full((len(order), max(1, int(counts.max(initial=0)))), len(edges), np.int64)
        slots[source, np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)] = np.arange(len(source))
        turns = len(field.odds)
        self.odds = torch.from_numpy(field.odds)
        self.turn_of_fact = torch.from_numpy(field.turns[order])
        self.inputs = torch.from_numpy(inputs_of(field, edges, sources))
        self.source = torch.from_numpy(source)
        self.rows = torch.from_numpy(np.append(field.turns[targets], turns))  # the padding leads to a turn behind all
        self.slots = torch.from_numpy(slots)
        ends, inverse = np.unique(np.concatenate([sources, targets]), return_inverse=True)
        self.vectors = torch.from_numpy(field.vectors(ends))
        self.ends = torch.from_numpy(inverse.reshape(2, -1))
        self.is_evidence = torch.zeros(turns, dtype=torch.bool)
        self.is_evidence[torch.from_numpy(question.evidence)] = True


class _Network(nn.Module):
    """w of relations, the bound below which nothing is expanded, and two temperatures."""

    def __init__(self, dimension: int, settings: FrontierTraining, generator: torch.Generator) -> None:
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

    def of_relations(self, one: _Prepared) -> Tensor:
        """Return w of every relation of a question and 0 for the padding, `[relations + 1]`."""
        hidden = (one.inputs - self.mean) / self.scale
        hidden = torch.relu(self.second(torch.relu(self.first(hidden))))
        ours = (one.vectors @ self.source_residual.T)[one.ends[0]]
        theirs = (one.vectors @ self.target_residual.T)[one.ends[1]]
        w = functional.softplus(self.third(hidden)[:, 0] + (ours * theirs).sum(1))
        return functional.pad(w, (0, 1))

    def weights(self) -> FrontierWeights:
        """Return what was learned so far, as arrays of its own."""

        def array(values: Tensor) -> Floats:
            return np.asarray(values.detach().numpy().copy(), np.float32)

        first, second, third = self.first, self.second, self.third
        return FrontierWeights(
            array(self.mean), array(self.scale), array(first.weight), array(first.bias), array(second.weight),
            array(second.bias), array(third.weight[0]), array(third.bias[0]), array(self.source_residual),
            array(self.target_residual), array(self.stop),
        )  # fmt: skip


def train_frontier(
    questions: Sequence[FrontierQuestion],
    dimension: int,
    settings: FrontierTraining,
    seed: int,
    on_epoch: Callable[[int, Mapping[str, float], FrontierWeights], bool],
) -> FrontierWeights:
    """Train from the beginning and return the last weights.

    Args:
        questions: To learn from; those whose evidence nothing could bring forward teach nothing.
        dimension: Of the facts' vectors.
        settings: How to train.
        seed: Of all that is drawn.
        on_epoch: Given after each epoch its number from 1, the means of `listwise loss` and, once there are draws, of
            what a draw `earned`, and the weights so far; tells whether to go on.

    Raises:
        ValueError: There is no question with a relation to learn from.
    """
    prepared = [one for one in (_Prepared(question, settings.facts) for question in questions) if len(one.source)]
    if not prepared:
        raise ValueError("no question finds a fact that has a relation: there is nothing to learn a frontier from")
    generator = torch.Generator().manual_seed(seed)
    network = _Network(dimension, settings, generator)
    read = torch.cat([one.inputs for one in prepared])
    network.mean.data = read.mean(0)
    network.scale.data = read.std(0).clamp_min(1e-3)
    residuals = [network.source_residual, network.target_residual]
    others = [value for value in network.parameters() if value.requires_grad and not any(value is r for r in residuals)]
    optimiser = torch.optim.AdamW(
        [{"params": others, "weight_decay": 0.0}, {"params": residuals, "weight_decay": settings.decay}],
        lr=settings.rate,
    )
    for epoch in range(1, settings.warm_epochs + settings.epochs + 1):
        order = np.random.default_rng([seed, epoch]).permutation(len(prepared))
        told: dict[str, list[float]] = {}
        for batch in np.array_split(order, max(1, len(order) // settings.batch)):
            optimiser.zero_grad()
            for number in batch.tolist():
                one = prepared[number]
                if epoch <= settings.warm_epochs:
                    bonus = _warm_bonus(network.of_relations(one), one, settings.warm_facts)
                    loss = listwise = _listwise(network, one, bonus)
                else:
                    drawn = _draw(network, one, settings, generator)
                    listwise = _listwise(network, one, drawn.bonus)
                    loss = drawn.policy_loss + settings.listwise_share * listwise
                    told.setdefault("earned", []).append(float(drawn.earned.mean()))
                torch.autograd.backward(loss / len(batch))
                told.setdefault("listwise loss", []).append(float(listwise.detach()))
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
        means = {name: float(np.mean(values)) for name, values in told.items()}
        if not on_epoch(epoch, means, network.weights()):
            break
    return network.weights()


def _warm_bonus(w: Tensor, one: _Prepared, most: int) -> Tensor:
    """Return the bonus of every turn when the most probable facts are expanded with the odds of flat search."""
    speaks = one.source < most
    sure = torch.sigmoid(one.odds[one.turn_of_fact[one.source[speaks]]])
    return torch.zeros_like(one.odds).scatter_reduce(0, one.rows[:-1][speaks], w[:-1][speaks] * sure, "amax")


def _listwise(network: _Network, one: _Prepared, bonus: Tensor) -> Tensor:
    """Return the cross-entropy of the evidence under a softmax of odds and bonus, `[..., turns]`, its mean."""
    logs = functional.log_softmax((one.odds + bonus) * network.log_sharpness.exp(), dim=-1)
    return -logs[..., one.is_evidence].mean()


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Draws of a question: the bonus that each gave, `[draws, turns]`, what each earned, `[draws]`, and their loss."""

    bonus: Tensor
    earned: Tensor
    policy_loss: Tensor


def _draw(network: _Network, one: _Prepared, settings: FrontierTraining, generator: torch.Generator) -> _Drawn:
    """Draw facts to expand, several times."""
    w, draws, facts = network.of_relations(one), settings.draws, len(one.turn_of_fact)
    every = torch.arange(draws)
    bonus = torch.zeros(draws, len(one.odds) + 1)
    closed = torch.zeros(draws, facts + 1, dtype=torch.bool)  # the last is to stop
    going = torch.ones(draws, dtype=torch.bool)
    log_prob, spent = torch.zeros(draws), torch.zeros(draws)
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
    earned = _earned((one.odds + bonus).detach(), one.is_evidence, settings.ndcg_share) - settings.cost * spent
    advantage = (earned - earned.mean()) * (draws / (draws - 1))
    return _Drawn(bonus, earned, -(advantage * log_prob).mean())


def _earned(scores: Tensor, is_evidence: Tensor, ndcg_share: float) -> Tensor:
    """Return recall plus a share of nDCG at ten of each order, `[draws]`."""
    ten = min(10, scores.shape[1])
    hits = is_evidence[scores.topk(ten, dim=1).indices].float()
    total = int(is_evidence.sum())
    discounts = 1 / torch.log2(torch.arange(2, ten + 2))
    return hits.sum(1) / total + ndcg_share * (hits * discounts).sum(1) / discounts[:total].sum()
