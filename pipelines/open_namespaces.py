"""Namespaces of a version that are kept open, as long as others are not asked more."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from pipelines.versions import Version

Index = TypeVar("Index")
Opened = TypeVar("Opened")


class OpenNamespaces(Generic[Index, Opened]):
    """What is asked of some namespaces, opened once; threads may share it."""

    def __init__(
        self,
        version: Version,
        open_bucket: Callable[[int], Index | None],
        open_in: Callable[[Index, str], Opened | None],
        most: int,
    ) -> None:
        """Open nothing yet.

        Args:
            version: Whose namespaces.
            open_bucket: Opens a bucket, which stays open; None if the version has nothing of it.
            open_in: Opens a namespace of an opened bucket; None if there is nothing of it.
            most: Namespaces that are open at once; beyond, the one that was asked longest ago is closed.
        """
        self._version = version
        self._open_bucket = open_bucket
        self._open_in = open_in
        self._most = most
        self._buckets: dict[int, Index | None] = {}
        self._open: OrderedDict[str, Opened] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, namespace: str) -> Opened | None:
        """Return a namespace, opened; None if there is nothing of it."""
        with self._lock:
            found = self._open.get(namespace)
            if found is not None:
                self._open.move_to_end(namespace)
                return found
            bucket = self._version.bucket_of(namespace)
            if bucket not in self._buckets:
                self._buckets[bucket] = self._open_bucket(bucket)
            index = self._buckets[bucket]
            found = None if index is None else self._open_in(index, namespace)
            if found is not None:
                self._open[namespace] = found
                if len(self._open) > self._most:
                    self._open.popitem(last=False)
            return found

    def recent(self, count: int) -> list[str]:
        """Return the names of those that were asked last, the last one first."""
        with self._lock:
            return list(reversed(self._open))[:count]

    def close(self, namespaces: Iterable[str]) -> None:
        """Close some namespaces, so that they are opened anew."""
        with self._lock:
            for namespace in namespaces:
                self._open.pop(namespace, None)
