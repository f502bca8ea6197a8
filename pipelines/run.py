"""What a job that writes to a store has at hand: the store's lease, its log, the checks before work, the engine."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime

from hgmem_core.config import Config, RunConfig
from pipelines.chat_model import ChatModel, check_room, opened_chat, with_tokenizer
from pipelines.engine import Choice, Engine, choose_engine
from pipelines.imports import Import, read_imports
from pipelines.job_log import Checked, EngineChosen, JobLog, LeaseTaken, ModelTried, open_store_log
from pipelines.lease import Lease, hold_lease
from pipelines.local_engine import LocalEngine
from pipelines.log_files import absolute, expand_paths
from pipelines.preflight import check_disk, check_writable, disk_needed, gib, log_bytes
from pipelines.progress import Progress
from pipelines.stages import PROMPTS
from pipelines.store import Store
from pipelines.versions import current_version


@dataclass(frozen=True, slots=True)
class Run:
    """A job that holds a store.

    Attributes:
        store: The store.
        engine: Where the work is done.
        importer: Where logs are imported: here, if workers share no folder to pass rows through.
        choice: Which engine that is, and why.
        lease: To be looked at before something is published.
        log: For machines.
        progress: For whoever watches.
        began_at: When the job began, by its clock.
    """

    store: Store
    engine: Engine
    importer: Engine
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
    settings = config.store
    store = Store.make(
        settings.root, settings.buckets, log_bytes(_paths(config)), settings.mode, settings.cache, settings.cache_gib
    )
    with hold_lease(store, what, began_at) as lease, open_store_log(what, store, began_at) as log:
        log.write(LeaseTaken(lease.holder.host, lease.holder.pid, lease.taken_from is not None))
        store = store.reopened(settings.buckets)
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
            importer = engine if store.shared else LocalEngine(config.run.workers)
            yield Run(store, engine, importer, choice, lease, log, progress, began_at)


@contextmanager
def open_run_with_model(
    what: str, config: Config, began_at: datetime, progress: Progress, chat: ChatModel | None
) -> Iterator[tuple[Run, Config, ChatModel | None]]:
    """Try the language model of a configuration, then open the run; see `open_run`.

    Args:
        what: The job's name.
        config: Which model, which store, which engine.
        began_at: When the job began.
        progress: For whoever watches.
        chat: Asked in the place of the model that the configuration names.

    Returns:
        The run; the configuration, which says how the model's tokens are counted; what is asked from here, None for no
        model and for one that runs on Ray.

    Raises:
        ModelError: The model cannot be used.
    """
    with ExitStack() as stack:
        served = None
        if chat is None:
            chat, served = stack.enter_context(opened_chat(config.llm))
        llm = with_tokenizer(config.llm, chat)
        check_room(llm, PROMPTS)
        config = config.model_copy(update={"llm": llm})
        run = stack.enter_context(open_run(what, config, began_at, progress))
        if chat is None and config.llm.engine == "vllm":
            # Imported here because only who runs models on Ray has vLLM.
            from pipelines.vllm_chat import check_vllm

            served = check_vllm(config.llm, config.run)
        if served is not None:
            run.log.write(ModelTried(served.max_model_len, served.thinking_tokens, served.source))
        yield run, config, chat


def _paths(config: Config) -> list[str]:
    return [absolute(path) for one in config.inputs for path in expand_paths(one.paths, one.format)]


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
