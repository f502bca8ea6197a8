"""Requests that a model of random weights comes to an end with."""

from pydantic import BaseModel, Field

from hgmem_core.chat import Request
from hgmem_core.passes import schema_of


class Statement(BaseModel):
    text: str
    turns: list[int] = Field(min_length=1, max_length=3)


class Statements(BaseModel):
    facts: list[Statement] = Field(min_length=1, max_length=3)


class Intent(BaseModel):
    when: bool
    why: bool


def request_for(text, answer=Statements, thinking="off", max_tokens=512):
    return Request(
        namespace="acme/alice",
        stage="extract",
        row_id=text[:8],
        attempt=1,
        system="Say what you learn.",
        user=text,
        answer=answer.__name__,
        schema=schema_of(answer),
        max_tokens=max_tokens,
        thinking=thinking,
    )
