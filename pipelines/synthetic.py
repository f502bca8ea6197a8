"""Synthetic chat logs of any size: few large and many small namespaces, short sessions days apart, true-looking texts.

A log is decided by its numbers of turns and namespaces and its seed. It is written as several files, sessions in the
order in which they began, so that most namespaces are spread over several files as in an export by date. A second log
can continue it: the turns that come next in some of its namespaces.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.synthetic_text import (
    FIRST_NAMES,
    THEMES,
    Hashes,
    Ints,
    Sentences,
    chance,
    choose,
    mix,
    person,
    pick,
    theme,
    write_queries,
    write_texts,
)

Spread = Literal["few", "all"]

FILE_TURNS = 65_536
"""Turns of a file at most: its rows are one unit of work of an import."""

LARGEST_SHARE = 0.03
"""Of all turns, what the largest namespace holds; where namespaces are few, it is about twice the average."""

SESSION_TURNS = 20
"""Turns of a session on average; lengths are geometric."""

THEME_TURNS = 8
"""Turns of a session after which it comes to another of its namespace's themes."""

MOST_SENTENCES = 6
ASKING_SHARE = 0.25
OPENING_SHARE = 0.3
STOCK_SHARE = 0.12
"""Of turns that say again what is true of their speaker."""

ENDED_SHARE = 0.15
"""Of these, how many say that it is true no more."""

_STOCK_KEYS = 6
_DAY_SECONDS = 86_400
_BEGAN = int(datetime(2010, 1, 1, tzinfo=UTC).timestamp())


@dataclass(frozen=True, slots=True)
class SyntheticLog:
    """A log of `turns` messages in `namespaces` conversations of two, each of one turn at least.

    Raises:
        ValueError: There are fewer turns than namespaces, or none.
    """

    turns: int
    namespaces: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0 < self.namespaces <= self.turns:
            raise ValueError(f"{self.turns} turns cannot be shared by {self.namespaces} namespaces")

    def sizes(self) -> Ints:
        """Return how many turns each namespace has, the largest first; they follow Zipf's law and sum to `turns`."""
        weights = _zipf_weights(self.namespaces)
        wanted = weights * (self.turns - self.namespaces)
        sizes = np.floor(wanted).astype(np.int64)
        rest = self.turns - self.namespaces - int(sizes.sum())
        sizes[np.argsort(sizes - wanted, kind="stable")[:rest]] += 1
        return sizes + 1

    def grown(self, spread: Spread, share: float) -> Ints:
        """Return how many turns each namespace has once the log grew.

        Args:
            spread: Into `few` namespaces, as large a share of them as of the turns, or into `all`. Each of them grows
                by as much as the others, give or take one turn; where new turns are fewer, some do not grow.
            share: New turns, as a share of `turns`; one at least.
        """
        new = max(1, round(share * self.turns))
        taking = max(1, round(share * self.namespaces)) if spread == "few" else self.namespaces
        order = np.argsort(mix(self.keys(), 1), kind="stable")[:taking]
        sizes = self.sizes()
        sizes[order] += new // taking
        sizes[order[: new % taking]] += 1
        return sizes

    def keys(self) -> Hashes:
        """Return what decides the texts of each namespace."""
        return mix(mix(self.seed) + _numbers(self.namespaces))


def write_log(folder: Path, log: SyntheticLog) -> list[Path]:
    """Write a log as Parquet files of `FILE_TURNS` turns in a new folder and return them.

    Each row has `id`, `user`, `session`, `time`, `speaker` and `text`, some 200 characters of it.
    """
    return _write(folder, log, np.zeros(log.namespaces, np.int64), log.sizes())


def write_more(folder: Path, log: SyntheticLog, sizes: Ints) -> list[Path]:
    """Write the turns by which the namespaces of a log grow to `sizes`, as `write_log` does."""
    return _write(folder, log, log.sizes(), sizes)


