"""What was erased, on record: `erasures/000001.json` and so on, each a certificate of one erasure.

An erasure writes `erasures/unfinished.json` before it removes anything, so that one that was cut short and is finished
by another job is on record whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.files import file_sha256, read_sealed
from pipelines.store import Output, Store, StoreError

KIND = "erasures"


def erased_until(store: Store) -> int:
    """Return the number of the last tombstone file that everything was erased for; 0 if nothing ever was.

    Raises:
        StoreError: A certificate is damaged.
    """
    until = 0
    for _, path in store.numbered(KIND):
        content = read_sealed(path)
        if content is None:
            raise StoreError(f"{path} is damaged: restore it from a backup, or remove it, which erases again")
        until = max(until, int(content["tombstones_until"]))
    return until


_PARTS = ("removed", "written", "replaced", "versions", "scan")


@dataclass(slots=True)
class Record:
    """Files that an erasure changes, by path in the store.

    Attributes:
        removed: The sha256 of each file that goes.
        written: Of each file that is new.
        replaced: Of each file that has other content, before and after.
        versions: What becomes of earlier versions: of which buckets each has another index now, or none.
        scan: What was looked for and in how much, see `pipelines.erasure_scan.Scan`.
    """

    removed: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, list[str]] = field(default_factory=dict)
    versions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    scan: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store) -> "Record":
        """Return that of an erasure that was cut short; an empty one if none was."""
        store.fetch(_unfinished(store))
        content = read_sealed(_unfinished(store)) or {}
        if content.get("after") != erased_until(store):
            content = {}  # it was certified, and only its removal was cut short
        return cls(**{name: content.get(name, {}) for name in _PARTS})

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {name: getattr(self, name) for name in _PARTS}

    def keep(self, store: Store) -> None:
        """Write it down before anything in it is done."""
        content = {"after": erased_until(store), **self.as_dict()}
        store.write_json(_unfinished(store), content, replace=True)

    def removes(self, store: Store, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Take files of a folder that go, as a manifest lists them."""
        self.removed.update({_path(store, folder / name): listed["sha256"] for name, listed in files.items()})

    def removes_output(self, store: Store, folder: Path) -> None:
        """Take an output that goes; of one without a readable manifest, the files that are there."""
        output: Output | None = store.find(folder)
        if output is not None:
            self.removes(store, folder, output.manifest["files"])
            return
        found = store.files(folder, "**/*") or ([folder] if folder.is_file() else [])
        self.removed.update({_path(store, path): file_sha256(path) for path in found})

    def writes(self, store: Store, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Take files of a folder that are new, as a manifest lists them."""
        self.written.update({_path(store, folder / name): listed["sha256"] for name, listed in files.items()})

    def replaces(self, store: Store, path: Path, before: str) -> None:
        """Take a file that has other content now than one of that sha256."""
        store.fetch(path)
        name, after = _path(store, path), file_sha256(path)
        if before != after:
            self.replaced[name] = [self.replaced.get(name, [before])[0], after]

    def certify(self, store: Store, about: Mapping[str, Any]) -> Path:
        """Write the certificate and return it."""
        # An attempt that was cut short may have written what the next one had no use for.
        self.written = {path: sha256 for path, sha256 in self.written.items() if _is_there(store, store.root / path)}
        number = store.append_numbered(KIND, {**about, **self.as_dict()})
        store.remove_file(_unfinished(store))
        return dict(store.numbered(KIND))[number]


def forget_unfinished(store: Store) -> None:
    """Remove the record of an erasure that was cut short after it was certified."""
    store.remove_file(_unfinished(store))


def _unfinished(store: Store) -> Path:
    return store.root / KIND / "unfinished.json"


def _is_there(store: Store, path: Path) -> bool:
    if not path.is_file():
        store.fetch(path)
    return path.is_file()


def _path(store: Store, path: Path) -> str:
    return path.relative_to(store.root).as_posix()
