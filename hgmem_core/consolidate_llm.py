"""Facts of a namespace that say the same, or of which one ends another, decided by a language model where rules do not.

First the rules of `hgmem_core.consolidate` do what they can. Then each fact that is still open is compared with the
earlier open ones that are nearest to it, and the model says of each such pair whether the two are the same, the later
one replaces the earlier, or neither. Its word is taken in the order in which the facts were said:

- `same` never joins facts whose numbers, names or intervals differ, or of which one negates (`hgmem_core.differences`);
- `replaces` closes a fact only where it is sure which was said later (`hgmem_core.consolidate.can_supersede`);
- a fact that closes another is not joined with an earlier one: the other ends where it was said.

A pair of which none of the two can be said is not asked about. Where the model does not answer, the rules' word stands.
"""

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from hgmem_core.chat import Reply, Request
from hgmem_core.consolidate import (
    MERGED_INTO,
    Fact,
    apply_rules,
    can_supersede,
    changed_facts,
    in_time,
    is_placeable,
    merge,
    moved_incidences,
    outcomes_of,
    supersede,
)
from hgmem_core.differences import Difference, difference
from hgmem_core.fitting import batches, day
from hgmem_core.passes import Settled, Terms, Trouble, ask, reject_rows, reject_table, request_of
from hgmem_core.prompts import load_prompt, quoted
from hgmem_core.schemas import CAUSE, conform
from hgmem_core.stage_config import ConsolidateConfig
from hgmem_core.summarise import shorten
from hgmem_core.tokens import fold
from hgmem_core.vector_rows import NO_VECTOR, rows_of_vectors

CONSOLIDATE_LLM_REVISION = 1
"""Raised when equal facts and answers are consolidated otherwise."""

PROMPT = load_prompt("pairs")

MOST_PAIRS = 20
"""In one request."""

_MOST_EARLIER = 2
"""Facts that one is compared with."""
_STATEMENT_CHARS = (300, 150, 75)
"""How much of a statement is shown: the most with which its pairs fit."""
_VERDICT_TOKENS = 14
"""Of an answer, for each pair."""
_ROWS, _COLUMNS = 1_024, 8_192
"""Of a block of cosines, so that a namespace of any size takes 32 MiB for them."""

Verdict = Literal["same", "replaces", "different"]


class PairVerdict(BaseModel):
    """What the model says of one pair."""

    pair: int
    verdict: Verdict


class PairVerdicts(BaseModel):
    """The answer."""

    pairs: list[PairVerdict]


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What the stage makes.

    Attributes:
        facts: FACT.
        incidences: INCIDENCE, merged facts replaced.
        causes: CAUSE, merged facts replaced.
        outcomes: OUTCOME, a row for each fact given: as the rules give, and `fallback` for one that is kept and of
            which a pair was left undecided.
        rejects: REJECT, a row for each pass that failed.
    """

    facts: pa.Table
    incidences: pa.Table
    causes: pa.Table
    outcomes: pa.Table
    rejects: pa.Table


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two facts of a namespace that may be one, or of which the later may end the earlier."""

    older: Fact
    newer: Fact
    no_same: str | None
    """Why they cannot be the same."""
    no_replaces: str | None
    """Why the later cannot end the earlier."""

    def forbids(self, verdict: Verdict) -> str | None:
        """Return why a verdict is ruled out."""
        return {"same": self.no_same, "replaces": self.no_replaces, "different": None}[verdict]

    def written(self, number: int, speakers: Mapping[tuple[str, str], str | None], most_chars: int) -> str:
        """Return the pair as a line of a prompt."""
        earlier, later = (_statement(fact, speakers, most_chars) for fact in (self.older, self.newer))
        notes = [
            f" (not {verdict}: {why})"
            for verdict, why in (("same", self.no_same), ("replaces", self.no_replaces))
            if why is not None
        ]
        return f"{number}. {earlier} | {later}{''.join(notes)}"


