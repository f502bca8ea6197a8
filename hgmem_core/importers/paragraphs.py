"""The paragraphs of a corpus as messages: each a turn and a session of its own, with neither time nor speaker."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.ids import content_id
from hgmem_core.importers.fields import NamespaceTemplate, empty, refused, shown, unreadable
from hgmem_core.messages import Dropped, LogRow, Message
from hgmem_core.text import clean, is_blank


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of a titled page.

    Attributes:
        title: Of the page.
        text: What stands for it: the title, then the paragraph below it.
        note: What was lost or changed when it was cleaned, or None.
    """

    title: str
    text: str
    note: str | None


def paragraph(title: object, body: object) -> Paragraph:
    """Return the paragraph `body` of the page `title`.

    Raises:
        ValueError: One of them is no text, or nothing can be seen in the title.
    """
    if not isinstance(title, str) or is_blank(title):
        raise ValueError(f"the title is {shown(title)}; it must be a visible text")
    if not isinstance(body, str):
        raise ValueError(f"the text is {shown(body)}; it must be text")
    (title, title_note), (body, body_note) = clean(title), clean(body)
    notes = [f"{label}: {note}" for label, note in (("title", title_note), ("text", body_note)) if note]
    return Paragraph(title, f"{title}\n{body}".strip(), "; ".join(notes) or None)


class Pool:
    """The names of the paragraphs of a corpus.

    A name is a hash of the content, so that a paragraph that comes again is the same one, and the order of names says
    nothing: that of a corpus may hold the paragraphs of a question together.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._names: set[str] = set()

    def __len__(self) -> int:
        """Count the different paragraphs."""
        return len(self._names)

    def add(self, paragraph: Paragraph) -> str:
        """Return the name of a paragraph, which it has from now on."""
        name = _key(paragraph)
        self._names.add(name)
        return name

    def find(self, paragraph: Paragraph) -> str | None:
        """Return the name of a paragraph, or None if it was never added."""
        name = _key(paragraph)
        return name if name in self._names else None


def _key(paragraph: Paragraph) -> str:
    return content_id("paragraph", paragraph.title, paragraph.text)


Pieces = Callable[[object], Mapping[str, Any]]
"""Gives the paragraphs that a row holds, unread, each by where it stands in the row: `:context[2]`.

It raises ValueError where the row holds none."""


def read_paragraphs(
    rows: Iterable[LogRow], config: InputConfig, pieces: Pieces, read: Callable[[object], Paragraph]
) -> Iterator[Message | Dropped]:
    """Yield one message or refusal for each paragraph of each row.

    A paragraph that comes again in its namespace has the ids of the first, so that they become one turn. Nothing else
    of a row is kept, not even of a refused one: it may hold labels.

    Args:
        rows: Of one file.
        config: Its namespace is a template over the columns of a row.
        pieces: See `Pieces`.
        read: Makes a paragraph of one of them, or raises ValueError.

    Raises:
        ValueError: The namespace template is malformed.
    """
    namespaces = NamespaceTemplate(config.namespace)
    pool = Pool()
    for row in rows:
        if row.error is not None:
            yield unreadable(row)
            continue
        try:
            found = pieces(row.value)
            namespace = namespaces.fill(row.value)
        except ValueError as error:
            yield refused(row.row_id, str(error))
            continue
        if not found:
            yield empty(row.row_id, namespace, "a row without paragraphs")
        for where, piece in found.items():
            row_id = row.row_id + where
            try:
                one = read(piece)
            except ValueError as error:
                yield refused(row_id, str(error), namespace=namespace)
                continue
            name = pool.add(one)
            yield Message(row_id, namespace, name, one.text, source_id=name, note=one.note)
