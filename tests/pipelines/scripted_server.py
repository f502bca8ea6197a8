"""An OpenAI-compatible server over real HTTP that answers as a script says, and keeps a log of what it was asked.

    def script(body):
        return Scripted('{"facts": []}') if "tea" in body["messages"][1]["content"] else Scripted(status=500)

    with ScriptedServer(script) as server:
        chat = HttpChat(LlmConfig(engine="http", model="scripted", http=ServerConfig(url=server.url)))
        ...
        assert [one.status for one in server.log_of("/v1/chat/completions")] == [200, 500]

The script is called for every POST but `/tokenize`, in the server's thread, one call at a time, with the body that was
sent; it may tell endpoints by their bodies: `messages` is chat, `prompt` completions, `input` embeddings, `documents`
rerank. What it returns is the answer; None stands for `Scripted()`, the endpoint's ordinary answer.

Like vLLM, the server refuses by itself, before the script is asked: a missing key (401), a model that it does not serve
(404), and what is longer than the context (400).
"""

import asyncio
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Script = Callable[[dict[str, Any]], "Scripted | None"]


def count_tokens(text):
    """Tokens as this server counts them: words, and every other character that is no blank.

    >>> count_tokens('{"a": 1}')
    7
    """
    return len(re.findall(r"\w+|[^\w\s]", text))


@dataclass(frozen=True)
class Scripted:
    """One answer. What is said of the message holds for chat and completions, the rest for every endpoint.

    Attributes:
        text: The message's content; a list stands for content in parts, None for null.
        reasoning: Beside it; None leaves the field out.
        reasoning_field: Its name: `reasoning_content` or `reasoning`.
        finish_reason: Such as `length`.
        has_usage: Whether tokens are told.
        status: HTTP's; from 400 on, an error document with `message` is the answer.
        message: Of the error.
        headers: Added, such as `Retry-After`.
        seconds: How long it takes to answer.
        hangs: Whether it never answers; ends when the client leaves or the server dies.
        breaks: `at_once` closes the connection without an answer, `half_way` in the middle of the body.
        streams: Whether a request with `stream` is answered with a stream of events, some characters each.
        document: Answered in the place of the endpoint's own; anything that JSON holds.
        raw: Answered in its place as it is, JSON or not.
        content_type: Of the answer.
    """

    text: str | list[dict[str, Any]] | None = "{}"
    reasoning: str | None = None
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    finish_reason: str | None = "stop"
    has_usage: bool = True
    status: int = 200
    message: str = "scripted"
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    hangs: bool = False
    breaks: Literal["never", "at_once", "half_way"] = "never"
    streams: bool = True
    document: Any = None
    raw: bytes | None = None
    content_type: str = "application/json"


