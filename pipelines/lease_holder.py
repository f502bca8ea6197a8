"""Who holds a store's lease, and what is said to whoever may not: the same on a disk and in object storage."""

import os
import uuid
from abc import ABC, abstractmethod
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from pipelines.files import StoreError
from pipelines.hosts import host_id, host_name, is_gone, process_start


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


class Lease(ABC):
    """A lease that this process holds, or held; `pipelines.lease.hold_lease` gives it."""

    def __init__(self, store: str, place: str, holder: Holder, taken_from: str | None) -> None:
        """Use `hold_lease`."""
        self.store = store
        self.place = place
        """Of the lease itself."""
        self.holder = holder
        """This process."""
        self.taken_from = taken_from
        """Who held it before and was gone; None if nobody."""

    def check(self) -> None:
        """Do nothing while this process still holds the lease; to be called right before publishing.

        Raises:
            LeaseLost: Somebody took it over, or removed it.
        """
        found = self.read()
        if found is None or found.holder != self.holder.holder:
            raise LeaseLost(
                f"the lease on {self.store} was lost while this process stood still: "
                f"{f'{found} holds it' if found else f'{self.place} is gone or damaged'}; "
                "nothing was published, what was finished is kept: run this again when nothing else works on the store"
            )

    @abstractmethod
    def read(self) -> Holder | None:
        """Return who holds the lease now; None if it is gone or damaged."""


def this_process(what: str, since: datetime) -> Holder:
    """Return this process as a holder of a lease."""
    pid = os.getpid()
    return Holder(
        holder=uuid.uuid4().hex,
        host=host_name(),
        host_id=host_id(),
        pid=pid,
        process_start=process_start(pid),
        what=what,
        since=since.isoformat(timespec="seconds"),
    )


def parse_holder(content: bytes) -> Holder | None:
    """Return the holder that the content of a lease names; None if it is damaged."""
    try:
        return Holder.model_validate_json(content)
    except ValidationError:
        return None


def refuse_held(store: str, place: str, theirs: Holder | None, age: float, stale_seconds: float) -> None:
    """Do nothing if the holder of a lease is gone.

    Args:
        store: Whose lease.
        place: Of the lease itself.
        theirs: Its holder; None if it is damaged.
        age: Seconds since it was last renewed.
        stale_seconds: After how many a lease of another host, or a damaged one, is nobody's.

    Raises:
        LeaseHeld: The holder is at work, or may be.
    """
    is_here = theirs is not None and theirs.host_id == host_id()
    if not (is_gone(theirs.pid, theirs.process_start) if theirs and is_here else age > stale_seconds):
        raise LeaseHeld(_refusal(store, place, theirs, is_here, age, stale_seconds))


def _refusal(store: str, place: str, theirs: Holder | None, is_here: bool, age: float, stale_seconds: float) -> str:
    # The clock that stamps files may have jumped back since.
    when = f"{age:.0f} s ago" if age >= 0 else f"{-age:.0f} s ahead of the clock, which jumped back"
    if theirs is None:
        return (
            f"{place} is damaged and was written {when}; it may be somebody's who works on the store: "
            f"run this again {stale_seconds:.0f} s after it was written, or remove it if nothing does"
        )
    held = f"{store} is in use: {theirs}, last renewed {when}"
    if is_here:
        return f"{held}; wait until it ends, or end it with `kill {theirs.pid}`: what it finished is kept"
    return (
        f"{held}; wait until it ends. If that process is gone, run this again {stale_seconds:.0f} s after the last "
        f"renewal, or remove {place}"
    )
