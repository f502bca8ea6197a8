"""The engine of one process: threads over log files and over buckets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from hgmem_core.embeddings import encode_by_namespace
from hgmem_core.encoding import Encoder, Vectors
from pipelines.engine import BuildJob, Kind, Watch, Work
from pipelines.stages import Texts, index_of_bucket
from pipelines.store import Output

Result = TypeVar("Result")


class LocalEngine:
    """Runs everything in threads of this process: for logs that are built sooner than Ray starts."""

    name = "local"

    def __init__(self, workers: int) -> None:
        """Use `workers` threads."""
        self.workers_here = workers

    def map(self, kind: Kind, work: Work, items: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Apply `work` to every item; see `pipelines.engine.Engine`."""
        del kind  # threads share what the process has
        yield from self._map(work, items)

    def index(self, job: BuildJob, encoder: Encoder, watch: Watch) -> dict[int, Output]:
        """Build every bucket; see `pipelines.engine.Engine`."""
        batch_size = job.config.encoder.batch_size

        def encode(waiting: list[Texts]) -> list[Vectors]:
            vectors = []
            for texts in waiting:
                vectors.append(encode_by_namespace(texts.nodes, texts.texts, encoder, batch_size))
                watch.encoded(texts.stage, len(texts.texts), 0.0)  # the stage's own record holds the time
            return vectors

        def work(bucket: int) -> Output:
            runner = job.runner(bucket, watch.record)
            return index_of_bucket(runner, job.config, job.encoder, job.parts[bucket], encode)

        return dict(sorted(self._map(work, sorted(job.parts))))

    def _map(self, work: Callable[[int], Result], items: Sequence[int]) -> Iterator[tuple[int, Result]]:
        with ThreadPoolExecutor(self.workers_here) as pool:
            futures = {pool.submit(work, item): item for item in items}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                pool.shutdown(cancel_futures=True)
