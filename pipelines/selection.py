"""What of a namespace somebody means: by ids, or by what was said, when and by whom."""

import hashlib
import json
from collections.abc import Iterator, Set
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.schemas import STRING, TIME


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a namespace is meant: what fits every condition; without any, the namespace itself.

    A session alone means the session itself, with what is said there before the tombstone and is imported later.

    Attributes:
        namespace: Whose memory, exactly this one.
        session: The session of the log.
        turns: Ids of turns.
        source_ids: The log's own ids of messages.
        trajectories: Ids of runs of agents, or the log's own ids of them.
        before: Said before this time; what has no time is not.
        speaker: Said by exactly this speaker.
        contains: Says this, in its text or an attachment, letters of either case; of a run the task or a step.
    """

    namespace: str
    session: str | None = None
    turns: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()
    trajectories: tuple[str, ...] = ()
    before: datetime | None = None
    speaker: str | None = None
    contains: str | None = None

    @property
    def names_all(self) -> bool:
        """Whether it means the namespace or the session itself."""
        return self == Selection(self.namespace, self.session)

    @property
    def may_fit_runs(self) -> bool:
        """Whether a run of an agent may fit: it has a time and texts, and no session and no speaker."""
        said = self.turns or self.source_ids or self.session is not None or self.speaker is not None
        return not said and not self.names_all

    @property
    def may_fit_messages(self) -> bool:
        """Whether a message may fit."""
        return not self.trajectories and not self.names_all

    def one_by_one(self) -> Iterator["Selection"]:
        """Yield what means the same together: of ids each by itself, so that one of several can be restored."""
        if not self.source_ids and not self.trajectories:
            yield self
        yield from (replace(self, source_ids=(one,)) for one in self.source_ids)
        yield from (replace(self, trajectories=(one,)) for one in self.trajectories)

    @property
    def digest(self) -> str:
        """What tells it from others; of what is sought it says no more than to somebody who guesses that."""
        before = self.before and self.before.astimezone(UTC).isoformat()
        told = {**asdict(self), "before": before, "contains": self.contains and self.contains.casefold()}
        # Slow on purpose: a number of a telephone is guessed soon.
        made = hashlib.scrypt(json.dumps(told).encode(), salt=self.namespace.encode(), n=1 << 12, r=8, p=1, dklen=16)
        return made.hex()


def fitting_messages(messages: pa.Table, selection: Selection) -> pa.Array | pa.ChunkedArray:
    """Tell which MESSAGE rows, with a `turn_id`, a selection means, bool `[rows]`."""
    fits = []
    if selection.session is not None:
        fits.append(pc.equal(messages.column("session_id"), selection.session))
    if selection.turns:
        fits.append(among(messages, "turn_id", set(selection.turns)))
    if selection.source_ids:
        fits.append(among(messages, "source_id", set(selection.source_ids)))
    if selection.speaker is not None:
        fits.append(pc.equal(messages.column("speaker"), selection.speaker))
    if selection.before is not None:
        fits.append(_before(messages, selection.before))
    if selection.contains is not None:
        columns = (messages.column(name) for name in ("text", "attachments"))
        fits.append(reduce(pc.or_, (_contains(column, selection.contains) for column in columns)))
    return reduce(pc.and_kleene, fits)


def fitting_runs(runs: pa.Table, selection: Selection) -> pa.Array | pa.ChunkedArray:
    """Tell which TRAJECTORY rows a selection means, bool `[rows]`."""
    fits = []
    if selection.trajectories:
        wanted = set(selection.trajectories)
        fits.append(pc.or_(among(runs, "trajectory_id", wanted), among(runs, "source_id", wanted)))
    if selection.before is not None:
        fits.append(_before(runs, selection.before))
    if selection.contains is not None:
        texts = ["\n".join(_texts_of_run(run)) for run in runs.select(["task", "steps"]).to_pylist()]
        fits.append(_contains(pa.chunked_array([pa.array(texts, STRING)]), selection.contains))
    return reduce(pc.and_kleene, fits)


def _texts_of_run(run: dict[str, Any]) -> Iterator[str]:
    yield run["task"]
    for step in run["steps"]:
        yield from (step["action"], step["observation"] or "")


def _before(rows: pa.Table, time: datetime) -> pa.ChunkedArray:
    return pc.less(rows.column("said_at"), pa.scalar(time, TIME))


def _contains(texts: pa.ChunkedArray, part: str) -> pa.ChunkedArray:
    return pc.match_substring(texts, part, ignore_case=True)


def among(rows: pa.Table, name: str, values: Set[str]) -> pa.ChunkedArray:
    """Tell whether each value of a column is one of some."""
    return pc.is_in(rows.column(name), value_set=pa.array(sorted(values), STRING))
