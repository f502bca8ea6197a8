"""The gate of a rebuild: what a version must find before it becomes the current one."""

from pathlib import Path

from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from hgmem_core.gate import failures, gated, read_floor
from hgmem_core.tasks import own_questions
from hgmem_core.tasks.task import Task, TaskError
from pipelines.evaluation import evaluate_task, open_task
from pipelines.model_store import stored_for
from pipelines.own_questions import check_own_questions, open_own_questions
from pipelines.progress import Progress
from pipelines.publish import Gate
from pipelines.rerankers import open_reranker
from pipelines.store import Store
from pipelines.versions import Version, VersionError, current_version, open_version


def open_gate(config: Config, encoder: Encoder, store: Store, progress: Progress) -> Gate | None:
    """Return the gate that a configuration asks for, None for none; its questions are read, and asked later.

    Args:
        config: Its `gate`.
        encoder: Of the versions.
        store: That they are of.
        progress: Told of questions asked.

    Raises:
        TaskError: The file of questions cannot be used; it is named.
    """
    gate = config.gate
    if not gate.data:
        return None
    data, corpus = Path(gate.data), Path(gate.corpus) if gate.corpus else None
    benchmark: Task | None = None
    if gate.task == own_questions.NAME:
        check_own_questions(data)
    else:
        benchmark = open_task(gate.task, data, corpus)
    floors = [read_floor(text) for text in gate.at_least]

    def refusal(new: str) -> str | None:
        version = open_version(store, new)
        try:
            task = benchmark or open_own_questions(data, version, encoder)
            result = evaluate_task(
                task,
                version,
                config,
                encoder,
                [gate.recipe],
                progress,
                reranking=open_reranker(config.rerank),
                models=stored_for(config.retrieve.models, version),
                earlier=_earlier(store) if gate.not_worse else None,
            )
        except (TaskError, VersionError) as error:
            return f"{error}{' (gate.not_worse=false compares with no version)' if gate.not_worse else ''}"
        for warning in result["warnings"]:
            progress.note(f"gate: {warning}")
        return "; ".join(failures(gated(result, floors, task.learned_from)["gate"])) or None

    return refusal


def _earlier(store: Store) -> Version | None:
    """Return the current version; None before the first."""
    return None if current_version(store) is None else open_version(store)
