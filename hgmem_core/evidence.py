"""What a memory has on a question: turns that fit by words and vectors, who said them, and what none of them says.

Everything is read of the memory; of the question only what it asks for, not how it is worded. No recipe has a say
either: whether an answer is there does not depend on how turns are ranked.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Literal

import numpy as np
import numpy.typing as npt

from hgmem_core.blend import fact_scores
from hgmem_core.lexical import Floats
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.query_analysis import QueryAnalysis, analyse_query
from hgmem_core.ranking import Mask, Query, Rows, best_rows, finite_vector
from hgmem_core.recipes import RRF_K
from hgmem_core.statements import is_name, lexicon, speaker_names
from hgmem_core.tokens import fold
from hgmem_core.turns import UNKNOWN_TIME, microseconds

EVIDENCE_REVISION = 1
"""Raised when a feature gets another value under the same name."""

Aspect = Literal["speaker", "telling", "terms", "time", "match", "question"]
"""What a feature is about: whose turns fit, whether they tell of their speaker, which of the question's terms they
have, of what time they are, how well they fit and how far from the rest; and what kind of answer is asked for."""

_BEST = 10
"""The best turns of all, and of a speaker."""
_FEW = 3
"""The best of those, which are looked at one by one."""
_PROPAGATION = 0.5
"""λ of the fact vectors."""
_WORD = re.compile(r"\w+")
_MOST_PRONOUNS = 3
_OF_SPEAKER = re.compile(r"\b(?:i|me|my|mine|we|us|our|ours)\b|[我咱]", re.IGNORECASE)
_OF_LISTENER = re.compile(r"\b(?:you|your|yours)\b|[你您]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a memory has on a question.

    Attributes:
        features: By `aspect/name`, the same names in the same order for every question; finite.
        asked: The speaker whom the question is about, if it names one alone and others speak, too.
        other: Who else has a turn with more of the question's words than any of that speaker's, if so.
        is_told: Whether the best turns speak of their speaker at least as often as of the listener.
        missing: The rarest term of the question that none of the best turns has, as the question writes it, if any.
        is_unknown: Whether no turn at all has that term.
        is_outside: Whether most of the best turns are of another time than the question speaks of.
    """

    features: Mapping[str, float]
    asked: str | None
    other: str | None
    is_told: bool
    missing: str | None
    is_unknown: bool
    is_outside: bool


def find_evidence(index: NamespaceIndex, query: Query, passes: Mask | None, as_of: datetime | None) -> Evidence:
    """Return what the turns of a namespace have on a question.

    Where the question names one speaker and others speak, too, the best turns are that speaker's and are compared with
    everybody else's; else they are the best of all.

    Args:
        index: The namespace.
        query: With a vector.
        passes: Which turns may be looked at, bool `[turns]`, at least one; None for all.
        as_of: When the facts must stand, and from when relative times in the question count; None for the end of the
            log.
    """
    rows = np.arange(len(index)) if passes is None else np.flatnonzero(passes)
    analysis = analyse_query(query.text, index.speakers[0], as_of, index.log_span)
    own, others, asked = _sides(index, analysis, rows)
    names = speaker_names(index.speakers[0])
    empty = lexicon("english").empty  # a question's `did` is nothing to be found
    bare = [term for term in query.terms if term not in empty and not is_name(term, query.text, names)]
    terms = _Terms.of(index, bare)
    lists = _lists(index, query, terms, None if as_of is None else microseconds(as_of))
    fused = _fused(index, lists, rows)
    best = best_rows(fused, rows, _BEST, index.id_order)
    own_best = best_rows(fused, own, _BEST, index.id_order)
    pronouns = _pronouns(index, own_best[:_FEW])
    is_timed, inside = _time(index, analysis, best)
    missing = terms.missing(own_best[:_FEW])
    features = {
        "speaker/named": float(asked is not None),
        "speaker/best": float(np.isin(best, own_best).mean()),
        **_compared(lists, rows, own, others),
        "speaker/one turn": terms.most(own) - terms.most(others),
        "speaker/turns": terms.most(own, _FEW) - terms.most(others, _FEW),
        "speaker/together": terms.share(own) - terms.share(others),
        **{f"telling/{name}": value for name, value in zip(("of speaker", "of listener"), pronouns, strict=True)},
        **_told_by_others(index, fused, others),
        "terms/known": terms.share(rows),
        "terms/one turn": terms.most(own),
        "terms/best turns": terms.share(own_best[:_FEW]),
        "time/asked": float(is_timed),
        "time/best": inside,
        **{f"question/{name}": value for name, value in zip(_INTENTS, analysis.intent, strict=True)},
        "question/when": float(analysis.asks_when),
    }
    return Evidence(
        features,
        asked,
        _other(index, lists["words"], own, others) if asked is not None else None,
        pronouns[0] >= pronouns[1],
        None if missing is None else _as_written(terms.terms[missing], query.text),
        missing is not None and not terms.has[missing].any(),
        is_timed and inside < 0.5,
    )


_INTENTS = ("temporal", "semantic", "causal", "entity")


def _sides(index: NamespaceIndex, analysis: QueryAnalysis, rows: Rows) -> tuple[Rows, Rows, str | None]:
    """Return the rows of the one speaker named and of all others, and the name; twice all rows without one."""
    names, codes = index.speakers
    if len(analysis.speakers) == 1:
        is_own = codes[rows] == analysis.speakers[0]
        if is_own.any() and not is_own.all():
            return rows[is_own], rows[~is_own], names[analysis.speakers[0]]
    return rows, rows, None


