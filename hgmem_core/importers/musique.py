"""MuSiQue's paragraphs, from its own question files or from a corpus; all else in a question is a label."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.importers.fields import shown
from hgmem_core.importers.paragraphs import Paragraph, paragraph, read_paragraphs
from hgmem_core.messages import Dropped, LogRow, Message


def read_musique(rows: Iterable[LogRow], config: InputConfig) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each paragraph; see `read_paragraphs`.

    A row is a question with `paragraphs`, or a paragraph of a corpus with `title` and `text`.
    """
    return read_paragraphs(rows, config, passages, passage_paragraph)


def passages(row: object) -> Mapping[str, Any]:
    """Return the paragraphs of a question, unread, each by where it stands, such as `:paragraphs[2]`; or the row.

    Raises:
        ValueError: The row is neither a question nor a paragraph.
    """
    match row:
        case {"paragraphs": [*items]}:
            return {f":paragraphs[{place}]": item for place, item in enumerate(items)}
        case {"title": _, "text": _}:
            return {"": row}
    raise ValueError(
        "the row is neither a question with a list of 'paragraphs' nor a paragraph with 'title' and 'text'"
    )


def passage_paragraph(item: object) -> Paragraph:
    """Return the paragraph that an object with `title` and `paragraph_text`, or `text`, gives.

    Raises:
        ValueError: It is no such object.
    """
    match item:
        case {"title": title, "paragraph_text": text} | {"title": title, "text": text}:
            return paragraph(title, text)
    raise ValueError(f"the paragraph is {shown(item)}; it must be an object with 'title' and 'paragraph_text'")
