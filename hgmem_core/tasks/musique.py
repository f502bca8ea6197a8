"""MuSiQue: questions composed of two to four simpler ones, each answered by a paragraph of its own.

Trivedi et al., TACL 2022. A question's id begins with its number of hops, as in `3hop1__`.
"""

from types import MappingProxyType

from hgmem_core.importers.musique import passage_paragraph, passages
from hgmem_core.tasks.paragraphs import Question, paragraph_task
from hgmem_core.tasks.task import Task, TaskFiles, right_answers

HOPS = ("2hop", "3hop", "4hop")

GROUPS: MappingProxyType[str, frozenset[str]] = MappingProxyType(
    {"all": frozenset(HOPS), **{hops: frozenset({hops}) for hops in HOPS}}
)
"""Groups of an evaluation and the questions that they hold, by hops."""


def read_task(files: TaskFiles) -> Task:
    """Read a MuSiQue file; its corpus is what is imported, or without one the paragraphs of all its questions.

    Raises:
        TaskError: Names the file, the question and the field that is not as MuSiQue's are.
    """
    return paragraph_task("musique", files, passages, passage_paragraph, _question, GROUPS)


def _question(row: object) -> Question:
    match row:
        case {"id": str(query_id), "question": str(text), "paragraphs": [*items], **rest}:
            pass
        case _:
            raise ValueError("not an object with id, question and a list of paragraphs")
    if query_id[:4] not in HOPS:
        raise ValueError(f"the id {query_id!r} does not begin with one of {', '.join(HOPS)}")
    if rest.get("answerable", True) is not True:
        raise ValueError("it is not answerable, so paragraphs that it needs are missing; take MuSiQue-Ans")
    supporting = {}
    for place, item in enumerate(items):
        field = f"paragraphs[{place}]"
        match item:
            case {"is_supporting": False}:
                continue
            case {"is_supporting": True}:
                pass
            case _:
                raise ValueError(f"{field} is not an object with a truth value under is_supporting")
        try:
            supporting[field] = passage_paragraph(item)
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from error
    aliases = rest.get("answer_aliases")
    answers = right_answers(rest.get("answer"), *(aliases if isinstance(aliases, list) else []))
    return Question(query_id, text, query_id[:4], supporting, answers)
