"""A store on disk: finished outputs that never change, and numbered files that exactly one writer can create.

    store.json                      schema version and number of buckets, fixed when the store is made
    imports/000001.json             what was imported, in order
    outputs/<stage>/<identity>/     files of one stage for one bucket, with a manifest
    versions/<id>/manifest.json     which outputs make a version
    current/000001.json             the pointer: the highest number names the current version
    tmp/                            unfinished work; nothing reads it
    lease.json                      who works on the store right now (pipelines.lease)
    logs/                           what jobs did (pipelines.job_log)

A folder appears under its final name in one step, with its manifest inside: what has no manifest does not exist. The
manifest carries a checksum of its own and the size and sha256 of each file, so that damage is noticed before use. An
intact output is never replaced; a damaged one gives way to the same output made again.
"""

import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field

from hgmem_core.schemas import SCHEMA_VERSION
from pipelines.files import (
    Payload,
    StoreError,
    create_json,
    damage_of,
    dump,
    file_sha256,
    open_arrow,
    read_as,
    read_sealed,
    seal,
    write_file,
)
from pipelines.hosts import host_id, is_gone

__all__ = [
    "DamagedOutput",
    "Output",
    "Payload",
    "Store",
    "StoreError",
    "create_json",
    "file_sha256",
    "open_arrow",
    "write_file",
]

VERSION_ID = "[0-9a-f]{16}"

LINEAGE_FILE = "lineage.parquet"
"""Of every output of a bucket: what each namespace was made from."""

FEWEST_BUCKETS, MOST_BUCKETS = 8, 4_096
BUCKET_BYTES = 1 << 18
"""Of text in a bucket of a new store, about a thousand turns: what changes costs the rewriting of its whole bucket, and
every bucket costs some tenths of a second, however little is in it."""

_RUN = uuid.uuid4().hex[:8]
"""Tells the workspaces of this process from those of an earlier one with the same id."""

_ABANDONED_SECONDS = 24 * 3600
"""After so long without a change, the workspace of another host is nobody's."""


class DamagedOutput(StoreError):
    """A file of an output is not as it was written; making the output again mends it."""

    def __init__(self, folder: Path, message: str) -> None:
        """Say which output."""
        super().__init__(message)
        self.folder = folder

    def __reduce__(self) -> tuple[type["DamagedOutput"], tuple[Path, str]]:
        """Travel between processes whole."""
        return DamagedOutput, (self.folder, str(self))


@dataclass(frozen=True, slots=True)
class Output:
    """A finished folder: its identity, where it is, and its manifest."""

    identity: str
    folder: Path
    manifest: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """What its tables say, times of import apart."""
        return str(self.manifest["digest"])

    def damage(self, contents: bool = True) -> str | None:
        """Say which file is missing, truncated or, if `contents` are read, altered; None if none is."""
        found = (damage_of(self.folder / name, about, contents) for name, about in self.manifest["files"].items())
        return next(filter(None, found), None)

    def table(self, name: str) -> pa.Table:
        """Read one of its tables; an Arrow file is mapped into memory.

        Raises:
            DamagedOutput: The file is not as it was written.
        """
        damage = damage_of(self.folder / name, self.manifest["files"].get(name))
        if damage:
            raise DamagedOutput(self.folder, f"{damage}; run the rebuild again, which makes it again")
        path = self.folder / name
        return open_arrow(path) if path.suffix == ".arrow" else pq.read_table(path)


class _Schema(BaseModel, strict=True):
    schema_version: int


class _About(_Schema):
    buckets: Annotated[int, Field(ge=1)]


