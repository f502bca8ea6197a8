"""A context for a prompt: statements in time order under a token budget, none twice, each with its source turns."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import Ranking
from hgmem_core.recipes import AnyRecipe, CoarseToFine
from hgmem_core.text import WIDE_STOPS
from hgmem_core.turns import UNKNOWN_TIME, date_texts, moment, turn_texts

UNDATED = "Time unknown"
_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of a context.

    Attributes:
        text: What it says.
        date: The day on which its first source was said, in words; empty where unknown.
        order: Where it stands in time: that moment, then the source's row.
        turn_ids: The turns that it cites.
        speaker: Who said all of it; empty where that is unknown, or several did.
    """

    text: str
    date: str
    order: tuple[bool, datetime, int]
    turn_ids: tuple[str, ...]
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """What goes into a prompt.

    Attributes:
        text: The statements by time, each date once above its own, each statement with its number.
        statements: In the order of the text; statement i is cited as `[i]`, from 1.
        tokens: Of `text`, headers and separators included.
        left_out: Statements that the budget had no room for.
        best_first: The numbers of the statements in the order in which they were given.
    """

    text: str
    statements: tuple[Statement, ...]
    tokens: int
    left_out: int
    best_first: tuple[int, ...]

    def turn_ids(self) -> set[str]:
        """Return every turn that some statement cites."""
        return {turn for statement in self.statements for turn in statement.turn_ids}


NO_CONTEXT = Context("", (), 0, 0, ())
"""Of a namespace that has nothing."""


def assemble(statements: Sequence[Statement], budget: int, count_tokens: Callable[[str], int]) -> Context:
    """Take statements, best first, while they fit; then put them in time order.

    A statement that says nothing new, word for word, is left out; its sources join those of the first. One that does
    not fit is passed over, and shorter ones after it may still fit.

    Args:
        statements: Best first.
        budget: The most tokens of the text.
        count_tokens: Of a text.
    """
    merged: dict[str, Statement] = {}
    for statement in statements:
        same = merged.get(statement.text)
        turns = statement.turn_ids if same is None else tuple(dict.fromkeys((*same.turn_ids, *statement.turn_ids)))
        merged[statement.text] = replace(same or statement, turn_ids=turns)
    chosen: list[Statement] = []
    dates: set[str] = set()
    spent = 0
    for statement in merged.values():
        # A line is never longer than its number, its text and, if it is the first of its date, the date.
        cost = count_tokens(_line(len(merged), statement)) + 1
        cost += 0 if statement.date in dates else count_tokens(_header(statement)) + 1
        if spent + cost <= budget:
            chosen.append(statement)
            dates.add(statement.date)
            spent += cost
    # Turns of different zones may fall on one day in another order than in time; each day stands once.
    began = {date: min(one.order for one in chosen if one.date == date) for date in dates}
    ordered = sorted(chosen, key=lambda statement: (began[statement.date], statement.order))
    text = "\n".join(_lines(ordered))
    numbers = {statement.text: number for number, statement in enumerate(ordered, 1)}
    best_first = tuple(numbers[statement.text] for statement in chosen)
    return Context(text, tuple(ordered), count_tokens(text), len(merged) - len(chosen), best_first)


def _lines(statements: Iterable[Statement]) -> Iterator[str]:
    date = None
    for number, statement in enumerate(statements, 1):
        if statement.date != date:
            date = statement.date
            yield _header(statement)
        yield _line(number, statement)


def _header(statement: Statement) -> str:
    return f"{statement.date or UNDATED}:"


def _line(number: int, statement: Statement) -> str:
    return f"[{number}] {statement.text}"


MOST_STATEMENTS = 200
"""Statements that are looked at for one context; a ranking may be much longer."""


def statements_of(index: NamespaceIndex, ranking: Ranking, recipe: AnyRecipe) -> list[Statement]:
    """Return what a ranking has to say, best first.

    A coarse-to-fine recipe gives its facts and the summaries of its episodes, by turns, as far as it shows each; any
    other recipe gives the turns themselves. Under filters a fact cites the turns that pass, and a summary is left out
    unless all its sources do.
    """
    if not isinstance(recipe, CoarseToFine):
        rows = ranking.rows[:MOST_STATEMENTS].tolist()
        texts = turn_texts(index.nodes.take(pa.array(rows, pa.int64())))
        return _statements(index, [(text, [row]) for text, row in zip(texts, rows, strict=True)])
    facts = [_fact(index, fact) for fact in ranking.facts.tolist()] if recipe.fact_context else []
    episodes = [_episode(index, episode) for episode in ranking.episodes.tolist()] if recipe.episode_context else []
    if ranking.passes is not None:
        passes = ranking.passes
        facts = [(text, kept) for text, rows in facts if (kept := [row for row in rows if passes[row]])]
        # The summary of an episode that has a hidden turn is blank.
        episodes = [(text, rows) for text, rows in episodes if text and passes[rows].all()]
    every: list[_Said] = []
    for place in range(max(len(facts), len(episodes))):
        every += [*episodes[place : place + 1], *facts[place : place + 1]]
    return _statements(index, every)


_Said = tuple[str, list[int]]
"""A text and the rows of its source turns."""


def _fact(index: NamespaceIndex, fact: int) -> _Said:
    text = index.graph.column("fact", "text")[fact].as_py()
    return text, index.graph.turns_of_fact.of(fact).tolist()


def _episode(index: NamespaceIndex, episode: int) -> _Said:
    """Return an episode's summary, citing those of its turns whose sentences it is made of."""
    summary = index.graph.column("episode", "text")[episode].as_py()
    rows: list[int] = index.graph.turns_of_episode.of(episode).tolist()
    sentences = [sentence for sentence in _SENTENCE_END.split(summary) if sentence]
    said = [index.column("text")[row].as_py() for row in rows]
    quoted = [row for row, text in zip(rows, said, strict=True) if any(_says(text, part) for part in sentences)]
    return summary, quoted or rows[:1]


_SENTENCE_END = re.compile(rf"(?<=[.!?…{WIDE_STOPS}])\s+")


def _says(text: str, sentence: str) -> bool:
    """Tell whether a sentence of a summary, which may begin with its speaker, is one of a turn's."""
    text, sentence = " ".join(text.split()), " ".join(sentence.split())
    said = sentence.partition(": ")[2] or sentence
    return sentence in text or said.rstrip("…") in text


def _statements(index: NamespaceIndex, every: Sequence[_Said]) -> list[Statement]:
    """Give each text the day of its earliest source, its place in time, and its sources' ids."""
    firsts = [
        min(rows, key=lambda row: (index.said_at_us[row] == UNKNOWN_TIME, index.said_at_us[row], row))
        for _, rows in every
    ]
    dates = date_texts(index.nodes.take(pa.array(firsts, pa.int64())))
    ids = index.column("turn_id")
    statements = []
    for (text, rows), first, date in zip(every, firsts, dates, strict=True):
        said_at = moment(int(index.said_at_us[first]))
        order = (said_at is None, said_at or _UNKNOWN, first)
        day = date.strip(" ()").partition(" on ")[2]
        line = " ".join(text.splitlines())  # a line of its own would look like another statement
        speakers = {index.speaker_of(row) for row in rows}
        speaker = speakers.pop() if len(speakers) == 1 else None
        statements.append(Statement(line, day, order, tuple(ids[row].as_py() for row in rows), speaker or ""))
    return statements
