"""Measure speed: `python -m jobs.benchmark build` or `python -m jobs.benchmark search --data locomo.json`."""

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hgmem_core.config import Config, InputConfig, StoreConfig
from jobs.evaluate import source_commit
from jobs.terminal import Bars, console, plain_table, run_job, write_json
from pipelines.benchmark import benchmark_build, benchmark_search, machine, synthetic_input
from pipelines.evaluation import locomo_questions
from pipelines.synthetic import write_log

SYNTHETIC_QUERIES = [
    f"{first} {second} what did Ada say" for first in ("ba", "de", "ki") for second in ("lo", "mu", "na")
]


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.benchmark", description=__doc__)
    cases = parser.add_subparsers(dest="case", required=True)
    build = cases.add_parser("build", help="milliseconds of CPU a turn, without the encoder")
    build.add_argument("--namespaces", type=_count, default=20)
    search = cases.add_parser("search", help="milliseconds a search in one conversation, without the encoder")
    for case, turns in ((build, 10_000), (search, 600)):
        case.add_argument("--data", type=Path, metavar="FILE", help="LoCoMo's own file; without one, a synthetic log")
        case.add_argument("--turns", type=_count, default=turns, help="of the synthetic log")
        case.add_argument("--repeats", type=_count, default=5)
        case.add_argument("--out", type=Path, metavar="FILE", help="where to write the result as JSON")
        case.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
    arguments = parser.parse_args(argv)
    with Bars() as bars, tempfile.TemporaryDirectory() as folder:
        one = _log(arguments, Path(folder) / "log.jsonl")
        if arguments.case == "build":
            result = benchmark_build(one, arguments.repeats, bars)
        else:
            config = Config(store=StoreConfig(root=f"{folder}/store"), inputs=[one])
            result = benchmark_search(config, _queries(arguments.data), arguments.repeats, bars)
    result = {**result, "machine": machine(), "commit": source_commit()}
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if arguments.json:
        write_json(result)
    else:
        _show(result)
    return 0


def _count(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _log(arguments: argparse.Namespace, path: Path) -> InputConfig:
    if arguments.data:
        return InputConfig(format="locomo", paths=[str(arguments.data)])
    write_log(path, arguments.turns, arguments.namespaces if arguments.case == "build" else 1)
    return synthetic_input(path)


def _queries(data: Path | None) -> list[str]:
    return locomo_questions(data).queries.column("text").to_pylist()[:200] if data else SYNTHETIC_QUERIES


def _show(result: dict[str, Any]) -> None:
    measures = {name: value for name, value in result.items() if isinstance(value, dict) and name != "machine"}
    table = plain_table(result["case"], *measures)
    for row in dict.fromkeys(name for values in measures.values() for name in values):
        table.add_row(row, *(str(values.get(row, "")) for values in measures.values()))
    console.print(table)
    rest = {name: value for name, value in result.items() if name not in measures}
    console.print(", ".join(f"{name} {value}" for name, value in rest.items()), highlight=False, markup=False)


if __name__ == "__main__":
    run_job(main)