class Store:
    """A store's root folder and its number of buckets."""

    def __init__(self, root: Path, buckets: int) -> None:
        """Use `Store.make` or `Store.open`."""
        self.root = root
        self.buckets = buckets

    @classmethod
    def open(cls, root: str | Path) -> "Store":
        """Open the store at `root`.

        Raises:
            StoreError: There is none, it is damaged, or it was made by a version of hgmem with other tables.
        """
        path = Path(root) / "store.json"
        try:
            version = read_as(_Schema, path).schema_version
        except FileNotFoundError as error:
            raise StoreError(f"{root} is no store (it has no store.json); import a log into it first") from error
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{root} has tables of version {version}; this software reads {SCHEMA_VERSION}: "
                "rebuild the store from its logs under a new root"
            )
        return cls(Path(root), read_as(_About, path).buckets)

    @classmethod
    def make(cls, root: str | Path, buckets: int, log_bytes: int = 0) -> "Store":
        """Open the store at `root`, or make one with `buckets` buckets.

        Args:
            root: Where.
            buckets: How many; 0 means those it has, or, of a new one, as many as suit its first logs.
            log_bytes: How much text those hold.

        Raises:
            StoreError: The store there has another number of buckets, or the place cannot be written.
        """
        path = Path(root) / "store.json"
        try:
            Path(root).mkdir(parents=True, exist_ok=True)
            if not path.exists():
                with suppress(FileExistsError):  # another maker was first; its number of buckets is checked below
                    create_json(path, {"schema_version": SCHEMA_VERSION, "buckets": buckets or _suiting(log_bytes)})
        except OSError as error:
            raise StoreError(f"cannot make a store at {root}: {error}") from error
        store = cls.open(root)
        if buckets not in (0, store.buckets):
            raise StoreError(
                f"{root} was made with {store.buckets} buckets, the configuration says {buckets}: "
                f"set store.buckets={store.buckets}, or build a new store under another root"
            )
        return store

    def output_folder(self, stage: str, identity: str) -> Path:
        """Return where the output of a stage with that identity lies, or would."""
        return self.root / "outputs" / stage / identity

    def find(self, folder: Path) -> Output | None:
        """Return the finished output in `folder`, or None if it has no readable manifest."""
        manifest = read_sealed(folder / "manifest.json")
        return None if manifest is None else Output(folder.name, folder, manifest)

    def keep(self, folder: Path, files: Mapping[str, Payload], about: Mapping[str, Any]) -> Output:
        """Write `files` and a manifest that holds `about` and each file's size and sha256; then show the folder.

        If somebody else finished the same folder meanwhile, theirs stays; a damaged or unfinished one is replaced.
        """
        with self.workspace() as draft:
            listed = {name: write_file(draft / name, payload) for name, payload in files.items()}
            return self.finish(draft, folder, listed, about)

    def finish(
        self, draft: Path, folder: Path, listed: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any]
    ) -> Output:
        """Write the manifest of a folder in a workspace and show it as `folder`; see `keep`.

        Args:
            draft: Holds the files.
            folder: The final name.
            listed: The size and sha256 of each file, as `write_file` returns them.
            about: What else the manifest holds.
        """
        manifest = seal({**about, "files": listed})
        (draft / "manifest.json").write_text(dump(manifest))
        while not _moved(draft, folder):
            found = self.find(folder)
            if found is not None and found.damage() is None:
                return found
            self.set_aside(folder)
        return Output(folder.name, folder, manifest)

    def set_aside(self, folder: Path) -> None:
        """Remove a damaged output, so that it is made again; an intact one stays."""
        with self.workspace() as aside:
            moved = aside / folder.name
            with suppress(FileNotFoundError):  # another maker set it aside
                folder.rename(moved)
            output = self.find(moved)
            if output is not None and output.damage() is None:
                with suppress(OSError):  # another maker had mended it just before: it goes back
                    moved.rename(folder)

    def remove(self, folder: Path) -> None:
        """Remove an output, intact or not, in one step: who reads it meanwhile finds all of it, or nothing."""
        with self.workspace() as aside, suppress(FileNotFoundError):
            folder.rename(aside / folder.name)

    def write_json(self, path: Path, content: Mapping[str, Any], replace: bool = False) -> None:
        """Create a JSON file of the store whole, or put it in the place of one; see `pipelines.files.create_json`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        create_json(path, content, replace)

    def add_file(self, path: Path, payload: Payload) -> dict[str, Any]:
        """Write a further file whole, beside those of an output or in a folder of its own; a reader sees no part of it.

        Returns:
            Its size and sha256, as a manifest lists them.
        """
        with self.workspace() as draft:
            listed = write_file(draft / path.name, payload)
            self.put(draft / path.name, path)
        return listed

    def put(self, written: Path, path: Path) -> None:
        """Give a file of a workspace its final name."""
        path.parent.mkdir(parents=True, exist_ok=True)
        written.replace(path)

    def output_folders(self) -> Iterator[Path]:
        """Yield the folder of every output, finished or not, stage by stage."""
        for stage in sorted((self.root / "outputs").glob("*")):
            yield from sorted(stage.glob("*"))

    def files(self, folder: Path, pattern: str = "*") -> list[Path]:
        """Return the files below a folder of the store whose path there is of a pattern, sorted."""
        return sorted(path for path in folder.glob(pattern) if path.is_file())

    def remove_file(self, path: Path) -> None:
        """Remove a single file of the store, if it is there."""
        path.unlink(missing_ok=True)

    def version_ids(self) -> list[str]:
        """Return the ids of the versions that have a manifest, in the order of their names."""
        paths = self.root.glob("versions/*/manifest.json")
        return sorted(path.parent.name for path in paths if re.fullmatch(VERSION_ID, path.parent.name))

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give a fresh folder under `tmp/` and remove what is left of it."""
        folder = self.root / "tmp" / f"{host_id()}-{os.getpid()}-{_RUN}-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def clear(self) -> None:
        """Remove what other runs left under `tmp/`, whoever they were; for who holds the store."""
        for folder in (self.root / "tmp").glob("*"):
            if f"-{os.getpid()}-{_RUN}-" not in folder.name:
                shutil.rmtree(folder)

    def sweep(self) -> None:
        """Remove what runs left under `tmp/`: of this host if their process is gone, of others if untouched for a day.

        Whether a process of another host is gone cannot be seen from here.
        """
        for folder in (self.root / "tmp").glob("*"):
            if _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def numbered(self, kind: str) -> list[tuple[int, Path]]:
        """Return the numbered files of `imports` or `current`, in order; files of other names are not looked at."""
        paths = [path for path in (self.root / kind).glob("*.json") if re.fullmatch("[0-9]+", path.stem)]
        return sorted((int(path.stem), path) for path in paths if path.name == _number_name(int(path.stem)))

    def claim(self, kind: str, number: int, content: Mapping[str, Any]) -> bool:
        """Write the numbered file of a kind, or return False if another writer took the number."""
        try:
            self.write_json(self.root / kind / _number_name(number), content)
        except FileExistsError:
            return False
        return True

    def append_numbered(self, kind: str, content: Mapping[str, Any]) -> int:
        """Write the next numbered file of a kind and return its number; two writers never get the same."""
        while True:
            number = max((number for number, _ in self.numbered(kind)), default=0) + 1
            if self.claim(kind, number, content):
                return number


