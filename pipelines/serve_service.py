"""What a replica has open, whatever asks it: versions, keys, threads, metrics, the audit log."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hgmem_core.config import Config
from hgmem_core.lexical import Floats
from pipelines.files import StoreError
from pipelines.serve_access import Access
from pipelines.serve_audit import Audit
from pipelines.serve_encoding import Encode, encode_together, vector_of
from pipelines.serve_gate import Gate
from pipelines.serve_keys import KeyRing
from pipelines.serve_metrics import Metrics
from pipelines.serve_problems import log
from pipelines.serve_versions import Versions


@dataclass(frozen=True)
class Service:
    """What the routes share; made by `open_service`.

    Attributes:
        config: The whole configuration.
        versions: What is served.
        access: Who may ask.
        metrics: Of this replica.
        audit: What keys did.
        gate: Lets so many requests work at the same time.
        answers: Lets so many questions be with a model at the same time; they hold up no other request.
        encode: Encodes questions; on Serve, those that wait together.
        now: The clock.
    """

    config: Config
    versions: Versions
    access: Access
    metrics: Metrics
    audit: Audit
    gate: Gate
    answers: Gate
    encode: Encode
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))

    def refresh(self) -> None:
        """Look for a new version, for what is to be forgotten, and for keys; what cannot be read is logged."""
        self.versions.refresh()
        self.metrics.refused(self.versions.refused is not None)
        for each in (self.versions.refresh_tombstones, self.access.refresh):
            try:
                each()
            except (StoreError, OSError) as error:
                log.error("what was known before stays in force: %s", error)

    async def watch(self) -> None:
        """Look for what is new again and again, until cancelled."""
        while True:
            await asyncio.sleep(self.config.serve.refresh_seconds)
            await asyncio.to_thread(self.refresh)


def open_service(config: Config, encode: Encode | None = None) -> Service:
    """Open what `config` names; a version that cannot be served is no reason not to start.

    Args:
        config: The whole configuration.
        encode: See `Service`; None encodes each question by itself.

    Raises:
        StoreError: The keys or the audit log cannot be read or written.
    """
    serve, metrics = config.serve, Metrics()
    access = Access(KeyRing(Path(serve.keys)) if serve.keys else None)
    pool = ThreadPoolExecutor(serve.threads, thread_name_prefix="hgmem-search")
    retry_after = serve.retry_after_seconds
    gate = Gate(pool, serve.threads, serve.queue, retry_after, serve.timeout_seconds, metrics.waiting.set)
    most, seconds = config.answer.concurrency, config.answer.timeout_seconds
    answering = ThreadPoolExecutor(most, thread_name_prefix="hgmem-answer")
    answers = Gate(answering, most, serve.queue, retry_after, seconds, metrics.waiting_answers.set)

    async def alone(encoder: Any, text: str) -> Floats:  # noqa: ANN401 - as Encode has it
        [found] = await asyncio.get_running_loop().run_in_executor(pool, encode_together, [(encoder, text)])
        return vector_of(found)

    versions, audit = Versions(config, metrics.switched), Audit(serve.audit)
    service = Service(config, versions, access, metrics, audit, gate, answers, encode or alone)
    service.refresh()
    return service
