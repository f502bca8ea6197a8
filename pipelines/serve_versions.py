"""The version that is served: a new pointer is noticed, its version verified, opened beside the old, warmed, switched.

A version that cannot be served is refused, and the old one goes on. A request takes `Versions.current` once, and all of
its answer is of that version.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from hgmem_core.chat import ModelError
from hgmem_core.config import Config
from hgmem_core.dense import VectorError
from hgmem_core.encoding import Encoder, EncodingError
from hgmem_core.model_config import PACKAGED_ENCODERS, EncoderConfig
from hgmem_core.recipes import RecipeError
from hgmem_core.trained import TrainedModelError
from pipelines.analysts import open_analyst
from pipelines.encoders import EncoderError, open_encoder, tuned_vectors
from pipelines.files import StoreError
from pipelines.model_store import models_for
from pipelines.rerankers import open_reranker
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.verified_files import VerifiedFiles
from pipelines.versions import Version, VersionError, current_version, open_version, point_to

log = logging.getLogger("hgmem.serve")

WARM_NAMESPACES = 16
"""Of those asked last, opened in a new version before it is switched to."""

RETRY_SECONDS = 60.0
"""After so long a version that was refused is tried again: what was wrong may have been mended, or have passed."""

_WARMING = "what was said about the harbour and the red bicycle"

_REFUSALS = (
    StoreError, OSError, EncoderError, EncodingError, VectorError, ModelError, RecipeError, TrainedModelError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refused:
    """A version that should be served and is not.

    Attributes:
        pointer: The number of the pointer that names it; 0 where even that cannot be read.
        version: Its id; None where that is not known.
        why: What is wrong with it.
        at: When it was tried, by the monotonic clock.
    """

    pointer: int
    version: str | None
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class Served:
    """A version that is served.

    Attributes:
        pointer: The number of the pointer that named it.
        retriever: Answers from it.
        sample: A namespace that it has; None if it has none.
        hold: To be closed when it is not served any more.
    """

    pointer: int
    retriever: Retriever
    sample: str | None
    hold: ExitStack

    @property
    def version(self) -> Version:
        """The version."""
        return self.retriever.version

    def probe(self) -> None:
        """Ask a real question.

        Raises:
            VersionError: A file is damaged.
        """
        if self.sample is not None:
            self.retriever.search(self.sample, _WARMING, k=1)


class Versions:
    """Opens versions of a store as the pointer moves; threads may share it."""

    def __init__(
        self, config: Config, switched: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Open nothing yet; see `refresh`.

        Args:
            config: Of the store, encoder, reranker and models.
            switched: Called whenever another version is served.
            clock: In seconds.
        """
        self._config = config
        self._switched = switched
        self._clock = clock
        self._encoders: dict[str, Encoder] = {}
        self._reranking = open_reranker(config.rerank)
        self._analyst = open_analyst(config)
        self._served: Served | None = None
        self._files = VerifiedFiles()
        self._lock = threading.Lock()
        self.refused: Refused | None = None

    @property
    def store(self) -> Store:
        """The store, opened anew: it may have been made after the endpoint was started."""
        settings = self._config.store
        return Store.open(settings.root, settings.cache, settings.cache_gib)

    @property
    def served(self) -> Served | None:
        """What is served right now, if anything."""
        return self._served

    @property
    def current(self) -> Served:
        """What is served right now.

        Raises:
            VersionError: Nothing can be.
        """
        served = self._served
        if served is None:
            why = self.refused.why if self.refused is not None else "no version was opened yet"
            raise VersionError(f"no version is served: {why}")
        return served

    def refresh(self, at_once: bool = False) -> None:
        """Serve what the pointer names, or note why not; a version that was refused is tried again after a while.

        Args:
            at_once: Whether to try one again that was refused just now.
        """
        with self._lock:
            pointer, version = 0, None
            try:
                found = current_version(self.store)
                if found is None:
                    raise VersionError("the store has no published version yet; rebuild it first")
                pointer, version = found
                if self._is_known(pointer, version, at_once):
                    return
                before, self._served = self._served, self._opened(pointer, version)
                if before is not None:  # who asks it still has all of it open
                    before.hold.close()
            except _REFUSALS as error:
                if self.refused is None or self.refused.why != str(error):
                    log.error("a version is not served: %s", error)
                self.refused = Refused(pointer, version, str(error), self._clock())
            else:
                self.refused = None
                self._switched()

    def refresh_tombstones(self) -> None:
        """Hide what was forgotten since, and show what was restored.

        Raises:
            StoreError: What was to be forgotten cannot be read; what was hidden before stays so.
        """
        if self._served is not None:
            self._served.retriever.refresh_tombstones()

    def _is_known(self, pointer: int, version: str, at_once: bool) -> bool:
        """Say whether a pointer brings nothing new."""
        served, refused = self._served, self.refused
        if served is not None and served.version.id == version:
            self._served = replace(served, pointer=pointer)
            self.refused = None
            return True
        if refused is None or (refused.pointer, refused.version) != (pointer, version) or at_once:
            return False
        return self._clock() < refused.at + RETRY_SECONDS

    def _opened(self, pointer: int, version: str) -> Served:
        store = self.store
        with ExitStack() as hold:
            hold.enter_context(store.serving(version))
            opened = self._verified(open_version(store, version))
            encoder = self._encoder_of(opened)
            tuned = tuned_vectors(self._config.encoder, encoder.identity)
            retrieve = self._config.retrieve
            models = models_for(retrieve.models, opened)
            settings = self._reranking, models, tuned, retrieve.abstain_below, self._analyst
            retriever = Retriever(opened, encoder, *settings)
            # What was asked last of the version before is opened, so that nobody waits for it.
            for name in [] if self._served is None else self._served.retriever.recent(WARM_NAMESPACES):
                retriever.namespace(name)
            new = Served(pointer, retriever, _sample(retriever), ExitStack())
            new.probe()
            return replace(new, hold=hold.pop_all())

    def _encoder_of(self, version: Version) -> Encoder:
        """Return the packaged encoder that made a version, else the configured one; each is opened once."""
        config = self._config.encoder
        built = str(version.manifest["encoder"]["name"])
        if built in PACKAGED_ENCODERS and built != config.name:
            config = EncoderConfig.model_validate({"name": built, "cache_dir": config.cache_dir})
        if config.name not in self._encoders:
            self._encoders[config.name] = open_encoder(config)
        return self._encoders[config.name]

    def _verified(self, version: Version) -> Version:
        for _ in version.verify(self._files):
            pass
        self._files.forget_removed()
        return replace(version, verified=True)

    def roll_back(self, version: str) -> int:
        """Point to an older version, or back to a newer one, once its files are verified; return the pointer's number.

        Raises:
            VersionError: There is no such version, or it is damaged.
        """
        store = self.store
        self._verified(open_version(store, version))
        return point_to(store, version)


def _sample(retriever: Retriever) -> str | None:
    """Return the first namespace of a version of which not all is forgotten; None without any."""
    for bucket in retriever.version.manifest["buckets"]:
        reader = retriever.version.open_bucket(int(bucket))
        for name in [] if reader is None else reader.namespaces():
            if retriever.namespace(name) is not None:
                return name
    return None
