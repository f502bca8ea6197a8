"""How much a turn breaks with what was said before it: one number for each turn of a session.

Only the turn and those before it in its session are looked at, so turns that come later change no number.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from hgmem_core.stage_config import SegmentConfig
from hgmem_core.summarise import ADDRESS, QUESTION_MARKS, Statement

Floats = npt.NDArray[np.float64]

NEAR_TURNS = 3
"""Turns before a turn that it may take up."""

WEIGHTS: MappingProxyType[str, float] = MappingProxyType(
    {"last": -4.0, "near": -1.6, "far": 1.9, "shared": -1.2}
    | {"asks": 0.5, "asks_you": 1.35, "answers": -0.95, "points": -0.45}
)
BIAS = -0.95
"""Log odds of a new episode, by feature. Logistic regression (L2, C = 1) of TIAGE's 4,392 gaps between turns of its
train part on the features below, MiniLM vectors, rounded; ten-fold over conversations, AUC 0.81. `shared` was fitted
without vectors and held while the others were fitted: vectors say most of what words do, but words serve where vectors
do not, and holding it costs nothing (cross-validated Pk 31.7 held, 32.8 free)."""

# What is known of a session before it begins: as if so many pairs of turns, of other things, had this mean cosine.
_BACKGROUND_PAIRS, _BACKGROUND_COSINE = 3.0, 0.16
_USUAL_SHARE = 0.12

_POINTS = re.compile(
    r"\b(?:it|its|that|this|they|them|their|he|she|him|her|his|those|these|there)\b|[这那它他她這]", re.IGNORECASE
)
_TRAILING = " \t\"'”’」』)）]"


@dataclass(frozen=True, slots=True)
class Talk:
    """The turns of one session, in order.

    Attributes:
        statements: What was said.
        roles: Who spoke by role, None where unknown.
        vectors: Unit vectors `[turns, dimension]`, zeros where a turn has none.
        idle_hours: Hours since the last turn whose time is known, 0 where unknown, `[turns]`.
    """

    statements: Sequence[Statement]
    roles: Sequence[str | None]
    vectors: npt.NDArray[np.float32]
    idle_hours: Floats


def break_scores(talk: Talk, config: SegmentConfig) -> Floats:
    """Return for each turn the log odds that it begins something new; minus infinity where it must not.

    The first turn's number means nothing.
    """
    families = (
        (config.vector_weight, vector_features(talk.vectors)),
        (config.word_weight, word_features(talk.statements)),
        (config.cue_weight, cue_features(talk)),
    )
    scores = np.full(len(talk.statements), BIAS)
    for family_weight, features in families:
        for name, values in features.items():
            scores += family_weight * WEIGHTS[name] * values
    pauses = np.maximum(talk.idle_hours * 60 / config.pause_minutes, 1.0)
    scores += config.time_weight * np.log2(pauses)
    # What a tool returns belongs to the call before it.
    scores[[role == "tool" for role in talk.roles]] = -np.inf
    return scores


def vector_features(vectors: npt.NDArray[np.float32]) -> dict[str, Floats]:
    """Return how alike a turn is to those before it: cosines above the mean of all pairs of the session so far.

    `last` compares with the turn before, `near` with the most similar of the `NEAR_TURNS` before, `far` with all those
    before these. What turns of a session have in common by form alone, such as names and dates, is in every pair and
    so counts nowhere. A turn without a vector, and one that nothing stands before, gets 0.
    """
    size = len(vectors)
    own = vectors.astype(np.float64)
    sums = np.cumsum(own, axis=0)
    known = np.cumsum(own.any(axis=1)).astype(np.float64)
    pairs = known * (known - 1) / 2
    pair_sums = (np.square(sums).sum(axis=1) - known) / 2
    background = (pair_sums + _BACKGROUND_PAIRS * _BACKGROUND_COSINE) / (pairs + _BACKGROUND_PAIRS)

    cosines = np.full((NEAR_TURNS, size), -np.inf)
    for back in range(1, min(NEAR_TURNS, size - 1) + 1):
        product = (own[back:] * own[:-back]).sum(axis=1)
        cosines[back - 1, back:] = np.where(own[back:].any(axis=1) & own[:-back].any(axis=1), product, -np.inf)
    features = {"last": cosines[0], "near": cosines.max(axis=0), "far": np.full(size, -np.inf)}
    if size > NEAR_TURNS + 1:
        ahead, count = own[NEAR_TURNS + 1 :], known[: -NEAR_TURNS - 1]
        mean = (ahead * sums[: -NEAR_TURNS - 1]).sum(axis=1) / np.maximum(count, 1)
        features["far"][NEAR_TURNS + 1 :] = np.where(ahead.any(axis=1) & (count > 0), mean, -np.inf)
    return {name: np.where(np.isfinite(values), values - background, 0.0) for name, values in features.items()}


def word_features(statements: Sequence[Statement]) -> dict[str, Floats]:
    """Return the share of a turn's terms that the `NEAR_TURNS` before it hold, less the usual one; 0 without terms."""
    shares = np.zeros(len(statements))
    last_place: dict[str, int] = {}
    for place, statement in enumerate(statements):
        terms = set().union(*statement.terms)
        if terms:
            taken_up = sum(last_place.get(term, -NEAR_TURNS - 1) >= place - NEAR_TURNS for term in terms)
            shares[place] = taken_up / len(terms) - _USUAL_SHARE
        last_place.update(dict.fromkeys(terms, place))
    return {"shared": shares}


def cue_features(talk: Talk) -> dict[str, Floats]:
    """Return what the form of a turn tells, 0 or 1 each.

    `asks`: its last question has content, which "And you?" has not. `asks_you`: and is to the other. `answers`: the
    turn before asked, or this is an assistant's reply. `points`: it has a word such as "that".
    """
    names = ("asks", "asks_you", "answers", "points")
    rows = np.zeros((len(talk.statements), len(names)))
    asked, asker = False, None
    for place, (statement, role) in enumerate(zip(talk.statements, talk.roles, strict=True)):
        questions = [at for at, sentence in enumerate(statement.sentences) if _is_question(sentence)]
        has_content = bool(questions) and bool(statement.terms[questions[-1]])
        rows[place] = (
            has_content,
            has_content and ADDRESS.search(statement.sentences[questions[-1]]) is not None,
            asked or (role == "assistant" and asker == "user"),
            any(_POINTS.search(sentence) for sentence in statement.sentences),
        )
        asked, asker = bool(questions), role
    return dict(zip(names, rows.T, strict=True))


def _is_question(sentence: str) -> bool:
    return sentence.rstrip(_TRAILING)[-1:] in QUESTION_MARKS
