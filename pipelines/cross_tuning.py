"""Tuned vectors for cross-validation: of no question that they, or a model that reads them, learned from.

A model learns how far to trust tuned vectors, so those of the questions that it learns from must be as good as those of
questions never seen, and not better. Namespaces are split in three parts. The first is asked about with vectors that
were tuned on the two others; models learn from the second with vectors tuned on the third, and the other way round.
The namespaces of the first that are not asked about at the time are learned from with its own vectors, which saw none
of them. Three times round that makes six tunings, whatever the number of namespaces.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hgmem_core import __version__
from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from hgmem_core.heads import HeadTraining, fit_heads
from hgmem_core.ids import content_id
from hgmem_core.tasks.task import Task
from pipelines.encoder_examples import examples_digest
from pipelines.encoder_tuning import EncoderTuning, tune_encoder
from pipelines.encoders import tuned_vectors
from pipelines.evaluation import task_version
from pipelines.model_training import data_digests
from pipelines.progress import Progress, Silent
from pipelines.retriever import Retriever
from pipelines.training import Example, examples_of
from pipelines.tuned_encoder import save_tuned
from pipelines.tuned_files import read_tuned
from pipelines.tuned_heads import save_heads
from pipelines.tuned_training import encoder_to_tune, to_tune_on, to_turn
from pipelines.weights import EncoderError

PARTS = 3

Kind = Literal["encoder", "heads"]

SEED = 0
"""Of every tuning: what differs between the seeds of a comparison is what stands on the vectors."""


@dataclass(frozen=True, slots=True)
class View:
    """With what some namespaces are asked about, and learned from for that.

    Attributes:
        namespaces: That are asked about.
        retriever: Asks; it may know of others.
        examples: Of all namespaces, those asked about too.
        tuned: For each namespace what its vectors were tuned on and how, JSON-ready; empty without tuned vectors.
    """

    namespaces: frozenset[str]
    retriever: Retriever
    examples: Sequence[Example]
    tuned: dict[str, Any]


Tune = Callable[[Sequence[Example], Path], None]
"""Learns from examples and writes what `encoder.tuned` names into a folder."""


def tuned_views(
    kind: Kind,
    task: Task,
    examples: Sequence[Example],
    config: Config,
    encoder: Encoder,
    cache: Path,
    now: datetime,
    progress: Progress,
) -> list[View]:
    """Return a view for each of three parts of the namespaces, tuning what they need, in this process.

    What was tuned on the same examples before is taken from the cache.

    Args:
        kind: What is tuned.
        task: Asks.
        examples: Of all its namespaces, at least three.
        config: How the store is built; names no tuned vectors.
        encoder: Of the store.
        cache: Where tuned vectors and stores are kept.
        now: See `pipelines.evaluation.task_version`.
        progress: Told of the tunings.

    Raises:
        EncoderError: The encoder cannot be tuned.
    """
    tune = _tuning(kind, encoder, data_digests(task))
    parts = [frozenset(part.tolist()) for part in np.array_split(sorted({one.namespace for one in examples}), PARTS)]
    progress.start("tune", 2 * PARTS)
    views = []
    made: dict[frozenset[str], tuple[Retriever, dict[str, Any]]] = {}

    def tuned_on(namespaces: frozenset[str]) -> tuple[Retriever, dict[str, Any]]:
        if namespaces not in made:
            own = [one for one in examples if one.namespace in namespaces]
            made[namespaces] = _opened(kind, tune, own, task, config, encoder, cache, now)
            progress.advance("tune", 1)
        return made[namespaces]

    for part in parts:
        one, other = (rest for rest in parts if rest != part)
        sources = {part: tuned_on(one | other), one: tuned_on(other), other: tuned_on(one)}
        learned: list[Example] = []
        about: dict[str, Any] = {}
        for namespaces, (retriever, tuned) in sources.items():
            queries = task.questions.within(namespaces)
            learned += examples_of(retriever, queries, task.groups[task.learned_from])
            about |= dict.fromkeys(sorted(namespaces), tuned)
        views.append(View(part, sources[part][0], learned, about))
    progress.finish("tune")
    return views


def _tuning(kind: Kind, encoder: Encoder, data: dict[str, str]) -> Tune:
    def about(
        examples: Sequence[Example], settings: EncoderTuning | HeadTraining, digest: str, began: float
    ) -> dict[str, Any]:
        namespaces = sorted({one.namespace for one in examples})
        return {
            "data": {**data, "examples": digest},
            "licence": "for a comparison alone",
            "seed": SEED,
            "settings": asdict(settings),
            "split": {"by": "namespace", "training": namespaces, "questions": len(examples)},
            "training_seconds": round(time.perf_counter() - began, 2),
        }

    def encoders(examples: Sequence[Example], folder: Path) -> None:
        began = time.perf_counter()
        base, settings = encoder_to_tune(encoder), EncoderTuning()
        to_learn = to_tune_on(examples)
        weights = tune_encoder(base, to_learn, settings, SEED, lambda *_: True)
        save_tuned(folder, weights, about(examples, settings, examples_digest(to_learn), began), base)

    def heads(examples: Sequence[Example], folder: Path) -> None:
        began = time.perf_counter()
        settings = HeadTraining()
        found = fit_heads(to_turn(examples), [], settings, SEED, lambda _: True)
        save_heads(folder, found, about(examples, settings, _digest(examples), began), encoder.identity.as_dict())

    if kind == "encoder":
        encoder_to_tune(encoder)  # refuses before anything is tuned
        return encoders
    return heads


def _opened(
    kind: Kind,
    tune: Tune,
    examples: Sequence[Example],
    task: Task,
    config: Config,
    encoder: Encoder,
    cache: Path,
    now: datetime,
) -> tuple[Retriever, dict[str, Any]]:
    """Tune on examples unless that was done, and return the task's namespaces with such vectors, and how they came."""
    settings = asdict(EncoderTuning() if kind == "encoder" else HeadTraining())
    made_of = [kind, encoder.identity.as_dict(), settings, SEED, _digest(examples), data_digests(task)]
    folder = cache / f"tuned-{content_id(json.dumps(made_of), __version__)}"
    try:
        read_tuned(folder)
    except EncoderError:  # there is nothing yet, or something damaged
        tune(examples, folder)
    own = config.model_copy(update={"encoder": config.encoder.model_copy(update={"tuned": str(folder)})})
    version = task_version(task, own, encoder, cache, now, Silent())
    manifest = read_tuned(folder)
    told = {
        "kind": kind,
        "weights_sha256": version.tuned_encoder["weights_sha256"] if version.tuned_encoder else None,
        "trained_on": manifest["split"]["training"],
        "training_seconds": manifest["training_seconds"],
    }
    return Retriever(version, encoder, tuned=tuned_vectors(own.encoder, encoder.identity)), told


def _digest(examples: Sequence[Example]) -> str:
    return content_id(json.dumps([[one.namespace, one.query_id, one.evidence.tolist()] for one in examples]))
