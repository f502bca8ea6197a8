"""The endpoint from Python: `Client`, and `AsyncClient` for whoever awaits; typed, with time-outs and retries.

    with Client("http://localhost:8000", key="hgm_...") as memory:
        found = memory.search(SearchRequest(query="Where does Alice live?", namespace="acme/alice"))

What every request may do twice, it may do again: the first outcome of a query counts, forgetting twice forgets once. So
a request is repeated when the endpoint says that it is busy or cannot answer right now, or cannot be reached.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from pipelines.event_stream import EventReader
from pipelines.serve_models import (
    AnswerDelta,
    AnswerRequest,
    CitedAnswer,
    ContextAnswer,
    ContextRequest,
    ForgetAnswer,
    ForgetRequest,
    MemoryAnswer,
    MemoryRequest,
    NamespaceRequest,
    OutcomeAnswer,
    OutcomeRequest,
    RollbackRequest,
    SearchAnswer,
    SearchRequest,
    SkillsAnswer,
    SkillsRequest,
    StatsAnswer,
    VersionAnswer,
)
from pipelines.serve_problems import ProblemDocument

Answer = TypeVar("Answer", bound=BaseModel)
Part = TypeVar("Part", bound=BaseModel)

AFFINITY_HEADER = "X-Session-ID"
"""By which Serve can send the requests of a namespace to one replica; see docs/serving.md."""

_AGAIN = frozenset({429, 502, 503, 504})
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 10.0


class EndpointError(RuntimeError):
    """A request that was not answered.

    Attributes:
        status: Of HTTP; 0 if the endpoint was not reached.
        problem: What the endpoint says of it; None if it says nothing.
    """

    def __init__(self, message: str, status: int, problem: ProblemDocument | None) -> None:
        """Say which and why."""
        super().__init__(message)
        self.status = status
        self.problem = problem


@dataclass(frozen=True, slots=True)
class _Call(Generic[Answer]):
    method: str
    path: str
    request: BaseModel | None
    answer: type[Answer]

    @property
    def content(self) -> str | None:
        return None if self.request is None else self.request.model_dump_json(exclude_defaults=True)

    @property
    def headers(self) -> dict[str, str]:
        """What a router may go by: the same for all requests of a namespace, without saying which one it is."""
        asked = {} if self.request is None else self.request.model_dump(include={"namespace", "namespaces"})
        first = asked.get("namespace") or next(iter(asked.get("namespaces") or ()), "")
        return {AFFINITY_HEADER: hashlib.sha256(first.encode()).hexdigest()[:16]} if first else {}

    def read(self, response: httpx2.Response) -> Answer:
        """Return the answer.

        Raises:
            EndpointError: It is of another kind.
        """
        return self.parse(self.answer, response.content)

    def parse(self, kind: type[Part], content: bytes | str) -> Part:
        """Return what a part of the answer holds.

        Raises:
            EndpointError: It holds something else.
        """
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            message = f"{self.path}: the answer is of another version of hgmem: use the same on both sides"
            raise EndpointError(message, 200, None) from error


class _Streamed:
    """An answer that is read while it comes."""

    def __init__(self, call: _Call[CitedAnswer]) -> None:
        self._call = call
        self._reader = EventReader()
        self._is_whole = False

    def parts(self, chunk: bytes) -> Iterator[AnswerDelta | CitedAnswer]:
        """Yield what ends within some more bytes.

        Raises:
            EndpointError: The endpoint came to no answer.
        """
        for event in self._reader.feed(chunk):
            if event.name == "problem":
                problem = self._call.parse(ProblemDocument, event.data)
                message = f"{self._call.path}: {problem.status}, {problem.detail}"
                raise EndpointError(message, problem.status, problem)
            if event.name == "answer":
                self._is_whole = True
                yield self._call.parse(CitedAnswer, event.data)
            elif event.name == "delta":
                yield self._call.parse(AnswerDelta, event.data)

    def end(self) -> None:
        """Take note of the end.

        Raises:
            EndpointError: There was no answer before it.
        """
        if not self._is_whole:
            raise EndpointError(f"{self._call.path}: the answer broke off: ask again", 0, None)


def _problem(response: httpx2.Response) -> ProblemDocument | None:
    try:
        return ProblemDocument.model_validate_json(response.content)
    except ValidationError:
        return None  # of a proxy in between


def _search(request: SearchRequest) -> _Call[SearchAnswer]:
    return _Call("POST", "/v1/search", request, SearchAnswer)


def _context(request: ContextRequest) -> _Call[ContextAnswer]:
    return _Call("POST", "/v1/context", request, ContextAnswer)


def _answer(request: AnswerRequest, stream: bool) -> _Call[CitedAnswer]:
    return _Call("POST", "/v1/answer", request.model_copy(update={"stream": stream}), CitedAnswer)


def _memory(request: MemoryRequest) -> _Call[MemoryAnswer]:
    return _Call("POST", "/v1/memories/get", request, MemoryAnswer)


def _stats(namespace: str) -> _Call[StatsAnswer]:
    return _Call("POST", "/v1/namespaces/stats", NamespaceRequest(namespace=namespace), StatsAnswer)


def _skills(request: SkillsRequest) -> _Call[SkillsAnswer]:
    return _Call("POST", "/v1/skills/search", request, SkillsAnswer)


def _outcome(request: OutcomeRequest) -> _Call[OutcomeAnswer]:
    return _Call("POST", "/v1/skills/outcome", request, OutcomeAnswer)


def _forget(request: ForgetRequest) -> _Call[ForgetAnswer]:
    return _Call("POST", "/v1/forget", request, ForgetAnswer)


_VERSION = _Call("GET", "/v1/version", None, VersionAnswer)
_RELOAD = _Call("POST", "/v1/version/reload", None, VersionAnswer)


def _roll_back(version: str) -> _Call[VersionAnswer]:
    return _Call("POST", "/v1/version/rollback", RollbackRequest(version=version), VersionAnswer)


class _Tries:
    """The tries that a request has."""

    def __init__(self, path: str, retries: int) -> None:
        self._path = path
        self._left = retries
        self._wait = _FIRST_WAIT_S

    def end(self) -> None:
        """Take note that there is to be no other one: something of the answer was passed on."""
        self._left = 0

    def wait_after(self, refused: httpx2.Response) -> float:
        """Return how many seconds to wait before the next one: as long as the endpoint says, if it does.

        Raises:
            EndpointError: There is no other one, or it would be refused the same way.
        """
        if self._left < 1 or refused.status_code not in _AGAIN:
            raise _refused(self._path, refused)
        told, wait = refused.headers.get("Retry-After", ""), self._next_wait()
        return min(float(told), _LONGEST_WAIT_S) if told.isdigit() else wait

    def wait_without(self, error: httpx2.TransportError) -> float:
        """Return how many seconds to wait where there was no response, or not all of one.

        Raises:
            EndpointError: There is no other one.
        """
        if self._left < 1:
            message = f"{self._path}: the endpoint was not reached ({type(error).__name__}: {error})"
            raise EndpointError(message, 0, None) from error
        return self._next_wait()

    def _next_wait(self) -> float:
        wait, self._wait, self._left = self._wait, min(2 * self._wait, _LONGEST_WAIT_S), self._left - 1
        return wait * random.uniform(0.5, 1.0)  # by chance, so that clients do not march in step


def _refused(path: str, response: httpx2.Response) -> EndpointError:
    problem = _problem(response)
    told = response.reason_phrase if problem is None else problem.detail
    faults = "" if problem is None else "".join(f"; {fault.field}: {fault.message}" for fault in problem.errors)
    return EndpointError(f"{path}: {response.status_code}, {told}{faults}", response.status_code, problem)


def _headers(key: str) -> dict[str, str]:
    known = {"Content-Type": "application/json"}
    return {**known, "Authorization": f"Bearer {key}"} if key else known


class Client:
    """Asks one endpoint; threads may share it."""

    def __init__(
        self,
        url: str,
        key: str = "",
        timeout_s: float = 30.0,
        retries: int = 3,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Connect to nothing yet.

        Args:
            url: Of the endpoint, such as `http://localhost:8000`.
            key: That may ask; empty for an endpoint without keys.
            timeout_s: For each try.
            retries: Further tries of a request that may go better then.
            transport: Instead of the network.
            sleep: Waits so many seconds.
        """
        self._http = httpx2.Client(base_url=url, headers=_headers(key), timeout=timeout_s, transport=transport)
        self._retries = retries
        self._sleep = sleep

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def search(self, request: SearchRequest) -> SearchAnswer:
        """Find turns, facts, episodes and topics; every method raises `EndpointError`."""
        return self._send(_search(request))

    def context(self, request: ContextRequest) -> ContextAnswer:
        """Return a text for a prompt, with citations."""
        return self._send(_context(request))

    def answer(self, request: AnswerRequest) -> CitedAnswer:
        """Answer a question, with citations; a model may take longer than a search: see `timeout_s`."""
        return self._send(_answer(request, stream=False))

    def stream_answer(self, request: AnswerRequest) -> Iterator[AnswerDelta | CitedAnswer]:
        """Yield the parts of an answer's text as they come, then the answer; what was begun is not tried again."""
        call = _answer(request, stream=True)
        streamed = _Streamed(call)
        tries = _Tries(call.path, self._retries)
        while True:
            try:
                with self._http.stream(call.method, call.path, content=call.content, headers=call.headers) as response:
                    if response.status_code == 200:
                        tries.end()
                        for chunk in response.iter_bytes():
                            yield from streamed.parts(chunk)
                        return streamed.end()
                    response.read()
                    wait = tries.wait_after(response)
            except httpx2.TransportError as error:
                wait = tries.wait_without(error)
            self._sleep(wait)

    def memory(self, request: MemoryRequest) -> MemoryAnswer:
        """Return a memory by its id."""
        return self._send(_memory(request))

    def stats(self, namespace: str) -> StatsAnswer:
        """Say how much there is of a namespace."""
        return self._send(_stats(namespace))

    def skills(self, request: SkillsRequest) -> SkillsAnswer:
        """Find skills for a task."""
        return self._send(_skills(request))

    def tell_outcome(self, request: OutcomeRequest) -> OutcomeAnswer:
        """Tell how a run went."""
        return self._send(_outcome(request))

    def forget(self, request: ForgetRequest) -> ForgetAnswer:
        """Forget something."""
        return self._send(_forget(request))

    def version(self) -> VersionAnswer:
        """Say which version is served."""
        return self._send(_VERSION)

    def roll_back(self, version: str) -> VersionAnswer:
        """Serve another version, whose files are verified first: see `timeout_s`."""
        return self._send(_roll_back(version))

    def reload(self) -> VersionAnswer:
        """Look for a new version."""
        return self._send(_RELOAD)

    def _send(self, call: _Call[Answer]) -> Answer:
        tries = _Tries(call.path, self._retries)
        while True:
            try:
                response = self._http.request(call.method, call.path, content=call.content, headers=call.headers)
                if response.status_code == 200:
                    return call.read(response)
                wait = tries.wait_after(response)
            except httpx2.TransportError as error:
                wait = tries.wait_without(error)
            self._sleep(wait)


