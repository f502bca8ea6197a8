"""The lease of a store in object storage: the object `lease.json`, written by conditional writes alone.

It is created where there is none, and renewed and taken over only in the place of what was read: of two who try at once
one succeeds. Its age is a difference of two times of the server's clock.
"""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeGuard

from pipelines.lease_holder import Holder, Lease, parse_holder, refuse_held
from pipelines.object_storage import ObjectStorage, ObjectStorageError, Stored


class _Renewed(Holder, strict=True, frozen=True):
    """A holder, and how often it renewed the lease: each renewal is another content, and so another tag."""

    renewals: int


class ObjectLease(Lease):
    """A lease in object storage."""

    def __init__(self, storage: ObjectStorage, key: str, holder: Holder, stale_seconds: float) -> None:
        """Take the lease; see `hold_object_lease`."""
        self._storage = storage
        self._key = key
        self._renewals = 0
        taken_from = None
        while not storage.create(key, _content(holder, 0)):
            found = storage.get(key)
            if found is None:
                continue  # released meanwhile: it can be created
            theirs = parse_holder(found.content)
            refuse_held(storage.url, storage.address(key), theirs, _age(storage, found), stale_seconds)
            if storage.replace(key, _content(holder, 0), found.tag) is not None:
                taken_from = str(theirs) if theirs else f"a damaged {key}"
                break
        super().__init__(storage.url, storage.address(key), holder, taken_from)

    def read(self) -> Holder | None:
        """See `Lease.read`."""
        found = self._storage.get(self._key)
        return None if found is None else parse_holder(found.content)

    def renew(self, stop: threading.Event, seconds: float) -> None:
        """Write the lease again and again, until `stop` or until it is somebody else's."""
        while not stop.wait(seconds):
            with suppress(ObjectStorageError):  # it may be away for a moment; `check` tells whether the lease was lost
                found = self._storage.get(self._key)
                if not self._is_mine(found):
                    return
                self._renewals += 1
                self._storage.replace(self._key, _content(self.holder, self._renewals), found.tag)

    def release(self) -> None:
        """Remove the lease if it is this process's."""
        if self._is_mine(self._storage.get(self._key)):
            self._storage.delete([self._key])

    def _is_mine(self, found: Stored | None) -> TypeGuard[Stored]:
        theirs = None if found is None else parse_holder(found.content)
        return theirs is not None and theirs.holder == self.holder.holder


@contextmanager
def hold_object_lease(
    storage: ObjectStorage, key: str, holder: Holder, renew_seconds: float, stale_seconds: float
) -> Iterator[Lease]:
    """Hold a lease inside the `with`; a thread renews it. See `pipelines.lease.hold_lease`.

    Raises:
        LeaseHeld: Another process holds it.
        ObjectStorageError: It cannot be written.
    """
    lease = ObjectLease(storage, key, holder, stale_seconds)
    stop = threading.Event()
    renewer = threading.Thread(target=lease.renew, args=(stop, renew_seconds), name="lease", daemon=True)
    renewer.start()
    try:
        yield lease
    finally:
        stop.set()
        renewer.join()
        with suppress(ObjectStorageError):  # what stays of the lease is taken over, for this process ends
            lease.release()


def _content(holder: Holder, renewals: int) -> bytes:
    return _Renewed(**holder.model_dump(), renewals=renewals).model_dump_json().encode()


def _age(storage: ObjectStorage, lease: Stored) -> float:
    """Return how long ago a lease was renewed, by the clock of the server that stamps objects."""
    key = f"tmp/clock-{uuid.uuid4().hex}"
    storage.put(key, b"now")
    now = storage.get(key)
    storage.delete([key])
    return 0.0 if now is None else now.modified - lease.modified
