"""Turns to EPISODE with a language model: it is shown windows of a session and says where episodes begin.

Windows overlap, and in an overlap each decides the half that is nearer to its own middle, so that every cut is made by
a window that sees what comes before and after it. Windows are counted from the session's begin: turns that are added
later change the last one alone. Caps and silence hold as without a model (`hgmem_core.segment`), which also decides
what a window left undecided, and sessions that are too short to be cut.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
from pydantic import BaseModel

from hgmem_core.chat import Reply, Request
from hgmem_core.conversation import Said, said_turns
from hgmem_core.fitting import one_line
from hgmem_core.passes import Settled, Terms, Trouble, ask, reject_rows, reject_table, request_of
from hgmem_core.prompts import load_prompt
from hgmem_core.schemas import OUTCOME, STRING, conform
from hgmem_core.segment import Session, episodes_of, read_sessions
from hgmem_core.stage_config import SegmentConfig
from hgmem_core.summarise import SUMMARY_CHARS, TITLE_CHARS
from hgmem_core.text import is_blank
from hgmem_core.transcript import Line, lines_of, parts_that_fit, shortened, transcript

SEGMENT_LLM_REVISION = 1
"""Raised when equal turns and answers give other episodes."""

PROMPT = load_prompt("segment")

FEWEST_TURNS = 4
"""A shorter session is one episode unless silence parts it."""

_TURN_CHARS = (600, 300, 150, 75)
"""How much of a turn is shown: the most with which a window of the wanted length fits."""

_EPISODE_TOKENS = 60
"""Of an answer, for each episode."""
_EPISODE_TURNS = 8
_FEWEST_SHOWN = 2
_SURE = 1e9
"""Log odds beyond any that the embedded engine gives."""


class Episode(BaseModel):
    """An episode as the model names it."""

    first: int
    title: str
    summary: str


class Episodes(BaseModel):
    """The answer."""

    episodes: list[Episode]


@dataclass(frozen=True, slots=True)
class Segmented:
    """What the stage makes: EPISODE, OUTCOME with a row for each turn, REJECT with one for each pass that failed."""

    episodes: pa.Table
    outcomes: pa.Table
    rejects: pa.Table


@dataclass(slots=True)
class _Window:
    """A question: turns `[start, stop)` of a session, of which it decides `[owns, owns_until)`."""

    namespace: str
    row_id: str
    session: int
    lines: Sequence[Line]
    start: int
    owns: int
    owns_until: int
    terms: Terms
    shown_from: int = 1
    """The first turn that the request before showed; more than 1 where it goes on with an answer that was cut off."""
    was_cut: bool = False

    @property
    def answer_type(self) -> type[Episodes]:
        """See `passes.Question`."""
        return Episodes

    def request(self, attempt: int, found: Episodes | None, trouble: Trouble | None) -> Request:
        """Ask for the window, or for what comes after the last episode of an answer that was cut off."""
        self.was_cut = trouble is not None and trouble.is_cut
        self.shown_from = found.episodes[-1].first if found is not None and self.was_cut else 1
        shown = self.lines[self.shown_from - 1 :]
        return request_of(
            PROMPT,
            PROMPT.fill(turns=transcript(shown)),
            Episodes,
            self.terms,
            namespace=self.namespace,
            stage="segment",
            row_id=self.row_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=_EPISODE_TOKENS * -(-len(shown) // _EPISODE_TURNS),
        )

    def check(self, answer: Episodes) -> tuple[Episodes | None, list[str]]:
        """Keep the episodes that begin with a turn of the window, in order, and have a title."""
        sound: dict[int, Episode] = {}
        complaints = []
        for episode in answer.episodes:
            title, summary = one_line(episode.title, TITLE_CHARS), one_line(episode.summary, SUMMARY_CHARS)
            if not self.shown_from <= episode.first <= len(self.lines):
                numbered = f"they are numbered {self.shown_from} to {len(self.lines)}"
                complaints.append(f"first={episode.first} is no turn that is shown: {numbered}")
            elif is_blank(title):
                complaints.append(f"the episode that begins with turn {episode.first} has no title")
            else:
                said = title if is_blank(summary) else summary
                sound.setdefault(episode.first, Episode(first=episode.first, title=title, summary=said))
        if not sound and not complaints:
            complaints.append("there are no episodes; every turn belongs to one")
        ordered = [sound[first] for first in sorted(sound)]
        return (Episodes(episodes=ordered) if ordered else None), complaints

    def merge(self, found: Episodes, more: Episodes) -> Episodes:
        """Go on with an answer that was cut off; of two about the same turns, take all beginnings that either has."""
        first_of = {one.first: one for one in found.episodes}
        if self.was_cut:
            first_of = {first: one for first, one in first_of.items() if first < self.shown_from}
        first_of |= {one.first: one for one in more.episodes if one.first not in first_of}
        return Episodes(episodes=[first_of[first] for first in sorted(first_of)])


def segment_llm(
    turns: pa.Table,
    vectors: pa.Table,
    config: SegmentConfig,
    language: str,
    window: tuple[int, int],
    terms: Terms,
) -> Generator[list[Request], list[Reply], Segmented]:
    """Cut every session of a bucket into episodes.

    Args:
        turns: TURN, sorted by its key.
        vectors: EMBEDDING rows of level `turn`; see `segment`.
        config: Caps, and the weights of the embedded engine.
        language: Of stems and stop words.
        window: Turns of a window, and how many two of them share.
        terms: Of requests.
    """
    sessions = read_sessions(turns, vectors, config, language)
    said = said_turns(turns)
    namespaces, turn_ids = (turns.column(name).to_pylist() for name in ("namespace", "turn_id"))
    windows: list[_Window] = []
    for number, session in enumerate(sessions):
        own = said[session.first : session.first + len(session.tokens)]
        if len(own) >= FEWEST_TURNS:
            row = session.first
            windows += _windows(namespaces[row], number, own, window, terms)
    settled = yield from ask(windows)

    outcomes: list[tuple[str, int, str | None]] = [("ok", 1, None)] * turns.num_rows
    rejects = []
    answered: list[list[tuple[_Window, Settled[Episodes]]]] = [[] for _ in sessions]
    for one, result in zip(windows, settled, strict=True):
        answered[one.session].append((one, result))
        first = sessions[one.session].first
        owned = one.owns_until - one.owns
        outcomes[first + one.owns : first + one.owns_until] = [(result.outcome, result.passes, result.reason)] * owned
        rejects += reject_rows("segment", one.namespace, turn_ids[first + one.start], result)
    cuts, titles = [], []
    for session, own_windows in zip(sessions, answered, strict=True):
        named = _named(own_windows)
        cuts.append(_cuts(session, own_windows, named, config))
        titles.append({place: (one.title, one.summary) for place, one in named.items()})
    return Segmented(episodes_of(turns, sessions, cuts, titles), _outcomes(turns, outcomes), reject_table(rejects))


def _windows(
    namespace: str, session: int, said: Sequence[Said], window: tuple[int, int], terms: Terms
) -> Iterator[_Window]:
    """Yield the windows of a session, each as long as wanted, or as fits."""
    bounds: list[tuple[int, int]] = []
    shown: list[Sequence[Line]] = []
    start = 0
    while not bounds or bounds[-1][1] < len(said):
        lines = _fitting(said[start : start + window[0]], terms)
        bounds.append((start, start + len(lines)))
        shown.append(lines)
        start = max(start + 1, bounds[-1][1] - min(window[1], len(lines) // 2))
    # In an overlap, the first half is the earlier window's.
    middles = [(later[0] + earlier[1]) // 2 for earlier, later in pairwise(bounds)]
    for lines, (begin, _), owns, owns_until in zip(shown, bounds, [0, *middles], [*middles, len(said)], strict=True):
        yield _Window(namespace, said[begin].turn_id, session, lines, begin, owns, owns_until, terms)


def _fitting(said: Sequence[Said], terms: Terms) -> Sequence[Line]:
    """Return turns as lines, shortened as far as need be, and fewer of them where even that is too long."""
    whole = lines_of(said)
    for most in _TURN_CHARS:
        lines = shortened(whole, most)
        if _fits(lines, terms):
            return lines
    return parts_that_fit(lines, lambda some: len(some) <= _FEWEST_SHOWN or _fits(some, terms))[0]


def _fits(lines: Sequence[Line], terms: Terms) -> bool:
    return terms.fits(PROMPT, PROMPT.fill(turns=transcript(lines)))


def _named(answered: Sequence[tuple[_Window, Settled[Episodes]]]) -> dict[int, Episode]:
    """Return the episodes that begin where their window decides, by their place in the session."""
    named = {}
    for window, result in answered:
        for episode in result.answer.episodes if result.answer else ():
            place = window.start + episode.first - 1
            if window.owns <= place < window.owns_until:
                named[place] = episode
    return named


def _cuts(
    session: Session,
    answered: Sequence[tuple[_Window, Settled[Episodes]]],
    named: Mapping[int, Episode],
    config: SegmentConfig,
) -> list[int]:
    """Return where episodes begin: where the model says, as without it where it did not answer, and at caps."""
    if not answered:
        return session.starts(session.scores, config)
    starts = set(named)
    failed = [(window, result) for window, result in answered if not result.is_whole]
    ruled = session.starts(session.scores, config) if failed else []
    for window, result in failed:
        # After the last one that was named, of an answer that never came to its end.
        first = window.start + result.answer.episodes[-1].first if result.answer else window.owns
        starts.update(place for place in ruled if max(first, window.owns) <= place < window.owns_until)
    scores = session.scores - _SURE
    scores[sorted(starts)] += 2 * _SURE
    return session.starts(scores, config.model_copy(update={"min_turns": 1}))


def _outcomes(turns: pa.Table, outcomes: Sequence[tuple[str, int, str | None]]) -> pa.Table:
    columns = {
        "namespace": turns.column("namespace"),
        "stage": pa.array(["segment"] * turns.num_rows, STRING),
        "row_id": turns.column("turn_id"),
        "outcome": pa.array([outcome for outcome, _, _ in outcomes], STRING),
        "passes": pa.array([passes for _, passes, _ in outcomes], pa.int32()),
        "reason": pa.array([reason for _, _, reason in outcomes], STRING),
    }
    return conform(pa.table(columns), OUTCOME)
