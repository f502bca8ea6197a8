"""LongMemEval: questions over many chats with an assistant, with the turns and sessions that hold the evidence.

Wu et al., ICLR 2025. Questions whose id ends in `_abs` are asked of a memory that holds no answer; a model should say
so. They count in what is answered, and not in what is found.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from hgmem_core.config import InputConfig
from hgmem_core.ids import turn_id
from hgmem_core.importers.longmemeval import haystack, namespace_of, session_of, source_of
from hgmem_core.tasks.task import RETRIEVAL_METRICS, Gold, Questions, Task, TaskError, TaskFiles, right_answers
from hgmem_core.text import is_blank
from hgmem_core.times import parse_time

TYPES = (
    "single-session-user", "single-session-assistant", "single-session-preference", "multi-session",
    "temporal-reasoning", "knowledge-update",
)  # fmt: skip

ABSTENTION = "abstention"

GROUPS: MappingProxyType[str, frozenset[str]] = MappingProxyType(
    {"all": frozenset(TYPES), **{kind: frozenset({kind}) for kind in TYPES}, ABSTENTION: frozenset({ABSTENTION})}
)
"""Groups of an evaluation and the types of question that they hold; questions without an answer are a type here."""

COUNTED = ("questions", "abstention", "questions_left_out", "evidence", "sessions", "sessions_dropped")
"""What `read_task` counts: all questions; those without an answer, and the others without a turn of evidence, which are
not looked for; turns and sessions of evidence; named sessions that are not in the haystack."""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Of a question: turns and sessions by their ids here, and how many named sessions there are not."""

    turns: list[str]
    sessions: Set[str]
    dropped: int


def read_task(files: TaskFiles) -> Task:
    """Read a LongMemEval file; the haystacks of its questions are what is imported, each a namespace of its own.

    Raises:
        TaskError: Names the file, the question and the field that is not as LongMemEval's are; or no question has
            evidence.
    """
    path = files.data.path
    counts = Counter(dict.fromkeys(COUNTED, 0))
    queries: list[tuple[str, str, str, str]] = []
    qrels: list[tuple[str, str, str, int]] = []
    sessions: dict[str, Set[str]] = {}
    golds: dict[str, Gold] = {}
    for number, row in enumerate(files.data.rows, 1):
        try:
            gold, evidence = _question(row)
        except ValueError as error:
            raise TaskError(f"{path}: question {number}: {error}") from error
        if gold.query_id in golds:
            raise TaskError(f"{path}: question {number} ({gold.query_id!r}): its id occurs twice")
        golds[gold.query_id] = gold
        counts["questions"] += 1
        if gold.group == ABSTENTION:
            counts["abstention"] += 1
        elif not evidence.turns:
            counts["questions_left_out"] += 1
        else:
            counts.update(
                evidence=len(evidence.turns), sessions=len(evidence.sessions), sessions_dropped=evidence.dropped
            )
            queries.append((gold.namespace, gold.query_id, gold.text, gold.group))
            qrels += [(gold.namespace, gold.query_id, turn, 1) for turn in evidence.turns]
            sessions[gold.query_id] = evidence.sessions
    if not queries:
        raise TaskError(f"{path}: no question has a turn of evidence")
    questions = Questions.of(queries, qrels, dict(counts), sessions)
    inputs = (InputConfig(format="longmemeval", paths=[path]),)
    return Task(
        "longmemeval", files, inputs, questions, GROUPS, RETRIEVAL_METRICS,
        unanswerable=GROUPS[ABSTENTION], golds=tuple(golds.values()),
    )  # fmt: skip


def _question(row: object) -> tuple[Gold, _Evidence]:
    query_id, held, _ = haystack(row)
    match row:
        case {"question": str(text), "question_type": str(kind), "haystack_session_ids": [*names], **rest}:
            pass
        case _:
            raise ValueError("not an object with question, question_type and a list of haystack_session_ids")
    if kind not in TYPES:
        raise ValueError(f"the question_type is {kind!r}, not one of {', '.join(TYPES)}")
    if len(names) != len(held):
        raise ValueError(f"there are {len(held)} haystack_sessions and {len(names)} haystack_session_ids")
    answering = rest.get("answer_session_ids", [])
    if not isinstance(answering, list):
        raise ValueError("its answer_session_ids are no list")
    is_answered = not query_id.endswith("_abs")
    gold = Gold(
        namespace=namespace_of(query_id),
        query_id=query_id,
        text=text,
        group=kind if is_answered else ABSTENTION,
        # To a question without an answer the file gives an explanation of why there is none.
        answers=right_answers(rest.get("answer")) if is_answered else (),
        asked_on=_day(rest.get("question_date")),
    )
    return gold, _evidence(gold.namespace, held, names, answering)


def _day(written: object) -> date | None:
    try:
        time = parse_time(written, ZoneInfo("UTC"))
    except ValueError:
        return None
    return None if time is None else time.date()


def _evidence(namespace: str, held: Sequence[Any], names: Sequence[Any], answering: Sequence[Any]) -> _Evidence:
    turns = [
        turn_id(namespace, session_of(place), source_of(place, index))
        for place, session in enumerate(held)
        for index, turn in enumerate(session if isinstance(session, list) else [])
        if _is_evidence(turn)
    ]
    sessions = {session_of(place) for place, name in enumerate(names) if name in answering}
    return _Evidence(turns, sessions, len(set(map(str, answering)) - set(map(str, names))))


def _is_evidence(turn: object) -> bool:
    """Say whether a turn is marked, and becomes one in the memory: blank ones do not."""
    if not isinstance(turn, Mapping) or turn.get("has_answer") is not True:
        return False
    text = turn.get("content")
    return isinstance(text, str) and not is_blank(text)
