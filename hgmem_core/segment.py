"""Turns to EPISODE: consecutive turns of a session about one thing, found without a model of language.

Each session is decided on its own, as a left fold over its turns: a turn begins an episode if it breaks enough with
what was said before it (`hgmem_core.cohesion`), or if a cap is met. Later sessions change nothing, and later turns of a
session at most shorten or extend its last episode and add others, so ids never change.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.cohesion import Floats, Talk, break_scores
from hgmem_core.ids import episode_id
from hgmem_core.schemas import EPISODE, conform, ok_outcomes
from hgmem_core.stage_config import SegmentConfig
from hgmem_core.summarise import Statement, read_statement, summarise
from hgmem_core.tokens import tokenizer
from hgmem_core.turns import UNKNOWN_TIME, turn_texts
from hgmem_core.vector_rows import aligned_vectors

SEGMENT_REVISION = 1
"""Raised when equal turns, vectors and settings give other episodes."""

_BYTES_PER_TOKEN = 4
_US_PER_HOUR = 3_600e6

Ints = npt.NDArray[np.int64]


def segment(turns: pa.Table, vectors: pa.Table, config: SegmentConfig, language: str) -> tuple[pa.Table, pa.Table]:
    """Cut every session of a bucket into episodes.

    Args:
        turns: TURN, sorted by its key.
        vectors: EMBEDDING rows of level `turn`, variant `base`; a turn without one is judged by the rest.
        config: Caps, weights and the threshold.
        language: Of stems and stop words; see `hgmem_core.tokens`.

    Returns:
        EPISODE, in which every turn is once, and OUTCOME of stage `segment`: `ok` for each turn.
    """
    sessions = read_sessions(turns, vectors, config, language)
    cuts = [session.starts(session.scores, config) for session in sessions]
    return episodes_of(turns, sessions, cuts, [{}] * len(sessions)), ok_outcomes(
        "segment", turns.column("namespace"), turns.column("turn_id")
    )


@dataclass(frozen=True, slots=True)
class Session:
    """The turns of a session and how they hang together.

    Attributes:
        first: Its first row.
        talk: What is said.
        scores: How much each turn breaks with those before it, in log odds `[turns]`; see `break_scores`.
        tokens: Of each turn, `[turns]`.
        times: When each was said, in microseconds, `[turns]`.
    """

    first: int
    talk: Talk
    scores: Floats
    tokens: Ints
    times: Ints

    def starts(self, scores: Floats, config: SegmentConfig) -> list[int]:
        """Return the places of the turns that begin an episode under these scores."""
        return episode_starts(scores, self.tokens, self.talk.idle_hours, config)


def read_sessions(turns: pa.Table, vectors: pa.Table, config: SegmentConfig, language: str) -> list[Session]:
    """Return the sessions of TURN rows, in order; see `segment`."""
    statements = turn_statements(turns, language)
    aligned, _ = aligned_vectors(turns.column("turn_id"), vectors)
    roles = turns.column("role").to_pylist()
    tokens = _token_counts(turns)
    times = _times_us(turns)
    sessions = []
    for first, stop in _bounds(turns):
        own = slice(first, stop)
        talk = Talk(statements[own], roles[own], aligned[own], _idle_hours(times[own]))
        sessions.append(Session(first, talk, break_scores(talk, config), tokens[own], times[own]))
    return sessions


def turn_statements(turns: pa.Table, language: str) -> list[Statement]:
    """Return what each turn says, captions included, without its speaker in front."""
    tokenize = tokenizer(language)
    statements = []
    names = (turns.column(name).to_pylist() for name in ("speaker", "role"))
    for text, speaker, role in zip(turn_texts(turns), *names, strict=True):
        who = speaker or role
        statements.append(read_statement(who, text[len(who) + 2 :] if who else text, tokenize))
    return statements


def episode_starts(scores: Floats, tokens: Ints, idle_hours: Floats, config: SegmentConfig) -> list[int]:
    """Return the places in a session of the turns that begin an episode, the first one included.

    Where a cap on turns or tokens is met, the episode ends at the greatest break in its second half.
    """
    limit = log(config.threshold / (1 - config.threshold))
    total = np.concatenate([[0], np.cumsum(tokens)]).tolist()
    breaks, idle = scores.tolist(), idle_hours.tolist()
    starts = [0]
    place = 1
    while place < len(breaks):
        start = starts[-1]
        full = place - start >= config.max_turns or total[place + 1] - total[start] > config.max_tokens
        if idle[place] > config.max_idle_hours or (
            breaks[place] > limit and place - start >= config.min_turns and not full
        ):
            starts.append(place)
        elif full:
            middle = start + max(1, (place - start) // 2)
            # Of equal ones the last, so that an even text is cut where the cap is.
            starts.append(max(range(middle, place + 1), key=lambda at: (breaks[at], at)))
            place = starts[-1]
        place += 1
    return starts


def _bounds(turns: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield the first row of each session and the row after its last."""
    size = turns.num_rows
    if size:
        differs = np.zeros(size - 1, bool)
        for name in ("namespace", "session_id"):
            column = turns.column(name)
            differs |= pc.not_equal(column.slice(1), column.slice(0, size - 1)).to_numpy()
        bounds = [0, *(np.flatnonzero(differs) + 1).tolist(), size]
        yield from pairwise(bounds)


