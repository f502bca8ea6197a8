"""Abstention evaluation: are questions told apart whose answer the memory does not hold, in conversations never seen?

Beside the evidence stands a control that sees the question's text alone, of which it learns in the same way: what it
tells apart is told by how questions were written and not by what the memory holds.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hgmem_core import __version__
from hgmem_core.abstention import Numbers
from hgmem_core.abstention_metrics import auroc, bootstrap_aurocs, calibration, interval
from hgmem_core.config import Config, config_digest
from hgmem_core.encoding import Encoder
from hgmem_core.namespace_index import words
from hgmem_core.query_analysis import QueryAnalysis, analyse_query
from hgmem_core.tasks.task import Task
from pipelines.abstention_training import AskedQuestions, ask_for_evidence, leave_one_out
from pipelines.progress import Progress
from pipelines.retriever import Retriever
from pipelines.store import file_sha256
from pipelines.versions import Version

RESULT_SCHEMA_VERSION = 1
THRESHOLD = 0.5
"""At which the shares of questions abstained from are reported."""

_QUESTION_WORDS = "when who what where why how which did is does would long many both or".split()
_ASKED_WITHIN = 6
_COMMON = 20
"""Questions, of those learned from, that have a word or a pair of words which the control counts."""


def evaluate_abstention(
    task: Task, version: Version, config: Config, encoder: Encoder, progress: Progress
) -> dict[str, Any]:
    """Leave each namespace out once and return the result document.

    Args:
        task: With questions that its memory cannot answer.
        version: Holds what is asked of.
        config: Part of the result.
        encoder: Of the version.
        progress: Told of questions asked.

    Raises:
        TaskError: The task has no such questions, or the version holds other data.
        TrainedModelError: There is nothing to be learned.
    """
    retriever = Retriever(version, encoder)
    asked = ask_for_evidence(retriever, task, progress)
    found, penalties = leave_one_out(asked, lambda _: (asked.features, asked.rows))
    control, control_penalties = leave_one_out(asked, _Wording(retriever, asked).rows)
    resampled = [bootstrap_aurocs(scores, asked.labels, asked.namespaces) for scores in (found, control)]
    difference = auroc(found, asked.labels) - auroc(control, asked.labels)
    return {
        "schema_version": RESULT_SCHEMA_VERSION,
        "task": "abstention",
        "benchmark": task.name,
        "data_sha256": file_sha256(Path(task.files.data.path)),
        "index_version": version.id,
        "software_version": __version__,
        "encoder": encoder.identity.as_dict(),
        "config": config.model_dump(),
        "config_sha256": config_digest(config),
        "prompts_sha256": None,
        "evidence": {"answerable": int(asked.labels.sum()), "unanswerable": int((~asked.labels).sum())},
        "results": [
            _measured("evidence", found, resampled[0], asked, task),
            _measured("question text", control, resampled[1], asked, task),
        ],
        "auroc_difference": {"difference": round(difference, 4), "ci95": interval(resampled[0] - resampled[1])},
        "penalties": {"evidence": penalties, "question text": control_penalties},
    }


def _measured(system: str, found: Numbers, resampled: Numbers, asked: AskedQuestions, task: Task) -> dict[str, Any]:
    names = np.array(asked.namespaces)
    abstains = found < THRESHOLD
    members = {group: np.array([own in held for own in asked.groups], bool) for group, held in task.groups.items()}
    return {
        "system": system,
        "auroc": round(auroc(found, asked.labels), 4),
        "ci95": interval(resampled),
        "by_conversation": {
            str(name): round(auroc(found[names == name], asked.labels[names == name]), 4) for name in np.unique(names)
        },
        **calibration(found, asked.labels),
        "abstained_of_answerable": round(float(abstains[asked.labels].mean()), 4),
        "abstained_of_unanswerable": round(float(abstains[~asked.labels].mean()), 4),
        "abstained": {group: round(float(abstains[own].mean()), 4) for group, own in members.items() if own.any()},
    }


class _Wording:
    """What the control is told of each question: its length and kind, the names in it, and its common words."""

    def __init__(self, retriever: Retriever, asked: AskedQuestions) -> None:
        self._told: list[list[float]] = []
        self._said: list[set[str]] = []
        for text, namespace in zip(asked.texts, asked.namespaces, strict=True):
            index = retriever.namespace(namespace)
            speakers = [] if index is None else index.speakers[0]
            analysis = analyse_query(text, speakers)
            self._told.append(_told(text, analysis))
            self._said.append(_said(text, speakers))

    def rows(self, kept: npt.NDArray[np.bool_]) -> tuple[tuple[str, ...], Numbers]:
        """See `pipelines.abstention_training.RowsOf`; words are those common among the questions kept."""
        counts = Counter(word for said, is_kept in zip(self._said, kept, strict=True) if is_kept for word in said)
        common = sorted(word for word, count in counts.items() if count >= _COMMON)
        rows = np.array(
            [told + [float(word in said) for word in common] for told, said in zip(self._told, self._said, strict=True)]
        )
        return tuple(f"wording/{place}" for place in range(rows.shape[1])), rows


def _told(text: str, analysis: QueryAnalysis) -> list[float]:
    first = text.lower().split()
    is_timed = analysis.time_from is not None or analysis.time_until is not None
    counts = (len(text), len(first), len(analysis.entities), len(analysis.speakers), len(analysis.sub_queries))
    flags = (analysis.asks_when, is_timed, "'s" in text, *(word in first[:_ASKED_WITHIN] for word in _QUESTION_WORDS))
    return [*map(float, counts), *map(float, flags), *analysis.intent]


def _said(text: str, speakers: Sequence[str]) -> set[str]:
    """Return the words and pairs of words of a question, where every speaker's name is the same word."""
    names = {word for speaker in speakers for word in words(speaker).split()}
    said = ["*" if word in names else word for word in words(text).split()]
    return {*said, *map(" ".join, zip(["^", *said], said, strict=False))}
