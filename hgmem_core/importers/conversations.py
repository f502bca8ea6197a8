"""Exports of apps, of which a row is a whole conversation."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from hgmem_core.config import InputConfig
from hgmem_core.importers.fields import NamespaceTemplate, refused, shown, unreadable
from hgmem_core.messages import Dropped, LogRow, Message


@dataclass(frozen=True, slots=True)
class Conversation:
    """What all messages of a conversation share.

    Attributes:
        row_id: Of its row in the log.
        config: How it is read.
        namespace: Whose it is; empty if that cannot be said.
        fault: Why it cannot; else empty.
    """

    row_id: str
    config: InputConfig
    namespace: str
    fault: str


Read: TypeAlias = Callable[[Conversation, Mapping[str, Any]], Iterator[Message | Dropped]]
"""Yields the messages of a conversation, given its fields, and what of it was dropped."""


def read_conversations(rows: Iterable[LogRow], config: InputConfig, read: Read) -> Iterator[Message | Dropped]:
    """Yield what `read` makes of each conversation, and a refusal for each row that is none.

    Raises:
        ValueError: The namespace template is malformed.
    """
    namespaces = NamespaceTemplate(config.namespace)
    for row in rows:
        if row.error is not None:
            yield unreadable(row)
        elif not isinstance(row.value, Mapping):
            yield refused(row.row_id, f"the conversation is {shown(row.value)}; it must be an object", row.value)
        else:
            try:
                namespace, fault = namespaces.fill(row.value), ""
            except ValueError as error:
                namespace, fault = "", str(error)
            yield from read(Conversation(row.row_id, config, namespace, fault), row.value)
