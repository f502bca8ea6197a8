"""The scan of touched buckets for ids and texts that were erased: nothing is certified that was not looked for."""

import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.audit import Texts, audit
from pipelines.erased_imports import ErasedImports, Said
from pipelines.progress import Progress
from pipelines.store import Store, StoreError

SHORTEST_TEXT = 16
"""Characters: a shorter text may stand anywhere by chance; its turn is looked for by its id."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Scan:
    """What was looked for, and in how much: ids and texts, files and bytes of them on disk."""

    ids: int
    texts: int
    files: int
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return asdict(self)


def scan_buckets(
    store: Store, imports: ErasedImports, buckets: Collection[int], outputs: Collection[Path], progress: Progress
) -> Scan:
    """Look for what was erased in all files of some buckets.

    Args:
        store: Where.
        imports: What was erased and what was not; their old files, which go last, are not looked at.
        buckets: Which.
        outputs: Those that these have now.
        progress: Told of files.

    Raises:
        StoreError: Something is there: says where, not what.
    """
    ids = imports.erased.ids - imports.kept.ids
    texts = _only_erased(imports.erased, imports.kept)
    sought = Texts([*ids, *texts])
    found = audit(store.root, _files(store, imports, buckets, outputs), sought, progress)
    if found.found or found.unreadable:
        places = dict.fromkeys([*(f"{one.path} ({one.where})" for one in found.found), *found.unreadable])
        shown = ", ".join(list(places)[:_SHOWN]) + (f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else "")
        raise StoreError(
            f"what was to be erased may be left in {shown} of {store}: nothing was certified. Run this again; if "
            "it is found again, remove those files and rebuild, which makes them again"
        )
    return Scan(len(ids), len(texts), found.files, found.bytes)


def _only_erased(erased: Said, kept: Said) -> set[str]:
    """Return erased texts, long enough to be told from others, that nothing which is kept says as well."""
    texts: dict[str, list[str]] = {}
    for text in erased.texts:
        if len(text) >= SHORTEST_TEXT:
            texts.setdefault(_plain(text), []).append(text)
    texts.pop("", None)
    said = "\0".join(map(_plain, kept.texts)).encode("utf-8", "surrogatepass")
    still = Texts(texts).within(said)
    return {text for plain, own in texts.items() if plain not in still for text in own}


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().casefold()


def _files(store: Store, imports: ErasedImports, buckets: Collection[int], outputs: Collection[Path]) -> Iterator[Path]:
    old = {one.now.folder / name for one in imports.changed for name in one.old}
    numbers = "|".join(f"{bucket:05d}" for bucket in buckets)
    of_bucket = re.compile(rf"[a-z-]+-(?:{numbers})(?:-[0-9a-f]+)?\.parquet")
    for one in imports.every:
        yield from store.files(
            one.folder, wanted=lambda path: of_bucket.fullmatch(path.name) is not None and path not in old
        )
    for folder in (*sorted(outputs), *(store.root / "calls" / f"bucket-{bucket:06d}" for bucket in buckets)):
        yield from store.files(folder)
    for left in ("pieces", "tmp"):
        yield from store.files(store.root / left, "**/*")
