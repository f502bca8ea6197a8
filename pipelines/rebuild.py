"""The whole way from logs to a published version: import what is new, build, publish."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from pipelines.build import Built, build
from pipelines.chat_model import ChatModel
from pipelines.encoders import tuned_vectors
from pipelines.engine import Choice
from pipelines.erase import Erased, erase_now, finish_erasure, prepare_erasure
from pipelines.gate import open_gate
from pipelines.import_stage import Imported, import_logs
from pipelines.progress import Progress
from pipelines.retention import Pruned, retain
from pipelines.run import Run, open_run_with_model
from pipelines.store import Store
from pipelines.tuned_vectors import Tuned


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A store, what was imported into it (None without inputs), the version that was published, and what ran.

    `erased` tells what was erased on the way; None where nothing was to be. `pruned` tells which versions were removed;
    None where every version is kept.
    """

    store: Store
    imported: Imported | None
    built: Built
    engine: Choice
    erased: Erased | None = None
    pruned: Pruned | None = None


def rebuild(
    config: Config, encoder: Encoder, ingested_at: datetime, progress: Progress, chat: ChatModel | None = None
) -> Rebuilt:
    """Import those inputs of `config` that its store does not know, then build and publish.

    A version that does not pass `config.gate` is built and not made the current one: `Rebuilt.built` says so.

    Args:
        config: Which logs, which store, and how.
        encoder: What makes the vectors.
        ingested_at: The time that is kept beside what is imported.
        progress: For whoever watches.
        chat: Asked in the place of the model that the configuration names.

    Raises:
        StoreError: The store cannot be used, or another job holds it.
        LogFileError: A log is missing or not what the configuration says.
        ImportFailed: Too many rows were rejected.
        ClusterError: Ray cannot do the work.
        ModelError: The language model cannot be used, or not any more.
        EncoderError: What `encoder.tuned` names makes no vectors for this store.
        TaskError: The questions of the gate cannot be used.
        RecipeError: There is no such recipe as the gate asks.
    """
    with _opened("rebuild", config, encoder, ingested_at, progress, chat) as (run, config, tuned, chat):
        gate = open_gate(config, encoder, run.store, run.progress)
        imported = import_logs(run, config.inputs, config.imports, ingested_at) if config.inputs else None
        erasing = prepare_erasure(run)
        built = build(run, config, encoder, tuned, chat, None if erasing is None else erasing.imports.every, gate)
        erased = None if erasing is None else finish_erasure(run, erasing, built.indexes)
        # A version that never was current goes with the next pruning: one that was refused is to be looked at first.
        keep = 0 if built.refused else config.store.keep_versions
        pruned = retain(run.store, keep, run.lease.check, run.log, run.progress)
        return Rebuilt(run.store, imported, built, run.choice, erased, pruned)


def erase(
    config: Config, encoder: Encoder, began_at: datetime, progress: Progress, chat: ChatModel | None = None
) -> Erased | None:
    """Erase at once what the tombstones of a store cover; None if that is done already.

    Args:
        config: Which store, and how its current version was built; its inputs are not looked at.
        encoder: What makes the vectors.
        began_at: When the job began.
        progress: For whoever watches.
        chat: Asked in the place of the model that the configuration names.

    Raises:
        StoreError: The store cannot be used, another job holds it, its version was built with other settings, or
            something of what was erased is found.
        ClusterError: Ray cannot do the work.
        ModelError: The language model cannot be used, or not any more.
        EncoderError: What `encoder.tuned` names makes no vectors for this store.
    """
    Store.open(config.store.root, config.store.cache)
    config = config.model_copy(update={"inputs": []})
    with _opened("forget", config, encoder, began_at, progress, chat) as (run, config, tuned, chat):
        erased = erase_now(run, config, encoder, tuned, chat)
        if erased is not None:
            retain(run.store, config.store.keep_versions, run.lease.check, run.log, run.progress)
        return erased


@contextmanager
def _opened(
    what: str, config: Config, encoder: Encoder, began_at: datetime, progress: Progress, chat: ChatModel | None
) -> Iterator[tuple[Run, Config, Tuned | None, ChatModel | None]]:
    """Open what a build takes: the job, the configuration with what is known of its model, what is tuned, the model."""
    tuned = tuned_vectors(config.encoder, encoder.identity)
    with open_run_with_model(what, config, began_at, progress, chat) as (run, own, asked):
        yield run, own, tuned, asked
