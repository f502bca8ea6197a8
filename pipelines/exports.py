"""What chat services export: the files of an archive or folder that hold messages, row by row."""

import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from hgmem_core.importers.slack import SlackNames, SlackRow, slack_names
from hgmem_core.messages import LogRow
from pipelines.log_rows import LogFileError, json_value, open_log

_CONVERSATIONS = re.compile(r"(?:^|/)conversations(?:-\d+)?\.json$")
EXPORTS: Mapping[str, re.Pattern[str]] = {
    "chatgpt": _CONVERSATIONS,
    "claude": _CONVERSATIONS,
    "slack": re.compile(r"(?:^|/)[^/]+/\d{4}-\d\d-\d\d\.json$"),
}
"""By format, the files of an export that hold messages; of the others of its folder nothing is imported."""

_USER_LISTS = ("users.json", "org_users.json")
_CHANNEL_LISTS = ("channels.json", "groups.json", "mpims.json", "dms.json")
_MOST_BYTES = 4 * 2**30
"""Of a file in an archive: what is packed into a few bytes may not fill the memory."""

FileOf = Callable[[str], str | None]
"""Gives a file of this machine for a path or address, None where there is none."""


def holds_messages(path: str, format: str) -> bool:
    """Say whether a file of a folder is one that an export of this format has messages in, or an archive of it."""
    wanted = EXPORTS.get(format)
    return wanted is None or _is_archive(path) or wanted.search(path.replace(os.sep, "/")) is not None


def export_context(path: str, format: str) -> list[str]:
    """Return what a file's rows depend on besides its bytes and settings: of Slack's, the channel's folder."""
    return [_steps(path)[-2]] if format == "slack" and not _is_archive(path) else []


def export_rows(path: str, format: str, file_of: FileOf) -> Iterator[LogRow]:
    """Yield the conversations of ChatGPT's and Claude's exports, the messages of Slack's, in the order of the files.

    Args:
        path: A JSON file of the export, or the archive of all of it (`.zip`).
        format: One of `EXPORTS`.
        file_of: Finds the file, and those beside it.

    Raises:
        LogFileError: The file is missing, no such archive or JSON document, or damaged.
    """
    file, base = file_of(path), _steps(path)[-1]
    if file is None:
        raise LogFileError(f"{path}: there is no such file any more; correct `paths` of the input")
    if _is_archive(path):
        with _archive(path, file) as archive:
            yield from _archive_rows(archive, path, base, format)
        return
    with open_log(file) as opened:
        body = opened.read()
    names = SlackNames()
    if format == "slack":
        root = path[: -len("/".join(_steps(path)[-2:]))]
        found = tuple(one for one in (*_USER_LISTS, *_CHANNEL_LISTS) if file_of(root + one))
        names = _names_beside(tuple((one, _state(str(file_of(root + one)))) for one in found))
    yield from _rows(body, path, base, _steps(path), format, names)


def _steps(path: str) -> list[str]:
    return ["", *path.replace(os.sep, "/").split("/")][-2:]


def _is_archive(path: str) -> bool:
    return path.lower().endswith(".zip")


def _state(file: str) -> tuple[str, int, int]:
    about = os.stat(file)
    return file, about.st_mtime_ns, about.st_size


@lru_cache(maxsize=4)
def _names_beside(lists: tuple[tuple[str, tuple[str, int, int]], ...]) -> SlackNames:
    """Return the names in lists of an export, each with its file as it is now: every day of a channel asks for them."""
    bodies = {}
    for name, (file, _, _) in lists:
        with open_log(file) as opened:
            bodies[name] = opened.read()
    return _names(bodies)


def _names(bodies: Mapping[str, bytes]) -> SlackNames:
    parsed = {name: json_value(body)[0] for name, body in bodies.items()}
    users = [user for name in _USER_LISTS if isinstance(parsed.get(name), list) for user in parsed[name]]
    return slack_names(users, [parsed.get(name) for name in _CHANNEL_LISTS])


@contextmanager
def _archive(path: str, file: str) -> Iterator[zipfile.ZipFile]:
    """Open an archive; what goes wrong while it is read is told as the log's fault."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (
        OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError, UnicodeDecodeError
    ) as error:  # fmt: skip
        # zipfile says by a RuntimeError that a file is encrypted, by a NotImplementedError that it cannot unpack it.
        raise LogFileError(f"{path}: not readable as a zip archive: {error}; unpack it, or export it again") from error


def _archive_rows(archive: zipfile.ZipFile, path: str, base: str, format: str) -> Iterator[LogRow]:
    members = {one.filename: one for one in archive.infolist() if not one.filename.endswith("/")}
    found = sorted(name for name in members if EXPORTS[format].search(name) and not name.startswith("__MACOSX/"))
    if not found:
        raise LogFileError(f"{path}: this archive is no export of {format}: no file in it holds messages")
    large = next((name for name in found if members[name].file_size > _MOST_BYTES), None)
    if large is not None:
        raise LogFileError(f"{path}: {large} has more than {_MOST_BYTES:,} bytes; unpack the archive and split it")
    names: dict[str, SlackNames] = {}
    for name in found:
        steps = name.split("/")
        root = "".join(f"{step}/" for step in steps[:-2])
        if format == "slack" and root not in names:
            lists = {one: root + one for one in (*_USER_LISTS, *_CHANNEL_LISTS) if root + one in members}
            names[root] = _names({one: archive.read(member) for one, member in lists.items()})
        yield from _rows(archive.read(name), f"{path}: {name}", f"{base}/{name}", steps, format, names.get(root))


def _rows(
    body: bytes, where: str, name: str, steps: list[str], format: str, names: SlackNames | None
) -> Iterator[LogRow]:
    value, error = json_value(body)
    if error is not None:
        raise LogFileError(f"{where}: {error}; export it again, or leave it out of `paths`")
    for number, item in enumerate(value if isinstance(value, list) else [value], 1):
        row = SlackRow(steps[-2], names or SlackNames(), item) if format == "slack" else item
        yield LogRow(f"{name}:{number}", row)