@dataclass
class Logged:
    """One request as the server saw it.

    Attributes:
        path: Of the URL.
        body: What was sent; empty for a GET.
        headers: Of the request.
        began: When it had arrived, by `time.monotonic`.
        ended: When the answer was sent, or the client had left; None while it lasts.
        status: What was answered; None if nothing, or not all of it.
        prompt_tokens: As told in the answer; 0 where none are.
        completion_tokens: Likewise, reasoning included.
    """

    path: str
    body: dict[str, Any]
    headers: Mapping[str, str]
    began: float
    ended: float | None = None
    status: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ScriptedServer:
    """A server on a free port of the loopback; a context manager.

    Attributes:
        script: May be changed at any time.
        models: The context of each model that is served, in tokens; None does not tell, and refuses nothing.
        about_models: The answer of `/v1/models`, if not the ordinary one.
        key: That requests have to bring; None wants none.
        has_tokenizer: Whether there is `/tokenize`.
        dimension: Of embeddings.
        log: Every request, in the order of arrival.
        most_in_flight: At one time.
        is_idle: Set while no request is in flight.
    """

    def __init__(
        self,
        script: Script = lambda body: None,
        models: Mapping[str, int | None] | None = None,
        key: str | None = None,
        has_tokenizer: bool = True,
        dimension: int = 8,
    ):
        self.script = script
        self.models = {"scripted": 32_768} if models is None else models
        self.about_models: Scripted | None = None
        self.key = key
        self.has_tokenizer = has_tokenizer
        self.dimension = dimension
        self.log: list[Logged] = []
        self.most_in_flight = 0
        self.is_idle = threading.Event()
        self.is_idle.set()
        self._port = 0
        self._in_flight = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted server", daemon=True)

    @property
    def root(self):
        """The URL without a path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self):
        """What a configuration names."""
        return f"{self.root}/v1"

    def log_of(self, path):
        """The requests of one path, such as `/v1/chat/completions`."""
        return [one for one in self.log if one.path == path]

    def mean_in_flight(self, path):
        """Requests of a path in flight, over the time from the first one's arrival to the last one's end."""
        spans = [(one.began, one.ended) for one in self.log_of(path) if one.ended is not None]
        return sum(end - begin for begin, end in spans) / (max(end for _, end in spans) - min(b for b, _ in spans))

    def __enter__(self):
        self._thread.start()
        self.revive()
        return self

    def __exit__(self, *error):
        self.die()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def die(self):
        """Break all connections and refuse new ones."""
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()

    def revive(self):
        """Listen again, on the same port."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    async def _listen(self):
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/tokenize", self._tokenize)
        for path, answer in {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/embeddings": self._embeddings,
            "/v1/rerank": self._rerank,
            "/rerank": self._rerank,
        }.items():
            app.router.add_post(path, self._scripted(answer))
        # Cancels a handler whose client has left; does not wait for those that hang when the server dies.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=1024, reuse_address=True)
        await site.start()
        self._port = site.port

    def _scripted(self, answer):
        """The handler of an endpoint whose ordinary document `answer(body, scripted, logged)` makes."""

        async def handle(request):
            body = await request.json()
            logged = self._arrived(request, body)
            try:
                refusal = self._refusal(request, body)
                scripted = refusal or self.script(body) or Scripted()
                if scripted.status >= 400:
                    document = {"error": {"message": scripted.message, "code": scripted.status}}
                elif "texts" in body:
                    document = None  # a request in another server's words, which only the script can answer
                else:
                    document = answer(body, scripted, logged)
                return await self._send(request, logged, scripted, document)
            finally:
                self._left(logged)

        return handle

    async def _models(self, request):
        logged = self._arrived(request, {})
        try:
            data = [{"id": name, "object": "model", "max_model_len": size} for name, size in self.models.items()]
            scripted = self._wrong_key(request) or self.about_models or Scripted()
            if scripted.status >= 400:
                document = {"error": {"message": scripted.message, "code": scripted.status}}
            else:
                document = {"object": "list", "data": data}
            return await self._send(request, logged, scripted, document)
        finally:
            self._left(logged)

    async def _tokenize(self, request):
        body = await request.json()
        logged = self._arrived(request, body)
        try:
            if not self.has_tokenizer:
                return await self._send(request, logged, Scripted(status=404), {"detail": "Not Found"})
            count = count_tokens(body["prompt"])
            document = {"count": count, "max_model_len": self.models.get(body["model"]), "tokens": [0] * count}
            return await self._send(request, logged, Scripted(), document)
        finally:
            self._left(logged)

    def _arrived(self, request, body):
        logged = Logged(request.path, body, dict(request.headers), time.monotonic())
        self.log.append(logged)
        self._in_flight += 1
        self.is_idle.clear()
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        return logged

    def _left(self, logged):
        logged.ended = time.monotonic()
        self._in_flight -= 1
        if not self._in_flight:
            self.is_idle.set()

    async def _send(self, request, logged, scripted, document):
        if scripted.hangs:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(scripted.seconds)
        if scripted.breaks == "at_once":
            request.transport.close()
            return web.Response()
        if scripted.document is not None:
            document = scripted.document
        content = json.dumps(document).encode() if scripted.raw is None else scripted.raw
        response = web.StreamResponse(status=scripted.status, headers=scripted.headers)
        response.content_type = scripted.content_type
        if logged.body.get("stream") and scripted.streams and scripted.status == 200 and scripted.raw is None:
            content = _events(document, logged.body)
            response.content_type = "text/event-stream"
        response.content_length = len(content)
        await response.prepare(request)
        if scripted.breaks == "half_way":
            await response.write(content[: len(content) // 2])
            request.transport.close()
            return response
        # Known before the client can have it: a test that has an answer finds it in the log.
        logged.status = scripted.status
        await response.write(content)
        await response.write_eof()
        return response

    def _wrong_key(self, request):
        if self.key is None or request.headers.get("Authorization") == f"Bearer {self.key}":
            return None
        return Scripted(status=401, message=f"not a key: {request.headers.get('Authorization', 'none')}")

    def _refusal(self, request, body):
        if wrong := self._wrong_key(request):
            return wrong
        name = body.get("model")
        if name not in self.models:
            return Scripted(status=404, message=f"The model `{name}` does not exist.")
        size, asked = self.models[name], _prompt_tokens(body)
        if size is not None and asked + body.get("max_tokens", 0) > size:
            words = (
                f"This model's maximum context length is {size} tokens. However, you requested {asked} tokens in the "
                f"input and {body.get('max_tokens', 0)} of output."
            )
            return Scripted(status=400, message=words)
        return None

    def _chat(self, body, scripted, logged):
        message = {"role": "assistant", "content": scripted.text}
        if scripted.reasoning is not None:
            message[scripted.reasoning_field] = scripted.reasoning
        choice = {"index": 0, "message": message, "finish_reason": scripted.finish_reason}
        return {"object": "chat.completion", "model": body["model"], "choices": [choice]} | _usage(
            body, scripted, logged
        )

    def _completion(self, body, scripted, logged):
        choice = {"index": 0, "text": scripted.text, "finish_reason": scripted.finish_reason}
        return {"object": "text_completion", "model": body["model"], "choices": [choice]} | _usage(
            body, scripted, logged
        )

    def _embeddings(self, body, scripted, logged):
        """Vectors from the hash of each text: equal texts have equal ones, of any length; `dimensions` cuts them."""
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        size = body.get("dimensions", self.dimension)
        data = [{"index": place, "embedding": self._vector(text)[:size]} for place, text in enumerate(texts)]
        usage = {"prompt_tokens": _prompt_tokens(body), "total_tokens": _prompt_tokens(body)}
        logged.prompt_tokens = usage["prompt_tokens"]
        return {"object": "list", "model": body["model"], "data": data, "usage": usage}

    def _vector(self, text):
        digest = hashlib.shake_256(str(text).encode("utf-8", "replace")).digest(self.dimension)
        return [byte / 128 - 1 for byte in digest]

    def _rerank(self, body, scripted, logged):
        """Scores are the share of the query's words that a document has; the best first, `top_n` cuts them."""
        words = set(re.findall(r"\w+", body["query"].lower()))
        scores = [len(words & set(re.findall(r"\w+", text.lower()))) / max(1, len(words)) for text in body["documents"]]
        places = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[: body.get("top_n")]
        logged.prompt_tokens = _prompt_tokens(body)
        results = [{"index": place, "relevance_score": scores[place]} for place in places]
        return {"model": body["model"], "results": results, "usage": {"total_tokens": logged.prompt_tokens}}


def _events(document, body):
    """A chat completion as the events of a stream: three characters each, then its end, then its usage if wanted."""
    [choice] = document["choices"]
    message = choice["message"]
    parts = []
    for name in ("reasoning_content", "reasoning", "content"):
        text = message.get(name) or ""
        parts += [{name: text[at : at + 3]} for at in range(0, len(text), 3)]
    chunks = [{"choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if body.get("stream_options", {}).get("include_usage") and "usage" in document:
        chunks.append({"choices": [], "usage": document["usage"]})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n"


def _prompt_tokens(body):
    """Tokens of all that is sent to be read: no template adds any."""
    texts = [message["content"] for message in body.get("messages", [])]
    texts += [body["prompt"]] if "prompt" in body else []
    texts += [body["query"], *body["documents"]] if "documents" in body else []
    given = body.get("input", [])
    texts += [given] if isinstance(given, str) else given
    return sum(count_tokens(text) if isinstance(text, str) else len(text) for text in texts)


def _usage(body, scripted, logged):
    parts = scripted.text if isinstance(scripted.text, list) else [{"text": scripted.text or ""}]
    thought = count_tokens(scripted.reasoning or "")
    prompt, completion = _prompt_tokens(body), thought + sum(count_tokens(part.get("text", "")) for part in parts)
    if not scripted.has_usage:
        return {}
    logged.prompt_tokens, logged.completion_tokens = prompt, completion
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"usage": usage | ({"completion_tokens_details": {"reasoning_tokens": thought}} if thought else {})}
