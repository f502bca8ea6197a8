"""Linear heads: small maps of frozen vectors that draw questions to the turns that answer them.

A question's vector q becomes W_q q, a turn's vector d, with the mean of those before it c, becomes W_d [d; c]; both at
unit length. The encoder stays as it is, and so do the vectors that an index has: of them alone the new ones are made.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hgmem_core.lexical import Floats, Ints
from hgmem_core.units import BEFORE, session_spans

HEADS_FORM = "vectors-1"
"""The form of what heads read of vectors, another one whenever equal vectors give other inputs."""

FOUND_WITHIN = 10
"""Validation recall counts the evidence among so many best turns."""

_NO_LENGTH = 1e-9


class HeadsError(ValueError):
    """Heads that cannot be used or trained: says what is wrong."""


@dataclass(frozen=True, slots=True)
class Heads:
    """The two maps.

    Attributes:
        query_weight: W_q, float32 `[d, d]`.
        document_weight: W_d, float32 `[d, 2 d]`.
    """

    query_weight: Floats
    document_weight: Floats

    def __post_init__(self) -> None:
        """Refuse arrays that are no heads.

        Raises:
            HeadsError: Their shapes do not fit, or they hold NaN or an infinity.
        """
        size = len(self.query_weight)
        if self.query_weight.shape != (size, size) or self.document_weight.shape != (size, 2 * size):
            raise HeadsError(
                f"heads have shapes {self.query_weight.shape} and {self.document_weight.shape}, not [d, d] and [d, 2 d]"
            )
        if not (np.isfinite(self.query_weight).all() and np.isfinite(self.document_weight).all()):
            raise HeadsError("heads hold NaN or an infinity")

    @property
    def dimension(self) -> int:
        """Of the vectors that they read and make."""
        return len(self.query_weight)

    def query(self, vector: Floats) -> Floats:
        """Return the vector of a question, float32 `[d]`, of its unit vector `[d]`; zeros of zeros."""
        [found] = _unit(vector[None] @ self.query_weight.T)
        return np.asarray(found, np.float32)

    def documents(self, vectors: Floats, session: npt.NDArray[np.integer[Any]]) -> Floats:
        """Return the vectors of the turns of one namespace, float32 `[n, d]`; zeros where there is none.

        Args:
            vectors: Of the turns in their order, unit or zero, float32 `[n, d]`.
            session: The number of each turn's session, rising, `[n]`.
        """
        found = _unit(_inputs(vectors, session) @ self.document_weight.T)
        found[~vectors.any(axis=1)] = 0.0
        return found

    def as_dict(self) -> dict[str, Floats]:
        """Return arrays from which `heads_of` makes the heads again."""
        return {"query_weight": self.query_weight, "document_weight": self.document_weight}


def heads_of(arrays: Mapping[str, npt.NDArray[Any]]) -> Heads:
    """Make heads of named arrays.

    Raises:
        HeadsError: They are none.
    """
    if arrays.keys() != {"query_weight", "document_weight"}:
        raise HeadsError(f"arrays {', '.join(sorted(arrays)) or 'of no name'} are no heads")
    return Heads(**{name: np.asarray(array, np.float32) for name, array in arrays.items()})


@dataclass(frozen=True, slots=True)
class HeadExamples:
    """The questions of one namespace, with its turns.

    Attributes:
        vectors: Of the turns, unit or zero, float32 `[n, d]`.
        session: The number of each turn's session, rising, `[n]`.
        queries: Unit vectors of the questions, float32 `[q, d]`.
        evidence: The rows of each question's evidence turns; a question without any is left out.
    """

    vectors: Floats
    session: npt.NDArray[np.integer[Any]]
    queries: Floats
    evidence: Sequence[Ints]


@dataclass(frozen=True, slots=True)
class HeadTraining:
    """How heads are trained.

    Attributes:
        epochs: The most times that every question is seen.
        patience: Epochs without a better validation recall after which training ends.
        batch: Questions for an update.
        turns: Of a namespace, the most that a question is held against at a time, drawn by chance.
        rate: Adam's learning rate.
        temperature: By which cosines are divided.
        decay: How strongly weights are drawn back to what they began with.
        before: The weight of the turns before at the beginning, where else both maps are identities.
    """

    epochs: int = 40
    patience: int = 8
    batch: int = 128
    turns: int = 4096
    rate: float = 3e-4
    temperature: float = 0.2
    decay: float = 30.0
    before: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what cannot be trained with.

        Raises:
            HeadsError: Names the setting.
        """
        for name, least in (("epochs", 1), ("patience", 1), ("batch", 1), ("turns", 1), ("temperature", 0.01)):
            if getattr(self, name) < least:
                raise HeadsError(f"{name} is {getattr(self, name)}; it must be at least {least}")