@dataclass(slots=True)
class _Pairs:
    """A question: up to `MOST_PAIRS` pairs of a namespace, numbered from 1; asked again about those without a verdict.

    Attributes:
        asked: Those of the last request.
    """

    namespace: str
    pairs: Sequence[_Pair]
    lines: Sequence[str]
    terms: Terms
    asked: Sequence[int] = ()

    @property
    def answer_type(self) -> type[PairVerdicts]:
        """See `passes.Question`."""
        return PairVerdicts

    @property
    def row_id(self) -> str:
        """The first later fact: all pairs of one are in one question."""
        return self.pairs[0].newer.fact_id

    def request(self, attempt: int, found: PairVerdicts | None, trouble: Trouble | None) -> Request:
        """Ask about the pairs that have no verdict yet; about all where only the answer's form was wrong."""
        known = {item.pair for item in found.pairs} if found else set()
        every = range(1, len(self.pairs) + 1)
        self.asked = [number for number in every if number not in known] or every
        return request_of(
            PROMPT,
            PROMPT.fill(pairs="\n".join(self.lines[number - 1] for number in self.asked)),
            PairVerdicts,
            self.terms,
            namespace=self.namespace,
            stage="consolidate",
            row_id=self.row_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=_VERDICT_TOKENS * len(self.asked),
        )

    def check(self, answer: PairVerdicts) -> tuple[PairVerdicts | None, list[str]]:
        """Keep one verdict a pair that was asked about; one that is ruled out means that they differ."""
        given: defaultdict[int, set[Verdict]] = defaultdict(set)
        for item in answer.pairs:
            given[item.pair].add(item.verdict)
        sound, complaints, missing = [], [], []
        for number in self.asked:
            verdicts = sorted(given[number])
            why = self.pairs[number - 1].forbids(verdicts[0]) if verdicts else None
            if not verdicts:
                missing.append(number)
            elif len(verdicts) > 1:
                complaints.append(f"pair {number} has two verdicts: {' and '.join(verdicts)}")
            elif why is not None:
                # It was told so beforehand; another call would not make it wiser.
                sound.append(PairVerdict(pair=number, verdict="different"))
            else:
                sound.append(PairVerdict(pair=number, verdict=verdicts[0]))
        if missing:
            complaints.append(f"no verdict for pairs {', '.join(map(str, missing))}")
        return (PairVerdicts(pairs=sound) if sound else None), complaints

    def merge(self, found: PairVerdicts, more: PairVerdicts) -> PairVerdicts:
        """Add the verdicts that are new."""
        known = {item.pair for item in found.pairs}
        return PairVerdicts(pairs=[*found.pairs, *(item for item in more.pairs if item.pair not in known)])


def consolidate_llm(
    facts: pa.Table,
    fact_vectors: pa.Table,
    incidences: pa.Table,
    turns: pa.Table,
    causes: pa.Table,
    config: ConsolidateConfig,
    pair_cosine: float,
    terms: Terms,
) -> Generator[list[Request], list[Reply], Consolidated]:
    """Merge equal facts and close contradicted ones, in each namespace of a bucket.

    Args:
        facts: FACT.
        fact_vectors: EMBEDDING of level `fact`; a fact without a vector is settled by the rules alone.
        incidences: INCIDENCE; rows of kind `episode` follow their facts, others stay.
        turns: TURN of the bucket: when the facts were said, and by whom.
        causes: CAUSE.
        config: Of the rules.
        pair_cosine: How near two facts are at least that the model is asked about.
        terms: Of requests.
    """
    every = apply_rules(facts, fact_vectors, turns, config)
    vector_rows, matrix = rows_of_vectors(facts.column("fact_id"), fact_vectors)
    names = ("namespace", "turn_id", "speaker")
    speakers = {
        (namespace, turn): speaker
        for namespace, turn, speaker in zip(*(turns.column(name).to_pylist() for name in names), strict=True)
    }
    questions: list[_Pairs] = []
    for namespace, own in _by_namespace(every).items():
        placed = [fact for fact in own if fact.is_open and vector_rows[fact.row] != NO_VECTOR]
        vectors = matrix[vector_rows[[fact.row for fact in placed]]]
        questions += _questions(namespace, _pairs(placed, vectors, pair_cosine), speakers, terms)
    settled = yield from ask(questions)

    rejects = []
    verdicts: list[tuple[_Pair, Verdict]] = []
    for question, result in zip(questions, settled, strict=True):
        rejects += reject_rows("consolidate", question.namespace, question.row_id, result)
        verdicts += _verdicts(question, result)
    _apply(verdicts, {fact.superseded_by for fact in every if fact.superseded_by})
    outcomes = outcomes_of(facts, every)
    return Consolidated(
        changed_facts(facts, every),
        moved_incidences(incidences, every),
        moved_causes(causes, outcomes),
        outcomes,
        reject_table(rejects),
    )


