"""Episodes to facts, without a model: what each turn states, questions joined to their answers.

A fact is a sentence of a turn, or some short ones: `Ana: I moved to Lisbon.` Courtesies are left out, captions of
attachments are kept, pronouns stay as they are. Code, quotations and forwarded messages (`hgmem_core.own_words`) and
the instructions of system prompts make no facts. Where a turn answers a question of somebody else, its beginning makes
one more fact, in which the question stands in a line before it: `Bo: How is the new flat?` / `Ana: Tiny.`; the turn
that asked is its second source. A question that nobody answers is a fact of its own. The facts of an episode depend on
that episode alone.

`time_phrase` is the first phrase that can be placed, from the statement, else from its question; [valid_from, valid_to)
is what it means (see `hgmem_core.dates`). Without a phrase a fact holds from when it was said, with an open end; with
a phrase that cannot be placed both ends are null.

Weight: cosine of the turn's vector and the episode's mean vector; without a vector, the share of the fact's terms that
occur elsewhere in the episode. An unanswered question has half of it. Roles, the first that fits: `context` for an
unanswered question and for an attachment alone, `core` for the heaviest third, `temporal` with a time phrase,
`causal` where a reason is named, else `detail`. Confidence: 0.9, with a question joined 0.8, hedged 0.6, an
unanswered question 0.5.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.config import ExtractConfig
from hgmem_core.conversation import Said, Utterance, conversation, line, names_in, said_turns
from hgmem_core.dates import TimeMention, find_times
from hgmem_core.entities import entities, inner_capitals, keywords, place
from hgmem_core.ids import fact_id
from hgmem_core.schemas import FACT, INCIDENCE, OUTCOME, conform
from hgmem_core.statements import Lexicon, is_hedged, lexicon
from hgmem_core.tokens import fold
from hgmem_core.vector_rows import NO_VECTOR, rows_of_vectors

EXTRACT_REVISION = 7
"""Raised when equal turns give other facts, also where a rule of `hgmem_core.dates` changes."""

_CAUSE = re.compile(
    r"\b(?:because|since (?:i|we|he|she|they|it)\b|so that|therefore|that's why|due to|thanks to|in order to|reason)\b"
    r"|因为|所以|由于|为了",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Fact:
    """One row of FACT before its weight is known."""

    text: str
    turn_ids: dict[str, None]
    """Ids without repetition, best evidence first."""
    utterance: Utterance
    mention: TimeMention | None
    entities: list[str] = field(default_factory=list)
    support: int = 1


def extract(
    turns: pa.Table, episodes: pa.Table, vectors: pa.Table, config: ExtractConfig, language: str
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the facts of every episode.

    Args:
        turns: TURN of one bucket.
        episodes: EPISODE of the same bucket.
        vectors: EMBEDDING of level `turn`; turns without a vector may be missing.
        config: Sizes.
        language: Of stems and stop words; English and Chinese courtesies are known beside it.

    Returns:
        FACT; INCIDENCE of kind `episode`; OUTCOME of stage `extract` with a row for each episode, `empty` where it
        states nothing.
    """
    said = said_turns(turns)
    rows_of = dict(zip(turns.column("turn_id").to_pylist(), range(turns.num_rows), strict=True))
    vector_rows, matrix = rows_of_vectors(turns.column("turn_id"), vectors)
    words = lexicon(language)
    tables = _Rows()
    for namespace, episode, turn_ids in zip(
        *(episodes.column(name).to_pylist() for name in ("namespace", "episode_id", "turn_ids")), strict=True
    ):
        rows = [rows_of[turn] for turn in turn_ids]
        found = _episode_facts([said[row] for row in rows], words, config)
        terms = Counter(term for fact in found for term in set(fact.utterance.terms))
        cosines = _cosines(matrix, vector_rows[rows])
        weights = [_weight(fact, cosines[fact.utterance.place], terms, len(found)) for fact in found]
        tables.add(namespace, episode, found, weights, terms, words, config)
    return (
        conform(pa.table(tables.facts, FACT.arrow), FACT),
        conform(pa.table(tables.incidences, INCIDENCE.arrow), INCIDENCE),
        conform(pa.table(tables.outcomes, OUTCOME.arrow), OUTCOME),
    )


def _cosines(matrix: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]) -> list[float | None]:
    """Return the cosine of each turn of an episode with the mean of those that have a vector; None without one."""
    seen = rows != NO_VECTOR
    if not seen.any():
        return [None] * len(rows)
    own = matrix[rows[seen]]
    mean = own.mean(axis=0)
    norm = float(np.linalg.norm(mean))
    values = iter((own @ mean / norm if norm else np.zeros(len(own))).tolist())
    return [next(values) if has else None for has in seen.tolist()]


def _weight(fact: _Fact, cosine: float | None, terms: Counter[str], facts: int) -> float:
    own = set(fact.utterance.terms)
    if cosine is None:
        shared = sum(terms[term] > 1 for term in own)
        cosine = shared / len(own) if own and facts > 1 else 0.5
    return min(1.0, max(0.0, cosine)) * (0.5 if fact.utterance.is_question else 1.0)


