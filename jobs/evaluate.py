"""Evaluate retrieval: `python -m jobs.evaluate locomo --data locomo.json --recipes bm25,hybrid --out r.json`."""

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from pipelines.store import Store
from pipelines.versions import open_version


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.evaluate", description=__doc__)
    parser.add_argument("task", choices=["locomo"])
    parser.add_argument("--data", required=True, type=Path, metavar="FILE", help="the benchmark's own file")
    parser.add_argument("--recipes", default="default", metavar="A,B", help="recipes to compare")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the result document")
    parser.add_argument("--version", help="read this version of store.root instead of building one")
    add_config_arguments(parser)
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    questions = locomo_questions(arguments.data)
    encoder = open_encoder(config.encoder)
    with Bars() as bars:
        if arguments.version:
            version = open_version(Store.open(config.store.root), arguments.version)
        else:
            version = locomo_version(arguments.data, config, encoder, cache_folder("evaluations"), now(), bars)
        recipes = [name.strip() for name in arguments.recipes.split(",") if name.strip()]
        result = evaluate_locomo(arguments.data, questions, version, config, encoder, recipes, bars)
    result = {**result, "commit": source_commit()}
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if arguments.json:
        write_json(result)
    else:
        _show(result)
        console.print(f"[bold]result[/] {arguments.out or 'not written; name a file with --out'}", highlight=False)
    return 0


def source_commit() -> str | None:
    """Return the commit of the source tree that this job runs from, or None outside a git checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _show(result: Mapping[str, Any]) -> None:
    table = plain_table("recipe", "group", "n", *(name.replace("recall", "R") for name in METRICS))
    for row in result["results"]:
        table.add_row(row["recipe"], row["group"], str(row["n"]), *(f"{row[name]:.1f}" for name in METRICS))
    console.print(table)
    console.print(", ".join(f"{name} {count}" for name, count in result["evidence"].items()), highlight=False)


if __name__ == "__main__":
    run_job(main)
