"""What every job shares at its edge: configuration arguments, progress bars, the summary, errors and exit codes.

Exit codes: 0 done; 1 the job failed and says why in one message; 2 the command or the configuration is wrong.
"""

import argparse
import errno
import io
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import platformdirs
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column, Table
from rich.text import Text

from hgmem_core.chat import ModelError
from hgmem_core.config import Config, parse_config, to_toml
from hgmem_core.gate import GateFailed
from hgmem_core.messages import OUTCOMES
from hgmem_core.model_config import PriceConfig
from hgmem_core.recipes import RecipeError
from hgmem_core.section import ConfigError
from hgmem_core.tasks.task import TaskError
from hgmem_core.trained import TrainedModelError
from pipelines.calls import Spent, cost
from pipelines.encoders import EncoderError
from pipelines.engine import ClusterError
from pipelines.import_stage import Imported, ImportFailed
from pipelines.log_files import LogFileError
from pipelines.runner import Report
from pipelines.store import Store, StoreError

USAGE_ERRORS = (ConfigError, RecipeError)
JOB_ERRORS = (
    StoreError, LogFileError, ImportFailed, EncoderError, ModelError, TrainedModelError, ClusterError, TaskError,
    GateFailed, OSError,
)  # fmt: skip

LINE_SECONDS = 10.0
"""Between two lines on a stage's progress, at least, where there is no terminal."""

_RATE_SECONDS = 120.0
"""Over how long a rate is taken: what is found from an earlier run goes fast, and says nothing of what is left."""

console = Console(width=None if sys.stdout.isatty() else 120)
"""Results for people, on standard output."""

notices = Console(stderr=True)
"""Progress and errors, on standard error."""


def run_job(job: Callable[[Sequence[str]], int]) -> None:
    """Run a job with the command line's arguments and exit with its code; expected errors become one message."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a character is no failure
    # polars puts a handler of its own beneath Python's, which may swallow an interrupt for good.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.exit(job(_utf8(sys.argv[1:])))
    except USAGE_ERRORS as error:
        fail(error, 2)
    except JOB_ERRORS as error:
        fail(_advised(error), 1)
    except KeyboardInterrupt:
        fail(KeyboardInterrupt("stopped; what was finished is kept and will not be done again"), 130)


def _utf8(arguments: Sequence[str]) -> Sequence[str]:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"the argument {argument!r} is not UTF-8; rename the file, or correct it") from error
    return arguments


def _advised(error: Exception) -> Exception:
    """Return an error that says what to do where a disk takes nothing more."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        what = "make it writable" if error.errno == errno.EROFS else "make room on the disk that the job writes to"
        return OSError(f"{error}; {what} and run the job again: what was finished is kept")
    return error


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
    _add_overrides(parser)
    parser.add_argument("--print-config", action="store_true", help="print the whole configuration and stop")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on standard output")


def _add_overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=VALUE", dest="overrides", help="change one setting"
    )


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a store and change the settings that it is opened with."""
    parser.add_argument(
        "store",
        metavar="STORE",
        help="the store's root, a folder or an s3:// address, or the configuration that has it",
    )
    _add_overrides(parser)


def open_store(arguments: argparse.Namespace) -> Store:
    """Open the store that arguments of `add_store_arguments` name: a file is a configuration, all else a root.

    Raises:
        ConfigError: The configuration cannot be read, or says something that is not allowed.
        StoreError: There is no such store.
    """
    is_config = Path(arguments.store).is_file()
    text = _read_config(arguments.store) if is_config else ""
    root = [] if is_config else [override("store.root", arguments.store)]
    settings = parse_config(text, [*root, *arguments.overrides]).store
    return Store.open(settings.root, settings.cache, settings.cache_gib)


def load_config(arguments: argparse.Namespace, extra: Sequence[str] = ()) -> Config:
    """Return the configuration that the arguments ask for; prints it and exits if they ask for that.

    Args:
        arguments: Parsed arguments of `add_config_arguments`.
        extra: Overrides that the job's own arguments stand for; `--set` wins over them.

    Raises:
        ConfigError: The file is missing or says something that is not allowed.
    """
    text = _read_config(arguments.config) if arguments.config else ""
    config = parse_config(text, [*extra, *arguments.overrides])
    if arguments.print_config:
        write(to_toml(config))
        sys.exit(0)
    return config


def _read_config(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error}") from error


@contextmanager
def training_packages() -> Iterator[None]:
    """Say what to install where what is imported inside the `with` lacks a package of the extra for training.

    Raises:
        ConfigError: Names it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("matplotlib", "sklearn"):
            raise
        raise ConfigError(f"training needs {error.name}: pip install 'hgmem[train]'") from error


