"""Requests to a model's server over HTTP: many in flight, each tried again as long as that can help."""

import asyncio
import errno
import json
import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp

from hgmem_core import __version__
from hgmem_core.chat import ModelError
from hgmem_core.model_config import ServerConfig
from pipelines.event_stream import EVENT_STREAM, EventReader
from pipelines.http_gate import Gate, Timing

Content = TypeVar("Content")

REFUSALS = frozenset({400, 413, 422})
"""Statuses that say something of one request alone."""

HASTY_TRIES = 3
"""Of a request that finds out whether the server is of use."""

_TRANSIENT = frozenset({408, 409, 425, 429, *range(500, 600)} - {501, 505})
_LONGEST_PAUSE = 60.0
"""Seconds between two tries of a request, whether they are ours or the server's `Retry-After`."""
_CONNECT_SECONDS = 10.0
_GET_SECONDS = 30.0
_KEEP_ALIVE_SECONDS = 4.0
"""Less than servers keep an idle connection, uvicorn 5 s: else a request may meet its end."""
_MESSAGE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Answered(Generic[Content]):
    """What the server answered.

    Attributes:
        content: As it was read.
        seconds: From the first try to the answer.
        tries: How many it took.
    """

    content: Content
    seconds: float = 0.0
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Refused:
    """A request without an answer, while others have theirs.

    Attributes:
        status: HTTP's, of a request that the server does not take; None if every try failed.
        message: What the server said, or how the last try failed; one line.
        seconds: From the first try on.
        tries: How many there were.
    """

    status: int | None
    message: str
    seconds: float = 0.0
    tries: int = 1


@dataclass(frozen=True, slots=True)
class _Failure:
    """A try that may go better the next time."""

    cause: str
    remedy: str
    is_connected: bool = True
    is_throttled: bool = False
    retry_after: float = 0.0


@dataclass(slots=True, eq=False)
class _Call(Generic[Content]):
    """Some requests of one caller."""

    method: str
    url: str
    read: Callable[[Any], Content]
    refusals: Collection[int]
    is_hasty: bool = False
    heard: Callable[[str | None], None] | None = None
    outcomes: SimpleQueue[tuple[int, Answered[Content] | Refused | BaseException]] = field(default_factory=SimpleQueue)
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    def cancel(self) -> None:
        """End all of its tasks but the one that is running."""
        for task in self.tasks - {asyncio.current_task()}:
            task.cancel()

    def fail(self, error: Exception) -> None:
        """Have an error raised where it is waited for."""
        self.outcomes.put((-1, error))
        self.cancel()


