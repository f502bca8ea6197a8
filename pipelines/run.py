"""What a job that writes to a store has at hand: the store's lease, its log, the checks before work, the engine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hgmem_core.config import Config, RunConfig
from pipelines.engine import Choice, Engine, choose_engine
from pipelines.imports import Import, read_imports
from pipelines.job_log import Checked, EngineChosen, JobLog, LeaseTaken, log_path, open_job_log
from pipelines.lease import Lease, hold_lease
from pipelines.local_engine import LocalEngine
from pipelines.log_files import expand_paths
from pipelines.preflight import check_disk, check_writable, disk_needed, gib, log_bytes
from pipelines.progress import Progress
from pipelines.store import Store
from pipelines.versions import current_version


@dataclass(frozen=True, slots=True)
class Run:
    """A job that holds a store.

    Attributes:
        store: The store.
        engine: Where the work is done.
        choice: Which engine that is, and why.
        lease: To be looked at before something is published.
        log: For machines.
        progress: For whoever watches.
        began_at: When the job began, by its clock.
    """

    store: Store
    engine: Engine
    choice: Choice
    lease: Lease
    log: JobLog
    progress: Progress
    began_at: datetime


@contextmanager
def open_run(what: str, config: Config, began_at: datetime, progress: Progress) -> Iterator[Run]:
    """Open or make the store of a configuration, hold it, and start the engine.

    Args:
        what: The job's name, such as `rebuild`.
        config: Which store, which logs, which engine.
        began_at: When the job began.
        progress: For whoever watches.

    Raises:
        StoreError: The store cannot be used or written, or another job holds it; the work cannot end well.
        LogFileError: A log does not exist.
        ClusterError: There is no Ray to be used.
    """
    # Absolute, because workers may stand in another folder.
    root = Path(config.store.root).absolute()
    store = Store.make(root, config.store.buckets, log_bytes(_paths(config)), config.store.mode)
    with hold_lease(store, what, began_at) as lease, open_job_log(what, log_path(store, began_at)) as log:
        log.write(LeaseTaken(lease.holder.host, lease.holder.pid, lease.taken_from is not None))
        if lease.taken_from:
            progress.note(f"took over the store from {lease.taken_from}, which is gone")
        store.sweep()
        imports = read_imports(store)
        _check_store(store, config, imports, log, progress)
        known = {path for one in imports for path in one.entry.logs}
        size = log_bytes({*known, *_paths(config)})
        choice = choose_engine(config.run, size, "vllm" in (config.llm.engine, config.encoder.name))
        log.write(EngineChosen(choice.name, size))
        with _open_engine(config, store, choice, log, progress) as engine:
            yield Run(store, engine, choice, lease, log, progress, began_at)


def _paths(config: Config) -> list[str]:
    return [os.path.abspath(path) for one in config.inputs for path in expand_paths(one.paths)]


def _check_store(store: Store, config: Config, imports: list[Import], log: JobLog, progress: Progress) -> None:
    """Refuse a store that cannot be written or a disk that cannot even take the new logs; warn of a small one."""
    check_writable(store)
    known = {path for one in imports for path in one.entry.logs}
    new = log_bytes(path for path in _paths(config) if path not in known)
    rows = sum(one.entry.rows for one in imports)
    needed = disk_needed(new, 0 if current_version(store) else rows)
    free = check_disk(store.root, new // 4)
    log.write(Checked("disk", needed, free))
    if free < needed:
        progress.note(f"the disk of {store.root} has {gib(free)} free; this run may need {gib(needed)} or more")


@contextmanager
def _open_engine(config: Config, store: Store, choice: Choice, log: JobLog, progress: Progress) -> Iterator[Engine]:
    if choice.name == "local":
        yield LocalEngine(config.run.workers)
        return
    # Imported here because a local run need not wait for Ray.
    from pipelines.ray_engine import ray_engine

    with ray_engine(with_encoder_resources(config), store, log, progress) as engine:
        yield engine


def with_encoder_resources(config: Config) -> RunConfig:
    """Return how to run, with what the encoder's actors take if nothing was said: vLLM GPUs, a server one client."""
    encode = config.run.ray.encode
    if config.encoder.name == "vllm" and not (encode.cpus or encode.gpus):
        gpus = float(config.encoder.vllm.engine_kwargs.get("tensor_parallel_size", 1))
        encode = encode.model_copy(update={"gpus": gpus})
    if config.encoder.name == "http" and not encode.concurrency:
        encode = encode.model_copy(update={"concurrency": 1})
    return config.run.model_copy(update={"ray": config.run.ray.model_copy(update={"encode": encode})})
