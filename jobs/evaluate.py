"""Evaluate retrieval or segmentation on a benchmark's own data.

`python -m jobs.evaluate locomo --data locomo.json --recipes bm25,hybrid --out r.json`
`python -m jobs.evaluate segmentation --data tiage --split dev --out r.json`
"""

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hgmem_core import segmentation_metrics
from hgmem_core.config import Config, ConfigError
from hgmem_core.metrics import METRICS
from jobs.terminal import (
    Bars,
    add_config_arguments,
    cache_folder,
    console,
    load_config,
    now,
    plain_table,
    run_job,
    write_json,
)
from pipelines.encoders import open_encoder
from pipelines.evaluation import evaluate_locomo, locomo_questions, locomo_version
from pipelines.rerankers import open_reranker
from pipelines.segmentation_evaluation import evaluate_segmentation
from pipelines.store import Store
from pipelines.versions import open_version


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.evaluate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=["locomo", "segmentation"])
    parser.add_argument(
        "--data", required=True, type=Path, metavar="PATH", help="the benchmark's own file; for segmentation its folder"
    )
    parser.add_argument("--recipes", default="default", metavar="A,B", help="locomo: recipes to compare")
    parser.add_argument("--split", default="dev", choices=["dev", "train"], help="segmentation: which part of the data")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the result document")
    parser.add_argument("--version", help="locomo: read this version of store.root instead of building one")
    parser.add_argument("--baseline", metavar="A", help="locomo: report paired differences from this recipe")
    parser.add_argument("--context-tokens", type=int, metavar="N", help="locomo: measure all@context under this budget")
    add_config_arguments(parser)
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    evaluate, show = _TASKS[arguments.task]
    result = {**evaluate(arguments, config), "commit": source_commit()}
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if arguments.json:
        write_json(result)
    else:
        show(result)
        console.print(f"[bold]result[/] {arguments.out or 'not written; name a file with --out'}", highlight=False)
    return 0


def source_commit() -> str | None:
    """Return the commit of the source tree that this job runs from, or None outside a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _locomo(arguments: argparse.Namespace, config: Config) -> dict[str, Any]:
    recipes = [name.strip() for name in arguments.recipes.split(",") if name.strip()]
    if not recipes:
        raise ConfigError("--recipes names no recipe")
    if arguments.context_tokens is not None and arguments.context_tokens < 1:
        raise ConfigError(f"--context-tokens: {arguments.context_tokens} is not at least 1")
    questions = locomo_questions(arguments.data)
    encoder = open_encoder(config.encoder)
    reranking = open_reranker(config.rerank)
    with Bars() as bars:
        if arguments.version:
            version = open_version(Store.open(config.store.root), arguments.version)
        else:
            version = locomo_version(arguments.data, config, encoder, cache_folder("evaluations"), now(), bars)
        return evaluate_locomo(
            arguments.data,
            questions,
            version,
            config,
            encoder,
            recipes,
            bars,
            arguments.baseline,
            arguments.context_tokens,
            reranking,
        )


def _segmentation(arguments: argparse.Namespace, config: Config) -> dict[str, Any]:
    encoder = open_encoder(config.encoder)
    with Bars() as bars:
        return evaluate_segmentation(arguments.data, arguments.split, config, encoder, now(), bars)


_SHORT = {f"recall@{k}": f"R@{k}" for k in (5, 10, 20, 30)} | {"ndcg@10": "nDCG", "all@context": "context"}


def _show_locomo(result: Mapping[str, Any]) -> None:
    metrics = [*METRICS, *(["all@context"] if "context_tokens" in result else [])]
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
    console.print(", ".join(f"{name} {count}" for name, count in result["evidence"].items()), highlight=False)
    for warning in result["warnings"]:
        console.print(f"[yellow]warning[/] {warning}", highlight=False)


def _show_segmentation(result: Mapping[str, Any]) -> None:
    table = plain_table("system", *segmentation_metrics.METRICS)
    for row in result["results"]:
        table.add_row(row["system"], *(f"{row[name]:.1f}" for name in segmentation_metrics.METRICS))
    console.print(table)
    console.print(
        f"{result['conversations']} conversations, {result['turns']} turns, {result['gold_boundaries']} boundaries",
        highlight=False,
    )


_TASKS = {"locomo": (_locomo, _show_locomo), "segmentation": (_segmentation, _show_segmentation)}


if __name__ == "__main__":
    run_job(main)
