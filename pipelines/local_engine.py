"""The engine of one process: threads over log files and over buckets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from hgmem_core.chat import Reply, Request
from hgmem_core.embeddings import encode_by_namespace
from hgmem_core.encoding import Encoder, Vectors
from pipelines.calls import Calls, Spent
from pipelines.chat_model import ChatModel
from pipelines.engine import BucketJob, Indexes, Kind, Watch, Work
from pipelines.stages import TUNED_STAGE
from pipelines.steps import Texts
from pipelines.store import Output

Result = TypeVar("Result")

_REQUESTS_A_BUCKET = 16
"""How many a bucket has in flight at least, as a rule."""


class LocalEngine:
    """Runs everything in threads of this process: for logs that are built sooner than Ray starts."""

    name = "local"

    def __init__(self, workers: int) -> None:
        """Use `workers` threads."""
        self.workers_here = workers

    def map(self, kind: Kind, work: Work, items: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Apply `work` to every item; see `pipelines.engine.Engine`."""
        del kind  # threads share what the process has
        yield from self._map(work, items, self.workers_here, _nothing)

    def index(self, job: BucketJob, encoder: Encoder, chat: ChatModel | None, watch: Watch) -> Indexes:
        """Build every bucket; see `pipelines.engine.Engine`."""

        def work(bucket: int) -> dict[str, Output]:
            return job.outputs(bucket, _Answers(job, bucket, encoder, chat, watch), watch.record)

        # Those that wait for a server keep no core busy.
        waiting = -(-job.config.llm.http.concurrency // _REQUESTS_A_BUCKET) if chat else 0
        threads = self.workers_here + waiting
        return dict(sorted(self._map(work, job.buckets, threads, chat.close if chat else _nothing)))

    def _map(
        self, work: Callable[[int], Result], items: Sequence[int], threads: int, stop: Callable[[], None]
    ) -> Iterator[tuple[int, Result]]:
        """Yield results as they come; at the first error, `stop` what other threads wait for."""
        with ThreadPoolExecutor(threads) as pool:
            futures = {pool.submit(work, item): item for item in items}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BaseException:  # an interrupt, too, is not to wait for a slow server
                stop()
                raise
            finally:
                pool.shutdown(cancel_futures=True)


def _nothing() -> None:
    """Stop nothing: threads that compute come to an end by themselves."""


class _Answers:
    """Encodes and asks in place."""

    def __init__(self, job: BucketJob, bucket: int, encoder: Encoder, chat: ChatModel | None, watch: Watch) -> None:
        self._batch_size = job.config.encoder.batch_size
        self._calls = Calls(job.store, bucket, job.config.llm, job.id)
        self._encoder = encoder
        self._tuned = job.tuned
        self._chat = chat
        self._watch = watch

    def encode(self, waiting: list[Texts]) -> list[Vectors]:
        """See `pipelines.steps.Answers`."""
        vectors = []
        for texts in waiting:
            tuned = self._tuned
            encoder = self._encoder if tuned is None or texts.stage != TUNED_STAGE else tuned.encoder()
            given = texts.nodes, texts.texts, encoder, self._batch_size
            vectors.append(encode_by_namespace(*given, as_queries=texts.as_queries))
            self._watch.encoded(texts.stage, len(texts.texts), 0.0)  # the stage's own record holds the time
        return vectors

    def ask(self, requests: list[Request]) -> list[Reply]:
        """See `pipelines.steps.Answers`."""
        if self._chat is None:
            raise ValueError("this configuration asks a language model, and none was opened")
        found = self._calls.find(requests)
        for places, reply in self._calls.ask(self._chat, requests, found.keys()):
            found |= dict.fromkeys(places, reply)
            self._watch.asked(requests[places[0]].stage, Spent.of(reply))
        return [found[place] for place in range(len(requests))]
