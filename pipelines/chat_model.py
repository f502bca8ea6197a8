"""What the dataflow asks of a language model's client, and what it says of the model to the stages."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hgmem_core.chat import ModelError, Reply, Request
from hgmem_core.model_config import LlmConfig, LlmStage
from hgmem_core.passes import Terms
from hgmem_core.prompts import Prompt
from pipelines.files import file_sha256
from pipelines.model_files import model_folder
from pipelines.self_test import Served

Made = TypeVar("Made")

SERVER, BYTES, GUESS = "server", "bytes", "guess"
"""Who counts tokens where there is no tokenizer: the server; nobody, so that a byte counts as one, of which no model
makes more; or a guess that is good enough for an estimate."""

GUESSED_BYTES = 4

_FEWEST_QUOTED_TOKENS = 512

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

    def close(self) -> None:
        """Cancel what is on its way: whoever waits for it has an error."""
        ...


@contextmanager
def opened_chat(config: LlmConfig) -> Iterator[tuple[ChatModel | None, Served | None]]:
    """Give the client of a configuration, and what was found of its model by trying it.

    Both are None without a model, and for one that runs as actors on Ray.

    Raises:
        ModelError: The model is not there, or does not answer as it must.
    """
    if config.engine != "http":
        yield None, None
        return
    # Imported here because a run without a server need not wait for an HTTP library.
    from pipelines.http_chat import HttpChat

    with HttpChat(config) as chat:
        yield chat, chat.check()


def answered_by(reply_to: Callable[[Request], Reply], steps: Generator[list[Request], list[Reply], Made]) -> Made:
    """Have requests answered one by one until no more come, and return what is made of the replies."""
    try:
        requests = next(steps)
        while True:
            requests = steps.send([reply_to(request) for request in requests])
    except StopIteration as end:
        made: Made = end.value
        return made


@lru_cache(maxsize=8)
def _terms(config_json: str) -> Terms:
    config = LlmConfig.model_validate_json(config_json)
    room = config.context_tokens - 2 * config.max_tokens - TEMPLATE_TOKENS
    return Terms(config.thinking, config.max_tokens, room, token_counter(config))


def terms_of(config: LlmConfig) -> Terms:
    """Return what holds for every request to a configuration's model."""
    return _terms(config.model_dump_json())


def with_tokenizer(config: LlmConfig, chat: ChatModel | None) -> LlmConfig:
    """Return a configuration that says how tokens are counted, wherever it is read: decided once, for a whole job.

    Args:
        config: As it was written.
        chat: An `HttpChat` that was tried, whose server may count; None or another client counts nothing.

    Raises:
        ModelError: `llm.tokenizer` is no tokenizer.
    """
    if config.engine == "none":
        return config
    path = tokenizer_file(config)
    if path is not None:
        _from_file(path)
        return config.model_copy(update={"tokenizer": str(path.resolve())})
    counts = config.tokenizer or (SERVER if _counts(chat) else BYTES)
    return config.model_copy(update={"tokenizer": counts})


def _counts(chat: ChatModel | None) -> bool:
    from pipelines.http_chat import HttpChat

    try:
        return isinstance(chat, HttpChat) and chat.count_tokens("One, two.") is not None
    except ModelError:  # chat it does
        return False


def check_room(config: LlmConfig, prompts: Mapping[LlmStage, Prompt]) -> None:
    """Look whether the prompts leave room for what they are about.

    Raises:
        ModelError: One does not.
    """
    for stage in config.stages if config.engine != "none" else ():
        terms = terms_of(config)
        # A quarter is kept for what the passes after the first are told.
        needed = (terms.count(prompts[stage].system) + _FEWEST_QUOTED_TOKENS) * 4 // 3
        if needed > terms.prompt_tokens:
            counted = " (a byte counts as one: set llm.tokenizer)" if config.tokenizer == BYTES else ""
            raise ModelError(
                f"llm.context_tokens: {config.context_tokens} leaves {max(0, terms.prompt_tokens)} tokens to a prompt, "
                f"and {stage} needs {needed}{counted}; raise it, or lower llm.max_tokens"
            )


def token_counter(config: LlmConfig) -> Callable[[str], int]:
    """Return what counts the tokens of a text as the model does, or gives an upper bound; see `with_tokenizer`."""
    path = tokenizer_file(config)
    if path is not None:
        return _from_file(path)
    if config.tokenizer == SERVER:
        from pipelines.http_chat import HttpChat

        chat = HttpChat(config)
        return lambda text: chat.count_tokens(text) or len(text.encode())
    if config.tokenizer == GUESS:
        return lambda text: len(text.encode()) // GUESSED_BYTES
    return lambda text: len(text.encode())


def tokenizer_file(config: LlmConfig) -> Path | None:
    """Return the tokenizer that a configuration names, or that of a model on this machine; None if there is none.

    Raises:
        ModelError: `llm.tokenizer` names something that is not there.
    """
    if config.tokenizer in (SERVER, BYTES, GUESS):
        return None
    named = Path(config.tokenizer or model_folder(config.model) or "nowhere")
    path = named / "tokenizer.json" if named.is_dir() else named
    if path.name.endswith(".json") and path.is_file():
        return path
    if config.tokenizer:
        raise ModelError(
            f"llm.tokenizer: {config.tokenizer} is no tokenizer.json and no folder that holds one; {SERVER} or {BYTES} "
            "may stand for it"
        )
    return None


@lru_cache(maxsize=8)
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
        "tokenizer": _sha256(path) if path else config.tokenizer,
    }


@lru_cache(maxsize=8)
def _sha256(path: Path) -> str:
    return file_sha256(path)
