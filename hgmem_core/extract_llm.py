"""Episodes to facts with a language model: one question an episode, more for one that is too long for a prompt.

The model is shown what each speaker says in their own words, and no instructions of system prompts.

What the model says is held against the log. A fact names the turns that it comes from; one that names none of the
episode's is refused, and so is one that has no word of theirs, nor of those before them that they may answer. What a
turn says that gives orders to the model is stored as what its speaker said. A time phrase is placed by
`hgmem_core.dates` from the time of its first turn, since models compute dates badly; where those rules cannot place it,
the model's interval is taken if it is one. Facts of one statement, and of the same time, are one. Where the model gives
no answer in three passes, or not all of one, the turns that no fact names have those of the embedded engine.
"""

import re
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count, pairwise
from typing import Annotated, Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from hgmem_core.chat import Reply, Request
from hgmem_core.claims import Evidence, as_claim, gives_orders
from hgmem_core.config import ExtractConfig
from hgmem_core.conversation import Said, said_turns
from hgmem_core.dates import find_times
from hgmem_core.extract import extract, normalised
from hgmem_core.fitting import one_line
from hgmem_core.ids import fact_id
from hgmem_core.passes import Settled, Terms, Trouble, ask, reject_rows, reject_table, request_of
from hgmem_core.prompts import load_prompt, quoted
from hgmem_core.schemas import CAUSE, FACT, INCIDENCE, OUTCOME, STRING, conform
from hgmem_core.summarise import shorten
from hgmem_core.text import is_blank
from hgmem_core.times import parse_time
from hgmem_core.transcript import Line, lines_of, parts_that_fit, transcript

EXTRACT_LLM_REVISION = 5
"""Raised when equal turns and answers give other facts."""

PROMPT = load_prompt("extract")

STATEMENT_CHARS = 1_000
_WORD_CHARS = 80
_MOST_QUERIES = 3
_MOST_FACTS_A_TURN = 16
_MOST_ENTITIES = 16
_FACT_TOKENS = 110
"""Of an answer, for each fact; about one fact a turn."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_BEGINS_WITH_DAY = re.compile(rf"\s*{_DAY.pattern}")

_TITLE_CHARS = 100
_FOUND_CHARS = 160

Role = Literal["core", "context", "detail", "temporal", "causal"]


Many = TypeVar("Many")


def _list(value: object) -> object:
    """Read one thing, or none, where a list is due."""
    return [] if value is None else value if isinstance(value, list) else [value]


def _or_nothing(value: object, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
    """Read what can be read; in place of the rest stands the field's default: no fact is lost for an ornament."""
    try:
        return read(value)
    except ValidationError:
        return Fact.model_fields[str(info.field_name)].get_default(call_default_factory=True)


Ornament = WrapValidator(_or_nothing)
Items = Annotated[list[Many], BeforeValidator(_list), Ornament]
Share = Annotated[float, Field(ge=0.0, le=1.0), Ornament]
Phrase = Annotated[str | None, Ornament]


class Fact(BaseModel):
    """A fact as the model states it: all but the statement and its turns may be missing or wrong."""

    n: Annotated[int, Ornament] = 0
    statement: str
    turns: Annotated[list[int], BeforeValidator(_list)]
    queries: Items[str] = []
    keywords: Items[str] = []
    entities: Items[str] = []
    place: Phrase = None
    time_phrase: Phrase = None
    valid_from: Phrase = None
    valid_to: Phrase = None
    role: Annotated[Role, Ornament] = "detail"
    weight: Share = 0.5
    confidence: Share = 0.8
    because_of: Items[int] = []


class Facts(BaseModel):
    """The answer."""

    facts: list[Fact]


@dataclass(frozen=True, slots=True)
class Extracted:
    """What the stage makes.

    Attributes:
        facts: FACT.
        incidences: INCIDENCE of kind `episode`.
        causes: CAUSE: which fact holds because of which.
        outcomes: OUTCOME, a row for each episode.
        rejects: REJECT, a row for each pass that failed.
    """

    facts: pa.Table
    incidences: pa.Table
    causes: pa.Table
    outcomes: pa.Table
    rejects: pa.Table


