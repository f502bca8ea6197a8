"""What stands before every route, those that are mounted later, too: who is asked, who asks, how much is sent."""

import asyncio
import time
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hgmem_core.run_config import ServeConfig
from pipelines.serve_access import Access, Caller
from pipelines.serve_audit import Audit
from pipelines.serve_metrics import OTHER, Metrics
from pipelines.serve_problems import Problem

OPEN_PATHS = frozenset({"/v1/healthz", "/v1/readyz", "/openapi.json"})
"""Asked without a key: they say nothing of any memory."""

_LOCAL_NETS = ("127.", "::ffff:127.")
_CALLER = "hgmem.caller"


async def caller_of(request: Request) -> Caller:
    """Return who asks, as the guard found out; a coroutine, because anything else would wait for a thread."""
    caller: Caller = request.scope[_CALLER]
    return caller


class Guard:
    """An application around another: checks host, origin, key, content type and size, counts, and writes the audit.

    Pages of other origins get no permission of their own (CORS); a browser that was led here by another name of this
    address (DNS rebinding) sends a Host or an Origin that is not on the list.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: ServeConfig,
        access: Access,
        metrics: Metrics,
        audit: Audit,
        open_paths: frozenset[str] = OPEN_PATHS,
    ) -> None:
        """Stand before `app`; `open_paths` need no key."""
        self._app = app
        self._hosts = frozenset(host.lower() for host in config.hosts)
        self._origins = frozenset(origin.lower() for origin in config.origins)
        self._most_bytes = config.max_body_kib << 10
        self._seconds = config.timeout_seconds
        self._access = access
        self._metrics = metrics
        self._audit = audit
        self._open = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # no websocket is spoken here
        began = time.perf_counter()
        status = 499  # of a client that left, as servers log it

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]
            await send(message)

        key_id = ""
        try:
            caller = self._checked(scope)
            key_id = caller.key_id if caller is not None else ""
            scope[_CALLER] = caller
            if scope["method"] == "POST":
                body = await self._body(_headers(scope), receive)
                receive = _again(body, receive)
            await self._app(scope, receive, watched)
        except Problem as problem:
            await problem.response()(scope, receive, watched)
        finally:
            # The route's own path, without what stands for its parameters.
            route = getattr(scope.get("route"), "path", OTHER)
            self._metrics.request(route, status, time.perf_counter() - began)
            if self._access.has_keys and scope["path"] not in self._open:
                self._audit.write("request", key_id or "none", route=route, status=status)

    def _checked(self, scope: Scope) -> Caller | None:
        """Return who asks; None where nobody has to say so.

        Raises:
            Problem: The request is not let in.
        """
        headers = _headers(scope)
        host = headers.get("host", "")
        if _without_port(host) not in self._hosts:
            raise Problem(421, "this endpoint is not asked under that name: serve.hosts lists those that are")
        origin = headers.get("origin", "").lower()
        if origin and origin not in self._origins and urlsplit(origin).netloc != host.lower():
            raise Problem(403, "pages of that origin may not ask: serve.origins lists those that may")
        caller = None
        if scope["path"] not in self._open:
            address = (scope.get("client") or ("", 0))[0]
            caller = self._access.caller(headers.get("authorization", ""), _is_local(address))
        return caller

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes:
        """Return the body of a request.

        Raises:
            Problem: It is too large, too slow, or not said to be JSON.
        """
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > self._most_bytes:
            raise _too_large(self._most_bytes)
        try:
            async with asyncio.timeout(self._seconds):
                body = await _whole_body(receive, self._most_bytes)
        except TimeoutError as error:
            detail = f"the body did not come within {self._seconds:g} s: send it at once"
            raise Problem(408, detail, headers={"Connection": "close"}) from error
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and kind != "application/json":
            raise Problem(415, "the body has to be JSON: send it with Content-Type: application/json")
        return body


def _is_local(address: str) -> bool:
    return address == "::1" or address.startswith(_LOCAL_NETS)


def _too_large(most_bytes: int) -> Problem:
    return Problem(413, f"the body has more than {most_bytes >> 10} KiB")


async def _whole_body(receive: Receive, most_bytes: int) -> bytes:
    """Return a request's body, as long as it is not too large, whatever its headers say."""
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > most_bytes:
            raise _too_large(most_bytes)
        if not message.get("more_body", False):
            return body


def _again(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read, then whatever comes after it."""
    told = False

    async def read() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers by lower-case name; of one that comes twice, both, so that neither passes for the other."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        text = value.decode("latin-1")
        headers[name] = f"{headers[name]},{text}" if name in headers else text
    return headers


def _without_port(host: str) -> str:
    """Return a Host header's name.

    >>> _without_port("Localhost:8000"), _without_port("[::1]:8000"), _without_port("a:b:1")
    ('localhost', '[::1]', 'a:b')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
