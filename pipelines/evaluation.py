"""Retrieval evaluations: build or open an index of a benchmark's logs, ask its questions, score the answers."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hgmem_core import __version__
from hgmem_core.config import Config, InputConfig, config_digest
from hgmem_core.encoding import Encoder
from hgmem_core.evaluation import score_run
from hgmem_core.ids import digest_of_parts
from hgmem_core.ranking import Query
from hgmem_core.recipes import AnyRecipe, find_recipe
from hgmem_core.schemas import RUN, conform
from hgmem_core.search import Filters
from hgmem_core.tasks.locomo import GROUPS, Questions, TaskError, read_questions
from pipelines.progress import Progress
from pipelines.rebuild import rebuild
from pipelines.retriever import Retriever
from pipelines.store import file_sha256
from pipelines.versions import Version, open_version

RESULT_SCHEMA_VERSION = 1
RANKED = 1_000
"""Turns ranked for each question."""


def locomo_version(
    data: Path, config: Config, encoder: Encoder, cache: Path, now: datetime, progress: Progress
) -> Version:
    """Return the current version of a store that holds the LoCoMo file, building it in `cache` if need be."""
    settings = config.model_copy(
        update={"inputs": [InputConfig(format="locomo", paths=[str(data)])], "retrieve": Config().retrieve}
    )
    key = digest_of_parts([file_sha256(data), config_digest(config.index), config_digest(config.encoder), __version__])
    store = settings.store.model_copy(update={"root": str(cache / f"locomo-{key}")})
    built = rebuild(settings.model_copy(update={"store": store}), encoder, now, progress)
    return open_version(built.store, built.built.version)


def evaluate_locomo(
    data: Path,
    questions: Questions,
    version: Version,
    config: Config,
    encoder: Encoder,
    recipes: Sequence[str],
    progress: Progress,
) -> dict[str, Any]:
    """Ask every question within its own conversation and return the result document.

    Raises:
        TaskError: The version holds other conversations than those of `data`.
        RecipeError: One of the recipes does not exist.
    """
    retriever = Retriever(version, encoder)
    run = ask(retriever, questions, recipes, progress)
    return {
        "schema_version": RESULT_SCHEMA_VERSION,
        "task": "locomo",
        "data_sha256": file_sha256(data),
        "index_version": version.id,
        "software_version": __version__,
        "encoder": encoder.identity.as_dict(),
        "config": config.model_dump(),
        "config_sha256": config_digest(config),
        "prompts_sha256": None,
        "evidence": dict(questions.counts),
        "results": score_run(run, questions.queries, questions.qrels, GROUPS),
    }


def locomo_questions(data: Path) -> Questions:
    """Read the questions of a LoCoMo file.

    Raises:
        TaskError: `data` is not one.
    """
    try:
        content = json.loads(data.read_bytes())
    except (OSError, ValueError) as error:
        raise TaskError(f"{data} cannot be read as LoCoMo's JSON: {error}") from error
    try:
        return read_questions(content if isinstance(content, list) else [content])
    except TaskError as error:
        raise TaskError(f"{data}: {error}") from error


def ask(retriever: Retriever, questions: Questions, recipes: Sequence[str], progress: Progress) -> pa.Table:
    """Return the RUN of every recipe on every question, each within its own namespace."""
    found = [find_recipe(name, retriever.version.default_recipe) for name in recipes]
    rows = questions.queries.to_pylist()
    vectors = retriever.encode([row["text"] for row in rows])
    progress.start("evaluate", len(rows) * len(found))
    tables = []
    for name, recipe in zip(recipes, found, strict=True):
        for row, vector in zip(rows, vectors, strict=True):
            query = retriever.analyse(row["text"], recipe, vector)
            tables.append(_run_rows(retriever, row, name, query, recipe))
            progress.advance("evaluate", 1)
    # Sorted by recipe first, so that each recipe's rows have distinct keys; recipes keep their order.
    parts = [conform(pa.concat_tables(tables[at : at + len(rows)]), RUN) for at in range(0, len(tables), len(rows))]
    return pa.concat_tables(parts)


def _run_rows(retriever: Retriever, row: Mapping[str, Any], name: str, query: Query, recipe: AnyRecipe) -> pa.Table:
    ranking = retriever.rank(row["namespace"], query, recipe, RANKED, Filters())
    index = retriever.namespace(row["namespace"])
    if ranking is None or index is None:
        raise TaskError(f"version {retriever.version.id} has no namespace {row['namespace']!r}: it holds other data")
    size = len(ranking.rows)
    columns = {
        "namespace": pa.array([row["namespace"]] * size, pa.large_string()),
        "query_id": pa.array([row["query_id"]] * size, pa.large_string()),
        "rank": pa.array(np.arange(1, size + 1, dtype=np.int32)),
        "id": index.column("turn_id").take(pa.array(ranking.rows)),
        "score": pa.array(ranking.scores),
        "recipe": pa.array([name] * size, pa.large_string()),
    }
    return pa.table(columns)
