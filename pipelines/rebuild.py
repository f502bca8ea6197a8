"""The whole way from logs to a published version: import what is new, build, publish."""

from dataclasses import dataclass
from datetime import datetime

from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from pipelines.build import Built, build
from pipelines.import_stage import Imported, import_logs
from pipelines.progress import Progress
from pipelines.store import Store


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A store, what was imported into it (None without inputs), and the version that was published."""

    store: Store
    imported: Imported | None
    built: Built


def rebuild(config: Config, encoder: Encoder, ingested_at: datetime, progress: Progress) -> Rebuilt:
    """Import those inputs of `config` that its store does not know, then build and publish."""
    store = Store.make(config.store.root, config.store.buckets)
    imported = None
    if config.inputs:
        imported = import_logs(store, config.inputs, config.imports, ingested_at, progress)
    return Rebuilt(store, imported, build(store, config, encoder, progress))
