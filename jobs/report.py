"""Write a report as one HTML page that needs nothing else: no script, no font, no network.

`python -m jobs.report build memory.toml --out build.html`
`python -m jobs.report evaluation r.json --out evaluation.html`
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgmem_core.section import ConfigError
from jobs.terminal import add_store_arguments, console, open_store, run_job
from pipelines.versions import open_version

if TYPE_CHECKING:
    from pipelines.report_page import Page


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    evaluation = commands.add_parser("evaluation", help="what a result document of jobs.evaluate says")
    evaluation.add_argument("result", type=Path, metavar="RESULT", help="the document, written by --out")
    evaluation.add_argument(
        "--curves",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="the curves.json of a trained model; may be given more than once",
    )
    build = commands.add_parser("build", help="what a version of a store holds, and what building it took")
    add_store_arguments(build)
    build.add_argument("--version", metavar="VERSION", help="its id; without one, the current version")
    for command in (build, evaluation):
        command.add_argument("--out", type=Path, required=True, metavar="FILE", help="the HTML file to write")
    arguments = parser.parse_args(argv)
    with _drawing_packages():
        # Imported here because nothing else needs matplotlib and jinja2, which are an extra.
        from pipelines.report_page import render

        text = render(_build(arguments) if arguments.command == "build" else _evaluation(arguments))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.touch(mode=0o600)  # a new file is its owner's alone: it may quote the log
    arguments.out.write_text(text, encoding="utf-8")
    console.print(f"[bold]report[/] {arguments.out}", highlight=False, soft_wrap=True)
    return 0


def _build(arguments: argparse.Namespace) -> "Page":
    from pipelines.build_report import build_page

    return build_page(open_version(open_store(arguments), arguments.version))


def _evaluation(arguments: argparse.Namespace) -> "Page":
    from pipelines.evaluation_report import evaluation_page

    curves = [_read_json(path) for path in arguments.curves]
    return evaluation_page(_read_json(arguments.result), str(arguments.result), curves)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is no object of JSON: name a file that jobs.evaluate or jobs.train wrote")
    return content


@contextmanager
def _drawing_packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("matplotlib", "jinja2"):
            raise
        raise ConfigError(f"a report needs {error.name}: pip install 'hgmem[plots]'") from error


if __name__ == "__main__":
    run_job(main)
