"""The engine on Ray, and the owner of Ray Data: log files and buckets are tasks, the encoder is a pool of actors.

A build goes in rounds. In a round every unfinished bucket runs as far as it can without new vectors and asks for those
of the texts it waits for; then actors encode the texts; the next round finds the vectors. So buckets and encoders have
the whole cluster in turns, and neither starves the other. Rows travel through the store, and through Ray only their
names: whatever is lost on the way, worker, node or driver, is done again and finds what was finished, since outputs and
pieces are named by their content and appear whole.
"""

import json
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cache, lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeVar, cast

import pyarrow as pa
import ray
import ray.data
import ray.exceptions
from ray.data.exceptions import ExecutionTimeoutError

from hgmem_core.chat import Reply, Request
from hgmem_core.encoding import Encoder, Vectors
from hgmem_core.run_config import ResourcesConfig, RunConfig
from pipelines.calls import SAVED_TOGETHER, Answered, Calls, Spent
from pipelines.chat_model import ChatModel
from pipelines.engine import BucketJob, ClusterError, Indexes, Kind, Watch, Work
from pipelines.job_log import JobLog, Retried
from pipelines.pieces import UNIT_TEXTS, Pieces, request_units, units_of
from pipelines.preflight import check_software, software_versions
from pipelines.progress import Progress
from pipelines.ray_connection import connected, last_line, needed
from pipelines.runner import Record
from pipelines.stages import TUNED_STAGE
from pipelines.steps import Texts
from pipelines.store import DamagedOutput, Output, Store

Item = TypeVar("Item", int, str)

_FEWEST_BLOCKS = 32
_BLOCKS_A_CPU = 8
_BLOCKS_OF_A_GROWING_CLUSTER = 1_024
"""A block is a task, which has a cost of its own; a few for each CPU even out that some take longer."""

_MOST_ITEMS = 16
"""Buckets or units in a block, at most: a block is what is seen to be finished."""

_MOST_UNITS_ASKED = 4
"""Units of requests in a block: a slow model takes minutes for each."""

_TRIES = 3
"""How often work is begun again after Ray itself failed, without anything being finished in between."""


class Waiting(NamedTuple):
    """A unit that a bucket waits for: what it is made of, for which stage, and how many of them."""

    kind: Literal["texts", "requests"]
    stage: str
    size: int


