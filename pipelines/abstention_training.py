"""From a benchmark with questions that its memory cannot answer to a model that tells them from the others.

The label of a question is whether it belongs to those; no evidence and no answer is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hgmem_core.abstention import ABSTENTION, Numbers, probabilities
from hgmem_core.abstention_metrics import auroc, calibration
from hgmem_core.abstention_training import (
    PENALTIES,
    AbstentionTrainingError,
    TrainedAbstainer,
    train_abstainer,
)
from hgmem_core.encoding import Encoder
from hgmem_core.evidence import find_evidence
from hgmem_core.recipes import RECIPES
from hgmem_core.tasks.task import Task, TaskError
from hgmem_core.trained import TrainedModelError
from pipelines.model_store import check_place, save_model
from pipelines.progress import Progress
from pipelines.retriever import Retriever
from pipelines.store import file_sha256
from pipelines.versions import Version

_ASKED_AS = RECIPES["hypergraph"]
"""A recipe that needs a vector."""


@dataclass(frozen=True, slots=True)
class AskedQuestions:
    """The questions of a task with the evidence on them.

    Attributes:
        texts: Of the questions.
        namespaces: In which they are asked.
        groups: Their values of QUERY.group.
        labels: Which the memory can answer, bool `[questions]`.
        features: The names of the evidence's features.
        rows: float64 `[questions, features]`.
    """

    texts: Sequence[str]
    namespaces: Sequence[str]
    groups: Sequence[str]
    labels: npt.NDArray[np.bool_]
    features: tuple[str, ...]
    rows: Numbers


def ask_for_evidence(retriever: Retriever, task: Task, progress: Progress) -> AskedQuestions:
    """Look for evidence on every question of a task, each within its own namespace.

    Raises:
        TaskError: The task has no questions that cannot be answered, or the version holds other data.
    """
    asked = task.questions.queries.to_pylist()
    labels = np.array([row["group"] not in task.unanswerable for row in asked])
    if labels.all():
        raise TaskError(f"{task.files.data.path}: no question of {task.name} is one that its memory cannot answer")
    vectors = retriever.encode([row["text"] for row in asked])
    progress.start("evidence", len(asked))
    features: tuple[str, ...] = ()
    rows = []
    for row, vector in zip(asked, vectors, strict=True):
        index = retriever.namespace(row["namespace"])
        if index is None:
            version = retriever.version.id
            raise TaskError(f"version {version} has no namespace {row['namespace']!r}: it holds other data")
        evidence = find_evidence(index, retriever.analyse(row["text"], _ASKED_AS, vector), None, None)
        features = tuple(evidence.features)
        rows.append(list(evidence.features.values()))
        progress.advance("evidence", 1)
    texts, namespaces, groups = ([row[name] for row in asked] for name in ("text", "namespace", "group"))
    return AskedQuestions(texts, namespaces, groups, labels, features, np.array(rows, np.float64))


def train_on(
    features: tuple[str, ...], rows: Numbers, asked: AskedQuestions, kept: npt.NDArray[np.bool_]
) -> TrainedAbstainer:
    """Train on some of the questions.

    Raises:
        TrainedModelError: They are not of both kinds.
    """
    names = [name for name, is_kept in zip(asked.namespaces, kept, strict=True) if is_kept]
    try:
        return train_abstainer(features, rows[kept], asked.labels[kept], names)
    except AbstentionTrainingError as error:
        raise TrainedModelError(f"{ABSTENTION}: {error}") from error


RowsOf = Callable[[npt.NDArray[np.bool_]], tuple[tuple[str, ...], Numbers]]
"""Names and rows of features of all questions, made with what may be known of those that are learned from."""


def leave_one_out(asked: AskedQuestions, rows_of: RowsOf) -> tuple[Numbers, dict[str, float]]:
    """Return each question's probability from a model of the other namespaces, and each namespace's penalty.

    Raises:
        TrainedModelError: See `train_on`.
    """
    names = np.array(asked.namespaces)
    found = np.zeros(len(names))
    penalties = {}
    for name in np.unique(names):
        features, rows = rows_of(names != name)
        trained = train_on(features, rows, asked, names != name)
        found[names == name] = probabilities(trained.abstainer.log_odds(rows[names == name]))
        penalties[str(name)] = trained.penalty
    return found, penalties


@dataclass(frozen=True, slots=True)
class MadeAbstainer:
    """A model that was trained and kept: the folder of its own, and its manifest's measures."""

    folder: Path
    metrics: dict[str, Any]


def train_abstention(task: Task, version: Version, encoder: Encoder, folder: Path, progress: Progress) -> MadeAbstainer:
    """Train an abstainer on all questions of a benchmark and keep it in a folder of models.

    Its measures are those of questions whose namespace was left out. Nothing is drawn, so that there is no seed.

    Args:
        task: With questions that its memory cannot answer.
        version: Holds what is asked of.
        encoder: Of the version.
        folder: Of models.
        progress: Told of questions asked.

    Raises:
        TaskError: The task has no such questions, or the version holds other data.
        TrainedModelError: There is nothing to be learned, or the folder has models that do not go with this one.
    """
    check_place(folder, ABSTENTION, version)
    asked = ask_for_evidence(Retriever(version, encoder), task, progress)
    everything = np.ones(len(asked.labels), bool)
    trained = train_on(asked.features, asked.rows, asked, everything)
    found, _ = leave_one_out(asked, lambda _: (asked.features, asked.rows))
    metrics = {
        "questions": len(found),
        "unanswerable": int((~asked.labels).sum()),
        "auroc": round(auroc(found, asked.labels), 4),
        **{name: value for name, value in calibration(found, asked.labels).items() if name != "reliability"},
    }
    own = save_model(
        folder,
        ABSTENTION,
        trained.abstainer,
        {
            "task": task.name,
            "seed": None,
            "encoder": encoder.identity.as_dict(),
            "index_version": version.id,
            "data": {"data_sha256": file_sha256(Path(task.files.data.path))},
            "split": {"by": "namespace", "training": sorted(set(asked.namespaces))},
            "settings": {"penalty": trained.penalty, "penalties": list(PENALTIES)},
            "metrics": metrics,
        },
    )
    return MadeAbstainer(own, metrics)
