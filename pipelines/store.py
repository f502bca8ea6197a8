"""A store on disk: finished outputs that never change, and numbered files that exactly one writer can create.

    store.json                      schema version and number of buckets, fixed when the store is made
    imports/000001.json             what was imported, in order
    outputs/<stage>/<identity>/     files of one stage for one bucket, with a manifest
    versions/<id>/manifest.json     which outputs make a version
    current/000001.json             the pointer: the highest number names the current version
    tmp/                            unfinished work; nothing reads it

A folder appears under its final name in one step, with its manifest inside: what has no manifest does not exist.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from hgmem_core.schemas import SCHEMA_VERSION

Payload: TypeAlias = pa.Table | bytes
"""A file's content: a table (`.parquet`, or `.arrow` to be memory-mapped) or bytes."""


NEW_BUCKETS = 8
"""Of a store made without saying how many."""


class StoreError(RuntimeError):
    """The store cannot be used as asked: says what, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Output:
    """A finished folder: its identity, where it is, and its manifest."""

    identity: str
    folder: Path
    manifest: Mapping[str, Any]

    def table(self, name: str) -> pa.Table:
        """Read one of its Parquet files."""
        return pq.read_table(self.folder / name)


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
            StoreError: There is none, or it was made by a version of hgmem with other tables.
        """
        path = Path(root) / "store.json"
        try:
            about = read_json(path)
        except FileNotFoundError as error:
            raise StoreError(f"{root} is no store (it has no store.json); import a log into it first") from error
        if about.get("schema_version") != SCHEMA_VERSION:
            raise StoreError(
                f"{root} has tables of version {about.get('schema_version')}; this software reads {SCHEMA_VERSION}: "
                "rebuild the store from its logs under a new root"
            )
        return cls(Path(root), about["buckets"])

    @classmethod
    def make(cls, root: str | Path, buckets: int) -> "Store":
        """Open the store at `root`, or make one with `buckets` buckets; 0 means those it has, or `NEW_BUCKETS`.

        Raises:
            StoreError: The store there has another number of buckets, or the place cannot be written.
        """
        path = Path(root) / "store.json"
        try:
            Path(root).mkdir(parents=True, exist_ok=True)
            if not path.exists():
                create_json(path, {"schema_version": SCHEMA_VERSION, "buckets": buckets or NEW_BUCKETS})
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
        """Return the finished output in `folder`, or None."""
        try:
            return Output(folder.name, folder, read_json(folder / "manifest.json"))
        except FileNotFoundError:
            return None

    def keep(self, folder: Path, files: Mapping[str, Payload], about: Mapping[str, Any]) -> Output:
        """Write `files` and a manifest that holds `about` and each file's size and sha256; then show the folder.

        If somebody else finished the same folder meanwhile, theirs stays.
        """
        with self.workspace() as draft:
            listed = {name: write_file(draft / name, payload) for name, payload in files.items()}
            manifest = {**about, "files": listed}
            (draft / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True))
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                draft.rename(folder)
            except OSError:
                found = self.find(folder)
                if found is None:
                    raise
                return found
        return Output(folder.name, folder, manifest)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """Give a fresh folder under `tmp/` and remove what is left of it."""
        folder = self.root / "tmp" / f"{os.getpid()}-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def numbered(self, kind: str) -> list[tuple[int, Path]]:
        """Return the numbered files of `imports` or `current`, in order."""
        return sorted((int(path.stem), path) for path in (self.root / kind).glob("[0-9]*.json"))

    def append_numbered(self, kind: str, content: Mapping[str, Any]) -> int:
        """Write the next numbered file of a kind and return its number; two writers never get the same."""
        (self.root / kind).mkdir(exist_ok=True)
        while True:
            number = max((number for number, _ in self.numbered(kind)), default=0) + 1
            try:
                create_json(self.root / kind / f"{number:06d}.json", content)
            except FileExistsError:
                continue  # another writer took the number
            return number


def write_file(path: Path, payload: Payload) -> dict[str, Any]:
    """Write one file and return its size in bytes and its sha256."""
    if isinstance(payload, bytes):
        path.write_bytes(payload)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, payload.schema) as writer:
            writer.write_table(payload)
    else:
        pq.write_table(payload, path, compression="zstd")
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def open_arrow(path: Path) -> pa.Table:
    """Map an Arrow file into memory and return its table; nothing is read before it is used."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        StoreError: The file holds something else.
    """
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise StoreError(f"{path} is damaged: {error}; restore it from a backup or rebuild the store") from error
    if not isinstance(content, dict):
        raise StoreError(f"{path} is damaged: it holds no JSON object; restore it from a backup or rebuild the store")
    return content


def create_json(path: Path, content: Mapping[str, Any]) -> None:
    """Create a JSON file whole, or raise FileExistsError; a reader never sees a part of it."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    draft.write_text(json.dumps(content, indent=1, sort_keys=True))
    try:
        os.link(draft, path)
    finally:
        draft.unlink()