def _suiting(log_bytes: int) -> int:
    return min(max(FEWEST_BUCKETS, log_bytes // BUCKET_BYTES), MOST_BUCKETS)


def _moved(draft: Path, folder: Path) -> bool:
    """Give a folder its final name, or return False if something has it already."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        draft.rename(folder)
    except FileNotFoundError:
        if not draft.exists():
            raise
        return False  # what holds the folder was removed in this moment, as of a piece that was taken
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def _number_name(number: int) -> str:
    return f"{number:06d}.json"


def _is_left(workspace: Path) -> bool:
    """Say whether nobody uses a workspace any more; names that no workspace has are nobody's to remove."""
    match = re.fullmatch(r"(?:([A-Za-z0-9._]+_[0-9a-f]{8})-)?([0-9]{1,9})-([0-9a-f]+)(?:-[0-9a-f]+)?", workspace.name)
    if match is None:
        return False
    host, pid, run = match[1] or host_id(), int(match[2]), match[3]  # earlier versions named no host
    if host != host_id():
        return _is_untouched(workspace, time.time() - _ABANDONED_SECONDS)
    return run != _RUN if pid == os.getpid() else is_gone(pid)


def _is_untouched(folder: Path, since: float) -> bool:
    """Say whether nothing in a folder was changed since that time."""
    try:
        return all(path.lstat().st_mtime < since for path in (folder, *folder.rglob("*")))
    except OSError:  # something vanished while it was looked at: somebody is at work
        return False
