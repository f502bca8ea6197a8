"""The audit log: what keys were used for and what was deleted, one JSON object a line; no question, no text, no key."""

import json
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pipelines.files import StoreError


class Audit:
    """Appends lines to a file or to standard error; threads, and processes that share the file, may do so together."""

    def __init__(self, path: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Open the file.

        Args:
            path: Of the file; empty for standard error.
            now: The clock.

        Raises:
            StoreError: It cannot be written.
        """
        self._now = now
        self._lock = threading.Lock()
        try:
            # Unbuffered: a line is one write at the end of the file, and lines of two processes never mix.
            self._file = Path(path).open("ab", buffering=0) if path else None
        except OSError as error:
            raise StoreError(f"the audit log {path} cannot be written ({error}): correct serve.audit") from error

    def write(self, event: str, key: str, **about: str | int | None) -> None:
        """Write what somebody did.

        Args:
            event: What.
            key: The id of the key, never the key.
            about: What else is to be known.
        """
        line = json.dumps({"at": self._now().isoformat(), "event": event, "key": key, **about}) + "\n"
        with self._lock:
            if self._file is None:
                sys.stderr.write(line)
            else:
                self._file.write(line.encode())
