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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field

from hgmem_core.schemas import SCHEMA_VERSION
from pipelines.files import (
    Payload,
    StoreError,
    create_file,
    create_json,
    damage_of,
    dump,
    file_sha256,
    files_below,
    make_folder,
    open_arrow,
    read_as,
    read_sealed,
    seal,
    set_privacy,
    write_file,
)
from pipelines.hosts import host_id, is_gone
from pipelines.object_storage import is_url, url_of

if TYPE_CHECKING:
    from pipelines.mirror import MirroredStore

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

TOMBSTONES = "tombstones"
"""The kind of numbered files that say what is to be forgotten; see `pipelines.tombstone_files`."""

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
    store: "Store" = field(repr=False, compare=False)

    @property
    def digest(self) -> str:
        """What its tables say, times of import apart."""
        return str(self.manifest["digest"])

    @property
    def made_from(self) -> list[Path]:
        """The folders of the outputs that an index was made from; of other outputs it is not said."""
        return [self.store.output_folder(*one) for one in self.manifest.get("made_from", {}).items()]

    def damage(self, contents: bool = True) -> str | None:
        """Say which file is missing, truncated or, if `contents` are read, altered; None if none is."""
        return self.store.damage(self.folder, self.manifest["files"], contents)

    def table(self, name: str) -> pa.Table:
        """Read one of its tables; an Arrow file is mapped into memory.

        Raises:
            DamagedOutput: The file is not as it was written.
        """
        damage = self.store.damage_of(self.folder / name, self.manifest["files"].get(name))
        if damage:
            raise DamagedOutput(self.folder, f"{damage}; run the rebuild again, which makes it again")
        path = self.folder / name
        return open_arrow(path) if path.suffix == ".arrow" else pq.read_table(path)


class _Schema(BaseModel, strict=True):
    schema_version: int


class _About(_Schema):
    buckets: Annotated[int, Field(ge=1)]