def questions(log: SyntheticLog, namespace: int, count: int) -> list[str]:
    """Return `count` questions about the memory of a namespace, by its number."""
    key = log.keys()[namespace]
    return write_queries(key, mix(mix(key, 2) + _numbers(count)))


def _numbers(count: int) -> Hashes:
    numbers: Hashes = np.arange(count, dtype=np.uint64)
    return numbers


def _zipf_weights(count: int) -> npt.NDArray[np.float64]:
    """Return shares of the whole by Zipf's law, its exponent such that the first is as large as it should be."""
    largest = max(LARGEST_SHARE, 2 / (count + 1))
    ranks = np.arange(1, count + 1, dtype=np.float64)
    low, high = 0.0, 4.0
    for _ in range(50):
        exponent = (low + high) / 2
        first = 1 / (ranks**-exponent).sum()
        low, high = (exponent, high) if first < largest else (low, exponent)
    weights: npt.NDArray[np.float64] = ranks**-low / (ranks**-low).sum()
    return weights


@dataclass(frozen=True, slots=True)
class _Turns:
    """Who spoke when; element i of each array belongs to turn i.

    Attributes:
        namespace: Its number.
        position: Turns of the namespace before it.
        session: Sessions of the namespace before its own.
        place: Turns of the session before it.
        began: When its session began, in seconds since 1970.
        at: When it was said, likewise.
    """

    namespace: Ints
    position: Ints
    session: Ints
    place: Ints
    began: Ints
    at: Ints

    def take(self, rows: Ints) -> "_Turns":
        return _Turns(
            self.namespace[rows],
            self.position[rows],
            self.session[rows],
            self.place[rows],
            self.began[rows],
            self.at[rows],
        )


def _write(folder: Path, log: SyntheticLog, first: Ints, stop: Ints) -> list[Path]:
    """Write the turns of each namespace from `first` on up to `stop`."""
    folder.mkdir(parents=True)
    keys = log.keys()
    turns = _turns(keys, np.where(stop > first, stop, 0))
    turns = turns.take(np.flatnonzero(turns.position >= first[turns.namespace]))
    turns = turns.take(np.lexsort((turns.position, turns.namespace, turns.began)))
    files: list[Path] = []
    for start in range(0, len(turns.at), FILE_TURNS):
        part = turns.take(np.arange(start, min(start + FILE_TURNS, len(turns.at))))
        files.append(folder / f"part-{len(files):05d}.parquet")
        pq.write_table(_rows(keys, part), files[-1])
    return files


def _turns(keys: Hashes, sizes: Ints) -> _Turns:
    """Return the first turns of each namespace: whoever asks for more of a namespace gets the same ones first."""
    namespace = np.repeat(np.arange(len(sizes)), sizes)
    position = _since(namespace, sizes)
    decides = mix(keys[namespace] + position.astype(np.uint64), 1)
    begins = (position == 0) | chance(decides, 1 / SESSION_TURNS)
    session = np.cumsum(begins) - 1  # over all namespaces
    lengths = np.bincount(session)
    place = _since(session, lengths)
    pause = np.where(begins, 0, 15 + pick(mix(decides, 1), 150))
    spoken = np.cumsum(pause)
    first = np.cumsum(lengths) - lengths
    owner, opens = namespace[first], mix(decides[first], 2)
    gap = np.where(position[first] == 0, 0, 1 + pick(opens, 3))
    days = np.cumsum(gap)
    sessions = np.bincount(owner, minlength=len(sizes))
    of_owner = np.repeat(days[_firsts(sessions)], sessions[sessions > 0])
    began_day = pick(mix(keys[owner], 3), 730) + days - of_owner
    began = _BEGAN + _DAY_SECONDS * began_day + 8 * 3_600 + pick(mix(opens, 1), 12 * 3_600)
    return _Turns(
        namespace=namespace,
        position=position,
        session=_since(owner, sessions)[session],
        place=place,
        began=began[session],
        at=began[session] + spoken - spoken[first][session],
    )