def moved_causes(causes: pa.Table, outcomes: pa.Table) -> pa.Table:
    """Return CAUSE with merged facts replaced, as OUTCOME of stage `consolidate` tells; nothing is its own cause."""
    merged = outcomes.filter(pc.equal(outcomes.column("outcome"), "empty"))
    reasons = (reason.removeprefix(MERGED_INTO) for reason in merged.column("reason").to_pylist())
    survivors = dict(zip(merged.column("row_id").to_pylist(), reasons, strict=True))
    rows = zip(*(causes.column(name).to_pylist() for name in CAUSE.key), strict=True)
    moved = {(namespace, survivors.get(fact, fact), survivors.get(cause, cause)) for namespace, fact, cause in rows}
    kept = [dict(zip(CAUSE.key, row, strict=True)) for row in moved if row[1] != row[2]]
    return conform(pa.Table.from_pylist(kept, CAUSE.arrow), CAUSE)


def nearest_earlier(vectors: npt.NDArray[np.float32], least_cosine: float, most: int) -> list[list[int]]:
    """Return for each row the rows before it whose cosine is at least so much, at most so many, the nearest first.

    Of equally near ones the earliest comes first. Memory does not grow with the number of rows but for the result.

    Args:
        vectors: Unit length, `[n, d]`.
        least_cosine: What is less is not near.
        most: For one row.
    """
    found: list[list[int]] = []
    for start in range(0, len(vectors), _ROWS):
        block = vectors[start : start + _ROWS]
        values = np.full((len(block), most), -np.inf, np.float32)
        places = np.zeros((len(block), most), np.int64)
        for left in range(0, start + len(block), _COLUMNS):
            near = block @ vectors[left : min(left + _COLUMNS, start + len(block))].T
            columns = np.arange(left, left + near.shape[1])
            near[columns >= np.arange(start, start + len(block))[:, None]] = -np.inf
            rows = np.flatnonzero(near.max(axis=1) >= least_cosine)
            near = near[rows]
            for _ in range(most):
                best = near.argmax(axis=1)
                both = np.column_stack([values[rows], near[np.arange(len(rows)), best]])
                order = np.argsort(-both, axis=1, kind="stable")[:, :most]
                values[rows] = np.take_along_axis(both, order, axis=1)
                places[rows] = np.take_along_axis(np.column_stack([places[rows], best + left]), order, axis=1)
                near[np.arange(len(rows)), best] = -np.inf
        for row, near_enough in zip(places, values >= least_cosine, strict=True):
            found.append(row[near_enough].tolist())
    return found


def _by_namespace(every: Sequence[Fact]) -> dict[str, list[Fact]]:
    """Return the facts of each namespace in time order, namespaces sorted."""
    found: defaultdict[str, list[Fact]] = defaultdict(list)
    for fact in in_time(every):
        found[fact.namespace].append(fact)
    return {namespace: found[namespace] for namespace in sorted(found)}


def _pairs(facts: Sequence[Fact], vectors: npt.NDArray[np.float32], least_cosine: float) -> Iterator[list[_Pair]]:
    """Yield the pairs of each later fact that a verdict can do something to."""
    for newer, near in zip(facts, nearest_earlier(vectors, least_cosine, _MOST_EARLIER), strict=True):
        pairs = [_Pair(facts[row], newer, _no_same(facts[row], newer), _no_replaces(facts[row], newer)) for row in near]
        if useful := [pair for pair in pairs if pair.no_same is None or pair.no_replaces is None]:
            yield useful


