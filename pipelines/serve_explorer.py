"""The page at `/` for people: its files, read once, and headers under which it can run and reach nothing but itself."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER = "explorer"
_PAGE = "index.html"
_TYPES = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
        ".txt": "text/plain; charset=utf-8",
    }
)

HEADERS: Mapping[str, str] = MappingProxyType(
    {
        # What logs say is shown as text. Should some of it ever be taken for markup, it finds nothing that it may run,
        # load, or send anything to; trusted types make the browser refuse markup from strings in the first place.
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        # A browser asks each time whether it has changed: after an update no file of another version is used.
        "Cache-Control": "no-cache",
    }
)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page.

    Attributes:
        content: Its bytes.
        media_type: Of its content.
        etag: Of its content, quoted.
    """

    content: bytes
    media_type: str
    etag: str


def read_assets() -> dict[str, Asset]:
    """Return the files of the page by the path that each is asked under, the page itself under `/`."""
    assets = {}
    for file in files("pipelines").joinpath(_FOLDER).iterdir():
        content = file.read_bytes()
        path = "/" if file.name == _PAGE else f"/{_FOLDER}/{file.name}"
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        assets[path] = Asset(content, _TYPES[file.name[file.name.rindex(".") :]], etag)
    return assets


def explorer_routes(assets: Mapping[str, Asset]) -> list[Route]:
    """Return a route for each file; they stand behind the guard, which asks none of them for a key."""
    return [Route(path, _answer(asset), include_in_schema=False) for path, asset in sorted(assets.items())]


def _answer(asset: Asset) -> Callable[[Request], Awaitable[Response]]:
    headers = {**HEADERS, "ETag": asset.etag}

    async def answer(request: Request) -> Response:
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if asset.etag in known:
            return Response(status_code=304, headers=headers)
        return Response(asset.content, headers=headers, media_type=asset.media_type)

    return answer
