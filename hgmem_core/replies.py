"""From a model's reply to a checked answer, whatever shape the reply is in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel

from hgmem_core.chat import Reply

Answer = TypeVar("Answer", bound=BaseModel)

Fault = Literal[
    "refused", "truncated_in_thinking", "truncated", "blanks", "no_json", "bad_json", "bad_field", "bad_item"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading(Generic[Answer]):
    """What could be read of a reply.

    Attributes:
        answer: With every item that is whole and valid; None if there is no object, or a field beside the lists is bad.
        fault: What was wrong, the gravest thing first; None if nothing was.
        faults: What the model is told of it on the next pass, one sentence each.
        is_cut: Whether items may be missing because the reply ends too early.
        source: Where the object was found.
        ignored: Characters of further objects that were not used.
    """

    answer: Answer | None
    fault: Fault | None
    faults: Sequence[str]
    is_cut: bool
    source: Literal["content", "reasoning"] | None
    ignored: int


def read_reply(reply: Reply, answer_type: type[Answer]) -> Reading[Answer]:
    """Read a reply as an answer of some type."""
    raise NotImplementedError
