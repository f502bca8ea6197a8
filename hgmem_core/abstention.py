"""Abstention: how likely a memory holds the answer to a question, and what speaks most against it.

A logistic model of what the memory has on the question; see `hgmem_core.evidence`. Being linear, it says what each
aspect of the evidence adds to the log odds, from which the reason is taken.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hgmem_core.evidence import EVIDENCE_REVISION, Aspect, Evidence

ABSTENTION = "abstention"
"""The name of the model among those of recipes."""

MOST_DEVIATIONS = 3.0

Numbers = npt.NDArray[np.float64]

DoubtCode = Literal["other_speaker", "not_told", "missing_term", "outside_time", "weak_match", "nothing_found"]


class AbstainerError(ValueError):
    """Arrays are no abstainer, or evidence does not fit it."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """What speaks most against an answer: a word for machines, and a sentence."""

    code: DoubtCode
    text: str


@dataclass(frozen=True, slots=True)
class Abstention:
    """What is thought of a question before it is answered.

    Attributes:
        probability: That the memory holds the answer.
        abstains: Whether that is below the threshold, so that no answer should be given.
        reason: What speaks most against an answer; None if nothing does, which is never so of one that abstains.
    """

    probability: float
    abstains: bool
    reason: Doubt | None


def nothing_found(why: str, threshold: float) -> Abstention:
    """Return what is thought of a question to which nothing at all was found."""
    return Abstention(0.0, threshold > 0.0, Doubt("nothing_found", f"nothing was found: {why.replace('_', ' ')}"))


@dataclass(frozen=True, slots=True)
class Abstainer:
    """The model: log odds are `intercept + Σ weights · z`, where z are the standardised features, at most 3 either way.

    Beyond that lies what was hardly seen in training, and a line drawn through it is no better than a guess.

    Attributes:
        features: The names of what it reads, in order.
        means: Of the features in training, float64 `[n]`.
        scales: Their standard deviations, float64 `[n]`, above 0.
        weights: float64 `[n]`.
        intercept: The log odds of evidence that is like the mean.
    """

    features: tuple[str, ...]
    means: Numbers
    scales: Numbers
    weights: Numbers
    intercept: float

    def log_odds(self, rows: Numbers) -> Numbers:
        """Return the log odds that each question has an answer, float64 `[len(rows)]`, of float64 `[n, features]`."""
        odds: Numbers = standardised(rows, self.means, self.scales) @ self.weights + self.intercept
        return odds

    def judge(self, evidence: Evidence, threshold: float) -> Abstention:
        """Tell how likely there is an answer, and what speaks most against it.

        The reason is the aspect whose features together lower the log odds most against the mean of training, among
        those of which a sentence is true. An abstention without one has the reason `weak_match`.

        Args:
            evidence: On the question.
            threshold: The probability below which no answer should be given.

        Raises:
            AbstainerError: The evidence has other features than the model was trained on.
        """
        if tuple(evidence.features) != self.features:
            unknown = sorted(set(self.features) ^ set(evidence.features))
            raise AbstainerError(f"the abstainer reads other features (they differ in {unknown[:5]}); train it again")
        values = np.array(list(evidence.features.values()))
        probability = float(probabilities(self.log_odds(values[None]))[0])
        adds: defaultdict[str, float] = defaultdict(float)
        parts = standardised(values, self.means, self.scales) * self.weights
        for name, part in zip(self.features, parts, strict=True):
            adds[name.partition("/")[0]] += float(part)
        doubts = [(adds[aspect], doubt) for aspect, doubt in _doubts(evidence) if adds[aspect] < 0]
        abstains = probability < threshold
        reason = min(doubts, key=lambda one: one[0])[1] if doubts else _WEAK if abstains else None
        return Abstention(probability, abstains, reason)

    def as_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return arrays from which `abstainer_of` makes the model again."""
        return {
            "means": self.means,
            "scales": self.scales,
            "weights": self.weights,
            "intercept": np.array([self.intercept]),
            "revision": np.array([EVIDENCE_REVISION]),
        }


def abstainer_of(arrays: Mapping[str, npt.NDArray[Any]], features: tuple[str, ...]) -> Abstainer:
    """Make an abstainer of named arrays.

    Raises:
        AbstainerError: They are none, or of another revision of the evidence.
    """
    expected = {"means": (len(features),), "scales": (len(features),), "weights": (len(features),), "intercept": (1,)}
    for name, shape in {**expected, "revision": (1,)}.items():
        found = arrays[name].shape if name in arrays else None
        if found != shape:
            raise AbstainerError(f"{name} has the shape {found}, and an abstainer of {len(features)} features {shape}")
    if int(arrays["revision"][0]) != EVIDENCE_REVISION:
        raise AbstainerError(
            f"it reads revision {int(arrays['revision'][0])} of the evidence, here is {EVIDENCE_REVISION}"
        )
    if not all(np.isfinite(arrays[name]).all() for name in expected) or not (arrays["scales"] > 0).all():
        raise AbstainerError("its arrays hold NaN, an infinity, or a scale that is not above 0")
    means, scales, weights = (arrays[name].astype(np.float64) for name in ("means", "scales", "weights"))
    return Abstainer(features, means, scales, weights, float(arrays["intercept"][0]))


def standardised(rows: Numbers, means: Numbers, scales: Numbers) -> Numbers:
    """Return features by how many standard deviations they lie from the mean, `MOST_DEVIATIONS` at most."""
    return np.clip((rows - means) / scales, -MOST_DEVIATIONS, MOST_DEVIATIONS)


def probabilities(log_odds: Numbers) -> Numbers:
    """Return the probabilities of log odds.

    >>> probabilities(np.array([0.0, -800.0])).tolist()
    [0.5, 0.0]
    """
    ratios: Numbers = np.exp(-np.logaddexp(0.0, -log_odds))
    return ratios


_WEAK = Doubt("weak_match", "no turn fits the question well and clearly better than others")


def _doubts(evidence: Evidence) -> Iterator[tuple[Aspect, Doubt]]:
    """Yield for each aspect what can truly be said against an answer."""
    asked, whose = evidence.asked, "the best matches" if evidence.asked is None else f"{evidence.asked}'s best matches"
    if evidence.other is not None:
        yield (
            "speaker",
            Doubt("other_speaker", f"the best match is {evidence.other}'s, the question asks about {asked}"),
        )
    if not evidence.is_told:
        yield "telling", Doubt("not_told", f"{whose} speak of the listener and not of the speaker")
    if evidence.missing is not None:
        who, verb = ("nothing", "mentions") if evidence.is_unknown else (whose, "do not mention")
        yield "terms", Doubt("missing_term", f"{who} {verb} {evidence.missing!r}")
    if evidence.is_outside:
        yield "time", Doubt("outside_time", "most of the best matches are of another time than the question")
    yield "match", _WEAK
