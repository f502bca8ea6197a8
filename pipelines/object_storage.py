"""Object storage that speaks S3: objects below one address, and the only file that knows its client.

Keys, the endpoint and the region come from the usual environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
`AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`) and are written nowhere. A request that a server answers with 5xx
or that finds no connection is tried again, a little later each time.
"""

import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from pipelines.files import StoreError, create_file, make_folder

if TYPE_CHECKING:
    from obstore.store import BackoffConfig

SCHEME = "s3://"
ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL"

_CHUNK_BYTES = 8 << 20
_RETRIES = 8
_RETRY_SECONDS = 180
_FILE_TIMEOUT = "600s"
"""Of one try with the content of a file, which may be large."""

_TIMEOUT = "60s"
"""Of one try of any other request: who waits for it may hold a lease, or a thread of the endpoint."""

_CONNECT_TIMEOUT = "10s"
_WRITER = "hgmem-writer"
"""Metadata of an object that may be created only once: tells whose it is, if the answer to its creation got lost."""


class ObjectStorageError(StoreError):
    """A request to object storage failed for good: says which object, what failed, and what to do."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An object as a listing tells of it; `modified` is in seconds since 1970, by the server's clock."""

    key: str
    bytes: int
    modified: float
    tag: str

    @property
    def name(self) -> str:
        """What follows its last slash."""
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Stored:
    """An object; `tag` changes with its content, `modified` is in seconds since 1970, by the server's clock."""

    content: bytes
    modified: float
    tag: str
    writer: str | None


def is_url(place: str | PurePath) -> bool:
    """Say whether a place is in object storage.

    >>> is_url("s3://bucket/store"), is_url(PurePath("s3://bucket/store")), is_url("store")
    (True, True, False)
    """
    return str(place).startswith("s3:/")


def url_of(place: str | PurePath) -> str:
    """Return an address as it is written, also where a path has taken away one of its slashes.

    >>> url_of(PurePath("s3://bucket/store"))
    's3://bucket/store'
    """
    return SCHEME + str(place).removeprefix("s3:").strip("/")