class AsyncClient:
    """Asks one endpoint, for whoever awaits; tasks of one event loop may share it. See `Client`."""

    def __init__(
        self,
        url: str,
        key: str = "",
        timeout_s: float = 30.0,
        retries: int = 3,
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Connect to nothing yet; see `Client`."""
        self._http = httpx2.AsyncClient(base_url=url, headers=_headers(key), timeout=timeout_s, transport=transport)
        self._retries = retries
        self._sleep = sleep

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def search(self, request: SearchRequest) -> SearchAnswer:
        """Find turns, facts, episodes and topics; every method raises `EndpointError`."""
        return await self._send(_search(request))

    async def context(self, request: ContextRequest) -> ContextAnswer:
        """Return a text for a prompt, with citations."""
        return await self._send(_context(request))

    async def answer(self, request: AnswerRequest) -> CitedAnswer:
        """Answer a question, with citations; see `Client.answer`."""
        return await self._send(_answer(request, stream=False))

    async def stream_answer(self, request: AnswerRequest) -> AsyncIterator[AnswerDelta | CitedAnswer]:
        """Yield the parts of an answer's text as they come, then the answer; see `Client.stream_answer`."""
        call = _answer(request, stream=True)
        streamed = _Streamed(call)
        tries = _Tries(call.path, self._retries)
        while True:
            try:
                async with self._http.stream(
                    call.method, call.path, content=call.content, headers=call.headers
                ) as response:
                    if response.status_code == 200:
                        tries.end()
                        async for chunk in response.aiter_bytes():
                            for part in streamed.parts(chunk):
                                yield part
                        streamed.end()
                        return
                    await response.aread()
                    wait = tries.wait_after(response)
            except httpx2.TransportError as error:
                wait = tries.wait_without(error)
            await self._sleep(wait)

    async def memory(self, request: MemoryRequest) -> MemoryAnswer:
        """Return a memory by its id."""
        return await self._send(_memory(request))

    async def stats(self, namespace: str) -> StatsAnswer:
        """Say how much there is of a namespace."""
        return await self._send(_stats(namespace))

    async def skills(self, request: SkillsRequest) -> SkillsAnswer:
        """Find skills for a task."""
        return await self._send(_skills(request))

    async def tell_outcome(self, request: OutcomeRequest) -> OutcomeAnswer:
        """Tell how a run went."""
        return await self._send(_outcome(request))

    async def forget(self, request: ForgetRequest) -> ForgetAnswer:
        """Forget something."""
        return await self._send(_forget(request))

    async def version(self) -> VersionAnswer:
        """Say which version is served."""
        return await self._send(_VERSION)

    async def roll_back(self, version: str) -> VersionAnswer:
        """Serve another version, whose files are verified first: see `timeout_s`."""
        return await self._send(_roll_back(version))

    async def reload(self) -> VersionAnswer:
        """Look for a new version."""
        return await self._send(_RELOAD)

    async def _send(self, call: _Call[Answer]) -> Answer:
        tries = _Tries(call.path, self._retries)
        while True:
            try:
                response = await self._http.request(call.method, call.path, content=call.content, headers=call.headers)
                if response.status_code == 200:
                    return call.read(response)
                wait = tries.wait_after(response)
            except httpx2.TransportError as error:
                wait = tries.wait_without(error)
            await self._sleep(wait)
