"""How large the mirror of a store may grow: what was used longest ago goes first.

A mirror is a cache that several processes share. So every use of a file is noted as its time of access, whatever the
file system itself notes; what was used a moment ago stays, because somebody may be about to open it; and who serves a
version holds a lock as long as it does, so that the files of that version stay.
"""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from pipelines.files import create_file, make_folder

IN_USE = "in-use"
"""The folder of a mirror with a file for each version that is, or was, served on this machine."""

_BOUNDED = ("outputs", "calls")
"""Almost all of a mirror; the rest is asked for each time."""

_RECENT_SECONDS = 600.0
_CHECKS = 16
"""A process looks at the whole mirror when it has fetched this part of what the mirror may hold."""


class MirrorBound:
    """Keeps a mirror below a size."""

    def __init__(self, root: Path, most_bytes: int) -> None:
        """Look at nothing yet.

        Args:
            root: Of the mirror.
            most_bytes: That it may hold; 0 for any number.
        """
        self._root = root
        self._most_bytes = most_bytes
        self._come = most_bytes
        """Bytes that came since the last look; there has been none."""

    def add(self, size: int) -> None:
        """Take note of bytes that came, and look whether there are too many if it is time."""
        self._come += size  # if threads meet here, some are missed, and the next look is a little later
        if self._come * _CHECKS >= self._most_bytes:
            self.keep()

    def keep(self) -> None:
        """Make room if there is too much."""
        self._come = 0
        if self._most_bytes:
            trim(self._root, self._most_bytes)


def note_use(path: Path) -> None:
    """Note that a file of a mirror is used now; its time of change, which tells its object, stays."""
    with suppress(FileNotFoundError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def trim(root: Path, most_bytes: int) -> None:
    """Remove what was used longest ago until a mirror is small enough, or the rest is in use; one process at a time."""
    with _file(root / IN_USE / "trim") as file:
        if not _lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return
        kept = set(_served_files(root))
        found = list(_bounded_files(root))
        total = sum(about.st_size for about, _ in found)
        now = time.time()
        for about, path in sorted(found, key=lambda one: (one[0].st_atime_ns, one[1])):
            if total <= most_bytes:
                return
            is_recent = now - _RECENT_SECONDS < about.st_atime <= now  # the clock may have jumped back since
            if not is_recent and path not in kept:
                path.unlink(missing_ok=True)
                total -= about.st_size


@contextmanager
def served_from(root: Path, version: str) -> Iterator[None]:
    """Let the files of a version stay in a mirror inside the `with`; the end of the process ends it, too."""
    path = root / IN_USE / version
    while True:
        with _file(path) as file:
            _lock(file, fcntl.LOCK_SH)
            is_at_path = False
            with suppress(FileNotFoundError):
                is_at_path = os.path.samestat(os.fstat(file.fileno()), path.stat())
            if is_at_path:  # else it was removed before it was locked
                yield
                return


def _bounded_files(root: Path) -> Iterator[tuple[os.stat_result, Path]]:
    for part in _BOUNDED:
        for folder, _, names in os.walk(root / part):
            for path in (Path(folder, name) for name in names):
                with suppress(FileNotFoundError):  # removed or renamed meanwhile
                    yield path.stat(), path


def _served_files(root: Path) -> Iterator[Path]:
    """Yield the files of versions that are served on this machine; what is left of other locks is removed."""
    for path in (root / IN_USE).glob("*"):
        with path.open("rb") as file:
            if path.name == "trim":
                continue
            if _lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
                path.unlink(missing_ok=True)
                continue
        with suppress(FileNotFoundError):
            manifest = json.loads((root / "versions" / path.name / "manifest.json").read_bytes())
            sections = [manifest, manifest.get("skills", {"buckets": {}})]
            for about in (about for section in sections for about in section["buckets"].values()):
                yield from (root / about["folder"] / name for name in (*about["files"], "manifest.json"))


def _file(path: Path) -> IO[bytes]:
    make_folder(path.parent, exist_ok=True)
    create_file(path)
    return path.open("rb")


def _lock(file: IO[bytes], how: int) -> bool:
    """Lock a file, or return False if another process has; so it does where files cannot be locked."""
    try:
        fcntl.flock(file, how)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        return False
    return True