class HttpClient:
    """One server, asked by any number of threads; at most `concurrency` tries are in flight over all of them.

    A try that failed (time-out, broken connection or body, what is no JSON, 408, 409, 425, 429, 5xx) is repeated after
    a pause; where no connection can be made, without counting the tries. A server that is down is tried with one
    request at a time. It is given up once it has answered nothing for `give_up_minutes`: then every call fails.

    It connects at first use and travels by its configuration, so that another process has connections of its own. A
    proxy of the environment is not used, a redirect is not followed.
    """

    def __init__(self, server: ServerConfig, section: str = "llm.http", timing: Timing | None = None) -> None:
        """Connect to nothing yet.

        Args:
            server: Where it is and how much is asked of it.
            section: Where in the configuration that is said, for messages.
            timing: For tests.
        """
        self._server = server
        self._section = section
        self._timing = timing or Timing()
        self._url = server.url.rstrip("/")
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], object] = lambda: None
        self._is_closed = False
        # The rest belongs to the loop's thread.
        self._gate = Gate(server.concurrency, self._timing)
        self._calls: set[_Call[Any]] = set()
        self._given_up = ""
        self._key = ""

    def __repr__(self) -> str:
        """Name the server."""
        return f"HttpClient({self._url!r})"

    def __reduce__(self) -> tuple[type[Self], tuple[ServerConfig, str]]:
        """Travel by configuration."""
        return type(self), (self._server, self._section)

    def __enter__(self) -> Self:
        """Do nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def post(
        self,
        path: str,
        bodies: Iterable[Mapping[str, Any]],
        read: Callable[[Any], Content],
        refusals: Collection[int] = REFUSALS,
    ) -> Generator[tuple[int, Answered[Content] | Refused], None, None]:
        """Send bodies, and yield what became of each with its place, in the order in which that is known.

        A body is pulled when there is room for it: half as many as may be in flight wait beside those. Whoever closes
        the iterator cancels what is on its way.

        Args:
            path: Behind the URL; one that begins with a slash, behind the URL without its version.
            bodies: What is sent as JSON; must not wait for what this call yields.
            read: Takes the answer's JSON; a ValueError means that it is broken, and has it asked for again.
            refusals: Statuses that are yielded as `Refused`.

        Raises:
            ModelError: The server is of no use: one line that says why and what to change.
        """
        return self._outcomes(_Call("POST", self.address(path), read, refusals), bodies)

    def try_out(
        self,
        path: str,
        body: Mapping[str, Any] | None,
        read: Callable[[Any], Content],
        heard: Callable[[str | None], None] | None = None,
    ) -> Content | Refused:
        """Send one request to find out whether the server is of use, tried a few times only.

        Args:
            path: See `post`.
            body: What is sent; without one, it is a GET.
            read: See `post`; of a stream of events it takes a list of what each holds.
            heard: Told what each event of a stream holds as soon as it is there, and None where a try begins: what
                came before counts no more. Called in another thread, which must not wait.

        Raises:
            ModelError: It is not: one line that says why and what to change.
        """
        method = "POST" if body is not None else "GET"
        call = _Call(method, self.address(path), read, REFUSALS, is_hasty=True, heard=heard)
        [(_, outcome)] = self._outcomes(call, [body])
        return outcome if isinstance(outcome, Refused) else outcome.content

    def address(self, path: str) -> str:
        """Return the URL of a path; see `post`."""
        if path.startswith("/"):
            return re.sub(r"/v\d+$", "", self._url) + path
        return f"{self._url}/{path}"

    def close(self) -> None:
        """Cancel what is on its way and end; it cannot be used afterwards."""
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._cancel_all(), loop).result()
            self._stop()

    def _outcomes(
        self, call: _Call[Content], bodies: Iterable[Mapping[str, Any] | None]
    ) -> Generator[tuple[int, Answered[Content] | Refused], None, None]:
        """Do what `post` says for a call."""
        loop = self._open()
        room = self._server.concurrency + (self._server.concurrency + 1) // 2
        pending = 0
        numbered = enumerate(bodies)
        try:
            while True:
                item = next(numbered, None) if pending < room else None
                if item is not None:
                    place, body = item
                    data = None if body is None else json.dumps(body).encode()
                    loop.call_soon_threadsafe(self._start, call, place, data)
                    pending += 1
                elif not pending:
                    return
                if item is None or not call.outcomes.empty():
                    place, outcome = call.outcomes.get()
                    if isinstance(outcome, BaseException):
                        raise outcome
                    yield place, outcome
                    pending -= 1
        finally:
            with suppress(RuntimeError):  # the loop has ended: so have the tasks
                loop.call_soon_threadsafe(self._end, call)

    def _open(self) -> asyncio.AbstractEventLoop:
        """Return the loop, connected, in a thread of its own."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the client of the model's server is closed")
            if self._loop is None:
                self._check_url()
                self._key = self._read_key()
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name="http", daemon=True)
                thread.start()
                self._session = asyncio.run_coroutine_threadsafe(self._connect(), loop).result()
                # Also called when nobody holds the client any more, and when the process ends.
                self._stop = weakref.finalize(self, _stop, loop, thread, self._session)
                self._loop = loop
            return self._loop

    def _check_url(self) -> None:
        try:
            parts = urlsplit(self._url)
            is_address = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            is_address = False
        if not is_address or parts.query or parts.fragment:
            raise ModelError(f"{self._section}.url is not an address such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password:
            raise ModelError(
                f"{self._section}.url holds a name or password: put it into an environment variable and name that in "
                f"{self._section}.key_variable"
            )

    def _read_key(self) -> str:
        name = self._server.key_variable
        if not name:
            return ""
        key = os.environ.get(name, "").strip()
        if not key:
            raise ModelError(f"{self._section}.key_variable: there is no environment variable {name} with a key in it")
        if not (key.isascii() and key.isprintable()):
            raise ModelError(f"{self._section}.key_variable: what the environment variable {name} holds is no key")
        return key

    async def _connect(self) -> aiohttp.ClientSession:
        headers = {"Content-Type": "application/json", "User-Agent": f"hgmem/{__version__}"}
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS),
            headers=headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def _cancel_all(self) -> None:
        tasks = [task for call in self._calls for task in call.tasks]
        for call in self._calls:
            call.fail(RuntimeError("the client of the model's server was closed"))
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, call: _Call[Any], place: int, data: bytes | None) -> None:
        """Begin with a request; what became of it goes to its call, an error too."""

        def done(task: asyncio.Task[Any]) -> None:
            call.tasks.discard(task)
            if not task.cancelled():
                call.outcomes.put((place, task.exception() or task.result()))

        if self._given_up:
            call.outcomes.put((place, ModelError(self._given_up)))
            return
        self._calls.add(call)
        task = asyncio.get_running_loop().create_task(self._fetch(call, data))
        call.tasks.add(task)
        task.add_done_callback(done)

    def _end(self, call: _Call[Any]) -> None:
        self._calls.discard(call)
        call.cancel()

    async def _fetch(self, call: _Call[Content], data: bytes | None) -> Answered[Content] | Refused:
        """Try a request until it is answered or refused, or its tries are used up."""
        now, gate = self._timing.now, self._gate
        request = object()
        first: float | None = None
        tries = failures = 0
        while True:
            async with gate.passage():
                began = now()
                first = began if first is None else first
                tries += 1
                try:
                    outcome = await self._try(call, data)
                except ModelError:
                    call.cancel()  # before another one is let through
                    raise
                if not isinstance(outcome, _Failure):
                    gate.answered()
                    return replace(outcome, seconds=now() - first, tries=tries)
                connected, throttled = outcome.is_connected, outcome.is_throttled
                gate.failed(request, began, is_connected=connected, is_throttled=throttled)
            if gate.silent_seconds >= 60 * self._server.give_up_minutes and not call.is_hasty:
                raise self._give_up(call, outcome)
            failures += outcome.is_connected or call.is_hasty
            if call.is_hasty and failures == HASTY_TRIES:
                raise ModelError(f"{call.url} {outcome.cause}; {outcome.remedy}")
            if failures > self._server.retries and not call.is_hasty:
                return Refused(None, f"try {tries} of {tries} {outcome.cause}", now() - first, tries)
            pause = self._timing.jitter(min(_LONGEST_PAUSE, 2.0 ** max(0, failures - 1)))
            await self._timing.sleep(pause + outcome.retry_after)

    def _give_up(self, call: _Call[Any], failure: _Failure) -> ModelError:
        """Fail everything that waits."""
        self._given_up = (
            f"{call.url} {failure.cause}, and nothing was answered for {self._server.give_up_minutes:g} minutes; "
            f"{failure.remedy}, then run this again: what was answered is kept"
        )
        for other in self._calls:
            other.fail(ModelError(self._given_up))
        return ModelError(self._given_up)

    async def _try(self, call: _Call[Content], data: bytes | None) -> Answered[Content] | Refused | _Failure:
        """Send a request once.

        Raises:
            ModelError: The server is of no use, now and later.
        """
        seconds = self._server.timeout_seconds if data is not None else min(_GET_SECONDS, self._server.timeout_seconds)
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        look = "look into the server's log"
        if call.heard is not None:
            call.heard(None)
        try:
            async with self._session.request(
                call.method, call.url, data=data, timeout=timeout, allow_redirects=False
            ) as response:
                body = await _received(response, call.heard)
        except aiohttp.ClientSSLError as error:
            raise ModelError(
                f"{call.url} has no TLS that can be trusted ({_line(error)}); correct {self._section}.url"
            ) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            remedy = f"start the server, or correct {self._section}.url"
            return _Failure(f"cannot be reached ({_why(error)})", remedy, is_connected=False)
        except TimeoutError:
            remedy = f"raise {self._section}.timeout_seconds, or lower {self._section}.concurrency"
            return _Failure(f"gave no answer within {seconds:g} s", remedy)
        except (aiohttp.ClientError, OSError) as error:
            return _Failure(f"broke off the connection ({_line(error)})", look)
        status = response.status
        if status // 100 == 2:
            return self._read(call, body)
        said = self._said(body)
        if status in call.refusals:
            return Refused(status, said or f"HTTP {status}")
        answer = f"answered HTTP {status}" + (f" ({said})" if said else "")
        if status == 429:
            remedy = f"lower {self._section}.concurrency, or have the server's limits raised"
            return _Failure(answer, remedy, is_throttled=True, retry_after=_retry_after(response.headers))
        if status in _TRANSIENT:
            return _Failure(answer, look, retry_after=_retry_after(response.headers))
        raise ModelError(f"{call.url} {answer}; {self._remedy(status, response.headers)}")

    def _read(self, call: _Call[Content], body: bytes) -> Answered[Content] | _Failure:
        remedy = f"correct {self._section}.url, which ends in the version, such as /v1"
        try:
            content = json.loads(body, strict=False)
        except (ValueError, RecursionError):
            return _Failure("answered with " + (_PAGE if _is_page(body) else "what is no JSON"), remedy)
        try:
            return Answered(call.read(content))
        except ValueError as error:
            said = self._said(body)
            return _Failure(f"answered with what is {_line(error)}" + (f" ({said})" if said else ""), remedy)

    def _remedy(self, status: int, headers: Mapping[str, str]) -> str:
        """Say what to change after a status that will not be another one the next time."""
        variable = self._server.key_variable
        if status in (401, 403) and variable:
            return f"put a key that is valid there into {variable}, which {self._section}.key_variable names"
        if status in (401, 403):
            return f"put its key into an environment variable, and name that in {self._section}.key_variable"
        if status // 100 == 3:
            target = urlsplit(headers.get("Location", ""))
            host = f"{target.scheme}://{target.netloc.rpartition('@')[2]}" if target.netloc else ""
            return f"it points to {host}{target.path}: if that is the server, correct {self._section}.url"
        return f"correct {self._section}.url, which ends in the version, such as /v1, or the model's name"

    def _said(self, body: bytes) -> str:
        """Return what an answer says of an error, in one short line without the key."""
        if _is_page(body):
            return _PAGE
        text = body.decode(errors="replace")
        with suppress(ValueError, RecursionError):
            text = _error_message(json.loads(body, strict=False))
        if self._key:
            text = text.replace(self._key, "***")
        return _line(text)