def first_heads(dimension: int, before: float) -> Heads:
    """Return the heads that training begins with: cosines of the vectors, with a share of the turns before."""
    one = np.eye(dimension, dtype=np.float32)
    return Heads(one, np.concatenate([one, np.float32(before) * one], axis=1))


def fit_heads(
    training: Sequence[HeadExamples],
    validation: Sequence[HeadExamples],
    settings: HeadTraining,
    seed: int,
    on_epoch: Callable[[Mapping[str, float]], bool],
) -> Heads:
    """Train heads and return the best by validation recall; without validation questions the last.

    The loss is a softmax, for each evidence turn of a question, over its cosine and those of the turns that are no
    evidence for it.

    Args:
        training: By namespace.
        validation: The same of others.
        settings: How.
        seed: Of all that is drawn.
        on_epoch: Given after each epoch its number from 1 (`epoch`), the mean `loss`, and the validation `recall` in
            percent if there is one; tells whether to go on.

    Raises:
        HeadsError: No training question has evidence.
    """
    known, unseen = ([_Asked.of(one) for one in examples] for examples in (training, validation))
    known, unseen = ([one for one in some if len(one.queries)] for some in (known, unseen))
    if not known:
        raise HeadsError("no training question has evidence: nothing can be learned")
    draw = np.random.default_rng(seed)
    heads = first_heads(known[0].queries.shape[1], settings.before)
    optimiser = _Adam(heads, settings)
    best, best_epoch, reached = heads, 0, _recall(heads, unseen)
    questions = np.array([(group, row) for group, one in enumerate(known) for row in range(len(one.queries))])
    for epoch in range(1, settings.epochs + 1):
        losses = []
        order = draw.permutation(len(questions))
        for batch in np.array_split(order, -(-len(order) // settings.batch)):
            loss, gradient = _gradient(heads, known, questions[batch], settings, draw)
            heads = optimiser.step(heads, gradient)
            losses.append(loss)
        told = {"epoch": float(epoch), "loss": float(np.mean(losses))}
        if unseen:
            told["recall"] = _recall(heads, unseen)
        if not unseen or told["recall"] > reached:
            best, best_epoch, reached = heads, epoch, told.get("recall", 0.0)
        if not on_epoch(told) or epoch - best_epoch >= settings.patience:
            break
    return best


@dataclass(frozen=True, slots=True)
class _Asked:
    """Examples of one namespace, their questions without evidence left out, and what the document head reads."""

    inputs: Floats
    queries: Floats
    evidence: list[Ints]

    @classmethod
    def of(cls, examples: HeadExamples) -> "_Asked":
        asked = [row for row, evidence in enumerate(examples.evidence) if len(evidence)]
        evidence = [np.unique(examples.evidence[row]) for row in asked]
        return cls(_inputs(examples.vectors, examples.session), examples.queries[asked], evidence)


class _Adam:
    """Adam, with weights drawn back to what they began with."""

    def __init__(self, heads: Heads, settings: HeadTraining) -> None:
        self._first = list(heads.as_dict().values())
        self._means = [np.zeros_like(weight) for weight in self._first]
        self._squares = [np.zeros_like(weight) for weight in self._first]
        self._settings = settings
        self._steps = 0

    def step(self, heads: Heads, gradients: Sequence[Floats]) -> Heads:
        self._steps += 1
        rate, decay = self._settings.rate, self._settings.decay
        moved = []
        for place, (weight, gradient) in enumerate(zip(heads.as_dict().values(), gradients, strict=True)):
            self._means[place] = 0.9 * self._means[place] + 0.1 * gradient
            self._squares[place] = 0.999 * self._squares[place] + 0.001 * gradient**2
            mean = self._means[place] / (1 - 0.9**self._steps)
            square = self._squares[place] / (1 - 0.999**self._steps)
            back = decay * (weight - self._first[place])
            moved.append((weight - rate * (mean / (np.sqrt(square) + 1e-8) + back)).astype(np.float32))
        return Heads(*moved)


def _inputs(vectors: Floats, session: npt.NDArray[np.integer[Any]]) -> Floats:
    """Return each turn's vector beside the unit mean of those before it in its session, float32 `[n, 2 d]`."""
    first, _ = session_spans(np.asarray(session, np.int32), BEFORE, 0)
    rows = np.arange(len(vectors))
    before = np.zeros_like(vectors)
    for back in range(1, BEFORE + 1):
        there = rows - back >= first
        before[there] += vectors[rows[there] - back]
    return np.concatenate([vectors, _unit(before)], axis=1)


def _unit(vectors: Floats) -> Floats:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Floats = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return unit


def _gradient(
    heads: Heads, known: Sequence[_Asked], batch: Ints, settings: HeadTraining, draw: np.random.Generator
) -> tuple[float, tuple[Floats, Floats]]:
    """Return the mean loss of a batch of (namespace, question) and its gradient by both weights."""
    total = 0.0
    gradients = np.zeros_like(heads.query_weight), np.zeros_like(heads.document_weight)
    for group in np.unique(batch[:, 0]):
        asked = known[group]
        rows = batch[batch[:, 0] == group, 1]
        evidence = [asked.evidence[row] for row in rows]
        turns = np.arange(len(asked.inputs))
        if len(turns) > settings.turns:
            drawn = draw.choice(len(turns), settings.turns, replace=False)
            turns = np.union1d(drawn, np.concatenate(evidence))
        is_evidence = np.stack([np.isin(turns, own) for own in evidence])
        loss, own_gradients = evidence_loss(
            heads, asked.queries[rows], asked.inputs[turns], is_evidence, settings.temperature
        )
        total += loss
        for gradient, own in zip(gradients, own_gradients, strict=True):
            gradient += own / len(batch)
    return total / len(batch), gradients


def evidence_loss(
    heads: Heads, queries: Floats, inputs: Floats, is_evidence: npt.NDArray[np.bool_], temperature: float
) -> tuple[float, tuple[Floats, Floats]]:
    """Return the loss of questions against turns, summed over the questions, and its gradient by both weights.

    Args:
        heads: To be judged.
        queries: Of the questions, float32 `[q, d]`.
        inputs: What the document head reads of the turns, float32 `[n, 2 d]`.
        is_evidence: Which turns are evidence for which question, at least one each, bool `[q, n]`.
        temperature: By which cosines are divided.
    """
    asked, said = queries @ heads.query_weight.T, inputs @ heads.document_weight.T
    asked_norm, said_norm = (
        np.maximum(np.linalg.norm(one, axis=1, keepdims=True), _NO_LENGTH) for one in (asked, said)
    )
    asked, said = asked / asked_norm, said / said_norm
    scores = (asked @ said.T).astype(np.float64) / temperature
    scores -= scores.max(axis=1, keepdims=True)
    odds = np.exp(scores)
    others = np.where(is_evidence, 0.0, odds)
    against = odds + others.sum(axis=1, keepdims=True)
    share = is_evidence / is_evidence.sum(axis=1, keepdims=True)
    loss = float((share * (np.log(against) - scores)).sum())
    by_score = share * (odds / against - 1) + others * (share / against).sum(axis=1, keepdims=True)
    by_score = (by_score / temperature).astype(np.float32)
    by_asked, by_said = by_score @ said, by_score.T @ asked
    # A unit vector moves across itself alone.
    by_asked = (by_asked - asked * (by_asked * asked).sum(axis=1, keepdims=True)) / asked_norm
    by_said = (by_said - said * (by_said * said).sum(axis=1, keepdims=True)) / said_norm
    return loss, (by_asked.T @ queries, by_said.T @ inputs)


def _recall(heads: Heads, groups: Sequence[_Asked]) -> float:
    """Return the mean share of questions' evidence among their best turns, in percent."""
    found = []
    for asked in groups:
        said = _unit(asked.inputs @ heads.document_weight.T)
        scores = _unit(asked.queries @ heads.query_weight.T) @ said.T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :FOUND_WITHIN]
        found += [np.isin(own, top).mean() for own, top in zip(asked.evidence, best, strict=True)]
    return 100 * float(np.mean(found)) if found else 0.0
