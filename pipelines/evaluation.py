"""Retrieval evaluations: build or open an index of a benchmark's logs, ask its questions, score the answers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from hgmem_core import __version__
from hgmem_core.config import Config, InputConfig, StoreConfig, config_digest
from hgmem_core.encoding import Encoder
from hgmem_core.evaluation import paired_differences, question_scores, result_rows
from hgmem_core.ids import digest_of_parts
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import Ranking
from hgmem_core.recipes import RecipeError, find_recipe, model_name
from hgmem_core.rerank import Reranking
from hgmem_core.schemas import RUN, conform
from hgmem_core.search import Filters
from hgmem_core.tasks import BENCHMARKS
from hgmem_core.tasks.task import Benchmark, Questions, Task, TaskError, TaskFile, TaskFiles
from pipelines.encoders import tuned_vectors
from pipelines.import_stage import IMPORT_REVISION
from pipelines.log_files import LogFileError, open_rows
from pipelines.model_store import StoredModel
from pipelines.progress import Progress
from pipelines.rebuild import rebuild
from pipelines.retriever import Retriever
from pipelines.store import file_sha256
from pipelines.versions import Version, open_version

RESULT_SCHEMA_VERSION = 1
RANKED = 1_000
"""Turns ranked for each question."""


def open_task(name: str, data: Path, corpus: Path | None = None) -> Task:
    """Read the files of a benchmark.

    Args:
        name: Of the task, one of `BENCHMARKS`.
        data: The file with the questions.
        corpus: The file with what they are asked of, for a benchmark that has one.

    Raises:
        TaskError: A file is not the benchmark's; it is named.
    """
    benchmark = BENCHMARKS[name]
    read = partial(_task_file, benchmark)
    return benchmark.read(TaskFiles(read(data), None if corpus is None else read(corpus)))


def _task_file(benchmark: Benchmark, path: Path) -> TaskFile:
    """Return the rows of a file, just as an import reads them."""
    unreadable = f"{path} cannot be read as {benchmark.title}'s JSON"
    try:
        rows = list(
            open_rows(str(path), InputConfig(format=benchmark.format, paths=[str(path)], namespace=benchmark.format))
        )
    except LogFileError as error:
        raise TaskError(f"{unreadable}: {str(error).removeprefix(f'{path}: ')}") from error
    for row in rows:
        if row.error is not None:
            raise TaskError(f"{unreadable}: {row.row_id}: {row.error}")
    return TaskFile(str(path), [row.value for row in rows])


def task_version(
    task: Task, config: Config, encoder: Encoder, cache: Path, now: datetime, progress: Progress
) -> Version:
    """Return the current version of a store that holds what a task imports, building it in `cache` if need be.

    The store has its own number of buckets, whatever the configuration says: it changes no id and no score.
    """
    settings = config.model_copy(update={"inputs": list(task.inputs), "retrieve": Config().retrieve})
    imported = file_sha256(Path(task.files.imported.path))
    # Versions with other tuned vectors, or none, share a store, and in it all the rest.
    encoding = config.encoder.model_copy(update={"tuned": ""})
    sections = [config_digest(section) for section in (config.imports, config.index, encoding)]
    key = digest_of_parts([imported, *sections, str(IMPORT_REVISION), __version__])
    store = StoreConfig(root=str(cache / f"{task.name}-{key}"))
    built = rebuild(settings.model_copy(update={"store": store}), encoder, now, progress)
    return open_version(built.store, built.built.version)


def evaluate_task(
    task: Task,
    version: Version,
    config: Config,
    encoder: Encoder,
    recipes: Sequence[str],
    progress: Progress,
    baseline: str | None = None,
    context_tokens: int | None = None,
    reranking: Reranking | None = None,
    models: Mapping[str, StoredModel] = MappingProxyType({}),
) -> dict[str, Any]:
    """Ask every question within its own namespace and return the result document; a recipe named twice counts once.

    Args:
        task: What to ask.
        version: Answers.
        config: Part of the result.
        encoder: Of the version.
        recipes: To compare.
        progress: Told of questions asked.
        baseline: One of the recipes, from which the others' paired differences are reported; None for none.
        context_tokens: The budget of a context, for the metric `all@context`; None leaves it out.
        reranking: Orders what every recipe found anew; None for none.
        models: Of the recipes that are trained; a warning names those that learned from these very questions.

    Raises:
        TaskError: The version holds other data than the task's.
        RecipeError: One of the recipes does not exist.
    """
    recipes = list(dict.fromkeys(recipes))
    questions = task.questions
    trained = {name: model.trained for name, model in models.items()}
    retriever = Retriever(version, encoder, reranking, trained, tuned_vectors(config.encoder, encoder.identity))
    if baseline is not None and baseline not in recipes:
        raise RecipeError(f"the baseline {baseline!r} is not among the recipes {', '.join(recipes)}")
    run, found, failures = ask(retriever, questions, recipes, progress, context_tokens)
    scores = question_scores(run, questions.queries, questions.qrels, recipes, task.metrics)
    extra: dict[str, Any] = {}
    if context_tokens is not None:
        scores = scores.with_metric("all@context", found)
        extra["context_tokens"] = context_tokens
    if baseline is not None:
        extra["differences"] = paired_differences(scores, baseline, task.groups)
    names = {model_name(find_recipe(name, version.default_recipe)) for name in recipes}
    used = {name: model for name, model in models.items() if name in names}
    if used:
        extra["models"] = [_about(model) for model in used.values()]
    warnings = [*_warnings(retriever, questions), *_seen(used, task), *failures]
    return {
        **result_head(task, version, config, encoder, warnings),
        "results": result_rows(scores, task.groups),
        **extra,
    }


def result_head(
    task: Task, version: Version, config: Config, encoder: Encoder, warnings: Sequence[str]
) -> dict[str, Any]:
    """Return what every result document says of what was asked, and of whom."""
    corpus = task.files.corpus
    return {
        "schema_version": RESULT_SCHEMA_VERSION,
        "task": task.name,
        "data_sha256": file_sha256(Path(task.files.data.path)),
        **({} if corpus is None else {"corpus_sha256": file_sha256(Path(corpus.path))}),
        "index_version": version.id,
        "software_version": __version__,
        "encoder": encoder.identity.as_dict(),
        "config": config.model_dump(),
        "config_sha256": config_digest(config),
        "prompts_sha256": None,
        "evidence": dict(task.questions.counts),
        "warnings": list(warnings),
    }


def _about(model: StoredModel) -> dict[str, Any]:
    kept = {name: model.manifest.get(name) for name in ("recipe", "task", "data", "split", "seed", "index_version")}
    return {**kept, "arrays_sha256": model.manifest["arrays"]["sha256"]}


def _seen(models: Mapping[str, StoredModel], task: Task) -> list[str]:
    """Name the models that learned from the file whose questions are asked: what they find there proves nothing."""
    digest = file_sha256(Path(task.files.data.path))
    return [
        f"{name} was trained on this very file: its numbers say nothing of questions that it never saw; use --cv"
        for name, model in models.items()
        if model.manifest.get("data", {}).get("data_sha256") == digest
    ]


_LARGEST_K = 30


def _warnings(retriever: Retriever, questions: Questions) -> list[str]:
    """Name the namespaces that are so short that recall at the largest k finds everything in them."""
    names = sorted(set(questions.queries.column("namespace").to_pylist()))
    sizes = {name: len(index) for name in names if (index := retriever.namespace(name))}
    return [
        f"{name} has {size} turns: recall@{_LARGEST_K} is 100 there whatever the recipe"
        for name, size in sizes.items()
        if size <= _LARGEST_K
    ]


def ask(
    retriever: Retriever,
    questions: Questions,
    recipes: Sequence[str],
    progress: Progress,
    context_tokens: int | None = None,
) -> tuple[pa.Table, dict[str, list[float]], list[str]]:
    """Ask every question under every recipe, each within its own namespace.

    Returns:
        RUN; for each recipe by question 100 where all evidence turns are cited by a context of `context_tokens`, else 0
        (empty lists if no context is asked for); and for each recipe whose questions a reranker failed, a line on it.
    """
    asked = [(name, find_recipe(name, retriever.version.default_recipe)) for name in recipes]
    rows = questions.queries.to_pylist()
    vectors = retriever.encode([row["text"] for row in rows])
    relevant: defaultdict[str, set[str]] = defaultdict(set)
    for row in questions.qrels.to_pylist():
        relevant[row["query_id"]].add(row["turn_id"])
    progress.start("evaluate", len(rows) * len(asked))
    parts, found, warnings = [], {name: list[float]() for name in recipes}, []
    for name, recipe in asked:
        tables, failures = [], []
        for row, vector in zip(rows, vectors, strict=True):
            query = retriever.analyse(row["text"], recipe, vector)
            ranking = retriever.rank(row["namespace"], query, recipe, RANKED, Filters())
            index = retriever.namespace(row["namespace"])
            if ranking is None or index is None:
                version = retriever.version.id
                raise TaskError(f"version {version} has no namespace {row['namespace']!r}: it holds other data")
            tables.append(_run_rows(index, ranking, row, name))
            if ranking.rerank_failure is not None:
                failures.append(ranking.rerank_failure)
            if context_tokens is not None:
                context = retriever.context(index, ranking, recipe, context_tokens)
                found[name].append(100.0 * (relevant[row["query_id"]] <= context.turn_ids()))
            progress.advance("evaluate", 1)
        parts.append(conform(pa.concat_tables(tables), RUN))  # keys are distinct within a recipe
        if failures:
            share = f"{len(failures)} of {len(rows)} questions"
            warnings.append(f"{name}: {share} kept the recipe's own order, since {failures[0]}")
    return pa.concat_tables(parts), found, warnings


def _run_rows(index: NamespaceIndex, ranking: Ranking, row: Mapping[str, Any], name: str) -> pa.Table:
    size = len(ranking.rows)
    columns = {
        "namespace": pa.array([row["namespace"]] * size, pa.large_string()),
        "query_id": pa.array([row["query_id"]] * size, pa.large_string()),
        "rank": pa.array(np.arange(1, size + 1, dtype=np.int32)),
        "id": index.column("turn_id").take(pa.array(ranking.rows)),
        "score": pa.array(ranking.scores.astype(np.float64)),
        "recipe": pa.array([name] * size, pa.large_string()),
    }
    return pa.table(columns)
