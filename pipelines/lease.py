"""The lease of a store: one rebuild at a time works on it, the one that holds `lease.json` in its root.

The file says who holds it; its time of change says when it was last renewed. It is renewed every 15 seconds. A lease
whose process ran on this host and is gone, killed or crashed, is taken over at once. Whether a process of another host
is gone cannot be seen from here: its lease, and a damaged one, is taken over when it was not renewed for two minutes.
A process that was suspended for so long may thus lose its lease: it asks `Lease.check` before it publishes.
"""

import errno
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from pipelines.files import StoreError, create_json
from pipelines.lease_holder import Holder, Lease, LeaseHeld, LeaseLost, parse_holder, refuse_held, this_process
from pipelines.mirror import MirroredStore
from pipelines.object_lease import hold_object_lease
from pipelines.store import Store

__all__ = ["Holder", "Lease", "LeaseHeld", "LeaseLost", "hold_lease"]

LEASE_FILE = "lease.json"

RENEW_SECONDS = 15.0
STALE_SECONDS = 120.0
"""Eight renewals: a network file system may show a change a minute late."""


class FileLease(Lease):
    """A lease in a folder."""

    def __init__(self, path: Path, holder: Holder, taken_from: str | None) -> None:
        """Use `hold_lease`."""
        super().__init__(str(path.parent), str(path), holder, taken_from)
        self._path = path

    def read(self) -> Holder | None:
        """See `Lease.read`."""
        try:
            return parse_holder(self._path.read_bytes())
        except FileNotFoundError:
            return None

    def release(self, file: IO[bytes]) -> None:
        """Remove the lease if it is this process's; `file` is the one that was written."""
        _lock(file)
        found = self.read()
        if found is not None and found.holder == self.holder.holder:
            self._path.unlink()


@contextmanager
def hold_lease(
    store: Store,
    what: str,
    since: datetime,
    renew_seconds: float = RENEW_SECONDS,
    stale_seconds: float = STALE_SECONDS,
) -> Iterator[Lease]:
    """Hold the store's lease inside the `with`; a thread renews it.

    Args:
        store: The store.
        what: What this process runs, such as `rebuild`: shown to whoever is refused.
        since: When it began.
        renew_seconds: How often the lease is renewed.
        stale_seconds: After how long without renewal a lease of another host, or a damaged one, is nobody's.

    Raises:
        LeaseHeld: Another process holds it.
        StoreError: The lease cannot be written.
    """
    holder = this_process(what, since)
    if isinstance(store, MirroredStore):
        with hold_object_lease(store.storage, LEASE_FILE, holder, renew_seconds, stale_seconds) as held:
            yield held
        return
    path = store.root / LEASE_FILE
    try:
        lease = FileLease(path, holder, _acquire(path, holder, stale_seconds))
        file = path.open("r+b")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}), so nobody could tell that this process works on the store; "
            "make the store's folder writable for this user and give it room, or choose another store.root"
        ) from error
    stop = threading.Event()
    renewer = threading.Thread(target=_renew, args=(file, stop, renew_seconds), name="lease", daemon=True)
    with file:
        renewer.start()
        try:
            yield lease
        finally:
            stop.set()
            renewer.join()
            with suppress(OSError):  # what stays of the lease is taken over, for this process ends
                lease.release(file)


def _renew(file: IO[bytes], stop: threading.Event, seconds: float) -> None:
    while not stop.wait(seconds):
        with suppress(OSError):  # a share may be away for a moment; `check` tells whether the lease was lost
            os.utime(file.fileno())  # of the file that was opened: a lease that somebody else wrote is not touched


def _acquire(path: Path, holder: Holder, stale_seconds: float) -> str | None:
    """Make the lease `holder`'s and return who had it before and is gone, None if nobody."""
    while True:
        try:
            create_json(path, holder.model_dump())
        except FileExistsError:
            with suppress(FileNotFoundError), path.open("r+b") as file:  # released meanwhile: it can be created
                _lock(file)
                if _is_at(file, path):  # else another taker was faster: whoever holds it now is looked at
                    return _take_over(path, file, holder, stale_seconds)
        else:
            return None


def _take_over(path: Path, file: IO[bytes], holder: Holder, stale_seconds: float) -> str:
    """Put `holder` in the place of a lease whose holder is gone; `file` is that lease, locked."""
    theirs = parse_holder(file.read())
    age = _file_system_time(path.parent) - os.fstat(file.fileno()).st_mtime
    refuse_held(str(path.parent), str(path), theirs, age, stale_seconds)
    create_json(path, holder.model_dump(), replace=True)
    return str(theirs) if theirs else f"a damaged {path.name}"


def _is_at(file: IO[bytes], path: Path) -> bool:
    return os.path.samestat(os.fstat(file.fileno()), path.stat())


def _file_system_time(folder: Path) -> float:
    """Return the time by the clock that stamps the files of a folder: on a share, it is not this machine's."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_mtime


def _lock(file: IO[bytes]) -> None:
    """Let one process at a time take over or release the lease that is in `file`; ends with the process.

    Where files cannot be locked, two processes may take over the same lease; `Lease.check` then stops the first.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
