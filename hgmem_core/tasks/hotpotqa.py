"""HotpotQA, distractor setting: questions that need two of their ten paragraphs, here asked of all of them together.

Yang et al., EMNLP 2018. A bridge question leads from one page to the other, a comparison asks about both.
"""

from types import MappingProxyType

from hgmem_core.importers.hotpotqa import context_paragraph, contexts
from hgmem_core.importers.paragraphs import Paragraph
from hgmem_core.tasks.paragraphs import Question, paragraph_task
from hgmem_core.tasks.task import Task, TaskFiles

TYPES = ("bridge", "comparison")

GROUPS: MappingProxyType[str, frozenset[str]] = MappingProxyType(
    {"all": frozenset(TYPES), **{kind: frozenset({kind}) for kind in TYPES}}
)
"""Groups of an evaluation and the types of question that they hold."""


def read_task(files: TaskFiles) -> Task:
    """Read a HotpotQA file; the paragraphs of all its questions are what is imported.

    Raises:
        TaskError: Names the file, the question and the field that is not as HotpotQA's are.
    """
    return paragraph_task("hotpotqa", files, contexts, context_paragraph, _question, GROUPS)


def _question(row: object) -> Question:
    match row:
        case {"_id": str(query_id), "question": str(text), "type": str(kind), "supporting_facts": [*facts]}:
            pass
        case {"id": str(query_id), "question": str(text), "type": str(kind), "supporting_facts": [*facts]}:
            pass
        case _:
            raise ValueError("not an object with _id or id, question, type and a list of supporting_facts")
    if kind not in TYPES:
        raise ValueError(f"the type is {kind!r}, not one of {', '.join(TYPES)}")
    fields = {item[0]: (field, item) for field, item in contexts(row).items()}
    supporting: dict[str, Paragraph] = {}
    for place, fact in enumerate(facts):
        match fact:
            case [str(title), int()] if title in fields:
                field, item = fields[title]
                supporting[field.removeprefix(":")] = context_paragraph(item)
            case [str(title), int()]:
                raise ValueError(f"supporting_facts[{place}]: no paragraph of its context has the title {title!r}")
            case _:
                raise ValueError(f"supporting_facts[{place}] is not a title and the number of a sentence")
    return Question(query_id, text, kind, supporting)
