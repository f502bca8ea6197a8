import errno
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
from rich.console import Console

from hgmem_core.section import ConfigError
from jobs import terminal
from jobs.terminal import Bars, run_job, summarise
from pipelines.engine import ClusterError
from pipelines.import_stage import Imported
from pipelines.lease import LeaseHeld, LeaseLost
from pipelines.preflight import PreflightError
from pipelines.runner import Record, Report

ROOT = Path(__file__).parents[2]
WORK = """
from jobs.terminal import Bars

with Bars() as bars:
    bars.start("import", None)
    bars.advance("import", 4096)
    bars.finish("import")
    bars.start("build", 16_000_000)
    bars.note("a [bold]note[/] " + "long " * 30)
    for _ in range(3):
        bars.advance("build", 4_000_000)
        bars._progress.refresh()
"""


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lines(capfd):
    """The lines on standard error since the last call."""
    return lambda: capfd.readouterr().err.splitlines()


def test_without_a_terminal_a_stage_has_a_line_at_its_start_one_each_ten_seconds_and_one_at_its_end(clock, lines):
    with Bars(clock) as bars:
        bars.start("build", 36_000)
        assert lines() == ["build: started, 36,000 to do"]
        written = []
        for _ in range(600):
            clock.seconds += 0.25
            bars.advance("build", 60)
            written += lines()
    assert written[:2] == [
        "build: 2,400/36,000 6% at 240/s, 0:10 elapsed, 2:20 left",
        "build: 4,800/36,000 13% at 240/s, 0:20 elapsed, 2:10 left",
    ]
    assert len(written) == 15
    assert written[-1] == "build: done, 36,000 at 240/s, 2:30 elapsed"
    assert lines() == []


def test_work_of_unknown_amount_has_a_rate_and_ends_when_that_is_said(clock, lines):
    with Bars(clock) as bars:
        bars.start("import", None)
        clock.seconds = 3_725
        bars.advance("import", 100)
        bars.finish("import")
        bars.finish("import")
        bars.start("build", 3)
        bars.start("encode", 0)
    assert lines() == [
        "import: started",
        "import: 100 at 0.0/s, 1:02:05 elapsed",
        "import: done, 100 at 0.0/s, 1:02:05 elapsed",
        "build: started, 3 to do",
        "encode: started, 0 to do",
        "build: done, 0, 0:00 elapsed",
        "encode: done, 0, 0:00 elapsed",
    ]


def test_stages_at_once_have_lines_of_their_own(clock, lines):
    with Bars(clock) as bars:
        bars.start("build", 1_000)
        bars.start("encode", None)
        for _ in range(100):
            clock.seconds += 1
            bars.advance("build", 5)
            bars.advance("encode", 7)
    written = lines()
    assert len([line for line in written if line.startswith("build: ")]) == 12
    assert len([line for line in written if line.startswith("encode: ")]) == 12


def test_what_was_found_from_an_earlier_run_does_not_shorten_the_remaining_time(clock, lines):
    with Bars(clock) as bars:
        bars.start("build", 1_000)
        for _ in range(9):
            bars.advance("build", 100)
        for _ in range(100):
            clock.seconds += 10
            bars.advance("build", 1)
    written = lines()
    assert "build: 940/1,000 94% at 0.1/s, 6:40 elapsed, 10:00 left" in written
    assert written[-1] == "build: done, 1,000 at 1.0/s, 16:40 elapsed"


def test_a_job_that_fails_says_how_far_it_was(clock, lines):
    with pytest.raises(KeyboardInterrupt), Bars(clock) as bars:
        bars.start("build", 10)
        bars.advance("build", 4)
        raise KeyboardInterrupt
    assert lines()[-1].startswith("build: stopped at 4/10 40%")


def test_of_many_threads_that_find_a_line_due_one_writes_it(lines):
    class SlowClock(Clock):
        def __call__(self):
            for _ in range(100):
                os.sched_yield()  # the other threads come as far as they can
            return self.seconds

    clock = SlowClock()
    with Bars(clock) as bars:
        bars.start("build", 800)
        clock.seconds = 10
        at_once(8, lambda: bars.advance("build", 1))
        assert len(lines()) == 2
        clock.seconds = 15
        at_once(8, lambda: [bars.advance("build", 1) for _ in range(99)])
    assert lines() == ["build: done, 800 at 53/s, 0:15 elapsed"]


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "make room on the disk"), (errno.EROFS, "make it writable")]
)
def test_a_disk_that_takes_nothing_more_is_told_with_what_to_do(capsys, number, advice):
    def job(argv):
        raise OSError(number, os.strerror(number))

    with pytest.raises(SystemExit) as exited:
        run_job(job)
    assert exited.value.code == 1
    assert advice in capsys.readouterr().err


