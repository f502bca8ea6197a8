"""Files that were found to hold what a manifest lists, and that nobody wrote since, as far as the file system tells.

So a version that shares most of its files with the one before, or that is rolled back to, is verified in no time, where
reading it all would take seconds for each gigabyte. In a mirror of object storage every use of a file is noted, which
looks as if it was written: there, all is read each time.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

SETTLED_SECONDS = 2.0
"""A file that changed within so short a time may change again and bear the same time."""

_State: TypeAlias = tuple[int, int, int, int, int]


class VerifiedFiles:
    """Remembers them for as long as the process runs; threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """Know of none; `clock` tells seconds since 1970."""
        self._clock = clock
        self._states: dict[tuple[Path, str], _State] = {}

    def check(self, path: Path, listed: Mapping[str, Any], compare: Callable[[bool], None]) -> None:
        """Let a file be compared with what is listed, and remember in which state it was before.

        Args:
            path: The file.
            listed: Its `sha256`.
            compare: Compares its size, and where it is told so what is in it; raises if it differs.
        """
        key, before = (path, listed["sha256"]), _state(path)
        is_known = before is not None and self._states.get(key) == before
        compare(not is_known)
        if before is not None and before[-1] < 1e9 * (self._clock() - SETTLED_SECONDS):
            self._states[key] = before

    def forget_removed(self) -> None:
        """Know no more of files that are not there, such as those of versions that were pruned."""
        self._states = {key: state for key, state in list(self._states.items()) if key[0].exists()}

    def __len__(self) -> int:
        """Return of how many files it knows."""
        return len(self._states)


def _state(path: Path) -> _State | None:
    """Return what changes with a file: device, inode, size, times of content and of all else; None without a file."""
    try:
        told = os.stat(path)
    except OSError:
        return None
    return told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns
