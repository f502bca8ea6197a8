"""LongMemEval, the benchmark of questions over many chats with an assistant, in its own file format.

Each question has a memory of its own: the chats of its haystack. Only what was said, by whom and when is read. Answers
and marks of evidence are labels, and so are two kinds of names, which are therefore made anew: sessions of the evidence
are called `answer_…`, and questions to which the memory holds no answer `…_abs`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.ids import content_id
from hgmem_core.importers.content import read_content
from hgmem_core.importers.fields import empty, joined, name_of, refused, shown, time_of, unreadable
from hgmem_core.messages import Dropped, LogRow, Message


def namespace_of(question_id: str) -> str:
    """Return the namespace of a question's haystack."""
    return f"longmemeval/{content_id('question', question_id)}"


def session_of(place: int) -> str:
    """Return the id of the session at a place of the haystack, from 0; string order is the haystack's."""
    return f"session_{place + 1:05d}"


def source_of(place: int, index: int) -> str:
    """Return the source id of a turn, by the places of its session and in it, from 0."""
    return f"S{place + 1}:{index + 1}"


def haystack(question: object) -> tuple[str, list[Any], list[Any]]:
    """Return a question's id, its sessions and their dates, unread.

    Raises:
        ValueError: The question is not as LongMemEval's are; says which field.
    """
    match question:
        case {"question_id": str(question_id), "haystack_sessions": [*sessions], "haystack_dates": [*dates]}:
            pass
        case _:
            raise ValueError(
                "the question is not an object with question_id and lists of haystack_sessions and haystack_dates"
            )
    if len(sessions) != len(dates):
        raise ValueError(f"there are {len(sessions)} haystack_sessions and {len(dates)} haystack_dates")
    return question_id, sessions, dates


def read_longmemeval(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each turn of each question's haystack.

    The namespace is `longmemeval/<hash of the question's id>`; sessions are numbered in the order of the haystack. The
    date of a session is read in the configured zone and is that of all its turns. Of a refused row nothing is kept.
    """
    for row in rows:
        if row.error is not None:
            yield unreadable(row)
            continue
        try:
            question_id, sessions, dates = haystack(row.value)
        except ValueError as error:
            yield refused(row.row_id, str(error))
            continue
        namespace = namespace_of(question_id)
        for place, (session, date) in enumerate(zip(sessions, dates, strict=True)):
            where = f"{row.row_id}:haystack_sessions[{place}]"
            if not isinstance(session, list):
                yield refused(where, f"the session is {shown(session)}; it must be a list of turns", None, namespace)
                continue
            notes: list[str] = []
            said_at = time_of(date, f"haystack_dates[{place}]", config, notes)
            for index, turn in enumerate(session):
                turn_row = f"{where}[{index}]"
                if not isinstance(turn, Mapping) or not isinstance(turn.get("content"), str | None):
                    yield refused(turn_row, "the turn is not an object with a text under 'content'", None, namespace)
                    continue
                own = list(notes)
                text, _ = read_content(turn.get("content"), own)
                if not text:
                    yield empty(turn_row, namespace, "no text")
                    continue
                yield Message(
                    row_id=turn_row,
                    namespace=namespace,
                    session_id=session_of(place),
                    text=text,
                    source_id=source_of(place, index),
                    sequence=index,
                    role=name_of(turn.get("role"), "role", own),
                    said_at=said_at,
                    time_zone=config.time_zone if said_at else None,
                    note=joined(own),
                )
