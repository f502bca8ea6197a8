"""Fuzz parsers, one after the other: `python -m tests.fuzz [--seconds 60] [PARSER ...]`.

Needs atheris, which the extra `fuzz` installs. What the fuzzer finds worth keeping goes into `build/fuzz`, from where
the next run goes on. The exit status is 1 if a parser did what it does not promise; the inputs that made it are named.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.parsers import CORPUS, NAMES, load
from tests.fuzz.target import SMALL_BYTES

_HANGS_AFTER_SECONDS = 20
_MOST_MEMORY_MIB = 4_096


def main(given: Sequence[str] | None = None) -> int:
    """Run and return the exit status."""
    asked = _arguments(given)
    if asked.input is not None:
        load(asked.parser[0]).check(asked.input.read_bytes())
        return 0
    findings = [path for name in asked.parser or NAMES for path in _fuzz(name, asked.seconds, asked.folder)]
    for path in findings:
        _say(f"{path}: python -m tests.fuzz --input {path} {path.parent.name} shows what is wrong")
    _say(f"{len(findings)} findings")
    return 1 if findings else 0


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz parsers of outside data.")
    parser.add_argument("--seconds", type=int, default=60, help="for each parser (60)")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="for inputs to keep (build/fuzz)")
    parser.add_argument("--input", type=Path, help="give this file to one parser instead, without atheris")
    parser.add_argument("parser", nargs="*", metavar="PARSER", help=f"of {', '.join(NAMES)}; all without any")
    asked = parser.parse_args(given)
    unknown = sorted(set(asked.parser) - set(NAMES))
    if unknown:
        parser.error(f"there is no parser {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if asked.input is not None and len(asked.parser) != 1:
        parser.error("--input needs the name of one parser")
    return asked


def _fuzz(name: str, seconds: int, folder: Path) -> list[Path]:
    """Fuzz a parser in a process of its own; say how it went, and return its findings."""
    kept, found = folder / "corpus" / name, folder / "findings" / name
    for path in (kept, found):
        path.mkdir(parents=True, exist_ok=True)
    known = set(found.iterdir())
    log = folder / f"{name}.log"
    with log.open("w") as told:
        options = [
            f"-max_total_time={seconds}",
            f"-max_len={SMALL_BYTES}",
            f"-timeout={_HANGS_AFTER_SECONDS}",
            f"-rss_limit_mb={_MOST_MEMORY_MIB}",
            f"-artifact_prefix={found}/",
            "-print_final_stats=1",
        ]
        command = [sys.executable, "-m", "tests.fuzz.one", name, *options, str(kept), str(CORPUS / name)]
        status = subprocess.run(command, stdout=told, stderr=subprocess.STDOUT, check=False).returncode
    runs = re.search(r"number_of_executed_units: (\d+)", log.read_text(errors="replace"))
    rate = re.search(r"average_exec_per_sec: +(\d+)", log.read_text(errors="replace"))
    findings = sorted(set(found.iterdir()) - known)
    if status and not findings:
        raise SystemExit(f"{name}: the fuzzer ended with status {status} and no finding; {log} says why")
    _say(f"{name}: {runs[1] if runs else 0} inputs, {rate[1] if rate else 0} a second, {len(findings)} findings; {log}")
    return findings


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
