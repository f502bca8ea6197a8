"""Questions of one's own: what a memory is to find in one's own logs, by the ids that these give their messages.

A line is `{"query": "Where does Ana live?", "namespace": "acme/ana", "turns": ["m17"]}`. A turn is the log's own id of
a message, or `{"session": "s1", "id": "m17"}` where several sessions have that id; of a log without ids, the turn's id
as `jobs.query --json` tells it. `id`, `group` and `answer` (a text, or a list of right ones) may be there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hgmem_core.ids import check_namespace
from hgmem_core.tasks.task import (
    RETRIEVAL_METRICS,
    Gold,
    Questions,
    Task,
    TaskError,
    TaskFile,
    TaskFiles,
    right_answers,
)

NAME = "questions"
"""Of the task."""

MOST_NOTES = 20
"""Questions and turns that could not be used are told one by one up to here."""

_ALL = "all"

Held = Mapping[str, Sequence[tuple[str, str]]]
"""The turns of a namespace: for a source id, and for a turn's own id, the session and the turn's id of each."""


@dataclass(frozen=True, slots=True)
class TurnName:
    """A turn as a question names it; a session of None is any."""

    source_id: str
    session_id: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the turns that it names, and where it stands."""

    gold: Gold
    turns: Sequence[TurnName]
    where: str


def own_task(file: TaskFile, turns_of: Callable[[str], Held | None]) -> Task:
    """Return the task of asking a file's questions of a version.

    A turn that the version has not, which may be forgotten by now, is no evidence; a question that is left without any
    is left out. Both are counted, and told in the task's notes.

    Args:
        file: The questions.
        turns_of: Gives what the version holds of a namespace; None if nothing.

    Raises:
        TaskError: Names the file, the question and the field that cannot be used; or no question is left.
    """
    asked = read_questions(file)
    qrels: list[tuple[str, str, str, int]] = []
    notes: list[str] = []
    missing = 0
    for one in asked:
        gold, held = one.gold, turns_of(one.gold.namespace)
        found: dict[str, None] = {}
        for name in one.turns:
            ids = [] if held is None else _resolve(name, held, one.where)
            found.update(dict.fromkeys(ids))
            if not ids:
                missing += 1
                what = f"turn {name.source_id!r} in" if held is not None else "namespace"
                notes.append(f"{one.where}: the version has no {what} {gold.namespace!r}")
        qrels += [(gold.namespace, gold.query_id, turn, 1) for turn in found]
    left = {query_id for _, query_id, _, _ in qrels}
    if not left:
        raise TaskError(f"{file.path}: the version has no turn of any question; {notes[0]}")
    golds = [one.gold for one in asked]
    queries = [(one.namespace, one.query_id, one.text, one.group) for one in golds if one.query_id in left]
    counts = {
        "questions": len(asked),
        "questions_left_out": len(asked) - len(left),
        "evidence": len(qrels),
        "evidence_missing": missing,
    }
    groups = sorted({one.group for one in golds} - {_ALL})
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"{file.path}: and {len(notes) - MOST_NOTES} more turns that the version has not"]
    return Task(
        name=NAME,
        files=TaskFiles(file, None),
        inputs=(),
        questions=Questions.of(queries, qrels, counts),
        groups={_ALL: frozenset({_ALL, *groups}), **{group: frozenset({group}) for group in groups}},
        metrics=RETRIEVAL_METRICS,
        golds=tuple(one for one in golds if one.answers),
        notes=tuple(notes),
    )


def read_questions(file: TaskFile) -> list[Asked]:
    """Return the questions of a file.

    Raises:
        TaskError: There is none, or one cannot be used; names the file, the question and the field.
    """
    asked: dict[str, Asked] = {}
    for number, row in enumerate(file.rows, 1):
        where = f"{file.path}: question {number}"
        try:
            one = _question(row, number, where)
        except ValueError as error:
            raise TaskError(f"{where}: {error}") from error
        if one.gold.query_id in asked:
            raise TaskError(f"{where}: the id {one.gold.query_id!r} occurs twice")
        asked[one.gold.query_id] = one
    if not asked:
        raise TaskError(f"{file.path}: it holds no question")
    return list(asked.values())


def _question(row: object, number: int, where: str) -> Asked:
    match row:
        case {"query": str(text), "namespace": str(namespace), "turns": [_, *_] as turns, **rest} if text.strip():
            pass
        case _:
            raise ValueError(
                "not an object with query, namespace and a list of turns, such as "
                '{"query": "Where does Ana live?", "namespace": "acme/ana", "turns": ["m17"]}'
            )
    group = rest.get("group", _ALL)
    if not isinstance(group, str) or not group:
        raise ValueError(f"the group {group!r} is no text")
    query_id = rest.get("id", f"{number:04d}")
    if not isinstance(query_id, str | int):
        raise ValueError(f"the id {query_id!r} is neither text nor a whole number")
    answer = rest.get("answer")
    answers = right_answers(*(answer if isinstance(answer, list) else [answer]))
    gold = Gold(check_namespace(namespace), str(query_id), text, group, answers)
    return Asked(gold, [_turn_name(turn) for turn in turns], where)


def _turn_name(turn: object) -> TurnName:
    match turn:
        case bool():
            pass
        case str() | int():
            return TurnName(str(turn), None)
        case {"session": str(session), "id": str() | int() as source_id}:
            return TurnName(str(source_id), session)
    raise ValueError(f'the turn {turn!r} is neither an id nor an object such as {{"session": "s1", "id": "m17"}}')


def _resolve(name: TurnName, held: Held, where: str) -> list[str]:
    """Return the turns of that name: one, or several where a long text was cut."""
    found = [(session, turn) for session, turn in held.get(name.source_id, ()) if name.session_id in (None, session)]
    sessions = sorted({session for session, _ in found})
    if len(sessions) > 1:
        raise TaskError(
            f"{where}: sessions {sessions[0]!r} and {sessions[1]!r} both have a turn {name.source_id!r}; write "
            f'{{"session": "{sessions[0]}", "id": "{name.source_id}"}}'
        )
    return [turn for _, turn in found]
