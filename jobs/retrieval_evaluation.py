"""Retrieval measured on a benchmark's questions or on one's own, and answers to them: a part of `jobs.evaluate`."""

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from hgmem_core.gate import gated, read_floor
from hgmem_core.metrics import METRICS
from hgmem_core.protocols import find_protocol
from hgmem_core.section import ConfigError
from hgmem_core.tasks import own_questions
from hgmem_core.tasks.task import Task
from jobs.terminal import Bars, cache_folder, console, now, plain_table, training_packages
from pipelines.answer_evaluation import evaluate_answers
from pipelines.answer_models import opened_models
from pipelines.encoders import open_encoder
from pipelines.evaluation import evaluate_task, open_task, task_version
from pipelines.model_store import stored_for
from pipelines.own_questions import open_own_questions
from pipelines.rerankers import open_reranker
from pipelines.store import Store
from pipelines.versions import Version, open_version

if TYPE_CHECKING:
    from pipelines.cross_tuning import View
    from pipelines.training import Example


def evaluate_retrieval(arguments: argparse.Namespace, config: Config) -> dict[str, Any]:
    """Return the result document of retrieval, and of answers where a protocol is named.

    Args:
        arguments: Of the job.
        config: The whole configuration.

    Raises:
        ConfigError: Arguments do not go with each other.
    """
    recipes = recipes_of(arguments)
    floors = [read_floor(text) for text in arguments.floors]
    protocol = find_protocol(arguments.protocol, arguments.task) if arguments.protocol else None
    if arguments.context_tokens is not None and arguments.context_tokens < 1:
        raise ConfigError(f"--context-tokens: {arguments.context_tokens} is not at least 1")
    if arguments.worst is not None and (arguments.cv or arguments.worst < 1):
        raise ConfigError("--worst: goes without --cv, and is at least 1")
    if arguments.seeds is not None and (not arguments.cv or arguments.seeds < 1):
        raise ConfigError("--seeds: goes with --cv, and is at least 1")
    if arguments.tune and (not arguments.cv or arguments.version or config.encoder.tuned):
        raise ConfigError("--tune: goes with --cv, and with neither --version nor encoder.tuned")
    if arguments.tune and arguments.task == own_questions.NAME:
        raise ConfigError("--tune: makes a store of a benchmark's logs; your own questions have none")
    if arguments.cv and (arguments.baseline or arguments.context_tokens):
        raise ConfigError("--cv: takes neither --baseline nor --context-tokens; recipes are compared with the first")
    if arguments.cv and config.rerank.engine != "none":
        raise ConfigError("--cv: compares recipes as they are; leave rerank.engine out")
    encoder = open_encoder(config.encoder)
    reranking = open_reranker(config.rerank)
    with Bars() as bars, opened_models(config, protocol) if protocol else nullcontext() as asked:
        task, version = _asked(arguments, config, encoder, bars)
        if arguments.cv:
            # Imported here, since training brings in torch and scikit-learn, which nothing else of this job needs.
            with training_packages():
                from pipelines.cross_tuning import tuned_views
                from pipelines.cross_validation import cross_validate

            def tune(examples: Sequence["Example"]) -> list["View"]:
                cache = cache_folder("evaluations")
                return tuned_views(arguments.tune, task, examples, config, encoder, cache, now(), bars)

            seeds, views = arguments.seeds or 1, tune if arguments.tune else None
            return cross_validate(task, version, config, encoder, recipes, seeds, bars, views)
        earlier = open_version(version.store, arguments.not_worse_than) if arguments.not_worse_than else None
        models = stored_for(config.retrieve.models, version)
        tokens = arguments.context_tokens
        result = evaluate_task(
            task, version, config, encoder, recipes, bars, arguments.baseline, tokens, reranking, models, earlier,
            arguments.worst or 0,
        )  # fmt: skip
        if protocol and asked:
            answered, rows = evaluate_answers(
                task, version, config, encoder, recipes, protocol, asked, bars,
                arguments.style, tokens, reranking, models,
            )  # fmt: skip
            result |= {**answered, "warnings": [*result["warnings"], *answered["warnings"]]}
            _write_answers(arguments.answers, rows)
    return gated(result, floors, task.learned_from) if floors or earlier else result


def _write_answers(path: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _asked(arguments: argparse.Namespace, config: Config, encoder: Encoder, bars: Bars) -> tuple[Task, Version]:
    """Return the questions, and the version that is to answer them."""
    if arguments.task == own_questions.NAME:
        version = open_version(_store(config), arguments.version)
        return open_own_questions(arguments.data, version, encoder), version
    task = open_task(arguments.task, arguments.data, arguments.corpus)
    return task, version_of(arguments, task, config, encoder, bars)


def _store(config: Config) -> Store:
    return Store.open(config.store.root, config.store.cache, config.store.cache_gib)


def recipes_of(arguments: argparse.Namespace) -> list[str]:
    """Return the recipes that are named.

    Raises:
        ConfigError: None is.
    """
    recipes = [name.strip() for name in arguments.recipes.split(",") if name.strip()]
    if not recipes:
        raise ConfigError("--recipes names no recipe")
    return recipes


def version_of(arguments: argparse.Namespace, task: Task, config: Config, encoder: Encoder, bars: Bars) -> Version:
    """Return the version that is named, else one that is built of the benchmark's own logs."""
    if arguments.version:
        return open_version(_store(config), arguments.version)
    return task_version(task, config, encoder, cache_folder("evaluations"), now(), bars)


_SHORT = {f"recall@{k}": f"R@{k}" for k in (2, 5, 10, 20, 30)} | {"ndcg@10": "nDCG", "all@context": "context"}


def show_retrieval(result: Mapping[str, Any]) -> None:
    """Print what is in a result document."""
    metrics = [name for name in (*METRICS, "all@context") if name in result["results"][0]]
    table = plain_table("recipe", "group", "n", *(_SHORT.get(name, name) for name in metrics))
    for row in result["results"]:
        table.add_row(row["recipe"], row["group"], str(row["n"]), *(f"{row[name]:.1f}" for name in metrics))
    console.print(table)
    if "differences" in result:
        table = plain_table("difference", "group", "metric", "points", "95 % interval")
        for row in result["differences"]:
            low, high = row["ci95"]
            points = f"{row['difference']:+.1f}"
            table.add_row(row["recipe"], row["group"], row["metric"], points, f"{low:+.1f} .. {high:+.1f}")
        console.print(table)
    if "answers" in result:
        _show_answers(result["answers"])
    console.print(", ".join(f"{name} {count}" for name, count in result["evidence"].items()), highlight=False)
    for warning in result["warnings"]:
        console.print(f"[yellow]warning[/] {warning}", highlight=False)


def _show_answers(answers: Mapping[str, Any]) -> None:
    metrics = [name for name in ("judge", "f1", "em") if name in answers["results"][0]]
    counted = ("asked", "answered", "abstained", "failed")
    table = plain_table(answers["protocol"], "group", *counted, *metrics, "tokens", "s")
    for row in answers["results"]:
        counts = (str(row[name]) for name in counted)
        spent = f"{row['tokens']['prompt']['mean']:.0f}", f"{row['seconds']['answer']['p50']:.1f}"
        table.add_row(row["recipe"], row["group"], *counts, *(f"{row[name]:.1f}" for name in metrics), *spent)
    console.print(table)
