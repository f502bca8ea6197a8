"""The tombstones of a store: numbered files that are only ever added, read together.

Writing one takes no lease: it waits for no rebuild, and a rebuild that is under way does not undo it, because whoever
serves a version reads these files too.
"""

import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from hgmem_core.schemas import TOMBSTONE, conform
from hgmem_core.tombstones import Tombstones
from pipelines.files import StoreError, dump, read_sealed, seal
from pipelines.store import TOMBSTONES, Store
from pipelines.versions import current_pointer


class Tombstone(BaseModel, frozen=True):
    """A row of TOMBSTONE, as files have it.

    Attributes:
        namespace: Whose memory.
        scope: What is forgotten of it.
        id: Of the session, turn or trajectory; empty for a namespace.
        deleted_at: When it was to be forgotten.
        restored_at: When it was to be remembered again; None as long as it is not.
        asked: The digest of what was asked for, where that was something else than this id; empty if it was not. It is
            what `--restore` with the same arguments goes by when nothing that fits is in the store any more.
    """

    namespace: str
    scope: Literal["namespace", "session", "turn", "trajectory"]
    id: str = ""
    deleted_at: datetime
    restored_at: datetime | None = None
    asked: str = ""


class _File(BaseModel, frozen=True):
    tombstones: list[Tombstone]


def number_of_tombstones(store: Store) -> int:
    """Return the number of the last tombstone file that there is, or was when the pointer was written; 0 for none.

    Raises:
        StoreError: The pointer is damaged.
    """
    pointer = current_pointer(store)
    return max(_last_file(store), 0 if pointer is None else pointer[1].tombstones)


def _last_file(store: Store) -> int:
    return max((number for number, _ in store.numbered(TOMBSTONES)), default=0)


def add_tombstones(store: Store, rows: Sequence[Tombstone]) -> int:
    """Write tombstones, all of them in one file or none, and return its number; later numbers decide.

    Raises:
        SchemaError: Two rows are of the same namespace, scope and id.
    """
    conform(tombstone_table(rows), TOMBSTONE)
    told = [row.model_dump(mode="json", exclude=None if row.asked else {"asked"}) for row in rows]
    return store.append_numbered(TOMBSTONES, seal({"tombstones": told}))


def read_tombstones(store: Store, until: int | None = None) -> Tombstones:
    """Return the tombstones in force: of all files, or of those up to the number `until`.

    Raises:
        StoreError: A file is missing or damaged; nothing is guessed of what it hid.
    """
    return Tombstones(tombstone_rows(store, until))


def tombstone_rows(store: Store, until: int | None = None, after: int = 0) -> pa.Table:
    """Return all rows of TOMBSTONE that were written, lifted ones too, in the order of their files.

    Args:
        store: Where.
        until: The last file; None for the newest.
        after: The file before the first one.

    Raises:
        StoreError: A file is missing or damaged.
    """
    return tombstone_table(written_tombstones(store, until, after))


def written_tombstones(store: Store, until: int | None = None, after: int = 0) -> list[Tombstone]:
    """Return all tombstones that were written, as their files have them; see `tombstone_rows`."""
    rows: list[Tombstone] = []
    for path, content in _files(store, after + 1, number_of_tombstones(store) if until is None else until):
        if content is None:
            raise StoreError(
                f"{path} is missing or damaged, and what it hides is not known: restore it from a backup. Without one, "
                "`python -m jobs.forget CONFIG --give-up-lost` puts an empty file in its place; then forget again what "
                "was forgotten"
            )
        try:
            # As JSON, where half a surrogate pair is no text.
            rows += _File.model_validate_json(dump(content)).tombstones
        except ValidationError as error:
            raise StoreError(f"{path} holds something else than tombstones ({error}): restore it from a backup") from (
                error
            )
    return rows


def give_up_lost(store: Store) -> list[Path]:
    """Put a file without tombstones in the place of each that is missing or damaged, and return these.

    What they hid is shown again, where it was not erased; what is forgotten again is hidden again.
    """
    lost = [path for path, content in _files(store, 1, number_of_tombstones(store)) if content is None]
    for path in lost:
        store.write_json(path, {"tombstones": []}, replace=True)
    return lost


def _files(store: Store, first: int, last: int) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """Yield the files of some numbers with their content; None of what is missing or damaged."""
    there = dict(store.numbered(TOMBSTONES))
    for number in range(first, last + 1):
        path = there.get(number)
        yield path or store.numbered_path(TOMBSTONES, number), read_sealed(path) if path else None


class TombstoneWatch:
    """The tombstones of a store as they were last read; threads may share it."""

    def __init__(self, store: Store) -> None:
        """Read them.

        Raises:
            StoreError: A file is missing or damaged.
        """
        self._store = store
        self._lock = threading.Lock()
        self._number = number_of_tombstones(store)
        self._rows = tombstone_rows(store, self._number)
        self.tombstones = Tombstones(self._rows)

    def refresh(self) -> frozenset[str]:
        """Read what was written since, and return the namespaces in which other things are hidden now.

        Raises:
            StoreError: A file is missing or damaged; what was known before stays hidden.
        """
        with self._lock:
            number = _last_file(self._store)
            if number == self._number:
                return frozenset()
            if number < self._number:
                lost, self._number = self._number, number
                raise StoreError(
                    f"{self._store.numbered_path(TOMBSTONES, lost)} was there and is gone: restore it from a backup, "
                    "or forget again what was forgotten. This process goes on hiding it; who opens the store anew is "
                    "refused if the pointer knew of it, and else is shown what it hid"
                )
            rows = pa.concat_tables([self._rows, tombstone_rows(self._store, number, after=self._number)])
            before, after = self.tombstones, Tombstones(rows)
            self._number, self._rows, self.tombstones = number, rows, after
            named = before.namespaces | after.namespaces
            return frozenset(name for name in named if before.digest_of(name) != after.digest_of(name))


def tombstone_table(rows: Sequence[Tombstone]) -> pa.Table:
    """Return them as rows of TOMBSTONE, in their order."""
    return pa.Table.from_pylist([row.model_dump() for row in rows], schema=TOMBSTONE.arrow)
