"""The stage runner: an output is named by everything that decides it, and what exists is not made again.

What exists counts as long as its files are as they were written; a damaged output is made again from its inputs.
"""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import digest_of_parts
from pipelines.store import Output, Payload, Store

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Produced:
    """What a stage makes of one bucket: its files, what became of its input rows, and facts for its manifest.

    Attributes:
        files: By name; see `pipelines.store.Payload`.
        outcomes: OUTCOME, one row for each input row.
        about: JSON-ready facts, such as digests of the tables for the next stage.
    """

    files: Mapping[str, Payload]
    outcomes: pa.Table
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the dataflow, apart from the bucket it runs on.

    Attributes:
        name: As in the documentation.
        revision: Raised in the code whenever equal input gives other output.
        settings: JSON-ready: the slice of the configuration and the identity of the model that it uses.
    """

    name: str
    revision: int
    settings: Mapping[str, Any]

    def identity(self, inputs: Iterable[str]) -> str:
        """Return the name of this stage's output for inputs with these digests."""
        settings = json.dumps(self.settings, sort_keys=True, separators=(",", ":"))
        return digest_of_parts([self.name, str(self.revision), settings, *inputs])


@dataclass(slots=True)
class Report:
    """What a run did: for each stage the outcomes of its input rows, seconds of work, outputs made and reused.

    Threads may share it. Seconds are summed over threads: with several workers they exceed the time that passed.
    """

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    made: Counter[str] = field(default_factory=Counter)
    reused: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, stage: str, outcomes: Mapping[str, int], seconds: float, reused: bool) -> None:
        """Count one output."""
        with self._lock:
            self.outcomes.setdefault(stage, Counter()).update(outcomes)
            self.seconds[stage] += seconds
            (self.reused if reused else self.made)[stage] += 1

    def add_mended(self, stage: str, seconds: float) -> None:
        """Count one output as made that was counted as reused before it turned out to be damaged."""
        with self._lock:
            self.seconds[stage] += seconds
            self.reused[stage] -= 1
            self.made[stage] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values."""
        return {
            stage: {
                "outcomes": dict(sorted(counts.items())),
                "seconds": round(self.seconds[stage], 3),
                "made": self.made[stage],
                "reused": self.reused[stage],
            }
            for stage, counts in self.outcomes.items()
        }


class Runner:
    """Runs stages on the buckets of one store and reports what it did."""

    def __init__(self, store: Store) -> None:
        """Start with an empty report."""
        self.store = store
        self.report = Report()
        self._makers: dict[Path, Callable[[], Output]] = {}

    def run(self, stage: Stage, inputs: Iterable[str], work: Callable[[], Produced]) -> Output:
        """Return the output of `stage` for inputs with these digests; do the `work` only if it does not exist yet.

        Of what exists, only the sizes of its files are looked at here: whoever reads them asks for `sound` first.
        """
        folder = self.store.output_folder(stage.name, stage.identity(inputs))

        def make() -> Output:
            produced = work()
            about = {**produced.about, "stage": stage.name, "outcomes": count_outcomes(produced.outcomes)}
            return self.store.keep(folder, {**produced.files, "outcomes.parquet": produced.outcomes}, about)

        self._makers[folder] = make
        began = time.perf_counter()
        output = self.store.find(folder)
        reused = output is not None and output.damage(contents=False) is None
        if output is None or not reused:
            output = make()
        self.report.add(stage.name, output.manifest["outcomes"], time.perf_counter() - began, reused)
        return output

    def sound(self, output: Output) -> Output:
        """Return an output of this run when all its files are as they were written; else make it again."""
        if output.damage() is None:
            return output
        began = time.perf_counter()
        again = self._makers[output.folder]()
        self.report.add_mended(output.manifest["stage"], time.perf_counter() - began)
        return again


def count_outcomes(outcomes: pa.Table) -> dict[str, int]:
    """Count an OUTCOME table's rows by outcome."""
    counted = pc.value_counts(outcomes.column("outcome")).to_pylist()
    return {item["values"]: item["counts"] for item in sorted(counted, key=lambda item: str(item["values"]))}


def for_each(work: Callable[[Item], Result], items: Iterable[Item], workers: int) -> list[Result]:
    """Apply `work` to every item in `workers` threads; results in the order of the items, the first error raised."""
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
