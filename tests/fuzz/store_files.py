"""Files of a store, of keys and of configuration: good, or refused in the parser's own words, which name the file."""

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hgmem_core.config import ConfigError, parse_config, to_toml
from pipelines.files import StoreError, dump, seal
from pipelines.imports import read_imports
from pipelines.serve_keys import KeyRing, read_keys
from pipelines.store import Store
from pipelines.tombstone_files import read_tombstones
from pipelines.version_history import stored_manifest
from pipelines.versions import open_version, pointers, read_manifest
from tests.fuzz.target import Target, text_of

_FOLDER = tempfile.TemporaryDirectory(prefix="hgmem-fuzz-")
_VERSION = "0" * 16


def _store() -> Store:
    return Store.make(str(Path(_FOLDER.name, "store")), 1)


def _as_read(data: bytes) -> list[bytes]:
    """Return the bytes, and, where they are an object of JSON, the same with the checksum that it should have."""
    with suppress(ValueError, RecursionError):
        content: Any = json.loads(data)
        if isinstance(content, dict):
            return [data, dump(seal(content)).encode()]
    return [data]


def _file(path: str, *readers: Callable[[Store], object]) -> Callable[[bytes], None]:
    """Return what puts bytes at a path of a store and reads them, as they are and sealed."""

    def read(data: bytes) -> None:
        store = _store()
        file = store.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.read_bytes() if file.exists() else None
        for content in _as_read(data):
            file.write_bytes(content)
            for reader in readers:
                try:
                    reader(store)
                except StoreError as error:
                    assert file.name in str(error) or str(store.root) in str(error) or _VERSION in str(error)
        if before is None:
            file.unlink()
        else:
            file.write_bytes(before)

    return read


def _read_keys(data: bytes) -> None:
    folder = Path(_FOLDER.name, "keys")
    folder.mkdir(exist_ok=True)
    file = folder / f"{'0' * 12}.json"
    file.write_bytes(data)
    try:
        read_keys(folder)
        ring = KeyRing(folder)
    except StoreError as error:
        assert file.name in str(error)
        return
    assert ring.find(text_of(data)) is None


def _read_config(data: bytes) -> None:
    """What stands behind a line of dashes are overrides, one a line."""
    try:
        text, _, overrides = data.decode().partition("\n---\n")
    except UnicodeDecodeError:
        return  # whoever opens the file says so
    try:
        config = parse_config(text, overrides.splitlines())
    except ConfigError as error:
        assert str(error)
        return
    assert parse_config(to_toml(config)) == config


TARGETS = {
    "tombstones": Target(_file("tombstones/000001.json", read_tombstones), is_json=True),
    "manifests": Target(
        _file(
            f"versions/{_VERSION}/manifest.json",
            lambda store: read_manifest(store, _VERSION),
            lambda store: stored_manifest(store, _VERSION),
            lambda store: open_version(store, _VERSION),
        ),
        is_json=True,
    ),
    "pointers": Target(_file("current/000001.json", pointers), is_json=True),
    "imports": Target(_file("imports/000001.json", read_imports), is_json=True),
    "store-json": Target(_file("store.json", lambda store: Store.open(store.root)), is_json=True),
    "keys": Target(_read_keys, is_json=True),
    "config": Target(
        _read_config, words=("[store]", "buckets = ", "[[inputs]]", "format = ", '"', "\n---\n", "inputs.0.")
    ),
}
