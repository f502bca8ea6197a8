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
from hgmem_core.evaluation import Scores, paired_differences, question_scores, result_rows
from hgmem_core.ids import digest_of_parts
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import Ranking
from hgmem_core.recipes import RecipeError, find_recipe, model_name
from hgmem_core.rerank import Reranking
from hgmem_core.schemas import RUN, conform
from hgmem_core.search import Filters
from hgmem_core.tasks import BENCHMARKS
from hgmem_core.tasks.task import Questions, Task, TaskError, TaskFile, TaskFiles
from pipelines.encoders import tuned_vectors
from pipelines.import_stage import IMPORT_REVISION
from pipelines.log_files import LogFileError, open_rows
from pipelines.model_store import StoredModel
from pipelines.progress import Progress
from pipelines.retriever import Retriever
from pipelines.session_recall import session_recalls
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
    settings = InputConfig(format=benchmark.format, paths=[str(data)], namespace=benchmark.format)
    read = partial(read_task_file, f"{benchmark.title}'s", settings=settings)
    return benchmark.read(TaskFiles(read(data), None if corpus is None else read(corpus)))


def read_task_file(whose: str, path: Path, settings: InputConfig) -> TaskFile:
    """Return the rows of a file, just as an import reads them.

    Args:
        whose: JSON it should be, for the error: `LoCoMo's`.
        path: The file.
        settings: Its format.

    Raises:
        TaskError: It cannot be read; the file and the row are named.
    """
    unreadable = f"{path} cannot be read as {whose} JSON"
    try:
        rows = list(open_rows(str(path), settings))
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
    # Imported here since a rebuild that has a gate evaluates.
    from pipelines.rebuild import rebuild

    plain = Config()
    settings = config.model_copy(update={"inputs": list(task.inputs), "retrieve": plain.retrieve, "gate": plain.gate})
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
    earlier: Version | None = None,
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
        earlier: Another version, from which each recipe's paired differences are reported as `comparisons`; None for
            none.

    Raises:
        TaskError: The version holds other data than the task's.
        RecipeError: One of the recipes does not exist.
    """
    recipes = list(dict.fromkeys(recipes))
    questions = task.questions
    trained = {name: model.trained for name, model in models.items()}
    tuned = tuned_vectors(config.encoder, encoder.identity)
    retriever = Retriever(version, encoder, reranking, trained, tuned)
    if baseline is not None and baseline not in recipes:
        raise RecipeError(f"the baseline {baseline!r} is not among the recipes {', '.join(recipes)}")
    run, found, failures = ask(retriever, questions, recipes, progress, context_tokens)
    scores = question_scores(run, questions.queries, questions.qrels, recipes, task.metrics)
    extra: dict[str, Any] = {}
    warnings = [*task.notes, *_warnings(retriever, task)]
    if earlier is not None:
        before = Retriever(earlier, encoder, reranking, trained, tuned)
        extra["comparisons"], left_out = _compared(task, scores, before, progress)
        warnings += left_out
    for metric, values in session_recalls(retriever, questions, run, recipes).items():
        scores = scores.with_metric(metric, values)
    if context_tokens is not None:
        scores = scores.with_metric("all@context", found)
        extra["context_tokens"] = context_tokens
    if baseline is not None:
        extra["differences"] = paired_differences(scores, baseline, task.groups)
    names = {model_name(find_recipe(name, version.default_recipe)) for name in recipes}
    used = {name: model for name, model in models.items() if name in names}
    if used:
        extra["models"] = [_about(model) for model in used.values()]
    warnings += [*_seen(used, task), *failures]
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


def _compared(
    task: Task, scores: Scores, earlier: Retriever, progress: Progress
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return how each recipe differs from itself in an earlier version, and a line on questions that it is not asked.

    Compared are the questions whose evidence that version holds in full, of the task's main group.

    Raises:
        TaskError: It holds that of none.
    """
    every = task.questions.queries.column("query_id").to_pylist()
    questions = _held(earlier, task.questions)
    kept = set(questions.queries.column("query_id").to_pylist())
    name = earlier.version.id
    if not kept:
        raise TaskError(f"version {name} holds the evidence of no question: nothing can be compared")
    recipes = list(scores.values)
    run, _, _ = ask(earlier, questions, recipes, progress)
    before = question_scores(run, questions.queries, questions.qrels, recipes, task.metrics)
    mask = np.array([one in kept for one in every], bool)
    group = {task.learned_from: task.groups[task.learned_from]}
    rows = []
    for recipe in recipes:
        values = {recipe: scores.values[recipe][mask], name: before.values[recipe]}
        both = Scores(before.metrics, before.conversations, before.groups, values)
        rows += paired_differences(both, name, group)
    left_out = len(every) - len(kept)
    lines = [f"{left_out} of {len(every)} questions need turns that version {name} has not: not compared"]
    return rows, lines if left_out else []


def _held(retriever: Retriever, questions: Questions) -> Questions:
    """Return the questions whose evidence a version holds in full."""
    missing: set[str] = set()
    rows = questions.qrels.to_pylist()
    for namespace in sorted({row["namespace"] for row in rows}):
        index = retriever.namespace(namespace)
        turns = set() if index is None else set(index.column("turn_id").to_pylist())
        missing |= {row["query_id"] for row in rows if row["namespace"] == namespace and row["turn_id"] not in turns}
    return questions.only(set(questions.queries.column("query_id").to_pylist()) - missing)


_SMALL_SHOWN = 3
"""Namespaces of a size that are told by name; more are counted."""


def _warnings(retriever: Retriever, task: Task) -> list[str]:
    """Tell where namespaces are so short that a metric counts as found whatever is in them."""
    names = sorted(set(task.questions.queries.column("namespace").to_pylist()))
    sizes = {name: len(index) for name in names if (index := retriever.namespace(name))}
    depths = sorted(int(metric.removeprefix("recall@")) for metric in task.metrics if metric.startswith("recall@"))
    lines = []
    for shallower, depth in zip([0, *depths], depths, strict=False):
        small = [name for name, size in sizes.items() if shallower < size <= depth]
        trivial = f"recall@{depth}{' and deeper' if depth < depths[-1] else ''} is 100 there whatever the recipe"
        if len(small) > _SMALL_SHOWN:
            lines.append(f"{len(small)} of {len(names)} namespaces have {depth} turns at most: {trivial}")
        else:
            lines += [f"{name} has {sizes[name]} turns: {trivial}" for name in small]
    return lines


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
