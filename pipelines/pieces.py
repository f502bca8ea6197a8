"""What a bucket waits for, on its way: texts to be encoded and requests to be answered, cut into units of work.

A unit and its piece of vectors travel through the store. Both are named by what the unit says: whoever encodes it
again, on another machine or in another run, writes the same piece to the same place, and after a kill the next run
finds what was encoded. Both are dropped when the bucket has taken the vectors. Replies of a language model are kept for
good, where `pipelines.calls` has them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hgmem_core.chat import Request
from hgmem_core.encoding import Encoder, Vectors, encode_runs, windows
from hgmem_core.ids import digest_of_parts
from hgmem_core.schemas import namespace_ranges
from hgmem_core.vector_rows import vectors_of
from pipelines.steps import Texts
from pipelines.store import DamagedOutput, Output, Store

UNIT_TEXTS = 2_048
"""A unit is closed when it holds so many; one of a large namespace holds up to a window of the encoder's."""

UNIT_REQUESTS = 64


@dataclass(frozen=True, slots=True)
class Unit:
    """Texts that are encoded in one go.

    Attributes:
        name: By its texts, how they are cut, and the encoder.
        texts: In order.
        bounds: Where each run begins that the encoder sees by itself, and the end: of one namespace, whole windows.
        as_queries: Whether the encoder sees before each what it sees before a query.
    """

    name: str
    texts: Sequence[str]
    bounds: Sequence[int]
    as_queries: bool

    def encode(self, encoder: Encoder, batch_size: int) -> Vectors:
        """Return its vectors, float32 `[len(texts), dimension]`: the same as if all texts were encoded at once."""
        identity = encoder.identity
        prefix = identity.prefix if self.as_queries else identity.document_prefix
        return encode_runs(encoder, self.texts, self.bounds, batch_size, prefix)


@dataclass(frozen=True, slots=True)
class RequestUnit:
    """Requests of one bucket that are asked in one go.

    Attributes:
        name: By the bucket and what is asked.
        bucket: Where the replies belong.
        requests: Of one stage.
    """

    name: str
    bucket: int
    requests: Sequence[Request]


def request_units(bucket: int, requests: Sequence[Request]) -> list[RequestUnit]:
    """Cut the requests that a bucket waits for into units."""
    units = []
    for start in range(0, len(requests), UNIT_REQUESTS):
        own = requests[start : start + UNIT_REQUESTS]
        name = digest_of_parts([str(bucket), *(request.to_json() for request in own)])
        units.append(RequestUnit(name, bucket, own))
    return units


def units_of(texts: Texts, encoder: Mapping[str, Any], batch_size: int) -> list[Unit]:
    """Cut the texts that a bucket waits for into units, in order.

    Args:
        texts: To cut.
        encoder: The identity of what encodes them.
        batch_size: Pieces of text in one batch.
    """
    about = {**encoder, "batch_size": batch_size, "as_queries": texts.as_queries}
    identity = [f"{name}={value}" for name, value in sorted(about.items())]
    units: list[Unit] = []
    runs: list[tuple[str, int, int]] = []
    for run in _runs(texts):
        runs.append(run)
        if runs[-1][2] - runs[0][1] >= UNIT_TEXTS:
            units.append(_unit(texts, runs, identity))
            runs = []
    return [*units, _unit(texts, runs, identity)] if runs else units


def _runs(texts: Texts) -> Iterator[tuple[str, int, int]]:
    """Yield every window of every namespace: its name, its first row and the one after its last."""
    for name, first, last in namespace_ranges(texts.nodes):
        for start, stop in windows(texts.texts[first:last]):
            yield name, first + start, first + stop


def _unit(texts: Texts, runs: list[tuple[str, int, int]], identity: list[str]) -> Unit:
    first, last = runs[0][1], runs[-1][2]
    own = texts.texts[first:last]
    bounds = [start - first for _, start, _ in runs] + [last - first]
    cut = [f"{name}:{bound}" for (name, _, _), bound in zip(runs, bounds, strict=False)]
    return Unit(digest_of_parts([*identity, str(len(cut)), *cut, *own]), own, bounds, texts.as_queries)


class Pieces:
    """The units and pieces of a store: `pieces/<unit>/` holds `texts` and `vectors`, or `requests`."""

    def __init__(self, store: Store) -> None:
        """Look at nothing yet."""
        self._store = store

    def ask(self, unit: Unit) -> None:
        """Write a unit for whoever encodes it."""
        texts = pa.table({"text": pa.array(unit.texts, pa.large_string())})
        about = {"bounds": list(unit.bounds), "as_queries": unit.as_queries}
        self._store.keep(self._folder(unit.name, "texts"), {"texts.parquet": texts}, about)

    def unit(self, name: str) -> Unit:
        """Return the unit of that name, which was asked for.

        Raises:
            DamagedOutput: It is not there, or not as it was written.
        """
        found = self._found(name, "texts")
        texts = found.table("texts.parquet").column("text").to_pylist()
        return Unit(name, texts, found.manifest["bounds"], found.manifest["as_queries"])

    def ask_requests(self, unit: RequestUnit) -> None:
        """Write a unit of requests for whoever asks them."""
        lines = pa.table({"request": pa.array([one.to_json() for one in unit.requests], pa.large_string())})
        self._store.keep(self._folder(unit.name, "requests"), {"requests.parquet": lines}, {"bucket": unit.bucket})

    def request_unit(self, name: str) -> RequestUnit:
        """Return the unit of requests of that name, which was asked for.

        Raises:
            DamagedOutput: It is not there, or not as it was written.
        """
        found = self._found(name, "requests")
        lines = found.table("requests.parquet").column("request").to_pylist()
        return RequestUnit(name, found.manifest["bucket"], [Request.from_json(line) for line in lines])

    def has(self, name: str) -> bool:
        """Say whether a unit's vectors are there, as they were written."""
        found = self._store.find(self._folder(name, "vectors"))
        return found is not None and found.damage() is None

    def keep(self, name: str, vectors: Vectors) -> None:
        """Write a unit's vectors."""
        values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        self._store.keep(self._folder(name, "vectors"), {"vectors.arrow": pa.table({"vector": values})}, {})

    def read(self, names: Iterable[str], dimension: int) -> Vectors:
        """Return the vectors of some units, float32 `[texts, dimension]`.

        Raises:
            DamagedOutput: They are not there, or not as they were written.
        """
        parts = (vectors_of(self._found(name, "vectors").table("vectors.arrow")) for name in names)
        return np.concatenate([np.zeros((0, dimension), np.float32), *parts])

    def drop(self, names: Iterable[str]) -> None:
        """Remove units whose vectors were taken."""
        for name in names:
            self._store.remove_all(self._store.root / "pieces" / name)

    def clear(self) -> None:
        """Remove what earlier runs left that were given up."""
        self._store.remove_all(self._store.root / "pieces")

    def _folder(self, name: str, part: str) -> Path:
        return self._store.root / "pieces" / name / part

    def _found(self, name: str, part: str) -> Output:
        folder = self._folder(name, part)
        found = self._store.find(folder)
        if found is None:
            raise DamagedOutput(folder, f"{folder} is missing or damaged; run the rebuild again, which makes it again")
        return found