def _episode_facts(turns: Sequence[Said], words: Lexicon, config: ExtractConfig) -> list[_Fact]:
    """Return the facts of an episode in the order of its turns; equal texts are one, said several times."""
    names = names_in(turns)
    utterances = list(conversation(turns, words, names, config))
    known = inner_capitals(sentence for utterance in utterances for sentence in utterance.sentences)
    by_text: dict[str, _Fact] = {}
    for utterance in utterances:
        fact = _fact(utterance)
        same = by_text.setdefault(normalised(fact.text), fact)
        if same is not fact:
            same.support += 1
            same.turn_ids |= fact.turn_ids
            continue
        asked = [utterance.question.text] if utterance.question else []
        fact.entities = entities([*utterance.sentences, *asked], known, names)
    return list(by_text.values())


def _fact(utterance: Utterance) -> _Fact:
    said, question = utterance.said, utterance.question
    own = " ".join(utterance.sentences)
    lines = [line(said.who, own)]
    turn_ids = {said.turn_id: None}
    mention = _mention(own, said)
    if question:
        lines.insert(0, line(question.said.who, question.text))
        turn_ids[question.said.turn_id] = None
        asked = _mention(question.text, question.said)
        mention = mention if mention and (mention.is_placed or not (asked and asked.is_placed)) else asked
    return _Fact("\n".join(lines), turn_ids, utterance, mention)


def _mention(text: str, said: Said) -> TimeMention | None:
    """Return the first phrase that can be placed, else the first phrase."""
    found = find_times(text, said.said_at, said.zone)
    return next((mention for mention in found if mention.is_placed), found[0] if found else None)


def normalised(text: str) -> str:
    """Return the text that a fact's id is made of: without case and blanks.

    >>> normalised("Ana:  I like  Tea") == normalised("ana: i like tea")
    True
    """
    return " ".join(fold(text).split())


@dataclass(slots=True)
class _Rows:
    """The rows of the three tables, episode by episode."""

    facts: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in FACT.arrow.names})
    incidences: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in INCIDENCE.arrow.names})
    outcomes: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in OUTCOME.arrow.names})

    def add(
        self,
        namespace: str,
        episode: str,
        found: Sequence[_Fact],
        weights: Sequence[float],
        terms: Counter[str],
        words: Lexicon,
        config: ExtractConfig,
    ) -> None:
        """Add the facts of an episode."""
        core = _heaviest_third(found, weights)
        for number, (fact, weight) in enumerate(zip(found, weights, strict=True)):
            own = fact_id(episode, normalised(fact.text))
            row = _fact_row(fact, terms, words, config) | {"namespace": namespace, "fact_id": own}
            _append(self.facts, row)
            incidence = {"namespace": namespace, "kind": "episode", "hyperedge_id": episode, "node_id": own}
            role = _role(fact, number in core)
            _append(self.incidences, incidence | {"node_kind": "fact", "role": role, "weight": weight})
        outcome = {"namespace": namespace, "stage": "extract", "row_id": episode, "passes": 1}
        reason = None if found else "its turns state nothing"
        _append(self.outcomes, outcome | {"outcome": "ok" if found else "empty", "reason": reason})


def _append(rows: dict[str, list[Any]], row: dict[str, Any]) -> None:
    for name, values in rows.items():
        values.append(row[name])


def _heaviest_third(found: Sequence[_Fact], weights: Sequence[float]) -> frozenset[int]:
    order = sorted(range(len(found)), key=lambda number: (-weights[number], number))
    return frozenset(order[: -(-len(found) // 3)])


def _role(fact: _Fact, is_core: bool) -> str:
    if fact.utterance.is_question or fact.utterance.is_caption:
        return "context"
    if is_core:
        return "core"
    if fact.mention:
        return "temporal"
    return "causal" if _CAUSE.search(fact.text) else "detail"


def _fact_row(fact: _Fact, terms: Counter[str], words: Lexicon, config: ExtractConfig) -> dict[str, Any]:
    utterance, mention = fact.utterance, fact.mention
    own = " ".join(utterance.sentences)
    asked = [utterance.question.text] if utterance.question else []
    return {
        "text": fact.text,
        "keywords": keywords([own, *asked], fact.entities, terms, words, config.max_keywords),
        "queries": asked,
        "entities": fact.entities,
        "place": place(own, fact.entities),
        "time_phrase": mention.phrase if mention else None,
        "valid_from": mention.start if mention else utterance.said.said_at,
        "valid_to": mention.end if mention else None,
        "confidence": _confidence(utterance, own),
        "support": fact.support,
        "superseded_by": None,
        "turn_ids": list(fact.turn_ids),
    }


def _confidence(utterance: Utterance, own: str) -> float:
    if utterance.is_question:
        return 0.5
    if is_hedged(own):
        return 0.6
    return 0.8 if utterance.question else 0.9