class Store:
    """A store's root folder and its number of buckets.

    A store at an `s3://` address is a `pipelines.mirror.MirroredStore`: its root is a local copy of what was needed.
    """

    def __init__(self, root: Path, buckets: int) -> None:
        """Use `Store.make` or `Store.open`."""
        self.root = root
        self.buckets = buckets

    def __str__(self) -> str:
        """Say where it is."""
        return str(self.root)

    def with_buckets(self, buckets: int) -> "Store":
        """Return the same store as it is once its `store.json` says another number of buckets."""
        other = copy(self)
        other.buckets = buckets
        return other

    def reopened(self, buckets: int = 0) -> "Store":
        """Return the same store as it is now: whoever had it before may have changed the number of its buckets.

        Args:
            buckets: How many it is to have; 0 for any number.

        Raises:
            StoreError: It has another number, or is damaged.
        """
        self.fetch(self.root / "store.json")
        return self.with_buckets(buckets_of(self.root, str(self)))._with(buckets)

    def _with(self, buckets: int) -> "Store":
        """Return the store, which is to have so many buckets; 0 for any number."""
        if buckets not in (0, self.buckets):
            raise StoreError(
                f"{self} was made with {self.buckets} buckets, the configuration says {buckets}: "
                f"set store.buckets={self.buckets}, or change the store with "
                f"`python -m jobs.rebucket CONFIG --buckets {buckets}`"
            )
        return self

    @property
    def shared(self) -> Path | None:
        """The folder that whoever works on the store has to see; None where each has a mirror."""
        return self.root

    @classmethod
    def open(cls, root: str | Path, cache: str = "", cache_gib: float = 0.0) -> "Store":
        """Open the store at `root`, a folder or an `s3://` address, whose mirror is then in the folder `cache`.

        Args:
            root: Where.
            cache: The folder of mirrors; empty for the user's cache folder.
            cache_gib: What the mirror is to hold at most; 0 for no bound. See `pipelines.mirror_bound`.

        Raises:
            StoreError: There is none, it is damaged, or it was made by a version of hgmem with other tables.
        """
        if is_url(root):
            return _mirrored().open_at(url_of(root), cache, cache_gib)
        # Absolute, because workers may stand in another folder.
        return cls(Path(root).absolute(), buckets_of(Path(root), str(root)))

    @classmethod
    def make(
        cls,
        root: str | Path,
        buckets: int,
        log_bytes: int = 0,
        file_mode: int = 0o600,
        cache: str = "",
        cache_gib: float = 0.0,
    ) -> "Store":
        """Open the store at `root`, or make one with `buckets` buckets.

        Args:
            root: Where.
            buckets: How many; 0 means those it has, or, of a new one, as many as suit its first logs.
            log_bytes: How much text those hold.
            file_mode: Permissions of the files of a new one on a disk, such as 0o640; its folders can be searched by
                whoever may read. To change them later, change those of all its files and folders.
            cache: See `open`.
            cache_gib: See `open`.

        Raises:
            StoreError: The store there has another number of buckets, or the place cannot be written.
        """
        suiting = buckets or _suiting(log_bytes)
        if is_url(root):
            store: Store = _mirrored().make_at(url_of(root), cache, cache_gib, suiting)
        else:
            _make(Path(root), suiting, file_mode)
            store = cls.open(root)
        return store._with(buckets)

    def output_folder(self, stage: str, identity: str) -> Path:
        """Return where the output of a stage with that identity lies, or would."""
        return self.root.joinpath("outputs", stage, identity)

    def find(self, folder: Path) -> Output | None:
        """Return the finished output in `folder`, or None if it has no readable manifest."""
        manifest = read_sealed(folder / "manifest.json")
        return None if manifest is None else Output(folder.name, folder, manifest, self)

    def fetch(self, path: Path) -> None:
        """Bring a file that others may write or remove up to date, for reading; on a disk it is."""

    def damage(self, folder: Path, files: Mapping[str, Mapping[str, Any]], contents: bool) -> str | None:
        """Say which of an output's files is missing, truncated or, if `contents` are read, altered; None if none is."""
        return next(filter(None, (self.damage_of(folder / name, one, contents) for name, one in files.items())), None)

    def damage_of(self, path: Path, listed: Mapping[str, Any] | None, contents: bool = True) -> str | None:
        """Say in what a file of an output differs from what a manifest lists; see `pipelines.files.damage_of`."""
        return damage_of(path, listed, contents)

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
        create_file(draft / "manifest.json").write_text(dump(manifest))
        while not _moved(draft, folder):
            found = self.find(folder)
            if found is not None and found.damage() is None:
                return found
            self.set_aside(folder)
        return Output(folder.name, folder, manifest, self)

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

    def remove_all(self, folder: Path) -> None:
        """Remove a folder of outputs that nobody reads any more."""
        shutil.rmtree(folder, ignore_errors=True)

    def put(self, draft: Path, path: Path) -> None:
        """Give a file of a workspace its final name."""
        make_folder(path.parent, exist_ok=True)
        draft.replace(path)

    def share(self, path: Path) -> None:
        """Show others a file that was written in place; on a disk they see it."""

    def files(self, folder: Path, pattern: str = "*", wanted: Callable[[Path], bool] = lambda path: True) -> list[Path]:
        """Return the single files below a folder that match a pattern and are wanted, in order, for reading."""
        return sorted(path for path in folder.glob(pattern) if wanted(path) and path.is_file())

    def every_file(self) -> Iterator[Path]:
        """Yield every file of the store, hidden ones too, for reading; links are not followed.

        Raises:
            OSError: A folder cannot be listed.
        """
        return files_below(self.root)

    def remove_files(self, folder: Path, pattern: str) -> None:
        """Remove the single files below a folder that match a pattern."""
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)

    def write_json(self, path: Path, content: Mapping[str, Any], replace: bool = False) -> None:
        """Create a sealed JSON file of the store whole, or replace one; see `create_json` of `pipelines.files`."""
        self._check_root()
        make_folder(path.parent, exist_ok=True)
        create_json(path, seal(content), replace)

    def add_file(self, path: Path, payload: Payload) -> dict[str, Any]:
        """Write a further file whole, beside those of an output or in a folder of its own; a reader sees no part of it.

        Returns:
            Its size and sha256, as a manifest lists them.
        """
        with self.workspace() as draft:
            listed = write_file(draft / path.name, payload)
            self.put(draft / path.name, path)
        return listed

    def remove_file(self, path: Path) -> None:
        """Remove a single file of the store, if it is there."""
        path.unlink(missing_ok=True)

    @contextmanager
    def serving(self, version: str) -> Iterator[None]:
        """Keep what a version is made of at hand inside the `with`: a mirror that is bounded leaves it."""
        yield

    def version_ids(self) -> list[str]:
        """Return the ids of the versions that have a manifest, in the order of their names."""
        names = (path.parent.name for path in self.root.glob("versions/*/manifest.json"))
        return sorted(name for name in names if re.fullmatch(VERSION_ID, name))

    def output_folders(self) -> Iterator[Path]:
        """Yield the folder of every output, finished or not, stage by stage."""
        for stage in sorted((self.root / "outputs").glob("*")):
            yield from sorted(stage.glob("*"), key=attrgetter("name"))

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give a fresh folder under `tmp/` and remove what is left of it."""
        folder = self.root / "tmp" / f"{host_id()}-{os.getpid()}-{_RUN}-{uuid.uuid4().hex}"
        self._check_root()
        make_folder(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _check_root(self) -> None:
        """Refuse to write to a store that vanished: with folders made anew, a part of it would look like the whole."""
        if not self.root.is_dir():
            raise StoreError(
                f"{self.root} is gone: it was removed, renamed or unmounted while this process worked on it; bring it "
                "back and run this again"
            )

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

    def numbered_path(self, kind: str, number: int) -> Path:
        """Return where the numbered file of a kind lies, or would."""
        return self.root / kind / _number_name(number)

    def claim(self, kind: str, number: int, content: Mapping[str, Any]) -> bool:
        """Write the numbered file of a kind, or return False if another writer took the number."""
        try:
            self.write_json(self.numbered_path(kind, number), content)
        except FileExistsError:
            return False
        return True

    def append_numbered(self, kind: str, content: Mapping[str, Any]) -> int:
        """Write the next numbered file of a kind and return its number; two writers never get the same."""
        while True:
            number = max((number for number, _ in self.numbered(kind)), default=0) + 1
            if self.claim(kind, number, content):
                return number


def buckets_of(root: Path, name: str) -> int:
    """Return the number of buckets of the store in a folder, which messages call `name`; see `Store.open`."""
    path = root / "store.json"
    try:
        version = read_as(_Schema, path).schema_version
    except FileNotFoundError as error:
        raise StoreError(f"{name} is no store (it has no store.json); import a log into it first") from error
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{name} has tables of version {version}; this software reads {SCHEMA_VERSION}: "
            "rebuild the store from its logs under a new root, with "
            "`python -m jobs.rebuild CONFIG --set store.root=NEW`"
        )
    return read_as(_About, path).buckets


def _make(root: Path, buckets: int, file_mode: int) -> None:
    path = root / "store.json"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with suppress(PermissionError):  # a folder of another user, who decided who may see what is in it
                set_privacy(root, file_mode | (file_mode & 0o444) >> 2)
            with suppress(FileExistsError):  # another maker was first; its number of buckets is checked later
                create_json(path, seal({"schema_version": SCHEMA_VERSION, "buckets": buckets}))
    except OSError as error:
        raise StoreError(f"cannot make a store at {root}: {error}") from error


def _mirrored() -> type["MirroredStore"]:
    # Imported here because who has a store on a disk need not wait for a client, and it extends this module.
    from pipelines.mirror import MirroredStore

    return MirroredStore


def _suiting(log_bytes: int) -> int:
    return min(max(FEWEST_BUCKETS, log_bytes // BUCKET_BYTES), MOST_BUCKETS)


def _moved(draft: Path, folder: Path) -> bool:
    """Give a folder its final name, or return False if something has it already."""
    make_folder(folder.parent, exist_ok=True)
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
