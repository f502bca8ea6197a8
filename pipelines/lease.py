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
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated

from pydantic import BaseModel, Field, ValidationError

from pipelines.files import StoreError, create_json
from pipelines.hosts import host_id, host_name, is_gone, process_start
from pipelines.store import Store

LEASE_FILE = "lease.json"

RENEW_SECONDS = 15.0
STALE_SECONDS = 120.0
"""Eight renewals: a network file system may show a change a minute late."""


class LeaseHeld(StoreError):
    """Another rebuild works on the store: says which, since when, and what to do."""


class LeaseLost(StoreError):
    """Another rebuild took this one's lease while it stood still; nothing may be published."""


class Holder(BaseModel, strict=True, frozen=True):
    """The content of `lease.json`.

    Attributes:
        holder: An id of this holding of the lease.
        host: The machine's name.
        host_id: See `pipelines.hosts.host_id`.
        pid: The process that holds it.
        process_start: Tells that process from a later one of the same id.
        what: What it runs.
        since: When it began, in ISO 8601.
    """

    holder: str
    host: str
    host_id: str
    pid: Annotated[int, Field(ge=1, le=2**31 - 1)]
    process_start: str | None
    what: str
    since: str

    def __str__(self) -> str:
        """Name the process."""
        return f"{self.what} since {self.since}, process {self.pid} on {self.host}"


class Lease:
    """A lease that this process holds, or held; `hold_lease` gives it."""

    def __init__(self, path: Path, holder: Holder, taken_from: str | None) -> None:
        """Use `hold_lease`."""
        self.path = path
        self.holder = holder
        """This process."""
        self.taken_from = taken_from
        """Who held it before and was gone; None if nobody."""

    def check(self) -> None:
        """Do nothing while this process still holds the lease; to be called right before publishing.

        Raises:
            LeaseLost: Somebody took it over, or removed it.
        """
        found = self._read()
        if found is None or found.holder != self.holder.holder:
            raise LeaseLost(
                f"the lease on {self.path.parent} was lost while this process stood still: "
                f"{f'{found} holds it' if found else f'{self.path} is gone or damaged'}; "
                "nothing was published, what was finished is kept: run this again when nothing else works on the store"
            )

    def _read(self) -> Holder | None:
        try:
            return _parse(self.path.read_bytes())
        except FileNotFoundError:
            return None

    def _release(self, file: IO[bytes]) -> None:
        _lock(file)
        found = self._read()
        if found is not None and found.holder == self.holder.holder:
            self.path.unlink()


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
    path = store.root / LEASE_FILE
    pid = os.getpid()
    holder = Holder(
        holder=uuid.uuid4().hex,
        host=host_name(),
        host_id=host_id(),
        pid=pid,
        process_start=process_start(pid),
        what=what,
        since=since.isoformat(timespec="seconds"),
    )
    try:
        lease = Lease(path, holder, _acquire(path, holder, stale_seconds))
        file = path.open("r+b")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}), so nobody could tell that this process works on the store; "
            "make the store's folder writable for this user, or choose another store.root"
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
                lease._release(file)


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
    content = file.read()
    theirs = _parse(content)
    age = _file_system_time(path.parent) - os.fstat(file.fileno()).st_mtime
    is_here = theirs is not None and theirs.host_id == holder.host_id
    if not (is_gone(theirs.pid, theirs.process_start) if theirs and is_here else age > stale_seconds):
        raise LeaseHeld(_refusal(path, theirs, is_here, age, stale_seconds))
    create_json(path, holder.model_dump(), replace=True)
    return str(theirs) if theirs else f"a damaged {path.name}"


def _refusal(path: Path, theirs: Holder | None, is_here: bool, age: float, stale_seconds: float) -> str:
    if theirs is None:
        return (
            f"{path} is damaged and was written {age:.0f} s ago; it may be somebody's who works on the store: "
            f"run this again {stale_seconds:.0f} s after it was written, or remove it if nothing does"
        )
    held = f"{path.parent} is in use: {theirs}, last renewed {age:.0f} s ago"
    if is_here:
        return f"{held}; wait until it ends, or end it with `kill {theirs.pid}`: what it finished is kept"
    return (
        f"{held}; wait until it ends. If that process is gone, run this again {stale_seconds:.0f} s after the last "
        f"renewal, or remove {path}"
    )


def _parse(content: bytes) -> Holder | None:
    try:
        return Holder.model_validate_json(content)
    except ValidationError:
        return None


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