class RayEngine:
    """Runs on the Ray that this process is connected to."""

    name = "ray"

    def __init__(self, config: RunConfig, log: JobLog, progress: Progress, workers_here: int = 0) -> None:
        """Take the resources that each kind of work may use, and whom to tell of what went wrong."""
        self._config = config
        self._log = log
        self._progress = progress
        self.workers_here = workers_here

    def map(self, kind: Kind, work: Work, items: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Apply `work` to every item; see `pipelines.engine.Engine`."""
        resources: ResourcesConfig = getattr(self._config.ray, kind)
        software = software_versions()

        def apply(batch: pa.Table) -> pa.Table:
            check_here(software)
            done = [json.dumps(work(item)) for item in batch.column("item").to_pylist()]
            return batch.append_column("result", pa.array(done, pa.large_string()))

        def plan(data: ray.data.Dataset) -> ray.data.Dataset:
            return data.map_batches(apply, **_options(resources))

        for row in self._rows(f"run.ray.{kind}", items, plan, 1 if kind == "imports" else _MOST_ITEMS):
            yield row["item"], json.loads(row["result"])

    def index(self, job: BucketJob, encoder: Encoder, chat: ChatModel | None, watch: Watch) -> Indexes:
        """Build every bucket; see `pipelines.engine.Engine`."""
        advance = partial(_advance, ray.put(job))
        done: dict[int, dict[str, Output]] = {}
        before: set[str] = set()
        while waiting := [bucket for bucket in job.buckets if bucket not in done]:
            units: dict[str, Waiting] = {}
            for bucket, step in self.map("buckets", advance, waiting):
                for record in step["records"]:
                    watch.record(Record(**record))
                units |= {name: Waiting(*about) for name, about in step["units"].items()}
                if step["indexes"] is not None:
                    done[bucket] = {stage: _output(job.store, stage, own) for stage, own in step["indexes"].items()}
            if before and before == units.keys():
                raise ClusterError(
                    f"the answers to {len(units)} units, such as {min(units)}, were written to {job.store} "
                    "and are not there: look at the file system that the nodes share"
                )
            before = set(units)
            texts = {name: one for name, one in units.items() if one.kind == "texts"}
            for name, seconds in self._encode(job, encoder, texts):
                watch.encoded(texts[name].stage, texts[name].size, seconds)
            for name, spent in self._ask(job, chat, sorted(units.keys() - texts.keys())):
                watch.asked(units[name].stage, spent)
        return dict(sorted(done.items()))

    def _encode(self, job: BucketJob, encoder: Encoder, units: Mapping[str, Waiting]) -> Iterator[tuple[str, float]]:
        """Encode units; yield the name of each and the seconds that it took."""
        own = {name: unit for name, unit in units.items() if unit.stage == TUNED_STAGE}
        if job.tuned is not None and own:
            yield from self._encode_by(job, job.tuned.encoder(), own)
        yield from self._encode_by(job, encoder, {name: unit for name, unit in units.items() if name not in own})

    def _encode_by(self, job: BucketJob, encoder: Encoder, units: Mapping[str, Waiting]) -> Iterator[tuple[str, float]]:
        options = self._encode_options(sum(unit.size for unit in units.values()))
        arguments = (job.store, encoder, job.config.encoder.batch_size, job.software)

        def encode(data: ray.data.Dataset) -> ray.data.Dataset:
            return data.map_batches(_Encode, fn_constructor_args=arguments, **options)

        if not units:
            return
        for row in self._rows("run.ray.encode", sorted(units), encode, _MOST_ITEMS):
            yield row["item"], row["seconds"]

    def _ask(self, job: BucketJob, chat: ChatModel | None, units: Sequence[str]) -> Iterator[tuple[str, Spent]]:
        """Ask a language model units of requests; yield the name of each and what it took, perhaps in parts."""
        if not units:
            return
        llm = job.config.llm
        calls_of = partial(Calls, job.store, config=llm, job=job.id)
        plan: Callable[[ray.data.Dataset], ray.data.Dataset]
        if chat is None:
            # Imported here because only who runs models on Ray has vLLM.
            from pipelines.vllm_chat import asked_by_vllm

            ask = asked_by_vllm(llm)

            def plan(data: ray.data.Dataset) -> ray.data.Dataset:
                requests = data.map_batches(_requests_of(job.store, calls_of), batch_size=None, batch_format="pyarrow")
                keep = _keep_replies(calls_of)
                return ask(requests).map_batches(keep, batch_size=SAVED_TOGETHER, batch_format="pyarrow")
        else:
            options = _options(self._config.ray.ask)
            most = options.pop("concurrency", None) or 1
            options |= {"compute": ray.data.ActorPoolStrategy(min_size=1, max_size=most)}
            arguments = (job.store, calls_of, chat, job.software)

            def plan(data: ray.data.Dataset) -> ray.data.Dataset:
                return data.map_batches(_Ask, fn_constructor_args=arguments, **options)

        for row in self._rows("run.ray.ask", units, plan, _MOST_UNITS_ASKED):
            yield row["item"], Spent(**json.loads(row["spent"]))

    def _encode_options(self, texts: int) -> dict[str, Any]:
        resources = needed(self._config.ray.encode)
        options = _options(resources)
        there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        fit = [there.get(kind, 0) / one for kind, one in (("CPU", resources.cpus), ("GPU", resources.gpus)) if one]
        if self._config.ray.autoscaling:
            fit = [self._most_blocks()]
        most = options.pop("concurrency", None) or max(1, int(min(*fit, texts / UNIT_TEXTS)))
        return options | {"compute": ray.data.ActorPoolStrategy(min_size=1, max_size=most)}

    def _rows(
        self, what: str, items: Sequence[Item], plan: Callable[[ray.data.Dataset], ray.data.Dataset], most: int
    ) -> Iterator[dict[str, Any]]:
        """Run a plan over items, `most` of them in a block, and yield the row that it makes of each, block by block.

        What Ray loses for good, in spite of its own retries, is begun again.
        """
        left = dict.fromkeys(items)
        failures = 0
        while left:
            try:
                for row in self._run(plan(self._dataset(list(left), most))):
                    left.pop(row["item"], None)  # a unit of requests may come in parts
                    failures = 0
                    yield row
                return
            except ExecutionTimeoutError as error:
                raise ClusterError(self._stalled(what, list(left))) from error
            except ray.exceptions.RayError as error:
                cause: Exception | None = getattr(error, "cause", None)
                if cause is not None and not isinstance(cause, ray.exceptions.RayError):
                    # The work itself failed: its own error says why; Ray's, behind it, where.
                    raise cause from error
                if getattr(error, "actor_init_failed", False):
                    raise ClusterError(f"the encoder cannot be opened on a node: {last_line(error)}") from error
                failures += 1
                self._log.write(Retried(what, None, failures, type(error).__name__))
                if failures == _TRIES:
                    raise ClusterError(
                        f"Ray failed {_TRIES} times with {len(left)} of {len(items)} {what} left and none finished in "
                        f"between ({last_line(error)}): see its logs; what was finished is kept, so mend the cluster "
                        "and run this again"
                    ) from error
                self._progress.note(f"Ray lost {what} ({last_line(error)}); beginning again what is left")

    def _dataset(self, items: Sequence[int] | Sequence[str], most: int) -> ray.data.Dataset:
        """Return a dataset of items in blocks that are about equally long; a block is a task."""
        blocks = max(min(len(items), self._most_blocks()), -(-len(items) // most))
        data: ray.data.Dataset = ray.data.from_blocks([pa.table({"item": items[at::blocks]}) for at in range(blocks)])
        return data

    def _most_blocks(self) -> int:
        if self._config.ray.autoscaling:
            return _BLOCKS_OF_A_GROWING_CLUSTER
        there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return max(_FEWEST_BLOCKS, int(_BLOCKS_A_CPU * there.get("CPU", 0)))

    def _run(self, data: ray.data.Dataset) -> Iterator[dict[str, Any]]:
        context = data.context
        context.execution_no_progress_timeout_s = 60 * self._config.stall_minutes
        context.raise_original_map_exception = True
        context.enable_progress_bars = False  # the job has its own
        context.print_on_execution_start = False
        tables = data.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        for table in cast("Iterator[pa.Table]", tables):
            yield from table.to_pylist()

    def _stalled(self, what: str, left: Sequence[object]) -> str:
        kind = what.rpartition(".")[2]
        asked: ResourcesConfig = getattr(self._config.ray, kind)
        asked = needed(asked) if kind == "encode" else asked
        free = ray.available_resources()  # type: ignore[no-untyped-call]
        memory = free.get("memory", 0) / (1 << 30)
        there = f"{free.get('CPU', 0):g} CPUs, {free.get('GPU', 0):g} GPUs, {memory:.1f} GiB"
        names = ", ".join(map(str, left[:5])) + (", ..." if len(left) > 5 else "")
        return (
            f"nothing was finished for run.stall_minutes={self._config.stall_minutes:g}: waiting for {len(left)} "
            f"{what} ({names}), each asking for {asked.cpus:g} CPUs, {asked.gpus:g} GPUs, {asked.memory_gib:g} GiB; "
            f"free in the cluster: {there}. Add nodes, ask for less, or allow more time; what was finished is kept"
        )


def _options(resources: ResourcesConfig) -> dict[str, Any]:
    options: dict[str, Any] = {"batch_size": None, "batch_format": "pyarrow", "num_cpus": resources.cpus}
    if resources.gpus:
        options["num_gpus"] = resources.gpus
    if resources.memory_gib:
        options["memory"] = int(resources.memory_gib * (1 << 30))
    if resources.concurrency:
        options["concurrency"] = resources.concurrency
    return options


class _Unanswered(Exception):
    """A bucket can go no further before some units are encoded or answered."""

    def __init__(self, units: Mapping[str, Waiting]) -> None:
        super().__init__(f"{len(units)} units wait for an answer")
        self.units = units


class _Answers:
    """Gives a bucket what is there already, and asks for the rest."""

    def __init__(self, job: BucketJob, bucket: int) -> None:
        self._job = job
        self._bucket = bucket
        self._pieces = Pieces(job.store)
        self._calls = Calls(job.store, bucket, job.config.llm, job.id)
        self._taken: list[str] = []

    def encode(self, waiting: list[Texts]) -> list[Vectors]:
        """See `pipelines.steps.Answers`."""
        self._drop_saved()
        job, pieces = self._job, self._pieces
        encoders = {texts.stage: job.identity_of_encoder(texts.stage) for texts in waiting}
        batch_size = job.config.encoder.batch_size
        units = {texts.stage: units_of(texts, encoders[texts.stage], batch_size) for texts in waiting}
        missing = [(stage, unit) for stage, some in units.items() for unit in some if not pieces.has(unit.name)]
        if missing:
            for _, unit in missing:
                pieces.ask(unit)
            raise _Unanswered({unit.name: Waiting("texts", stage, len(unit.texts)) for stage, unit in missing})
        self._taken += [unit.name for some in units.values() for unit in some]
        return [
            pieces.read((unit.name for unit in some), encoders[stage]["dimension"]) for stage, some in units.items()
        ]

    def ask(self, requests: list[Request]) -> list[Reply]:
        """See `pipelines.steps.Answers`."""
        self._drop_saved()
        found = self._calls.find(requests)
        missing = [request for place, request in enumerate(requests) if place not in found]
        units = request_units(self._bucket, self._calls.without_equals(missing))
        if units:
            for unit in units:
                self._pieces.ask_requests(unit)
            stage = requests[0].stage
            raise _Unanswered({unit.name: Waiting("requests", stage, len(unit.requests)) for unit in units})
        return [found[place] for place in range(len(requests))]

    def _drop_saved(self) -> None:
        if self._job.saves_between:
            self.drop()

    def drop(self) -> None:
        """Remove pieces that were given out before: they are in an output by now."""
        self._pieces.drop(self._taken)
        self._taken = []


def _advance(reference: "ray.ObjectRef[BucketJob]", bucket: int) -> dict[str, Any]:
    """Run a bucket until it is built or waits for an answer; say what it made and what it waits for."""
    job = _job(reference)
    records: list[Record] = []
    answers = _Answers(job, bucket)
    step: dict[str, Any] = {"indexes": None, "units": {}}
    try:
        indexes = job.outputs(bucket, answers, records.append)
        step["indexes"] = {stage: output.identity for stage, output in indexes.items()}
        answers.drop()
    except _Unanswered as error:
        step["units"] = error.units
    return {**step, "records": [asdict(record) for record in records]}


class _Encode:
    """An actor that encodes units and leaves their vectors in the store."""

    def __init__(self, store: Store, encoder: Encoder, batch_size: int, software: Mapping[str, str]) -> None:
        check_here(software)
        self._pieces = Pieces(store)
        self._encoder = encoder
        self._batch_size = batch_size

    def __call__(self, batch: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([self._encode(name) for name in batch.column("item").to_pylist()])

    def _encode(self, name: str) -> dict[str, Any]:
        began = time.perf_counter()
        # Of a unit that is gone, another attempt's bucket has the vectors; if not, the next round asks for it again.
        with suppress(DamagedOutput):
            unit = self._pieces.unit(name)
            if not self._pieces.has(name):
                self._pieces.keep(name, unit.encode(self._encoder, self._batch_size))
        return {"item": name, "seconds": time.perf_counter() - began}


CallsOf = Callable[[int], Calls]
"""Gives the calls of a bucket."""


class _Ask:
    """An actor that asks the server of a language model, and keeps its replies."""

    def __init__(self, store: Store, calls_of: CallsOf, chat: ChatModel, software: Mapping[str, str]) -> None:
        check_here(software)
        self._store = store
        self._calls_of = lru_cache(maxsize=16)(calls_of)
        self._chat = chat

    def __call__(self, batch: pa.Table) -> pa.Table:
        names = batch.column("item").to_pylist()
        with ThreadPoolExecutor(len(names)) as pool:  # the client's own limit holds for all of them together
            return pa.Table.from_pylist(list(pool.map(self._ask, names)))

    def _ask(self, name: str) -> dict[str, Any]:
        spent = Spent()
        with suppress(DamagedOutput):  # see _Encode
            unit = Pieces(self._store).request_unit(name)
            calls = self._calls_of(unit.bucket)
            for _, reply in calls.ask(self._chat, unit.requests, calls.find(unit.requests).keys()):
                spent += Spent.of(reply)
            Pieces(self._store).drop([name])
        return {"item": name, "spent": json.dumps(asdict(spent))}


def _requests_of(store: Store, calls_of: CallsOf) -> Callable[[pa.Table], pa.Table]:
    """Return what turns units into a row for each of their requests that is not answered."""

    def apply(batch: pa.Table) -> pa.Table:
        rows = []
        for name in batch.column("item").to_pylist():
            unit = Pieces(store).request_unit(name)
            known = calls_of(unit.bucket).find(unit.requests)
            rows += [
                {"item": name, "bucket": unit.bucket, "request": request.to_json()}
                for place, request in enumerate(unit.requests)
                if place not in known
            ]
        return pa.Table.from_pylist(rows, _REQUEST_ROWS)

    return apply


_REQUEST_ROWS = pa.schema({"item": pa.large_string(), "bucket": pa.int64(), "request": pa.large_string()})


def _keep_replies(calls_of: CallsOf) -> Callable[[pa.Table], pa.Table]:
    """Return what keeps replies, and says what each took."""

    def apply(batch: pa.Table) -> pa.Table:
        by_bucket: defaultdict[int, list[Answered]] = defaultdict(list)
        rows = []
        for row in batch.to_pylist():
            reply = Reply.from_json(row["reply"])
            by_bucket[row["bucket"]].append(Answered(Request.from_json(row["request"]), reply))
            rows.append({"item": row["item"], "spent": json.dumps(asdict(Spent.of(reply)))})
        for bucket, answered in by_bucket.items():
            calls_of(bucket).save(answered)
        return pa.Table.from_pylist(rows, _SPENT_ROWS)

    return apply


_SPENT_ROWS = pa.schema({"item": pa.large_string(), "spent": pa.large_string()})


@lru_cache(maxsize=2)
def _job(reference: "ray.ObjectRef[BucketJob]") -> BucketJob:
    job: BucketJob = ray.get(reference)
    return job


@cache
def _software_here() -> dict[str, str]:
    return software_versions()


def check_here(driver: Mapping[str, str]) -> None:
    """Compare this worker's software with the driver's: its node may have joined since the nodes were looked at.

    Raises:
        PreflightError: They differ.
    """
    check_software(driver, {socket.gethostname(): _software_here()})


def _output(store: Store, stage: str, identity: str) -> Output:
    folder = store.output_folder(stage, identity)
    output = store.find(folder)
    if output is None:
        raise ClusterError(
            f"{folder}, which a worker wrote, is not to be seen from the driver: put the "
            "store on a file system that all nodes share"
        )
    return output


@contextmanager
def ray_engine(config: RunConfig, store: Store, log: JobLog, progress: Progress) -> Iterator[RayEngine]:
    """Give the engine on a Ray that is connected to inside the `with`; see `pipelines.ray_connection.connected`."""
    asks = {"imports": config.ray.imports, "buckets": config.ray.buckets, "encode": needed(config.ray.encode)}
    with connected(config, asks, store.shared, progress) as workers_here:
        yield RayEngine(config, log, progress, workers_here)
