"""HotpotQA and 2WikiMultihopQA: questions that need some of their ten paragraphs, here asked of all of them together.

HotpotQA, distractor setting: Yang et al., EMNLP 2018. A bridge question leads from one page to the other, a comparison
asks about both. 2WikiMultihopQA: Ho et al., COLING 2020, whose files have the same shape; a compositional question
leads on like a bridge, an inference follows from two relations, a bridge comparison compares what two bridges lead to.
"""

from collections.abc import Mapping, Set
from functools import partial
from types import MappingProxyType

from hgmem_core.config import Format
from hgmem_core.importers.hotpotqa import context_paragraph, contexts
from hgmem_core.importers.paragraphs import Paragraph
from hgmem_core.tasks.paragraphs import Question, paragraph_task
from hgmem_core.tasks.task import Task, TaskFiles, right_answers

TYPES: Mapping[Format, tuple[str, ...]] = MappingProxyType(
    {
        "hotpotqa": ("bridge", "comparison"),
        "2wiki": ("bridge_comparison", "comparison", "compositional", "inference"),
    }
)
"""The types of question of each benchmark; each is a group of an evaluation."""


def read_task(name: Format, files: TaskFiles) -> Task:
    """Read a file of one of the benchmarks; the paragraphs of all its questions are what is imported.

    Raises:
        TaskError: Names the file, the question and the field that is not as the benchmark's are.
    """
    types = TYPES[name]
    groups: dict[str, Set[str]] = {"all": frozenset(types), **{kind: frozenset({kind}) for kind in types}}
    return paragraph_task(name, files, contexts, context_paragraph, partial(_question, types), groups)


def _question(types: tuple[str, ...], row: object) -> Question:
    match row:
        case {"_id": str(query_id), "question": str(text), "type": str(kind), "supporting_facts": [*facts], **rest}:
            pass
        case {"id": str(query_id), "question": str(text), "type": str(kind), "supporting_facts": [*facts], **rest}:
            pass
        case _:
            raise ValueError("not an object with _id or id, question, type and a list of supporting_facts")
    if kind not in types:
        raise ValueError(f"the type is {kind!r}, not one of {', '.join(types)}")
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
    return Question(query_id, text, kind, supporting, right_answers(rest.get("answer")))