def _token_counts(turns: pa.Table) -> Ints:
    size = pc.binary_length(turns.column("text")).to_numpy()
    return np.asarray(size // _BYTES_PER_TOKEN + 1, np.int64)


def _times_us(turns: pa.Table) -> Ints:
    return np.asarray(turns.column("said_at").cast(pa.int64()).fill_null(UNKNOWN_TIME).to_numpy(), np.int64)


def _idle_hours(times: Ints) -> Floats:
    """Return the hours from the last known time before each turn to its own, 0 where either is unknown."""
    known = np.flatnonzero(times != UNKNOWN_TIME)
    idle = np.zeros(len(times))
    idle[known[1:]] = np.maximum(np.diff(times[known]), 0) / _US_PER_HOUR
    return idle


def episodes_of(
    turns: pa.Table,
    sessions: Sequence[Session],
    cuts: Sequence[Sequence[int]],
    named: Sequence[Mapping[int, tuple[str, str]]],
) -> pa.Table:
    """Return EPISODE for sessions that are cut before some of their turns.

    Args:
        turns: TURN, sorted by its key.
        sessions: All of it.
        cuts: Of each session the places that begin an episode, the first one included.
        named: Of each session title and summary of the episodes that have them already, by where they begin.
    """
    starts: list[int] = []
    digests: list[tuple[str, str]] = []
    spans: list[tuple[int | None, int | None]] = []
    for session, own, names in zip(sessions, cuts, named, strict=True):
        starts += [session.first + cut for cut in own]
        for cut, end in zip(own, [*own[1:], len(session.tokens)], strict=True):
            talk = session.talk
            digests.append(names.get(cut) or summarise(talk.statements[cut:end], talk.vectors[cut:end]))
            spans.append(_span(session.times[cut:end]))
    bounds = np.append(np.array(starts, np.int64), turns.num_rows)
    turn_ids = turns.column("turn_id").combine_chunks()
    first, last = turns.take(pa.array(bounds[:-1])), turns.take(pa.array(bounds[1:] - 1))
    table = pa.table(
        {
            "namespace": first.column("namespace"),
            "episode_id": pa.array(
                [episode_id(name) for name in first.column("turn_id").to_pylist()], pa.large_string()
            ),
            "session_id": first.column("session_id"),
            "first_position": first.column("position"),
            "last_position": last.column("position"),
            "turn_ids": pa.LargeListArray.from_arrays(pa.array(bounds), turn_ids),
            "title": pa.array([title for title, _ in digests], pa.large_string()),
            "summary": pa.array([summary for _, summary in digests], pa.large_string()),
            "started_at": _time_column([span[0] for span in spans]),
            "ended_at": _time_column([span[1] for span in spans]),
        }
    )
    return conform(table, EPISODE)


def _span(times: Ints) -> tuple[int | None, int | None]:
    known = times[times != UNKNOWN_TIME]
    return (int(known.min()), int(known.max())) if len(known) else (None, None)


def _time_column(times_us: Sequence[int | None]) -> pa.Array:
    return pa.array(times_us, pa.int64()).cast(EPISODE.arrow.field("started_at").type)
