"""What a build would ask of a language model, without asking it: every request is made, and none is sent.

The build runs on a copy of the store, whose files are links, in a folder that goes away: what is built or answered
already is found there. Of a store in object storage, all of that is fetched. Where a model would be asked, the embedded
engine's answer stands, and later stages ask about that. So the first pass of every request is counted as it would be,
up to what a model would find otherwise; further passes are not.
"""

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Lock

from hgmem_core.chat import Reply, Request
from hgmem_core.config import Config, RunConfig, StoreConfig
from hgmem_core.encoding import Encoder
from pipelines.calls import Spent
from pipelines.chat_model import GUESS, GUESSED_BYTES, token_counter, tokenizer_file
from pipelines.object_storage import ObjectStorageError
from pipelines.progress import Progress
from pipelines.rebuild import rebuild
from pipelines.store import Store, StoreError

_PARTS = ("imports", "outputs", "versions", "current", "calls")
_TEMPLATE_TOKENS = 20
"""What a chat template adds to a prompt."""


@dataclass(slots=True)
class Estimate:
    """What would be asked.

    Attributes:
        turns: Of the version that would be built.
        stages: Calls, prompt tokens, and a guess at those of the answers, by stage.
        counted_by: Whose tokens those of prompts are.
    """

    turns: int
    stages: dict[str, Spent]
    counted_by: str


def estimate(config: Config, encoder: Encoder, began_at: datetime, progress: Progress) -> Estimate:
    """Return what a rebuild would ask now.

    Args:
        config: As for the rebuild.
        encoder: That of the rebuild, or another one if that is not to be asked; then its vectors count as missing.
        began_at: As for the rebuild.
        progress: For whoever watches.
    """
    file = tokenizer_file(config.llm)
    changes = {"max_fallback_rate": 1.0, **({} if file else {"tokenizer": GUESS})}
    llm = config.llm.model_copy(update=changes)
    counting = _Counting(token_counter(llm))
    with _copy_of(config.store) as root:
        run = RunConfig(engine="local", workers=config.run.workers)
        settings = {"store": StoreConfig(root=str(root), buckets=config.store.buckets), "run": run, "llm": llm}
        built = rebuild(config.model_copy(update=settings), encoder, began_at, progress, counting).built
    return Estimate(built.turns, dict(counting.stages), str(file) if file else f"{GUESSED_BYTES} bytes each")


@contextmanager
def _copy_of(settings: StoreConfig) -> Iterator[Path]:
    """Give a copy of a store, or an empty folder if there is none."""
    try:
        store = Store.open(settings.root, settings.cache, settings.cache_gib)
    except ObjectStorageError:
        raise  # whether there is one is not known
    except StoreError:
        with tempfile.TemporaryDirectory(prefix="hgmem-dry-run-") as name:
            yield Path(name)
        return
    with store.workspace() as folder:  # of the same file system, where a file may have two names
        for path in (path for part in _PARTS for path in store.files(store.root / part, "**/*")):
            if path.suffix == ".json":  # of those, some are replaced
                store.fetch(path)
            there = folder / path.relative_to(store.root)
            there.parent.mkdir(parents=True, exist_ok=True)
            _link(path, there)
        shutil.copy2(store.root / "store.json", folder)
        yield folder


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@dataclass(slots=True)
class _Counting:
    """A client that counts requests and answers none."""

    count: Callable[[str], int]
    stages: defaultdict[str, Spent] = field(default_factory=lambda: defaultdict(Spent))
    _lock: Lock = field(default_factory=Lock)

    def ask(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `pipelines.chat_model.ChatModel`."""
        for place, request in enumerate(requests):
            tokens = self.count(request.system) + self.count(request.user) + _TEMPLATE_TOKENS
            with self._lock:
                self.stages[request.stage] += Spent(1, 0, tokens, request.expected_tokens)
            yield place, Reply(None, None, "refused", refusal="not asked in a dry run")

    def close(self) -> None:
        """Nothing is on its way."""
