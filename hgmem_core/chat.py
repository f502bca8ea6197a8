"""What is asked of a language model, and what it answers: one request, one reply, whoever serves the model."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from hgmem_core.ids import digest_of_parts

Thinking = Literal["on", "off", "default"]

UNANSWERED = "unanswered"
"""`finish_reason` of a reply that stands for a request whose every try failed: sent again some other time, it may be
answered, unlike one that is `refused`."""


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model, complete in itself.

    Attributes:
        namespace: Whose log it quotes.
        stage: Of the dataflow, such as `extract`.
        row_id: The row that it is about.
        attempt: The pass over that row, from 1.
        system: What the model is to do: ours alone.
        user: The one user turn; quotes log text as data.
        answer: The name of the answer's type.
        schema: Its JSON schema, for guided decoding.
        max_tokens: Of the answer.
        thinking: Whether the model is to think first.
        expected_tokens: A guess at the length of the answer, for estimates; no part of the question.
    """

    namespace: str
    stage: str
    row_id: str
    attempt: int
    system: str
    user: str
    answer: str
    schema: Mapping[str, Any]
    max_tokens: int
    thinking: Thinking
    expected_tokens: int = 0

    @property
    def messages(self) -> list[dict[str, str]]:
        """The chat as servers take it."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]

    def digest(self, model: str, temperature: float, guided: bool) -> str:
        """Return the name of the question as put to a model: equal ones have one answer.

        The namespace is part of it, so that no answer is shared between the memories of two users.
        """
        schema = json.dumps(self.schema, sort_keys=True, separators=(",", ":")) if guided else ""
        settings = [self.thinking, str(self.max_tokens), repr(temperature), schema, str(self.attempt)]
        return digest_of_parts([self.namespace, self.stage, model, *settings, self.system, self.user])

    def to_json(self) -> str:
        """Write it as JSON, to travel."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, unread.

    Attributes:
        text: The message's content; None where the server gave none.
        reasoning: What a reasoning parser took out of it, if any.
        finish_reason: `stop`, `length`, or whatever the server says; `refused` for a request that it did not take.
        prompt_tokens: As the server counts.
        completion_tokens: As the server counts, thinking included.
        thinking_tokens: As far as the server tells.
        seconds: From the first try to the answer.
        refusal: Why the server did not take the request, such as that it is too long; None for an answer.
    """

    text: str | None
    reasoning: str | None
    finish_reason: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    thinking_tokens: int | None = None
    seconds: float = 0.0
    refusal: str | None = None

    def __post_init__(self) -> None:
        """Replace lone surrogates: JSON can spell them, and nothing can be written that holds one."""
        for name in ("text", "reasoning", "refusal"):
            text = getattr(self, name)
            if text is not None:
                whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
                object.__setattr__(self, name, whole)

    def to_json(self) -> str:
        """Write it as JSON, to travel."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


class ModelError(RuntimeError):
    """The model cannot be used at all: says which server or model, what is wrong, and what to change."""
