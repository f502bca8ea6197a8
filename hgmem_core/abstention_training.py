"""How an abstainer is trained: logistic regression, its penalty and its calibration from conversations held back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hgmem_core.abstention import Abstainer, Numbers, probabilities, standardised

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Half of one times the squared length of the weights of standardised features joins the training loss, in nats."""

_PARTS = 5
"""Into which questions are dealt where there are fewer than three conversations to leave out."""
_STEPS = 50
_CLOSE = 1e-9

Labels = npt.NDArray[np.bool_]


class AbstentionTrainingError(ValueError):
    """Questions from which nothing can be learned: says why."""


@dataclass(frozen=True, slots=True)
class TrainedAbstainer:
    """A model, and the penalty that was chosen for it."""

    abstainer: Abstainer
    penalty: float


def train_abstainer(
    features: tuple[str, ...], rows: Numbers, labels: Labels, conversations: Sequence[str]
) -> TrainedAbstainer:
    """Train a model to tell questions that have an answer.

    Each conversation is left out once. The penalty is the one under which the questions left out are the least of a
    surprise; slope and offset that make their odds right (Platt) become a part of the model, which is trained on all.

    Args:
        features: Their names.
        rows: float64 `[questions, features]`, finite.
        labels: Which have an answer.
        conversations: Of each question.

    Raises:
        AbstentionTrainingError: All questions are of one kind, or so are those that a conversation leaves.
    """
    folds = list(_folds(conversations))
    for held in [np.zeros(len(labels), bool), *folds]:
        if labels[~held].all() or not labels[~held].any():
            raise AbstentionTrainingError(
                f"of {len(labels)} questions {int(labels.sum())} have an answer, and without those of one conversation "
                "all or none do; take questions of both kinds from several conversations"
            )
    left_out = {penalty: _left_out(rows, labels, folds, penalty) for penalty in PENALTIES}
    penalty = min(PENALTIES, key=lambda one: _loss(left_out[one], labels))
    slope, offset = _logistic(left_out[penalty][:, None], labels, 1.0)
    model = _fitted(features, rows, labels, penalty)
    factor = max(float(slope[0]), 0.0)  # evidence that misleads on every conversation left out is better not heard
    calibrated = Abstainer(
        features, model.means, model.scales, model.weights * factor, model.intercept * factor + offset
    )
    return TrainedAbstainer(calibrated, penalty)


def _folds(conversations: Sequence[str]) -> Iterator[Labels]:
    names = np.array(conversations)
    parts = names if len(np.unique(names)) > 2 else np.arange(len(names)) % _PARTS
    for part in np.unique(parts):
        yield parts == part


def _left_out(rows: Numbers, labels: Labels, folds: Sequence[Labels], penalty: float) -> Numbers:
    odds = np.zeros(len(rows))
    for held in folds:
        odds[held] = _fitted((), rows[~held], labels[~held], penalty).log_odds(rows[held])
    return odds


def _loss(log_odds: Numbers, labels: Labels) -> float:
    return float(np.logaddexp(0.0, np.where(labels, -log_odds, log_odds)).mean())


def _fitted(features: tuple[str, ...], rows: Numbers, labels: Labels, penalty: float) -> Abstainer:
    means, scales = rows.mean(axis=0), rows.std(axis=0)
    scales = np.where(scales > _CLOSE, scales, 1.0)
    weights, intercept = _logistic(standardised(rows, means, scales), labels, penalty)
    return Abstainer(features, means, scales, weights, intercept)


def _logistic(rows: Numbers, labels: Labels, penalty: float) -> tuple[Numbers, float]:
    """Return the weights and the intercept of a penalised logistic regression, by Newton's method with halved steps."""
    full = np.column_stack([rows, np.ones(len(rows))])
    penalties = np.append(np.full(rows.shape[1], penalty), _CLOSE)
    found = np.zeros(full.shape[1])

    def loss(weights: Numbers) -> float:
        return len(labels) * _loss(full @ weights, labels) + 0.5 * float(penalties @ weights**2)

    lowest = loss(found)
    for _ in range(_STEPS):
        expected = probabilities(full @ found)
        gradient = full.T @ (expected - labels) + penalties * found
        curvature = (full.T * (expected * (1.0 - expected))) @ full + np.diag(penalties)
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while loss(found - size * step) > lowest and size > _CLOSE:
            size /= 2
        found = found - size * step
        before, lowest = lowest, loss(found)
        if before - lowest < _CLOSE:
            break
    return found[:-1], float(found[-1])