async def _received(response: aiohttp.ClientResponse, heard: Callable[[str | None], None] | None) -> bytes:
    """Return the body of an answer; that of a stream of events as a list in JSON, all told of as they come."""
    if heard is None or response.content_type != EVENT_STREAM:
        return await response.read()
    reader, events = EventReader(), []
    async for chunk in response.content.iter_any():
        for event in reader.feed(chunk):
            if event.data != _END_OF_STREAM:
                events.append(event.data)
                heard(event.data)
    return f"[{','.join(events)}]".encode()


_END_OF_STREAM = "[DONE]"

_PAGE = "a web page"


def _is_page(body: bytes) -> bool:
    return body.lstrip().startswith(b"<")


def _error_message(content: object) -> str:
    """Return the message of an error document, whatever it calls it; "" for what is none."""
    if isinstance(content, str):
        return content
    if not isinstance(content, dict):
        return ""
    found = next((content[name] for name in ("error", "message", "detail") if content.get(name)), "")
    return _error_message(found) or (json.dumps(found) if found else "")


def _why(error: aiohttp.ClientError) -> str:
    """Return what the system says of a connection that could not be made."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return _line(error)
    cause = error.os_error
    known = cause.errno is not None and cause.errno in errno.errorcode
    return os.strerror(cause.errno or 0) if known else cause.strerror or _line(cause)


def _line(what: str | BaseException) -> str:
    """Write a text or an error as one short line; an error without a message has its name."""
    text = " ".join(str(what).split()) or (type(what).__name__ if isinstance(what, BaseException) else "")
    return text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + "..."


def _retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a server asks to wait for, within reason."""
    asked = headers.get("Retry-After", "").strip()
    seconds = 0.0
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", asked):
        seconds = float(asked)
    else:
        # By the server's own clock, which need not be ours.
        with suppress(ValueError, TypeError):
            seconds = (parsedate_to_datetime(asked) - parsedate_to_datetime(headers.get("Date", ""))).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_PAUSE)


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, session: aiohttp.ClientSession) -> None:
    """Close a session and end its loop's thread."""

    async def end() -> None:
        await session.close()
        loop.stop()

    asyncio.run_coroutine_threadsafe(end(), loop)
    if threading.current_thread() is not thread:  # which may be the one that let go of the client
        thread.join()
        loop.close()
