"""Chat with a model behind an OpenAI-compatible server."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ValidationError

from hgmem_core.chat import UNANSWERED, ModelError, Reply, Request
from hgmem_core.model_config import LlmConfig
from pipelines.http_client import REFUSALS, Answered, HttpClient, Refused
from pipelines.http_gate import Timing
from pipelines.self_test import Served, guessed_tokens, judge, self_test_request

_NO_TOKENIZER = frozenset({401, 403, 404, 405, 501})
"""Statuses of a server that counts no tokens, or does not let us have it done."""

_MOST_TOKENS = 1_000_000_000
"""More than any call takes."""

Part = TypeVar("Part", bound=BaseModel)


class _ContentPart(BaseModel):
    text: str | None = None


class _Message(BaseModel):
    content: str | list[_ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


def _or_none(value: object) -> object:
    """Read what can be a number of tokens; anything else is as good as not told."""
    return value if isinstance(value, int) and 0 <= value < _MOST_TOKENS else None


Tokens = Annotated[int | None, BeforeValidator(_or_none)]


class _TokenDetails(BaseModel):
    reasoning_tokens: Tokens = None


class _Usage(BaseModel):
    prompt_tokens: Tokens = None
    completion_tokens: Tokens = None
    completion_tokens_details: _TokenDetails | None = None


class _Completion(BaseModel):
    """A chat completion, as far as it is looked at."""

    choices: list[_Choice]
    usage: _Usage | None = None


class _Delta(BaseModel):
    delta: _Message
    finish_reason: str | None = None


class _Chunk(BaseModel):
    """A part of a chat completion that is streamed."""

    choices: list[_Delta]
    usage: _Usage | None = None

    @property
    def text(self) -> str:
        """What it adds to the content."""
        return "".join(_joined(choice.delta.content) or "" for choice in self.choices[:1])


class _Model(BaseModel):
    id: str
    max_model_len: int | None = None


class _Models(BaseModel):
    """The list of what a server serves."""

    data: list[_Model]


class _Count(BaseModel):
    """What `/tokenize` answers."""

    count: int


class HttpChat:
    """A chat model behind a server; any number of threads may share it. It travels by its configuration."""

    def __init__(self, config: LlmConfig, timing: Timing | None = None) -> None:
        """Connect to nothing yet.

        Args:
            config: The server, the model, and how it is asked.
            timing: For tests.
        """
        self._config = config
        self._client = HttpClient(config.http, "llm.http", timing)
        self._counts_tokens = True

    def __reduce__(self) -> tuple[type[Self], tuple[LlmConfig]]:
        """Travel by configuration."""
        return type(self), (self._config,)

    def __enter__(self) -> Self:
        """Do nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Cancel what is on its way and end."""
        self._client.close()

    def ask(self, requests: Iterable[Request]) -> Iterator[tuple[int, Reply]]:
        """Yield the reply to each request with its place, as they come; see `HttpClient.post`.

        A request that the server does not take, and one whose every try failed, has a reply with a `refusal`.

        Raises:
            ModelError: The server or the model is of no use: one line that says why and what to change.
        """
        prompt_tokens: dict[int, int] = {}

        def bodies() -> Iterator[dict[str, Any]]:
            for place, request in enumerate(requests):
                prompt_tokens[place] = guessed_tokens(request.system + request.user)
                yield self._body(request)

        with closing(self._client.post("chat/completions", bodies(), _read_completion)) as outcomes:
            for place, outcome in outcomes:
                yield place, _reply(outcome, prompt_tokens.pop(place))

    def count_tokens(self, text: str) -> int | None:
        """Return how many tokens a text is to the model, without those that begin or end one.

        None where the server does not tell: then it is not asked again.

        Raises:
            ModelError: The server is of no use.
        """
        if not self._counts_tokens:
            return None
        body = {"model": self._config.model, "prompt": text, "add_special_tokens": False}
        [(_, outcome)] = self._client.post("/tokenize", [body], _read_count, REFUSALS | _NO_TOKENIZER)
        if isinstance(outcome, Answered):
            return outcome.content
        self._counts_tokens = outcome.status not in _NO_TOKENIZER
        return None

    def check(self) -> Served:
        """Find out whether the model is served, is large enough, and answers as it must; nothing is waited for long.

        Raises:
            ModelError: One of that is not so: one line that says why and what to change.
        """
        config, url = self._config, self._config.http.url
        models = self._client.try_out("models", None, _read_models)
        if isinstance(models, Refused):
            raise ModelError(f"{self._client.address('models')} refuses to list its models ({models.message})")
        if config.model not in models:
            served = ", ".join(list(models)[:5]) or "nothing"
            raise ModelError(f"llm.model: {config.model} is not served at {url}, but {served}; set llm.model to that")
        length = models[config.model]
        if length is not None and length < config.context_tokens:
            raise ModelError(
                f"llm.context_tokens: {config.model} is served at {url} with {length} tokens of context, not "
                f"{config.context_tokens}; lower llm.context_tokens, or serve it with a longer one"
            )
        return judge(self.try_out(self_test_request(config)), config, length)

    def try_out(self, request: Request, heard: Callable[[str | None], None] | None = None) -> Reply:
        """Return the reply to one request, which is tried a few times only; see `HttpClient.try_out`.

        Args:
            request: The question.
            heard: Told the parts of the reply's text as they come, where the server streams them, and None where a try
                begins: what came before counts no more. Called in another thread, which must not wait.

        Raises:
            ModelError: The server or the model is of no use: one line that says why and what to change.
        """
        body = self._body(request)
        if heard is not None:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        on_event = None if heard is None else _text_to(heard)
        answer = self._client.try_out("chat/completions", body, _read_completion, on_event)
        outcome = answer if isinstance(answer, Refused) else Answered(answer)
        return _reply(outcome, guessed_tokens(request.system + request.user))

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._config.model,
            "messages": request.messages,
            "max_tokens": request.max_tokens,
            "temperature": self._config.temperature,
        }
        if self._config.guided:
            schema = {"name": request.answer, "schema": request.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.thinking != "default":
            body["chat_template_kwargs"] = {"enable_thinking": request.thinking == "on"}
        return body


def _reply(outcome: Answered[_Completion] | Refused, prompt_tokens: int) -> Reply:
    """Return an outcome as a reply.

    Tokens that the server does not count are guessed, so that a ledger has no holes: one for four bytes.

    Args:
        outcome: Of a request.
        prompt_tokens: A guess at those of its prompt.
    """
    if isinstance(outcome, Refused):
        finish = UNANSWERED if outcome.status is None else "refused"
        return Reply(None, None, finish, seconds=outcome.seconds, refusal=outcome.message)
    choice = outcome.content.choices[0]
    text = _joined(choice.message.content)
    reasoning = choice.message.reasoning_content or choice.message.reasoning
    usage = outcome.content.usage or _Usage()
    details = usage.completion_tokens_details or _TokenDetails()
    guess = guessed_tokens((text or "") + (reasoning or ""))
    return Reply(
        text,
        reasoning,
        choice.finish_reason or "unknown",
        prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens,
        guess if usage.completion_tokens is None else usage.completion_tokens,
        details.reasoning_tokens,
        outcome.seconds,
    )


def _joined(content: str | list[_ContentPart] | None) -> str | None:
    return "".join(part.text or "" for part in content) if isinstance(content, list) else content


def _text_to(heard: Callable[[str | None], None]) -> Callable[[str | None], None]:
    """Return what takes the events of a stream and tells the text that they add."""

    def take(event: str | None) -> None:
        try:
            text = None if event is None else _Chunk.model_validate_json(event).text
        except ValidationError:  # then the whole cannot be read either, which is said where it is
            return
        if text != "":
            heard(text)

    return take


def _whole(chunks: Sequence[_Chunk]) -> _Completion:
    """Return the completion that was streamed in parts."""
    choices = [choice for chunk in chunks for choice in chunk.choices[:1]]
    ended = [choice.finish_reason for choice in choices if choice.finish_reason]
    if not ended:
        raise ValueError("no chat completion: its stream has no end")
    thoughts = [choice.delta.reasoning_content or choice.delta.reasoning or "" for choice in choices]
    message = _Message(
        content="".join(chunk.text for chunk in chunks) or None, reasoning_content="".join(thoughts) or None
    )
    usage = next((chunk.usage for chunk in reversed(chunks) if chunk.usage), None)
    return _Completion(choices=[_Choice(message=message, finish_reason=ended[-1])], usage=usage)


def _read_completion(content: object) -> _Completion:
    if isinstance(content, list):
        return _whole([_read(_Chunk, one, "no part of a chat completion") for one in content])
    completion = _read(_Completion, content, "no chat completion")
    if not completion.choices:
        raise ValueError("no chat completion: it has no choices")
    return completion


def _read_models(content: object) -> Mapping[str, int | None]:
    return {model.id: model.max_model_len for model in _read(_Models, content, "no list of models").data}


def _read_count(content: object) -> int:
    return _read(_Count, content, "no count of tokens").count


def _read(part: type[Part], content: object, what: str) -> Part:
    try:
        return part.model_validate(content)
    except ValidationError as error:
        # Without the value: it may quote a log.
        first = error.errors()[0]
        raise ValueError(f"{what}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