def _lists(index: NamespaceIndex, query: Query, terms: "_Terms", as_of_us: int | None) -> dict[str, Floats]:
    """Return how well every turn fits, float32 `[turns]` each; names of speakers and empty words do not count."""
    vector = finite_vector(query, "abstention")
    return {
        "words": index.bm25("turn", terms.numbers),
        "window": index.bm25("window", terms.numbers),
        "vectors": index.cosines(vector),
        "facts": fact_scores(index, vector, _PROPAGATION, as_of_us),
    }


def _fused(index: NamespaceIndex, lists: Mapping[str, Floats], rows: Rows) -> Floats:
    """Join the lists of the rows by reciprocal rank fusion, float32 `[turns]`."""
    fused = np.zeros(len(index))
    for scores in lists.values():
        order = best_rows(scores, rows, len(rows), index.id_order)
        fused[order] += 1 / (RRF_K + 1 + np.arange(len(order)))
    return fused.astype(np.float32)


def _compared(lists: Mapping[str, Floats], rows: Rows, own: Rows, others: Rows) -> dict[str, float]:
    """Return for each list its best score, how far that is from the mean, and how the two sides compare."""
    features: dict[str, float] = {}
    for name, scores in lists.items():
        every, mine, theirs = scores[rows], _falling(scores[own]), _falling(scores[others])
        top = float(every.max())
        spread = float(every.std())
        features[f"match/{name}"] = top
        features[f"match/{name} lead"] = (top - float(every.mean())) / spread if spread > 0 else 0.0
        features[f"speaker/{name}"] = float(mine[0] - theirs[0])
        features[f"speaker/{name} few"] = float(mine[:_FEW].mean() - theirs[:_FEW].mean())
    return features


def _falling(scores: Floats) -> Floats:
    ordered: Floats = -np.sort(-scores)
    return ordered


def _pronouns(index: NamespaceIndex, rows: Rows) -> tuple[float, float]:
    """Return how often turns speak of their speaker and of their listener, on average and at most three times each."""
    texts = [index.column("text")[int(row)].as_py() for row in rows]
    of_speaker, of_listener = (
        float(np.mean([min(_MOST_PRONOUNS, len(pattern.findall(text))) for text in texts]))
        for pattern in (_OF_SPEAKER, _OF_LISTENER)
    )
    return of_speaker, of_listener


def _told_by_others(index: NamespaceIndex, fused: Floats, others: Rows) -> dict[str, float]:
    pronouns = _pronouns(index, best_rows(fused, others, _FEW, index.id_order))
    names = "of speaker by others", "of listener by others"
    return {f"telling/{name}": value for name, value in zip(names, pronouns, strict=True)}


def _time(index: NamespaceIndex, analysis: QueryAnalysis, best: Rows) -> tuple[bool, float]:
    """Return whether a question speaks of a time, and which share of the best turns is of it, 0 if it does not."""
    first, until = analysis.time_from, analysis.time_until
    if first is None and until is None:
        return False, 0.0
    said = index.said_at_us[best]
    inside = said != UNKNOWN_TIME
    if first is not None:
        inside &= said >= microseconds(first)
    if until is not None:
        inside &= said < microseconds(until)
    return True, float(inside.mean())


def _other(index: NamespaceIndex, scores: Floats, own: Rows, others: Rows) -> str | None:
    row = others[np.argmax(scores[others])]
    return index.speaker_of(int(row)) if scores[row] > scores[own].max() else None


def _as_written(term: str, text: str) -> str:
    """Return the word of a text that a term was made of: the one that begins most alike."""
    return max(_WORD.findall(text), key=lambda word: _alike(fold(word), term), default=term)


def _alike(one: str, other: str) -> int:
    """Return how many first letters two words share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@dataclass(frozen=True, slots=True)
class _Terms:
    """The distinct terms of a question in a namespace.

    Attributes:
        terms: Names of speakers and words that carry no content left out.
        numbers: Of those that the namespace has.
        has: Which turns have each term, the day on which they were said included, bool `[terms, turns]`.
        weights: How rare each is: BM25's idf over the turns, their sum 1; float64 `[terms]`.
        shares: The weight of each turn's terms, float64 `[turns]`.
    """

    terms: Sequence[str]
    numbers: Sequence[int]
    has: Mask
    weights: npt.NDArray[np.float64]
    shares: npt.NDArray[np.float64]

    @classmethod
    def of(cls, index: NamespaceIndex, said: Sequence[str]) -> "_Terms":
        terms = list(dict.fromkeys(said))
        has = np.zeros((len(terms), len(index)), bool)
        for place, term in enumerate(terms):
            known = index.term_numbers([term])
            if known:
                has[place] = index.bm25("dated", known) > 0
        if index.hidden is not None:
            has &= ~index.hidden
        holders = has.sum(axis=1)
        idf = np.log(1 + (len(index) - holders + 0.5) / (holders + 0.5))
        weights = idf / idf.sum()
        return cls(terms, index.term_numbers(said), has, weights, weights @ has)

    def share(self, rows: Rows) -> float:
        """Return the weight of the terms that some of the rows has."""
        return float(self.weights @ self.has[:, rows].any(axis=1))

    def most(self, rows: Rows, few: int = 1) -> float:
        """Return the weight that the best row has alone, or the mean of the few best."""
        return float(-np.sort(-self.shares[rows])[:few].mean())

    def missing(self, rows: Rows) -> int | None:
        """Return the place of the rarest term that none of the rows has, the longest of equally rare ones, if any."""
        lacking = np.flatnonzero(~self.has[:, rows].any(axis=1)).tolist()
        return max(lacking, key=lambda place: (self.weights[place], len(self.terms[place])), default=None)