def _firsts(sizes: Ints) -> Ints:
    """Return where each group begins that is not empty, groups of these sizes lying one after the other."""
    return (np.cumsum(sizes) - sizes)[sizes > 0]


def _since(group: Ints, sizes: Ints) -> Ints:
    """Return how many elements of its own group are before each; groups of these sizes lie one after the other."""
    numbers: Ints = np.arange(len(group)) - (np.cumsum(sizes) - sizes)[group]
    return numbers


def _rows(keys: Hashes, turns: _Turns) -> pa.Table:
    """Return the rows of a log."""
    owners = keys[turns.namespace]
    speaker = turns.position % 2
    return pa.table(
        {
            "id": _labels("m", turns.position, 1),
            "user": _labels("u", turns.namespace, 6),
            "session": _labels("s", turns.session, 5),
            "time": pa.array(turns.at * 1_000_000, pa.timestamp("us", "UTC")),
            "speaker": pa.array(FIRST_NAMES).take(pa.array(person(owners, speaker))),
            "text": write_texts(_sentences(owners, turns), len(owners)),
        }
    )


def _labels(letter: str, numbers: Ints, digits: int) -> pa.Array:
    values, places = np.unique(numbers, return_inverse=True)
    return pa.array([f"{letter}{value:0{digits}d}" for value in values.tolist()]).take(pa.array(places))


def _sentences(owners: Hashes, turns: _Turns) -> Sentences:
    """Return the sentences of turns: answers to the turn before, statements, and sometimes a question at the end."""
    count = len(owners)
    key = mix(owners + turns.position.astype(np.uint64), 2)
    before = mix(owners + (turns.position - 1).astype(np.uint64), 2)
    themes = theme(owners, _theme_of(owners, turns.session, turns.place))
    asks = chance(mix(key, 1), ASKING_SHARE)
    answers = (turns.place > 0) & chance(mix(before, 1), ASKING_SHARE)
    sizes = 2 + pick(mix(key, 2), MOST_SENTENCES - 1)
    of = np.repeat(np.arange(count), sizes)
    place = _since(of, sizes)
    own = mix(key[of] + place.astype(np.uint64), 3)
    template = choose("statement", own)
    theme_of = themes[of]

    opens = (place == 0) & chance(mix(own, 1), OPENING_SHARE)
    template[opens] = choose("opener", mix(own[opens], 2))

    question = (place == sizes[of] - 1) & asks[of]
    stock = (place == 1) & ~question & chance(mix(own, 3), STOCK_SHARE)
    which = pick(mix(own[stock], 4), _STOCK_KEYS) * 2 + turns.position[of][stock] % 2
    own[stock] = mix(owners[of][stock] + which.astype(np.uint64), 4)
    is_over = chance(mix(key[of][stock], 5), ENDED_SHARE)
    template[stock] = np.where(is_over, choose("ended", own[stock]), choose("stock", own[stock]))
    theme_of[stock] = theme(owners[of][stock], which % THEMES)

    # A question and its answer share a key and a theme, and so the thing that they are about.
    answer = (place == 0) & answers[of]
    own[answer] = before[of][answer]
    template[answer] = choose("answer", own[answer])
    theme_of[answer] = theme(owners[of][answer], _theme_of(owners[of], turns.session[of], turns.place[of] - 1)[answer])
    own[question] = key[of][question]
    template[question] = choose("question", own[question])
    return Sentences(of, template, own, theme_of, owners[of])


def _theme_of(owners: Hashes, session: Ints, place: Ints) -> Ints:
    """Return which of its namespace's themes is spoken of at a place of a session."""
    numbers = (session * 1_024 + place // THEME_TURNS).astype(np.uint64)
    return pick(mix(owners + numbers, 5), THEMES)
