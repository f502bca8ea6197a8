"""Log files in object storage: found by a pattern, and read from a copy on this machine.

A copy belongs to one state of an object: who writes the object again makes another copy. Copies may be removed while no
job runs.
"""

import hashlib
import re
import shutil
from fnmatch import fnmatchcase
from pathlib import Path

from platformdirs import user_cache_path

from pipelines.object_storage import Listed, ObjectStorage, url_of

_MAGIC = re.compile("[*?[]")


def expand_url(pattern: str) -> list[str]:
    """Return the addresses of the objects that `s3://bucket/key` names, in order: one, a pattern's, or all below it.

    `*`, `?` and `[...]` match within a folder and `**/` any folders; names that begin with `.` or `_` are left out of
    folders. No more is listed than the folder that a pattern begins with.
    """
    url = url_of(pattern)
    bucket, _, key = url.removeprefix("s3://").partition("/")
    storage = ObjectStorage(f"s3://{bucket}")
    if key and storage.look(key):
        return [url]
    plain = _MAGIC.split(key)[0]
    folder = key if plain == key else plain.rpartition("/")[0]
    keys = sorted(one.key for one in storage.listed(f"{folder}/" if folder else "") if not one.key.endswith("/"))
    if plain == key:
        found = [one for one in keys if not re.search(r"(^|/)[._]", one.removeprefix(key))]
    else:
        found = [one for one in keys if _matches(one.split("/"), key.split("/"))]
    return [f"s3://{bucket}/{one}" for one in found]


def _matches(steps: list[str], wanted: list[str]) -> bool:
    if not wanted:
        return not steps
    is_hidden = bool(steps) and steps[0].startswith(".") and not wanted[0].startswith(".")
    if wanted[0] == "**":
        return _matches(steps, wanted[1:]) or (bool(steps) and not is_hidden and _matches(steps[1:], wanted))
    return bool(steps) and not is_hidden and fnmatchcase(steps[0], wanted[0]) and _matches(steps[1:], wanted[1:])


def object_bytes(url: str) -> int:
    """Return the size of an object; 0 if there is none."""
    found = _listed(url)
    return found.bytes if found else 0


def local_copy(url: str) -> Path | None:
    """Return a file of this machine with the content and the base name of an object, or None if there is none."""
    found = _listed(url)
    if found is None:
        return None
    path = _copies_of(url) / _name(f"{found.tag} {found.bytes} {found.modified}") / found.name
    if not path.exists():
        storage, key = _place(url)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not storage.download(key, path):
            return None
    return path


def remove_copies(url: str) -> None:
    """Remove the copies that this machine has of an object, of every state of it."""
    shutil.rmtree(_copies_of(url), ignore_errors=True)


def _copies_of(url: str) -> Path:
    return user_cache_path("hgmem") / "logs" / _name(url)


def _name(about: str) -> str:
    return hashlib.sha256(about.encode()).hexdigest()[:32]


def _listed(url: str) -> Listed | None:
    storage, key = _place(url)
    return storage.look(key)


def _place(url: str) -> tuple[ObjectStorage, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return ObjectStorage(f"s3://{bucket}"), key