def at_once(count, work):
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_terminal(environment, columns=80):
    """Run `WORK` with a terminal of that width as standard error; return what it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environment}
    for name in ("COLUMNS", "NO_COLOR", "TTY_INTERACTIVE"):
        environment.pop(name, None)
    process = subprocess.Popen([sys.executable, "-c", WORK], stdin=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    written = b""
    while chunk := read(ours):
        written += chunk
    os.close(ours)
    assert process.wait() == 0
    return written.decode()


def read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # what a closed terminal gives
        return b""


def test_on_a_terminal_bars_of_its_width_show_amount_rate_and_times():
    written = in_terminal({})
    assert "\x1b[?25l" in written
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    rows = [line.rstrip() for line in re.split(r"[\r\n]+", plain)]
    bars = [row for row in rows if row.lstrip("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ").startswith(("import", "build"))]
    assert max(map(len, bars)) == 80
    assert any(re.search(r"build +\S+ 12,000,000/16,000,000 75% [\d,.]+/s \d:\d\d, \d:\d\d left$", row) for row in bars)
    assert any(re.search(r"import +━+ +4,096 +[\d,.]+/s +\d:\d\d$", row) for row in bars)
    assert "a [bold]note[/] long" in plain
    assert "started" not in plain


@pytest.mark.parametrize("dumb", [True, False])
def test_where_nothing_can_be_drawn_there_are_lines(dumb):
    if dumb:
        written = in_terminal({"TERM": "dumb"})
    else:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "FORCE_COLOR": "1"}
        written = subprocess.run([sys.executable, "-c", WORK], env=environment, capture_output=True, text=True).stderr
    assert "build: started, 16,000,000 to do" in written
    assert "a [bold]note[/] " + "long " * 30 in written
    assert "\x1b[?25l" not in written


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LeaseHeld("store is in use: [7] on far"), 1),
        (LeaseLost("lost"), 1),
        (ClusterError("nothing was finished for 30 minutes"), 1),
        (PreflightError("ray is 1 on n1\npython is 3 on n2"), 1),
        (ConfigError("a: b"), 2),
    ],
)
def test_an_expected_error_becomes_a_message_and_an_exit_code(monkeypatch, capfd, error, code):
    def job(_):
        raise error

    monkeypatch.setattr(sys, "argv", ["job"])
    with pytest.raises(SystemExit) as exited:
        run_job(job)
    assert exited.value.code == code
    assert capfd.readouterr().err.splitlines() == [f"error: {line}" for line in str(error).splitlines()]


def summary(monkeypatch, *arguments, **named):
    written = io.StringIO()
    monkeypatch.setattr(terminal, "console", Console(width=80, file=written))
    summarise(*arguments, **named)
    return written.getvalue()


def test_the_summary_fits_80_columns_and_says_which_engine_ran_and_why(monkeypatch):
    report = Report()
    report.add(Record("encode_episodes", 0, {"ok": 1_234_567, "partial": 5}, 12_345.678, True))
    report.add(Record("merge", 0, {"ok": 7}, 0.5, False))
    engine = "local: 1.2 MiB of logs, Ray from 16"
    written = summary(monkeypatch, None, report, {"store": "here/[x]", "turns": 3}, engine=engine)
    rows = [line.split() for line in written.splitlines()]
    assert rows[0] == ["stage", "rows", "ok", "partial", "seconds", "made", "reused"]
    assert rows[2] == ["encode_episodes", "1,234,572", "1,234,567", "5", "12,345.68", "1", "0"]
    assert rows[3] == ["merge", "7", "7", "-", "0.50", "0", "1"]
    assert written.splitlines()[4:] == [f"engine {engine}", "store here/[x]", "turns 3"]
    assert "engine" not in summary(monkeypatch, None, report, {})


def test_the_summary_counts_the_rows_of_an_import(monkeypatch):
    outcomes = json.loads('{"ok": 9, "partial": 0, "empty": 0, "fallback": 0, "rejected": 2}')
    imported = Imported(1, 3, 1, outcomes, 9, 1.5, {"no text [sic]": 2})
    written = summary(monkeypatch, imported, Report(), {})
    assert written.splitlines()[0].split() == ["stage", "rows", "ok", "rejected", "seconds", "made", "reused"]
    assert written.splitlines()[2].split() == ["import", "11", "9", "2", "1.50", "3", "1"]
    assert "1 file was imported before and left out" in written
    assert "  2 x no text [sic]" in written
