"""A store in object storage, worked on through a mirror: a local folder of the same layout, filled as it is needed.

Indexes and tables are mapped into memory from a disk anyway, and outputs never change, so a file is fetched once. What
is there, the object storage alone decides: a manifest, a numbered file or a listing is asked of it each time, and the
mirror is a cache that several processes may share and anybody may remove. Files of an output are uploaded first and its
manifest last; what may be created only once is created there, by a conditional write.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from platformdirs import user_cache_path

from hgmem_core.schemas import SCHEMA_VERSION
from pipelines.files import damage_of, dump, make_folder, seal
from pipelines.mirror_bound import MirrorBound, note_use, served_from
from pipelines.object_storage import ENDPOINT_VARIABLE, ObjectStorage, ObjectStorageError
from pipelines.store import VERSION_ID, Output, Store, buckets_of

_AT_ONCE = 8
"""Requests in flight for the files of one folder."""


class MirroredStore(Store):
    """A store at `s3://...`; `root` is its mirror."""

    def __init__(self, root: Path, buckets: int, storage: ObjectStorage, most_bytes: int) -> None:
        """Use `Store.make` or `Store.open`; the mirror is to hold at most so many bytes, 0 for any number."""
        super().__init__(root, buckets)
        self.storage = storage
        self._bound = MirrorBound(root, most_bytes)

    def __str__(self) -> str:
        """Return its address."""
        return self.storage.url

    @property
    def shared(self) -> None:
        """No folder has to be seen by all: every node has a mirror of its own."""

    @classmethod
    def open_at(cls, url: str, cache: str, cache_gib: float) -> "MirroredStore":
        """Open the store at an address; see `Store.open`."""
        storage = ObjectStorage(url)
        root = mirror_folder(storage.url, cache)
        if not storage.download("store.json", root / "store.json"):
            (root / "store.json").unlink(missing_ok=True)
        return cls(root, buckets_of(root, storage.url), storage, int(cache_gib * (1 << 30)))

    @classmethod
    def make_at(cls, url: str, cache: str, cache_gib: float, buckets: int) -> "MirroredStore":
        """Open the store at an address, or make one with so many buckets.

        Raises:
            ObjectStorageError: The server overwrites what is to be created only once.
        """
        storage = ObjectStorage(url)
        if storage.get("store.json") is None:
            about = dump(seal({"schema_version": SCHEMA_VERSION, "buckets": buckets})).encode()
            if storage.create("store.json", about) and storage.create("store.json", about):
                raise ObjectStorageError(
                    f"the server of {storage.url} does not know conditional writes (If-None-Match), without which two "
                    "rebuilds at once would both publish; use one that does, or a store on a disk"
                )
        return cls.open_at(url, cache, cache_gib)

    def fetch(self, path: Path) -> None:
        """See `Store.fetch`."""
        if not self.storage.download(self._key(path), path):
            path.unlink(missing_ok=True)

    def find(self, folder: Path) -> Output | None:
        """See `Store.find`."""
        self.fetch(folder / "manifest.json")
        return super().find(folder)

    def damage(self, folder: Path, files: Mapping[str, Mapping[str, Any]], contents: bool) -> str | None:
        """See `Store.damage`: sizes are those of the objects, contents those of their copies here."""
        sizes = {listed.key: listed.bytes for listed in self.storage.listed(f"{self._key(folder)}/")}
        for name, about in files.items():
            key = self._key(folder / name)
            if key not in sizes:
                return f"{self.storage.address(key)} is missing"
            if sizes[key] != about["bytes"]:
                return f"{self.storage.address(key)} has {sizes[key]} bytes, the manifest says {about['bytes']}"
        return super().damage(folder, files, contents) if contents else None

    def damage_of(self, path: Path, listed: Mapping[str, Any] | None, contents: bool = True) -> str | None:
        """See `Store.damage_of`: what is not here, or not as it was written, is fetched."""
        damage = damage_of(path, listed, contents)
        if listed is not None and damage is not None:
            self.fetch(path)
            damage = damage_of(path, listed)  # whatever the caller knows of the copy that was here
            damage = damage and damage.replace(str(path), self.storage.address(self._key(path)))
            self._bound.add(listed["bytes"])
        if damage is None:
            note_use(path)
        return damage

    def finish(
        self, draft: Path, folder: Path, listed: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any]
    ) -> Output:
        """See `Store.finish`."""
        manifest = seal({**about, "files": listed})
        while True:
            self._upload({self._key(folder / name): draft / name for name in listed})
            if self.storage.create(self._key(folder / "manifest.json"), dump(manifest).encode()):
                break
            found = self.find(folder)
            if found is not None and found.damage() is None:
                return found
            self.set_aside(folder)
        make_folder(folder, exist_ok=True)
        for name in listed:
            (draft / name).replace(folder / name)
        self._bound.add(sum(about["bytes"] for about in listed.values()))
        return Output(folder.name, folder, manifest, self)

    def set_aside(self, folder: Path) -> None:
        """See `Store.set_aside`."""
        output = self.find(folder)
        if output is None or output.damage() is not None:
            self.remove(folder)

    def remove(self, folder: Path) -> None:
        """See `Store.remove`."""
        self.storage.delete([self._key(folder / "manifest.json")])
        self.remove_all(folder)

    def remove_all(self, folder: Path) -> None:
        """See `Store.remove_all`."""
        self.storage.delete([listed.key for listed in self.storage.listed(f"{self._key(folder)}/")])
        super().remove_all(folder)

    def write_json(self, path: Path, content: Mapping[str, Any], replace: bool = False) -> None:
        """See `Store.write_json`."""
        key, text = self._key(path), dump(seal(content)).encode()
        if replace:
            self.storage.put(key, text)
        else:
            self.fetch(path)
            if path.exists() or not self.storage.create(key, text):
                self.fetch(path)
                raise FileExistsError(f"{self.storage.address(key)} exists")
        path.unlink(missing_ok=True)

    def remove_file(self, path: Path) -> None:
        """See `Store.remove_file`."""
        self.storage.delete([self._key(path)])
        super().remove_file(path)

    def put(self, draft: Path, path: Path) -> None:
        """See `Store.put`."""
        self.storage.put(self._key(path), draft)
        super().put(draft, path)

    def share(self, path: Path) -> None:
        """See `Store.share`."""
        self.storage.put(self._key(path), path)

    def files(self, folder: Path, pattern: str = "*", wanted: Callable[[Path], bool] = lambda path: True) -> list[Path]:
        """See `Store.files`; what is not wanted is not fetched."""
        listed = list(filter(wanted, self._matching(folder, pattern)))
        self._bring([path for path in listed if not path.exists()])
        for path in listed:
            note_use(path)
        return listed

    def every_file(self) -> Iterator[Path]:
        """See `Store.every_file`: each is fetched."""
        for key in sorted(listed.key for listed in self.storage.listed("")):
            self.fetch(self.root / key)
            yield self.root / key

    def remove_files(self, folder: Path, pattern: str) -> None:
        """See `Store.remove_files`."""
        found = self._matching(folder, pattern)
        self.storage.delete([self._key(path) for path in found])
        for path in found:
            path.unlink(missing_ok=True)

    @contextmanager
    def serving(self, version: str) -> Iterator[None]:
        """See `Store.serving`."""
        with served_from(self.root, version):
            yield
        self._bound.keep()

    def version_ids(self) -> list[str]:
        """See `Store.version_ids`."""
        return sorted(name for name in self.storage.folders("versions/") if re.fullmatch(VERSION_ID, name))

    def output_folders(self) -> Iterator[Path]:
        """See `Store.output_folders`."""
        for stage in sorted(self.storage.folders("outputs/")):
            yield from (
                self.root / "outputs" / stage / name for name in sorted(self.storage.folders(f"outputs/{stage}/"))
            )

    def _check_root(self) -> None:
        """See `Store._check_root`: a mirror may be removed by anybody, and is made anew."""

    def numbered(self, kind: str) -> list[tuple[int, Path]]:
        """See `Store.numbered`; those that are not here yet are fetched."""
        listed = {one.key: one for one in self.storage.listed(f"{kind}/") if re.fullmatch(r"\d+\.json", one.name)}
        for path in (self.root / kind).glob("*.json"):
            there, here = listed.pop(self._key(path), None), path.stat()
            if there is None or (there.bytes, int(there.modified)) != (here.st_size, int(here.st_mtime)):
                path.unlink(missing_ok=True)
                listed |= {there.key: there} if there else {}
        self._bring([self.root / key for key in listed])
        return super().numbered(kind)

    def _matching(self, folder: Path, pattern: str) -> list[Path]:
        """Return the places of the objects below a folder whose keys below it match a pattern, in order."""
        prefix = f"{self._key(folder)}/"
        names = (PurePosixPath(one.key.removeprefix(prefix)) for one in self.storage.listed(prefix))
        # `match` looks at the end of a path only, and `**` says that it may be as long as it is.
        end = pattern.removeprefix("**/")
        depth = None if end != pattern else len(PurePosixPath(end).parts)
        return sorted(folder / name for name in names if name.match(end) and depth in (None, len(name.parts)))

    def _bring(self, paths: list[Path]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.fetch, paths))

    def _upload(self, files: Mapping[str, Path]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.storage.put, files.keys(), files.values()))

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def mirror_folder(url: str, cache: str) -> Path:
    """Return the folder that mirrors what is at an address, and make it for this user alone.

    Args:
        url: The address; at another endpoint it is another one.
        cache: The folder of all mirrors; empty for `hgmem/stores` in the user's cache folder.
    """
    about = f"{os.environ.get(ENDPOINT_VARIABLE, '')} {url}"
    name = f"{re.sub('[^A-Za-z0-9.]+', '-', url)[:80]}-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
    folder = (Path(cache) if cache else user_cache_path("hgmem") / "stores").absolute() / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ObjectStorageError(
            f"the mirror {folder} of {url} cannot be made: {error.strerror}; set store.cache to a folder that can"
        ) from error
    return folder