class ObjectStorage:
    """The objects below `s3://bucket/prefix`, each known by its key: what follows the address and a slash."""

    def __init__(self, url: str, endpoint: str = "") -> None:
        """Ask for nothing yet.

        Args:
            url: The address.
            endpoint: The server; empty for that of the environment.

        Raises:
            ObjectStorageError: The address names no bucket.
        """
        self.url = url_of(url)
        self.endpoint = endpoint or os.environ.get(ENDPOINT_VARIABLE, "")
        self.bucket, _, self.prefix = self.url.removeprefix(SCHEME).partition("/")
        if not self.bucket:
            raise ObjectStorageError(f"{url} names no bucket; write s3://bucket/folder")

    def __reduce__(self) -> tuple[type["ObjectStorage"], tuple[str, str]]:
        """Travel between processes as an address; each takes keys from its own environment."""
        return ObjectStorage, (self.url, self.endpoint)

    @cached_property
    def _client(self) -> S3Store:
        """For requests that are small."""
        return self._client_with(_TIMEOUT)

    @cached_property
    def _file_client(self) -> S3Store:
        """For requests with the content of a file."""
        return self._client_with(_FILE_TIMEOUT)

    def _client_with(self, timeout: str) -> S3Store:
        wait: BackoffConfig = {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=15),
            "base": 2,
        }
        return S3Store(
            self.bucket,
            prefix=self.prefix or None,
            endpoint=self.endpoint or None,
            client_options={
                "allow_http": self.endpoint.startswith("http://"),
                "timeout": timeout,
                "connect_timeout": _CONNECT_TIMEOUT,
            },
            retry_config={
                "max_retries": _RETRIES,
                "backoff": wait,
                "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
            },
        )

    def address(self, key: str) -> str:
        """Return the whole address of an object, for people."""
        return f"{self.url}/{key}"

    def get(self, key: str) -> Stored | None:
        """Return a small object, or None if there is none."""
        with self._asked("reading", key):
            found = self._found(self._client, key)
            if found is None:
                return None
            meta, writer = found.meta, found.attributes.get(_WRITER)
            return Stored(bytes(found.bytes()), meta["last_modified"].timestamp(), str(meta["e_tag"]), writer)

    def look(self, key: str) -> Listed | None:
        """Return what there is to know of an object without its content, or None if there is none."""
        with self._asked("looking for", key):
            try:
                meta = obstore.head(self._client, key)
            except FileNotFoundError:
                return None
            return Listed(key, meta["size"], meta["last_modified"].timestamp(), str(meta["e_tag"]))

    def download(self, key: str, path: Path) -> bool:
        """Copy an object to a file, whole or not at all, or return False if there is none.

        The file has the object's time of change.
        """
        with self._asked("reading", key):
            found = self._found(self._client if path.suffix == ".json" else self._file_client, key)
            if found is None:
                return False
            make_folder(path.parent, exist_ok=True)
            draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
            try:
                with create_file(draft).open("wb") as file:
                    for chunk in found.stream(min_chunk_size=_CHUNK_BYTES):
                        file.write(chunk)
                modified = found.meta["last_modified"].timestamp()
                os.utime(draft, (time.time(), modified))
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
            return True

    def put(self, key: str, content: bytes | Path) -> None:
        """Write an object, in the place of one if there is one."""
        with self._asked("writing", key):
            obstore.put(self._file_client if isinstance(content, Path) else self._client, key, content)

    def create(self, key: str, content: bytes) -> bool:
        """Write an object where there is none, or return False: of many writers one gets True."""
        writer = uuid.uuid4().hex
        with self._asked("writing", key):
            try:
                obstore.put(
                    self._client, key, content, mode="create", attributes={_WRITER: writer}, use_multipart=False
                )
            except AlreadyExistsError:
                # Also what a second try finds, if the first got through and its answer did not.
                found = self.get(key)
                return found is not None and found.writer == writer
            return True

    def replace(self, key: str, content: bytes, tag: str) -> str | None:
        """Write an object in the place of the one with that tag and return the new tag; None if another is there.

        The content is to be one that nobody else writes.
        """
        with self._asked("writing", key):
            try:
                return str(obstore.put(self._client, key, content, mode={"e_tag": tag}, use_multipart=False)["e_tag"])
            except (PreconditionError, FileNotFoundError):
                found = self.get(key)
                return found.tag if found is not None and found.content == content else None

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, those that are there."""
        if keys:
            with self._asked("removing", keys[0] if len(keys) == 1 else f"{keys[0]} and others"):
                obstore.delete(self._client, list(keys))

    def listed(self, prefix: str) -> list[Listed]:
        """Return all objects whose keys begin with `prefix`, which is empty or ends with a slash."""
        with self._asked("listing", prefix):
            batches = obstore.list(self._client, prefix=prefix.rstrip("/") or None)
            return [
                Listed(one["path"], one["size"], one["last_modified"].timestamp(), str(one["e_tag"]))
                for batch in batches
                for one in batch
                if one["path"].startswith(prefix)
            ]

    def folders(self, prefix: str) -> list[str]:
        """Return the names that follow `prefix`, which ends with a slash, up to the next slash."""
        with self._asked("listing", prefix):
            found = obstore.list_with_delimiter(self._client, prefix=prefix.rstrip("/") or None)
            return [name.rstrip("/").removeprefix(prefix) for name in found["common_prefixes"]]

    def _found(self, client: S3Store, key: str) -> "obstore.GetResult | None":
        try:
            return obstore.get(client, key)
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise
            return None

    @contextmanager
    def _asked(self, doing: str, key: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError, PermissionError, ValueError) as error:
            raise ObjectStorageError(f"{doing} {self.address(key)} failed: {_reason(error, self.endpoint)}") from error


def _reason(error: BaseException, endpoint: str) -> str:
    """Say what a server answered, and what to do."""
    text = str(error)
    status = re.search(r"status code: (\d+)", text)
    code = re.search(r"<Code>(\w+)</Code>", text)
    told = " ".join(found[1] for found in (status, code) if found)
    if "NoSuchBucket" in text:
        return "there is no such bucket; make it, or correct the address"
    if status and status[1] in ("400", "401", "403"):
        return (
            f"the server answered {told}; look at the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, at "
            "AWS_REGION, and at what they may do with the bucket"
        )
    if status:
        return f"the server answered {told}, after {_RETRIES} retries; run this again when it is well"
    where = endpoint or f"of AWS, since {ENDPOINT_VARIABLE} is not set"
    return (
        f"{text.partition(chr(10))[0][:300]}; is the endpoint ({where}) right, and can it be reached? Run this again "
        "then: what was finished is kept"
    )
