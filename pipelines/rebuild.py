"""The whole way from logs to a published version: import what is new, build, publish."""

from dataclasses import dataclass
from datetime import datetime

from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from pipelines.build import Built, build
from pipelines.chat_model import ChatModel
from pipelines.encoders import tuned_vectors
from pipelines.engine import Choice
from pipelines.import_stage import Imported, import_logs
from pipelines.job_log import VersionsPruned
from pipelines.progress import Progress
from pipelines.retention import Pruned, prune_held
from pipelines.run import Run, open_run_with_model
from pipelines.store import Store, StoreError


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A store, what was imported into it (None without inputs), the version that was published, and what ran.

    `pruned` tells what was removed; None where every version is kept.
    """

    store: Store
    imported: Imported | None
    built: Built
    engine: Choice
    pruned: Pruned | None = None


def rebuild(
    config: Config, encoder: Encoder, ingested_at: datetime, progress: Progress, chat: ChatModel | None = None
) -> Rebuilt:
    """Import those inputs of `config` that its store does not know, then build and publish.

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
    """
    tuned = tuned_vectors(config.encoder, encoder.identity)
    with open_run_with_model("rebuild", config, ingested_at, progress, chat) as (run, config, chat):
        imported = import_logs(run, config.inputs, config.imports, ingested_at) if config.inputs else None
        built = build(run, config, encoder, tuned, chat)
        return Rebuilt(run.store, imported, built, run.choice, _retained(run, config.store.keep_versions))


def _retained(run: Run, keep: int) -> Pruned | None:
    """Remove what the settings keep no longer; the version that was built is there, whatever comes of it."""
    if not keep:
        return None
    try:
        pruned = prune_held(run.store, keep)
    except StoreError as error:
        run.progress.note(f"no version was removed: {error}")
        return None
    run.log.write(VersionsPruned(len(pruned.versions), pruned.outputs, pruned.bytes))
    return pruned