@dataclass(frozen=True, slots=True)
class _Episode:
    """An episode with what the model is shown of its neighbours."""

    namespace: str
    episode_id: str
    title: str
    before: str
    after: str

    def user(self, lines: Sequence[Line], found: Sequence[Fact]) -> str:
        """Return the user part of a request for some of its turns."""
        known = [f"{max(0, fact.n)}: {quoted(shorten(fact.statement, _FOUND_CHARS))}" for fact in found]
        last = max((fact.n for fact in found), default=0)
        more = f"\nFound so far; do not repeat these, go on with n={last + 1}:\n" + "\n".join(known) if known else ""
        return PROMPT.fill(
            title=_title(self.title),
            before=f"The episode before: {_title(self.before)}\n" if self.before else "",
            after=f"The episode after: {_title(self.after)}\n" if self.after else "",
            turns=transcript(lines),
            found=more,
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """A question: an episode, or some of its turns."""

    episode: _Episode
    lines: Sequence[Line]
    terms: Terms
    language: str

    @property
    def answer_type(self) -> type[Facts]:
        """See `passes.Question`."""
        return Facts

    def request(self, attempt: int, found: Facts | None, trouble: Trouble | None) -> Request:
        """Ask for the facts, from the second pass on for those that are not found yet."""
        known = list(found.facts) if found else []
        user = self.episode.user(self.lines, known)
        while known and not self.terms.fits(PROMPT, user):
            known = known[-(-len(known) // 2) :] if len(known) > 1 else []  # the last ones tell best where to go on
            user = self.episode.user(self.lines, known)
        return request_of(
            PROMPT,
            user,
            Facts,
            self.terms,
            namespace=self.episode.namespace,
            stage="extract",
            row_id=self.episode.episode_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=_FACT_TOKENS * len({line.number for line in self.lines}),
        )

    def check(self, answer: Facts) -> tuple[Facts | None, list[str]]:
        """Keep the facts that state something and come from turns that were shown."""
        shown = {line.number for line in self.lines}
        evidence = Evidence(self.lines, self.language)
        sound: list[Fact] = []
        complaints = []
        numbers: set[int] = set()
        for fact in answer.facts:
            statement = one_line(fact.statement, STATEMENT_CHARS + 1)
            turns = [turn for turn in dict.fromkeys(fact.turns) if turn in shown]
            if is_blank(statement):
                complaints.append(f"fact n={fact.n} states nothing")
            elif len(statement) > STATEMENT_CHARS:
                complaints.append(f"fact n={fact.n} is too long; one fact has a sentence")
            elif len(sound) == _MOST_FACTS_A_TURN * len(shown):
                complaints.append(f"there are more than {len(sound)} facts; leave out what is not concrete")
            elif not turns:
                named = f"names turns {fact.turns[:3]}, none of which is shown" if fact.turns else "names no turn"
                complaints.append(f"fact n={fact.n} {named}: they are numbered {min(shown)} to {max(shown)}")
            elif not evidence.bears_out(statement, turns):
                complaints.append(f"fact n={fact.n} has no word of turns {turns[:3]}: state what they say")
            else:
                # A number that is taken, or none, says nothing: no fact can name this one as its cause.
                n = fact.n if fact.n > 0 and fact.n not in numbers else -len(sound) - 1
                numbers.add(n)
                causes = [cause for cause in fact.because_of if cause > 0]
                changes = {"n": n, "statement": statement, "turns": turns, "because_of": causes}
                sound.append(fact.model_copy(update=changes))
        return (Facts(facts=sound) if sound or not complaints else None), complaints

    def merge(self, found: Facts, more: Facts) -> Facts:
        """Add what is new; numbers that are taken are counted on, and links within the later answer follow them."""
        known = {normalised(fact.statement) for fact in found.facts}
        taken = {fact.n for fact in found.facts}
        free = count(max((fact.n for fact in [*found.facts, *more.facts]), default=0) + 1)
        moved = {fact.n: next(free) for fact in more.facts if fact.n in taken}
        added = [
            fact.model_copy(
                update={
                    "n": moved.get(fact.n, fact.n),
                    "because_of": [moved.get(cause, cause) for cause in fact.because_of],
                }
            )
            for fact in more.facts
            if normalised(fact.statement) not in known
        ]
        return Facts(facts=[*found.facts, *added])


def extract_llm(
    turns: pa.Table, episodes: pa.Table, vectors: pa.Table, config: ExtractConfig, language: str, terms: Terms
) -> Generator[list[Request], list[Reply], Extracted]:
    """Return the facts of every episode.

    Args:
        turns: TURN of one bucket.
        episodes: EPISODE of the same bucket.
        vectors: EMBEDDING of level `turn`, for the embedded engine.
        config: Sizes.
        language: Of stems and stop words.
        terms: Of requests.
    """
    said = {turn.turn_id: turn.own() for turn in said_turns(turns)}
    every = _with_neighbours(episodes)
    parts: list[_Part] = []
    own_parts: list[range] = []
    for episode, turn_ids in zip(every, episodes.column("turn_ids").to_pylist(), strict=True):
        first = len(parts)
        spoken = [said[turn] for turn in turn_ids if said[turn].text.strip() or said[turn].captions]
        parts += _parts(episode, spoken, terms, language)
        own_parts.append(range(first, len(parts)))
    settled = yield from ask(parts)

    rows = _Rows(config)
    unanswered: list[tuple[str, set[str]]] = []
    for episode, own in zip(every, own_parts, strict=True):
        rows.settle(episode, [settled[at] for at in own])
        for at in own:
            answer, lines = settled[at].answer, parts[at].lines
            if answer is not None:
                rows.add(episode, lines, answer.facts)
            if settled[at].outcome != "ok":  # something is missing: perhaps of turns that no fact names
                named = {turn for fact in answer.facts for turn in fact.turns} if answer else set()
                unanswered.append(
                    (episode.episode_id, {line.said.turn_id for line in lines if line.number not in named})
                )
    if unanswered:
        failed = pa.array(sorted({episode for episode, _ in unanswered}), STRING)
        left = episodes.filter(pc.is_in(episodes.column("episode_id"), failed))
        facts, incidences, _ = extract(turns, left, vectors, config, language)
        rows.add_embedded(facts, incidences, frozenset().union(*(own for _, own in unanswered)))
    return rows.tables()


def _with_neighbours(episodes: pa.Table) -> list[_Episode]:
    """Return the episodes in order, each with the titles of those before and after it in its session."""
    names = ("namespace", "episode_id", "title", "session_id", "first_position")
    rows = list(zip(*(episodes.column(name).to_pylist() for name in names), strict=True))
    order = sorted(range(len(rows)), key=lambda at: (rows[at][0], rows[at][3], rows[at][4]))
    before, after = [""] * len(rows), [""] * len(rows)
    for earlier, later in pairwise(order):
        if rows[earlier][0] == rows[later][0] and rows[earlier][3] == rows[later][3]:
            before[later], after[earlier] = rows[earlier][2], rows[later][2]
    return [_Episode(*row[:3], *around) for row, *around in zip(rows, before, after, strict=True)]


def _parts(episode: _Episode, said: Sequence[Said], terms: Terms, language: str) -> Iterator[_Part]:
    room = replace(terms, prompt_tokens=terms.prompt_tokens * 3 // 4)  # the rest is for what is found meanwhile
    most_turns = max(1, terms.max_tokens // _FACT_TOKENS)  # an answer about more would be cut off

    def fits(lines: Sequence[Line]) -> bool:
        is_short = lines[-1].number - lines[0].number < most_turns
        return is_short and room.fits(PROMPT, episode.user(lines, ()))

    for lines in parts_that_fit(lines_of(said), fits):
        yield _Part(episode, lines, terms, language)


def _title(text: str) -> str:
    return quoted(shorten(text, _TITLE_CHARS))


_GRAVITY = ("ok", "partial", "fallback")


@dataclass(slots=True)
class _Rows:
    """The rows of the tables, as they are found."""

    config: ExtractConfig
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    incidences: dict[str, dict[str, Any]] = field(default_factory=dict)
    causes: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    rejects: list[dict[str, Any]] = field(default_factory=list)

    def settle(self, episode: _Episode, results: Sequence[Settled[Facts]]) -> None:
        """Say what became of an episode: the gravest of its parts, and all their passes; without any it is empty."""
        results = results or [Settled(Facts(facts=[]), "ok", passes=1)]
        gravest = max(results, key=lambda result: _GRAVITY.index(result.outcome))
        is_empty = gravest.outcome == "ok" and not any(result.answer and result.answer.facts for result in results)
        number = count(1)
        for result in results:
            for row in reject_rows("extract", episode.namespace, episode.episode_id, result):
                self.rejects.append(row | {"attempt": next(number)})
        self.outcomes.append(
            {
                "namespace": episode.namespace,
                "stage": "extract",
                "row_id": episode.episode_id,
                "outcome": "empty" if is_empty else gravest.outcome,
                "passes": max(result.passes for result in results),
                "reason": "its turns state nothing" if is_empty else gravest.reason,
            }
        )

    def add(self, episode: _Episode, lines: Sequence[Line], facts: Sequence[Fact]) -> None:
        """Add what the model stated of some lines."""
        lines_of_turn: defaultdict[int, list[Line]] = defaultdict(list)
        for line in lines:
            lines_of_turn[line.number].append(line)
        id_of: dict[int, str] = {}
        for fact in facts:
            row = _fact_row(fact, [line for turn in fact.turns for line in lines_of_turn[turn]], self.config)
            own = id_of[fact.n] = self._add(episode, row)
            self.incidences.setdefault(own, _incidence(episode, own, fact))
        for fact in facts:
            own = id_of[fact.n]
            for cause in fact.because_of:
                if cause in id_of and id_of[cause] != own:
                    pair = {"namespace": episode.namespace, "fact_id": own, "cause_id": id_of[cause]}
                    self.causes[own, id_of[cause]] = pair

    def _add(self, episode: _Episode, row: dict[str, Any]) -> str:
        """Add a fact, or its sources to the one that states the same of the same time; return the id."""
        text = normalised(row["text"])
        own = fact_id(episode.episode_id, text)
        if own in self.facts and row["time_phrase"] and _held(row) != _held(self.facts[own]):
            own = fact_id(episode.episode_id, f"{text} {row['time_phrase']} {row['valid_from']}")
        known = self.facts.get(own)
        if known is None:
            self.facts[own] = row | {"namespace": episode.namespace, "fact_id": own}
        else:
            known["turn_ids"] = list(dict.fromkeys([*known["turn_ids"], *row["turn_ids"]]))
            known["support"] += 1
        return own

    def add_embedded(self, facts: pa.Table, incidences: pa.Table, turn_ids: frozenset[str]) -> None:
        """Add the embedded engine's facts that come from some turns."""
        for row in facts.to_pylist():
            if row["turn_ids"][0] in turn_ids:
                self.facts.setdefault(row["fact_id"], row)
        for row in incidences.to_pylist():
            if row["node_id"] in self.facts:
                self.incidences.setdefault(row["node_id"], row)

    def tables(self) -> Extracted:
        """Return the tables."""
        return Extracted(
            conform(pa.Table.from_pylist(list(self.facts.values()), FACT.arrow), FACT),
            conform(pa.Table.from_pylist(list(self.incidences.values()), INCIDENCE.arrow), INCIDENCE),
            conform(pa.Table.from_pylist(list(self.causes.values()), CAUSE.arrow), CAUSE),
            conform(pa.Table.from_pylist(self.outcomes, OUTCOME.arrow), OUTCOME),
            reject_table(self.rejects),
        )


def _held(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["time_phrase"], row["valid_from"], row["valid_to"]


def _incidence(episode: _Episode, node_id: str, fact: Fact) -> dict[str, Any]:
    return {
        "namespace": episode.namespace,
        "kind": "episode",
        "hyperedge_id": episode.episode_id,
        "node_id": node_id,
        "node_kind": "fact",
        "role": fact.role,
        "weight": fact.weight,
    }


def _fact_row(fact: Fact, lines: Sequence[Line], config: ExtractConfig) -> dict[str, Any]:
    """Return a fact with its sources, `lines`, the best one first; turns that are cut have several."""
    phrase, start, end = _interval(fact, lines)
    order = next((line for line in lines if gives_orders(line.text)), None)
    return {
        "text": fact.statement if order is None else as_claim(fact.statement, order.said.who),
        "keywords": _words(fact.keywords, config.max_keywords),
        "queries": _words(fact.queries, _MOST_QUERIES, STATEMENT_CHARS),
        "entities": _words(fact.entities, _MOST_ENTITIES),
        "place": next(iter(_words([fact.place or ""], 1)), None),
        "time_phrase": phrase,
        "valid_from": start,
        "valid_to": end,
        "confidence": fact.confidence,
        "support": 1,
        "superseded_by": None,
        "turn_ids": list(dict.fromkeys(line.said.turn_id for line in lines)),
    }


def _interval(fact: Fact, lines: Sequence[Line]) -> tuple[str | None, datetime | None, datetime | None]:
    """Return the time phrase and when the fact holds, as the embedded engine does; see `hgmem_core.extract`.

    A phrase that stands in none of the fact's turns is the model's own, and so is a time without a phrase.
    """
    said = lines[0].said
    phrase = next(iter(_words([fact.time_phrase or ""], 1)), None)
    if phrase is None or not any(normalised(phrase) in normalised(line.text) for line in lines):
        return None, said.said_at, None
    stated = _time(fact.valid_from, said), _time(fact.valid_to, said)
    if stated[1] is not None and fact.valid_to and _DAY.fullmatch(fact.valid_to.strip()):
        stated = stated[0], stated[1] + timedelta(days=1)  # the last day that is meant
    placed = next((one for one in find_times(phrase, said.said_at, said.zone) if one.is_placed), None)
    start, end = (placed.start, placed.end) if placed else stated
    return phrase, start, end if start and end and start < end else None


def _time(text: str | None, said: Said) -> datetime | None:
    """Return a time that the model wrote; None for what is no time, which is no reason to lose the fact."""
    if text is None or not _BEGINS_WITH_DAY.match(text):
        return None
    try:
        return parse_time(text, said.zone)
    except ValueError:
        return None


def _words(texts: Sequence[str], most: int, chars: int = _WORD_CHARS) -> list[str]:
    """Return texts without repetitions, blank ones and long ones' ends."""
    cleaned = (one_line(text, chars) for text in texts)
    return list(dict.fromkeys(text for text in cleaned if not is_blank(text)))[:most]