_WHY: Mapping[Difference, str] = MappingProxyType(
    {"numbers": "numbers differ", "names": "names differ", "negation": "one negates", "dislike": "one dislikes"}
)


def _no_same(older: Fact, newer: Fact) -> str | None:
    if older.held != newer.held:
        return "their times differ"
    if not is_placeable(newer):
        return "their times are not known"
    found = difference(older.text, newer.text, [*older.entities, *newer.entities])
    return _WHY[found] if found else None


def _no_replaces(older: Fact, newer: Fact) -> str | None:
    return None if can_supersede(older, newer) else "not surely later"


def _questions(
    namespace: str,
    pairs: Iterator[list[_Pair]],
    speakers: Mapping[tuple[str, str], str | None],
    terms: Terms,
) -> Iterator[_Pairs]:
    def lines(some: Sequence[list[_Pair]], most_chars: int) -> list[str]:
        numbered = enumerate((pair for group in some for pair in group), 1)
        return [pair.written(number, speakers, most_chars) for number, pair in numbered]

    def fits(some: Sequence[list[_Pair]], most_chars: int = _STATEMENT_CHARS[0]) -> bool:
        written = lines(some, most_chars)
        return len(written) <= MOST_PAIRS and terms.fits(PROMPT, PROMPT.fill(pairs="\n".join(written)))

    for batch in batches(list(pairs), MOST_PAIRS, fits):
        most_chars = next((chars for chars in _STATEMENT_CHARS if fits(batch, chars)), _STATEMENT_CHARS[-1])
        yield _Pairs(namespace, [pair for group in batch for pair in group], lines(batch, most_chars), terms)


def _statement(fact: Fact, speakers: Mapping[tuple[str, str], str | None], most_chars: int) -> str:
    """Return a fact as it stands in a prompt: the day, who said it unless the text says so, and the text."""
    who = speakers[fact.namespace, next(iter(fact.turn_ids))]
    said = f" {quoted(shorten(who, most_chars))} said" if who and fold(who) not in fold(fact.text) else ""
    return f"{day(fact.said[0])}{said} {quoted(shorten(fact.text, most_chars))}"


def _verdicts(question: _Pairs, settled: Settled[PairVerdicts]) -> Iterator[tuple[_Pair, Verdict]]:
    """Yield the verdict of each pair; mark the facts of those that have none."""
    given = {item.pair: item.verdict for item in settled.answer.pairs} if settled.answer else {}
    for number, pair in enumerate(question.pairs, 1):
        for fact, other in ((pair.older, pair.newer), (pair.newer, pair.older)):
            fact.passes = max(fact.passes, settled.passes)
            if number not in given:
                fact.undecided = f"not decided whether it is one with {other.fact_id}: {settled.reason}"
        yield pair, given.get(number, "different")


def _apply(verdicts: Sequence[tuple[_Pair, Verdict]], closers: set[str]) -> None:
    """Do what the verdicts say; those of one later fact follow each other, in the order in which facts were said."""
    by_newer: defaultdict[str, list[tuple[_Pair, Verdict]]] = defaultdict(list)
    for pair, verdict in verdicts:
        by_newer[pair.newer.fact_id].append((pair, verdict))
    for own in by_newer.values():
        for pair in (pair for pair, verdict in own if verdict == "replaces"):
            older = pair.older.survivor
            if older.is_open and supersede(older, pair.newer):
                closers.add(pair.newer.fact_id)
        for pair in (pair for pair, verdict in own if verdict == "same"):
            older, newer = pair.older.survivor, pair.newer
            # What the earlier fact was joined with may be further from the later one than itself.
            if older.is_open and newer.is_open and newer.fact_id not in closers and _no_same(older, newer) is None:
                merge(older, newer)