def override(path: str, value: str | Sequence[str]) -> str:
    """Write an override that sets `path` to a text or a list of texts."""
    return f"{path}={_quoted(value) if isinstance(value, str) else '[' + ', '.join(map(_quoted, value)) + ']'}"


def _quoted(text: str) -> str:
    """Return a text as TOML: like JSON, but without the escapes of surrogate pairs and with one for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def now() -> datetime:
    """Return the time that a job passes to the pipelines: nothing below looks at a clock by itself."""
    return datetime.now(UTC)


def time_argument(text: str) -> datetime:
    """Return the time that an argument says; for `argparse`, which tells the rest if it is none or has no zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write it like 2024-03-14T18:00+01:00") from error
    if time.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; write it like 2024-03-14T18:00+01:00")
    return time


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
    """Progress on standard error: bars on a terminal; elsewhere a line as a stage begins, at times, and as it ends."""

    def __init__(self, get_time: Callable[[], float] = time.monotonic) -> None:
        """Draw nothing yet."""
        self._is_drawn = notices.is_interactive and sys.stderr.isatty()
        columns = (_Column(_amount), _Column(_rate), _Column(lambda task: ", ".join(_times(task, ""))))
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            *columns,
            console=notices,
            disable=not self._is_drawn,
            get_time=get_time,
            speed_estimate_period=_RATE_SECONDS,
        )
        self._get_time = get_time
        self._tasks: dict[str, Task] = {}
        self._said_at: dict[str, float] = {}
        """When the last line of each stage that is not done was written."""
        self._lock = threading.Lock()

    def __enter__(self) -> "Bars":
        """Begin to draw."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        for stage in list(self._said_at):
            if error is None:
                self.finish(stage)
            else:
                self._say(stage, "stopped at", self._tasks[stage])
        self._progress.stop()

    def start(self, stage: str, total: int | None) -> None:
        """Add a bar."""
        with self._lock:
            number = self._progress.add_task(stage, total=total)
            self._tasks[stage] = next(task for task in self._progress.tasks if task.id == number)
            self._said_at[stage] = self._get_time()
            if not self._is_drawn:
                self.note(f"{stage}: started" if total is None else f"{stage}: started, {total:,} to do")

    def advance(self, stage: str, amount: int) -> None:
        """Move a bar."""
        with self._lock:
            task = self._tasks[stage]
            self._progress.advance(task.id, amount)
            if stage not in self._said_at:
                return
            if task.finished:
                self._end(stage)
            elif self._get_time() >= self._said_at[stage] + LINE_SECONDS:
                self._said_at[stage] = self._get_time()
                self._say(stage, "", task)

    def finish(self, stage: str) -> None:
        """Fill a bar."""
        with self._lock:
            if stage in self._said_at:
                task = self._tasks[stage]
                self._progress.update(task.id, total=task.completed)
                self._progress.stop_task(task.id)
                self._end(stage)

    def note(self, text: str) -> None:
        """Write a line; bars stay below it."""
        notices.print(text, soft_wrap=True, markup=False, highlight=False)

    def _end(self, stage: str) -> None:
        del self._said_at[stage]
        self._say(stage, "done,", self._tasks[stage])

    def _say(self, stage: str, how: str, task: Task) -> None:
        if not self._is_drawn:
            work = " at ".join(filter(None, (_amount(task), _rate(task))))
            said = ", ".join((work, *_times(task, " elapsed")))
            self.note(" ".join(filter(None, (f"{stage}:", how, said))))


class _Column(ProgressColumn):
    """A column of a bar that a function writes."""

    def __init__(self, write: Callable[[Task], str]) -> None:
        """Write with this function."""
        super().__init__(Column(no_wrap=True, justify="right"))
        self._write = write

    def render(self, task: Task) -> Text:
        """Return the column's text."""
        return Text(self._write(task), "progress.percentage")


