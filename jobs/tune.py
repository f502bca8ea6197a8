"""Choose the constants of `hypergraph` on half of LoCoMo's conversations and report on the other half, both ways."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from jobs.evaluate import source_commit
from jobs.terminal import Bars, add_config_arguments, cache_folder, load_config, now, run_job, write_json
from pipelines.encoders import open_encoder
from pipelines.evaluation import open_task, task_version
from pipelines.retriever import Retriever
from pipelines.tuning import tune


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.tune", description=__doc__)
    parser.add_argument("--data", required=True, type=Path, metavar="FILE", help="LoCoMo's own file")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the result as JSON")
    add_config_arguments(parser)
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    task = open_task("locomo", arguments.data)
    encoder = open_encoder(config.encoder)
    with Bars() as bars:
        version = task_version(task, config, encoder, cache_folder("evaluations"), now(), bars)
        result = {**tune(Retriever(version, encoder), task.questions, bars), "commit": source_commit()}
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    write_json(result)
    return 0


if __name__ == "__main__":
    run_job(main)
