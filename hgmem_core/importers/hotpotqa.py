"""HotpotQA's paragraphs, in its own file format; its questions, answers and supporting facts are labels."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.fields import shown
from hgmem_core.importers.paragraphs import Paragraph, paragraph, read_paragraphs
from hgmem_core.messages import Dropped, LogRow, Message


def read_hotpotqa(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each paragraph of each question; see `read_paragraphs`."""
    return read_paragraphs(rows, config, contexts, context_paragraph)


def contexts(question: object) -> Mapping[str, Any]:
    """Return the paragraphs of a question, unread, each by where it stands, such as `:context[2]`.

    Raises:
        ValueError: There is no list of them.
    """
    found = question.get("context") if isinstance(question, Mapping) else None
    if not isinstance(found, list):
        raise ValueError("the question is not an object with a list of paragraphs under 'context'")
    return {f":context[{place}]": item for place, item in enumerate(found)}


def context_paragraph(item: object) -> Paragraph:
    """Return the paragraph that a pair of a title and a list of sentences gives.

    Raises:
        ValueError: It is no such pair.
    """
    match item:
        case [title, [*parts]]:
            sentences = [part.strip() for part in parts if isinstance(part, str)]
            if len(sentences) == len(parts):
                return paragraph(title, " ".join(sentences))
    raise ValueError(f"the paragraph is {shown(item)}; it must be a title and a list of sentences")
