"""What the dataflow asks of a language model's client, and what it says of the model to the stages."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from hgmem_core.chat import ModelError, Reply, Request
from hgmem_core.config import LlmConfig
from hgmem_core.passes import Terms
from pipelines.self_test import Served

TEMPLATE_TOKENS = 640
"""Of a prompt's room, kept for the chat template and for what a later pass is told of the one before."""


class ChatModel(Protocol):
    """Answers requests; threads may share it, and it travels to other processes."""

    def ask(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield the reply to each request with its place, as they come.

        Raises:
            ModelError: The model cannot be used at all; replies that came before are good.
        """
        ...


@contextmanager
def opened_chat(config: LlmConfig) -> Iterator[tuple[ChatModel | None, Served | None]]:
    """Give the client of a configuration, and what was found of its model by trying it.

    Both are None without a model, and for one that runs as actors on Ray.

    Raises:
        ModelError: The model is not there, or does not answer as it must.
    """
    if config.engine != "none" and (path := tokenizer_file(config)):
        _from_file(path)
    if config.engine != "http":
        yield None, None
        return
    # Imported here because a run without a server need not wait for an HTTP library.
    from pipelines.http_chat import HttpChat

    with HttpChat(config) as chat:
        yield chat, chat.check()


@lru_cache(maxsize=8)
def _terms(config_json: str) -> Terms:
    config = LlmConfig.model_validate_json(config_json)
    room = config.context_tokens - 2 * config.max_tokens - TEMPLATE_TOKENS
    return Terms(config.thinking, config.max_tokens, room, token_counter(config))


def terms_of(config: LlmConfig) -> Terms:
    """Return what holds for every request to a configuration's model."""
    return _terms(config.model_dump_json())


def token_counter(config: LlmConfig) -> Callable[[str], int]:
    """Return what counts the tokens of a text as the model does, or gives an upper bound.

    Raises:
        ModelError: `llm.tokenizer` is not a tokenizer.
    """
    path = tokenizer_file(config)
    if path is not None:
        return _from_file(path)
    if config.engine == "http":
        from pipelines.http_chat import HttpChat

        chat = HttpChat(config)
        return lambda text: chat.count_tokens(text) or len(text.encode())
    return lambda text: len(text.encode())


def tokenizer_file(config: LlmConfig) -> Path | None:
    """Return the tokenizer that a configuration names, or that of a model that is a folder; None if there is none.

    Raises:
        ModelError: `llm.tokenizer` names something that is not there.
    """
    named = config.tokenizer or config.model
    path = Path(named) / "tokenizer.json" if os.path.isdir(named) else Path(named)
    if path.name.endswith(".json") and path.is_file():
        return path
    if config.tokenizer:
        raise ModelError(f"llm.tokenizer: {config.tokenizer} is no tokenizer.json and no folder that holds one")
    return None


def _from_file(path: Path) -> Callable[[str], int]:
    from tokenizers import Tokenizer

    try:
        is_tokenizer = "model" in json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError) as error:
        raise ModelError(f"llm.tokenizer: {path} is not JSON: {error}") from error
    if not is_tokenizer:
        raise ModelError(f"llm.tokenizer: {path} is no tokenizer: it has no model")
    tokenizer = Tokenizer.from_file(str(path))
    # A file may ask for texts to be cut and padded.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def identity(config: LlmConfig) -> dict[str, Any]:
    """Return what tells the answers of two models apart, as far as it is known: for the names of outputs."""
    path = tokenizer_file(config)
    return {
        "model": config.model,
        **{name: getattr(config, name) for name in ("thinking", "guided", "temperature", "max_tokens")},
        "context_tokens": config.context_tokens,
        "tokenizer": hashlib.sha256(path.read_bytes()).hexdigest() if path else "",
    }
