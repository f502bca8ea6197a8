"""Files of a store: written once, listed with size and sha256, and looked at before they are believed.

What is made is as private as the folder that it lies in, whatever the umask of the process is: so all that is in a
store is as private as its root, on whatever machine it was made.
"""

import hashlib
import json
import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ValidationError

Payload: TypeAlias = pa.Table | bytes
"""A file's content: a table (`.parquet`, or `.arrow` to be memory-mapped) or bytes."""

RESTORE = "restore it from a backup, or rebuild the store from its logs under a new root"

_REPEATING = frozenset(
    {
        "attachments", "graph", "hyperedge_id", "ingested_at", "kind", "namespace", "node_kind", "outcome", "reason",
        "role", "session_id", "speaker", "stage", "time_zone",
    }
)  # fmt: skip
"""Columns of which a few values fill many rows."""

_encode = json.JSONEncoder(sort_keys=True).encode

_PIECE_BYTES = 8 << 20
"""Of a file that is hashed."""

Model = TypeVar("Model", bound=BaseModel)


class StoreError(RuntimeError):
    """The store cannot be used as asked: says what, where, and what to do."""


def make_folder(path: Path, exist_ok: bool = False) -> None:
    """Make a folder, and those above it that are missing, each as private as the one that it lies in.

    Raises:
        FileExistsError: It is there, and `exist_ok` does not allow that; or it is no folder.
    """
    if not path.parent.is_dir():
        make_folder(path.parent, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not (exist_ok and path.is_dir()):
            raise
        return
    set_privacy(path, _permissions(path.parent))


def set_privacy(folder: Path, permissions: int) -> None:
    """Set who may do what with a folder; what it passes on to what is made in it, such as its group, stays."""
    folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~0o777 | permissions)


def create_file(path: Path) -> Path:
    """Create an empty file, or empty one, as private as its folder, and return its path for whoever writes it."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.fchmod(file, _permissions(path.parent) & 0o666)
    finally:
        os.close(file)
    return path


def _permissions(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode) & 0o777


def write_file(path: Path, payload: Payload) -> dict[str, Any]:
    """Write one file and return its size in bytes and its sha256."""
    create_file(path)
    if isinstance(payload, bytes):
        path.write_bytes(payload)
    elif path.suffix == ".arrow":
        table = _without_neighbours(payload)
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        # A dictionary or statistics of what never repeats cost time. List items keep their name, so that a table that
        # was read back is written to the same bytes.
        pq.write_table(
            payload,
            path,
            compression="zstd",
            use_dictionary=[name for name in payload.column_names if name in _REPEATING],
            write_statistics=False,
            use_compliant_nested_type=False,
        )
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _without_neighbours(table: pa.Table) -> pa.Table:
    """Return a table with buffers of its own: a slice is written with some bytes of the rows that it leaves out.

    Those may be what was to be erased.
    """
    chunks = (chunk for column in table.columns for chunk in column.chunks)
    if all(chunk.get_total_buffer_size() <= chunk.nbytes for chunk in chunks):
        return table
    return table.take(pa.array(range(table.num_rows), pa.int64())).combine_chunks()


def open_arrow(path: Path) -> pa.Table:
    """Map an Arrow file into memory and return its table; nothing is read before it is used."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        # Between pieces a thread waits for the interpreter, and beside an endpoint at work that takes milliseconds.
        piece = memoryview(bytearray(max(1, min(_PIECE_BYTES, os.fstat(file.fileno()).st_size))))
        while count := file.readinto(piece):
            digest.update(piece[:count])
    return digest.hexdigest()


def files_below(root: Path) -> Iterator[Path]:
    """Yield every file below a folder, hidden ones too; links are not followed.

    Raises:
        OSError: A folder cannot be listed.
    """
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield from files_below(path)
        elif not path.is_dir():
            yield path


def damage_of(path: Path, listed: Mapping[str, Any] | None, contents: bool = True) -> str | None:
    """Say in what a file differs from what a manifest lists; None if in nothing.

    Args:
        path: The file.
        listed: Its `bytes` and `sha256`; None if the manifest does not know it.
        contents: Whether to compare the sha256, too.
    """
    if listed is None:
        return f"{path} is not listed in its manifest"
    try:
        size = path.stat().st_size
        if size != listed["bytes"]:
            return f"{path} has {size} bytes, the manifest says {listed['bytes']}"
        found = file_sha256(path) if contents else listed["sha256"]
    except OSError as error:
        return f"{path} is missing or unreadable ({error})"
    return None if found == listed["sha256"] else f"{path} has sha256 {found}, the manifest says {listed['sha256']}"


def read_as(model: type[Model], path: Path, advice: str = RESTORE) -> Model:
    """Read a JSON file of the shape that `model` describes; where it has a checksum, that is compared.

    Raises:
        StoreError: The file holds something else; names the file and ends with `advice`.
    """
    content = path.read_bytes()
    try:
        found = model.model_validate_json(content)
        if _is_altered(content):
            raise StoreError(f"{path} is damaged: it does not say what was written; {advice}")
        return found
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"{path} is damaged: {where + ': ' if where else ''}{first['msg']}; {advice}") from error


def _is_altered(content: bytes) -> bool:
    tree = json.loads(content)
    return isinstance(tree, dict) and "checksum" in tree and not _is_sealed(tree)


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with a checksum of all else in it, as it will read once written."""
    text = _sealed_text(content)
    return {**json.loads(text), "checksum": hashlib.sha256(text.encode()).hexdigest()}


def _sealed_text(content: Mapping[str, Any]) -> str:
    return _encode({name: value for name, value in content.items() if name != "checksum"})


def _is_sealed(content: Mapping[str, Any]) -> bool:
    return content.get("checksum") == hashlib.sha256(_sealed_text(content).encode()).hexdigest()


def read_sealed(path: Path) -> dict[str, Any] | None:
    """Return a sealed manifest, or None if there is none or it is not as it was written."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and _is_sealed(content) else None


def create_json(path: Path, content: Mapping[str, Any], replace: bool = False) -> None:
    """Create a JSON file whole, or raise FileExistsError; a reader never sees a part of it.

    Args:
        path: Where to.
        content: What to write.
        replace: Whether to put it in the place of a file that is there; for a damaged one.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        create_file(draft).write_text(dump(content))
        if replace:
            draft.replace(path)
        else:
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def dump(content: Mapping[str, Any]) -> str:
    r"""Write content as JSON: equal content as equal text, a line for each entry and for each entry of those.

    >>> print(dump({"b": {"c": {"d": [1, 2]}}, "a": {}}))
    {
     "a": {},
     "b": {
      "c": {"d": [1, 2]}
     }
    }
    """
    entries = ",\n ".join(_entry(name, value) for name, value in sorted(content.items()))
    return f"{{\n {entries}\n}}" if content else "{}"


def _entry(name: str, value: object) -> str:
    if not (value and isinstance(value, dict)):
        return _pair(name, value)
    # Each by itself: the fast encoder of the standard library writes no line breaks.
    entries = ",\n  ".join(_pair(*pair) for pair in sorted(value.items()))
    return f"{_encode(name)}: {{\n  {entries}\n }}"


def _pair(name: str, value: object) -> str:
    return _encode({name: value})[1:-1]
