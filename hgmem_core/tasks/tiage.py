"""TIAGE: chats between two strangers in which people marked every turn that shifts the topic.

Xie et al., Findings of EMNLP 2021; the chats are PersonaChat's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hgmem_core.messages import Message
from hgmem_core.segmentation_metrics import Boundaries
from hgmem_core.tasks.task import TaskError

_SHIFTS: Mapping[str, bool] = {"0": False, "1": True}
_FIRST = "-1"
_SESSION = "chat"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat with its topic shifts.

    Attributes:
        namespace: `tiage/<its key in the file>`.
        texts: What was said, in order.
        boundaries: For each gap between neighbouring turns, whether the topic shifts there.
    """

    namespace: str
    texts: tuple[str, ...]
    boundaries: Boundaries

    def messages(self) -> list[Message]:
        """Return the turns as messages of one session. TIAGE knows neither their times nor who spoke."""
        return [
            Message(f"{self.namespace}:{place}", self.namespace, _SESSION, text, source_id=str(place), sequence=place)
            for place, text in enumerate(self.texts)
        ]


def read_conversations(content: object) -> list[Conversation]:
    """Read a TIAGE file: an object of conversations, each a list of `[text, label]` pairs.

    The label is "-1" at the first turn, then "1" where the topic shifts and "0" where it does not.

    Raises:
        TaskError: The content is something else; names the conversation and the turn.
    """
    if not isinstance(content, Mapping) or not content:
        raise TaskError("a TIAGE file is an object of conversations")
    return [_conversation(str(key), turns) for key, turns in content.items()]


def _conversation(key: str, turns: object) -> Conversation:
    if not isinstance(turns, list) or not turns:
        raise TaskError(f"conversation {key} is not a list of turns")
    texts: list[str] = []
    shifts: list[bool] = []
    for place, turn in enumerate(turns):
        match turn:
            case [str(text), str(label)] if label in (_SHIFTS if place else {_FIRST}):
                texts.append(text)
                shifts.append(bool(place) and _SHIFTS[label])
            case _:
                raise TaskError(f"conversation {key}, turn {place}: not a text and its label, but {turn!r}")
    return Conversation(f"tiage/{key}", tuple(texts), np.array(shifts[1:], bool))
