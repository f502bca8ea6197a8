"""Whether a served model answers as it must: one small question before any work."""

import json
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

from hgmem_core.chat import ModelError, Reply, Request
from hgmem_core.model_config import LlmConfig
from hgmem_core.passes import schema_of
from hgmem_core.prompts import load_prompt
from hgmem_core.replies import THINKING_BEGINS, THINKING_ENDS, read_reply


class DoorState(BaseModel):
    """Part of `Door`."""

    is_open: bool
    is_locked: bool


class Door(BaseModel):
    """What is asked: nested, and so bounded that any model comes to an end if the schema holds it."""

    colour: Literal["red", "green", "blue", "unknown"]
    state: DoorState


@dataclass(frozen=True, slots=True)
class Served:
    """What the self-test found.

    Attributes:
        model: Its name.
        max_model_len: Tokens of its context; None where the server does not tell.
        thinking_tokens: What it thought before the answer: as the server counts, else a token for four bytes.
        source: Where the answer was.
    """

    model: str
    max_model_len: int | None
    thinking_tokens: int
    source: Literal["content", "reasoning"]


def self_test_request(config: LlmConfig) -> Request:
    """Return the question, in the configured mode."""
    prompt = load_prompt("self_test")
    return Request(
        namespace="",
        stage="self-test",
        row_id="",
        attempt=1,
        system=prompt.system,
        user=prompt.fill(),
        answer=Door.__name__,
        schema=schema_of(Door),
        max_tokens=config.max_tokens,
        thinking=config.thinking,
    )


def judge(reply: Reply, config: LlmConfig, max_model_len: int | None) -> Served:
    """Return what an answer to `self_test_request` shows.

    Raises:
        ModelError: It is not as it must be: one line that says what is wrong and what to change.
    """
    if reply.refusal is not None:
        raise _fault(config, f"refuses the self-test: {reply.refusal}", _remedy(reply.refusal))
    reading = read_reply(reply, Door)
    thought = _thought(reply, reading.source)
    is_long = reply.finish_reason == "length"
    if reading.fault == "blanks" or (reading.answer is not None and is_long):
        raise _fault(config, "goes on with blanks after its answer", _NO_BLANKS)
    if is_long or reading.fault in ("truncated", "truncated_in_thinking"):
        remedy = "raise llm.max_tokens, or set llm.thinking=off" if thought else _HONOUR
        raise _fault(config, f"came to no end within {config.max_tokens} tokens", remedy)
    if reading.answer is None or reading.source is None or reading.fault is not None:
        raise _fault(config, f"did not answer as asked ({'; '.join(reading.faults) or reading.fault})", _HONOUR)
    answer = (reply.text if reading.source == "content" else reply.reasoning) or ""
    if config.guided and not _is_json(_after_thinking(answer)):
        raise _fault(config, "does not hold to the JSON schema that it is given: there is text around it", _HONOUR)
    if config.thinking == "off" and reading.source == "content" and (thought or reply.thinking_tokens):
        remedy = "serve it with a chat template that knows enable_thinking, or set llm.thinking=on"
        raise _fault(config, "thinks although llm.thinking=off", remedy)
    measured = reply.thinking_tokens if reply.thinking_tokens is not None else guessed_tokens(thought)
    return Served(config.model, max_model_len, measured, reading.source)


def guessed_tokens(text: str) -> int:
    """Return a guess at the tokens of a text: one for four bytes."""
    return -(-len(text.encode(errors="replace")) // 4)


_NO_BLANKS = (
    'have vLLM started with --structured-outputs-config \'{"backend": "xgrammar", "disable_any_whitespace": true}\''
)
_HONOUR = (
    "serve it with the reasoning parser and the structured outputs that suit it, or set llm.guided=false or "
    "llm.thinking=default"
)


def _fault(config: LlmConfig, what: str, remedy: str) -> ModelError:
    return ModelError(" ".join(f"llm.model: {config.model} {what}; {remedy}".split()))


def _remedy(refusal: str) -> str:
    """Say what to change after the server refused the question."""
    words = refusal.lower()
    if "chat template" in words and "kwargs" not in words:
        return "serve an instruct model, or give the server a --chat-template"
    if "context length" in words or "max_model_len" in words or "maximum context" in words:
        return "serve it with a longer context, or lower llm.max_tokens and llm.context_tokens"
    if any(word in words for word in ("response_format", "schema", "guided", "grammar", "structured")):
        return "serve it with structured outputs, or set llm.guided=false"
    if "chat_template_kwargs" in words or "enable_thinking" in words:
        return "set llm.thinking=default"
    return "look into the server's log"


def _thought(reply: Reply, source: Literal["content", "reasoning"] | None) -> str:
    """Return what came before the answer; an empty pair of tags is no thinking."""
    before = "" if source == "reasoning" else reply.reasoning or ""
    before = f"{before}{_split_at_thinking(reply.text or '')[0]}"
    return THINKING_BEGINS.sub("", THINKING_ENDS.sub("", before)).strip()


def _after_thinking(text: str) -> str:
    return _split_at_thinking(text)[1].strip()


def _split_at_thinking(text: str) -> tuple[str, str]:
    """Return a text up to the end of its thinking, and what follows; thinking without an end goes on to the last."""
    ends = list(THINKING_ENDS.finditer(text))
    if ends:
        return text[: ends[-1].end()], text[ends[-1].end() :]
    begun = THINKING_BEGINS.search(text)
    return (text, text) if begun else ("", text)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text, strict=False), dict)
    except ValueError:
        return False