def _amount(task: Task) -> str:
    done = f"{int(task.completed):,}"
    if not task.total or task.finished:
        return done
    return f"{done}/{int(task.total):,} {int(100 * task.completed / task.total)}%"


def _rate(task: Task) -> str:
    """Return the work of a second: lately, and of a stage that is done on the whole."""
    speed = None if task.finished else task.speed
    if speed is None and task.elapsed:
        speed = task.completed / task.elapsed
    return f"{speed:,.0f}/s" if speed and speed >= 10 else f"{speed:,.1f}/s" if speed else ""


def _times(task: Task, suffix: str) -> list[str]:
    times = [_clock(task.finished_time if task.finished_time is not None else task.elapsed or 0.0) + suffix]
    if not task.finished and task.time_remaining is not None:
        times.append(f"{_clock(task.time_remaining)} left")
    return times


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def counted(amount: int, one: str, several: str) -> str:
    """Write a number of things.

    >>> counted(1, "turn", "turns"), counted(2_000, "turn", "turns")
    ('1 turn', '2,000 turns')
    """
    return f"{amount:,} {one if amount == 1 else several}"


def plain_table(*columns: str) -> Table:
    """Return a table without lines, narrow enough for 80 columns; the first column is text, the rest numbers."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=bool(place), overflow="fold")
    return table


def show_calls(stages: Mapping[str, Spent], prices: PriceConfig) -> None:
    """Print what calls of a language model took, a row for each stage; money only where tokens have a price."""
    is_priced = bool(prices.prompt or prices.completion)
    table = plain_table("model", "calls", "prompt tokens", "answer tokens", "seconds", *(["cost"] if is_priced else []))
    for stage, spent in stages.items():
        numbers = [f"{one:,}" for one in (spent.calls, spent.prompt_tokens, spent.completion_tokens)]
        price = [f"{cost(spent, prices):,.4f}"] if is_priced else []
        table.add_row(stage, *numbers, f"{spent.seconds:,.1f}" if spent.seconds else "-", *price)
    console.print(table)


def summarise(
    imported: Imported | None,
    report: Report,
    result: Mapping[str, Any],
    engine: str | None = None,
    prices: PriceConfig | None = None,
) -> None:
    """Print the one table at the end of a job: outcomes and seconds by stage, then where the result is.

    Args:
        imported: What the import did; None if there was none.
        report: What the stages did.
        result: What else to show, by name.
        engine: Which engine ran and why, such as `local: 1.2 MiB of logs, Ray from 16`; None if none was chosen.
        prices: Of a language model's tokens; None for nothing.
    """
    rows: list[tuple[str, Mapping[str, int], float, int, int]] = [
        (stage, outcomes, report.seconds[stage], report.made[stage], report.reused[stage])
        for stage, outcomes in report.outcomes.items()
    ]
    if imported is not None and imported.number is not None:
        rows.insert(0, ("import", imported.outcomes, imported.seconds, imported.files, imported.known_files))
    # All of them would not fit on a terminal of 80 columns.
    shown = [name for name in OUTCOMES if any(outcomes.get(name) for _, outcomes, *_ in rows)]
    table = plain_table("stage", "rows", *shown, "seconds", "made", "reused")
    for stage, outcomes, seconds, made, reused in rows:
        counts = [f"{outcomes[name]:,}" if outcomes.get(name) else "-" for name in shown]
        table.add_row(stage, f"{sum(outcomes.values()):,}", *counts, f"{seconds:,.2f}", f"{made:,}", f"{reused:,}")
    console.print(table)
    if report.spent:
        show_calls(report.spent, prices or PriceConfig())
    if imported is not None:
        if imported.known_files:
            files = "1 file was" if imported.known_files == 1 else f"{imported.known_files} files were"
            console.print(f"{files} imported before and left out")
        if imported.mended:
            console.print(f"{imported.mended} damaged imports were written again")
        for reason, count in imported.reasons.items():
            console.print(f"  {count} x {escape(reason)}", highlight=False)
    if engine is not None:
        result = {"engine": engine, **result}
    for name, value in result.items():
        console.print(f"[bold]{name}[/] {escape(str(value))}", highlight=False, soft_wrap=True)
