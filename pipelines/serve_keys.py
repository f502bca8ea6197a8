"""Keys of those who may ask: made, listed and revoked as files of one folder, none of which holds the key itself.

A key is `hgm_<id>_<secret>`. Its file `<id>.json` has the SHA-256 of the secret, which is 256 random bits, so that no
slower hash is needed, and the grants: which namespaces, by whole segments, with which right.
"""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, field_validator

from hgmem_core.ids import check_namespace
from pipelines.files import StoreError, create_json, read_as

Right = Literal["read", "write", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)
"""Each includes those before it."""

EVERYTHING = "*"
"""The prefix of every namespace."""

_ID = "[0-9a-f]{12}"
_KEY = re.compile(f"hgm_({_ID})_([A-Za-z0-9_-]{{43}})")
_ADVICE = "restore it from a backup, or remove it and make another key"
_NOBODY = hashlib.sha256(b"").hexdigest()


class KeyFileError(StoreError):
    """A key that cannot be made or revoked as asked."""


class Grant(BaseModel, frozen=True):
    """What a key may do.

    Attributes:
        prefix: `acme` for `acme` and all below it, such as `acme/alice`; `*` for everything.
        right: Up to which right.
    """

    prefix: str
    right: Right

    @field_validator("prefix")
    @classmethod
    def _is_one(cls, prefix: str) -> str:
        return prefix if prefix == EVERYTHING else check_namespace(prefix)

    @classmethod
    def parse(cls, text: str) -> "Grant":
        """Read `acme/alice:read`.

        Raises:
            ValueError: It is something else.
        """
        prefix, colon, right = text.rpartition(":")
        if not colon or right not in RIGHTS:
            raise ValueError(f"{text!r} is no grant: write PREFIX:RIGHT, with a right of {', '.join(RIGHTS)}")
        return cls(prefix=prefix, right=right)

    def allows(self, namespace: str, right: Right) -> bool:
        """Say whether it covers a namespace with a right; `*` as a namespace stands for all of them."""
        if RIGHTS.index(right) > RIGHTS.index(self.right):
            return False
        return self.prefix == EVERYTHING or f"{namespace}/".startswith(f"{self.prefix}/")


class Key(BaseModel, frozen=True):
    """What is kept of a key.

    Attributes:
        id: Names it, as in lists and logs.
        sha256: Of its secret.
        grants: What it may do.
        note: Whose it is, in the words of who made it.
        made_at: When.
        revoked_at: When it was revoked; None as long as it is good.
    """

    id: Annotated[str, Field(pattern=f"^{_ID}$")]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    grants: Annotated[tuple[Grant, ...], Field(min_length=1)]
    note: str = ""
    made_at: datetime
    revoked_at: datetime | None = None


def make_key(folder: Path, grants: Sequence[Grant], now: datetime, note: str = "") -> tuple[Key, str]:
    """Make a key; return what is kept of it, and the key itself, which is nowhere else.

    Raises:
        KeyFileError: The folder cannot be written.
    """
    secret = secrets.token_urlsafe(32)
    key = Key(id=secrets.token_hex(6), sha256=_digest(secret), grants=tuple(grants), note=note, made_at=now)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        create_json(folder / f"{key.id}.json", key.model_dump(mode="json"))
    except OSError as error:
        raise KeyFileError(f"cannot write a key to {folder}: {error}") from error
    return key, f"hgm_{key.id}_{secret}"


def revoke_key(folder: Path, key_id: str, now: datetime) -> Key:
    """Revoke a key; one that was revoked before stays as it is.

    Raises:
        KeyFileError: There is no such key, or it cannot be written.
    """
    path = folder / f"{key_id}.json"
    if not re.fullmatch(_ID, key_id) or not path.is_file():
        raise KeyFileError(f"{folder} has no key {key_id!r}: python -m jobs.keys list shows those there are")
    key = read_as(Key, path, _ADVICE)
    if key.revoked_at is None:
        key = key.model_copy(update={"revoked_at": now})
        try:
            create_json(path, key.model_dump(mode="json"), replace=True)
        except OSError as error:
            raise KeyFileError(f"cannot write {path}: {error}") from error
    return key


def read_keys(folder: Path) -> list[Key]:
    """Return every key of a folder, revoked ones too, in the order of their making.

    Raises:
        StoreError: There is no such folder, or a file in it is damaged.
    """
    keys = [read_as(Key, folder / name, _ADVICE) for name, _, _ in _stamps(folder)]
    return sorted(keys, key=lambda key: (key.made_at, key.id))


class KeyRing:
    """The keys of a folder as they were when it was last read; threads may share it."""

    def __init__(self, folder: Path) -> None:
        """Read the folder.

        Raises:
            StoreError: There is none, or a file in it is damaged.
        """
        self._folder = folder
        self._keys: Mapping[str, Key] = {}
        self._seen: frozenset[tuple[str, int, int]] = frozenset()
        self.refresh()

    def refresh(self) -> None:
        """Read the folder again, if a file in it changed.

        Raises:
            StoreError: As at first; the keys known so far stay.
        """
        seen = frozenset(_stamps(self._folder))
        if seen != self._seen or not self._keys:
            self._keys = {key.id: key for key in read_keys(self._folder)}
            self._seen = seen

    def find(self, text: str) -> Key | None:
        """Return the good key that a text is, or None; it takes equally long whether its id is known or not."""
        match = _KEY.fullmatch(text)
        key_id, secret = ("", "") if match is None else match.groups()
        known = self._keys.get(key_id)
        same = hmac.compare_digest(_digest(secret), _NOBODY if known is None else known.sha256)
        return known if same and known is not None and known.revoked_at is None else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _stamps(folder: Path) -> Iterable[tuple[str, int, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise StoreError(
            f"the folder of keys {folder} cannot be read ({error}): correct serve.keys; python -m jobs.keys make makes "
            "the folder with its first key"
        ) from error
    for entry in entries:
        if re.fullmatch(rf"{_ID}\.json", entry.name):
            about = entry.stat()
            yield entry.name, about.st_mtime_ns, about.st_ino
