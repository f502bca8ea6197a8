"""What every job shares at its edge: configuration arguments, progress bars, the summary, errors and exit codes.

Exit codes: 0 done; 1 the job failed and says why in one message; 2 the command or the configuration is wrong.
"""

import argparse
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import platformdirs
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from hgmem_core.config import Config, ConfigError, parse_config, to_toml
from hgmem_core.messages import OUTCOMES
from hgmem_core.recipes import RecipeError
from hgmem_core.tasks.locomo import TaskError
from pipelines.encoders import EncoderError
from pipelines.import_stage import Imported, ImportFailed
from pipelines.log_files import LogFileError
from pipelines.runner import Report
from pipelines.store import StoreError

USAGE_ERRORS = (ConfigError, RecipeError)
JOB_ERRORS = (StoreError, LogFileError, ImportFailed, EncoderError, TaskError, OSError)

console = Console(width=None if sys.stdout.isatty() else 120)
"""Results for people, on standard output."""

notices = Console(stderr=True)
"""Progress and errors, on standard error."""


def run_job(job: Callable[[Sequence[str]], int]) -> None:
    """Run a job with the command line's arguments and exit with its code; expected errors become one message."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character is no failure
    try:
        sys.exit(job(_utf8(sys.argv[1:])))
    except USAGE_ERRORS as error:
        fail(error, 2)
    except JOB_ERRORS as error:
        fail(error, 1)
    except KeyboardInterrupt:
        fail(KeyboardInterrupt("stopped; what was finished is kept and will not be done again"), 130)


def _utf8(arguments: Sequence[str]) -> Sequence[str]:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"the argument {argument!r} is not UTF-8; rename the file, or correct it") from error
    return arguments


def fail(error: BaseException, code: int) -> None:
    """Print an error's message and exit."""
    for line in str(error).splitlines() or [type(error).__name__]:
        notices.print(f"[bold red]error:[/] {escape(line)}", soft_wrap=True, highlight=False)
    sys.exit(code)


def add_config_arguments(parser: argparse.ArgumentParser, config_is_optional: bool = True) -> None:
    """Add the arguments that choose and change the configuration, and `--json`."""
    if config_is_optional:
        parser.add_argument("--config", metavar="FILE", help="TOML configuration; without one, the defaults")
    else:
        parser.add_argument("config", metavar="CONFIG", help="TOML configuration")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=VALUE", dest="overrides", help="change one setting"
    )
    parser.add_argument("--print-config", action="store_true", help="print the whole configuration and stop")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on standard output")


def load_config(arguments: argparse.Namespace, extra: Sequence[str] = ()) -> Config:
    """Return the configuration that the arguments ask for; prints it and exits if they ask for that.

    Args:
        arguments: Parsed arguments of `add_config_arguments`.
        extra: Overrides that the job's own arguments stand for; `--set` wins over them.

    Raises:
        ConfigError: The file is missing or says something that is not allowed.
    """
    text = ""
    if arguments.config:
        try:
            text = Path(arguments.config).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the configuration {arguments.config} cannot be read: {error}") from error
    config = parse_config(text, [*extra, *arguments.overrides])
    if arguments.print_config:
        write(to_toml(config))
        sys.exit(0)
    return config


def override(path: str, value: str | Sequence[str]) -> str:
    """Write an override that sets `path` to a text or a list of texts."""
    return f"{path}={_quoted(value) if isinstance(value, str) else '[' + ', '.join(map(_quoted, value)) + ']'}"


def _quoted(text: str) -> str:
    """Return a text as TOML: like JSON, but without the escapes of surrogate pairs and with one for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def now() -> datetime:
    """Return the time that a job passes to the pipelines: nothing below looks at a clock by itself."""
    return datetime.now(UTC)


def cache_folder(name: str) -> Path:
    """Return the user's cache folder of that name; it need not exist."""
    return Path(platformdirs.user_cache_path("hgmem")) / name


def write(text: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(text + "\n")


def write_json(content: object) -> None:
    """Write JSON to standard output."""
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    write(json.dumps(content, ensure_ascii=not is_utf8, indent=1))


class Bars:
    """Progress bars on a terminal; nothing where standard error is no terminal."""

    def __init__(self) -> None:
        """Draw nothing yet."""
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(*columns, TimeElapsedColumn(), console=notices, disable=not notices.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Bars":
        """Begin to draw."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        self._progress.stop()

    def start(self, stage: str, total: int | None) -> None:
        """Add a bar."""
        self._tasks[stage] = self._progress.add_task(stage, total=total)

    def advance(self, stage: str, amount: int) -> None:
        """Move a bar."""
        self._progress.advance(self._tasks[stage], amount)


def plain_table(*columns: str) -> Table:
    """Return a table without lines, narrow enough for 80 columns; the first column is text, the rest numbers."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=bool(place), overflow="fold")
    return table


def summarise(imported: Imported | None, report: Report, result: Mapping[str, Any]) -> None:
    """Print the one table at the end of a job: outcomes and seconds by stage, then where the result is."""
    table = plain_table("stage", "rows", *OUTCOMES, "seconds", "made", "reused")
    if imported is not None and imported.number is not None:
        counts = (str(imported.files), str(imported.known_files))
        table.add_row("import", *_counts(imported.outcomes), f"{imported.seconds:.2f}", *counts)
    for stage, outcomes in report.outcomes.items():
        counts = (str(report.made[stage]), str(report.reused[stage]))
        table.add_row(stage, *_counts(outcomes), f"{report.seconds[stage]:.2f}", *counts)
    console.print(table)
    if imported is not None:
        if imported.known_files:
            files = "1 file was" if imported.known_files == 1 else f"{imported.known_files} files were"
            console.print(f"{files} imported before and left out")
        if imported.mended:
            console.print(f"{imported.mended} damaged imports were written again")
        for reason, count in imported.reasons.items():
            console.print(f"  {count} x {escape(reason)}", highlight=False)
    for name, value in result.items():
        console.print(f"[bold]{name}[/] {escape(str(value))}", highlight=False, soft_wrap=True)


def _counts(outcomes: Mapping[str, int]) -> list[str]:
    counts = [outcomes.get(outcome, 0) for outcome in OUTCOMES]
    return [str(sum(counts)), *(str(count) if count else "-" for count in counts)]
