"""Look for texts in every file of a store: what was to be forgotten is not there, or it says where it is.

python -m jobs.audit STORE --text 'red bicycle' --text 'harbour'
python -m jobs.audit STORE --file canaries.txt --json

Exit code 0: no file holds any of them; 1: one does, or could not be read.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from hgmem_core.section import ConfigError
from jobs.terminal import Bars, add_store_arguments, console, open_store, run_job, write_json
from pipelines.audit import Texts, audit

SHOWN_PLACES = 20


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_store_arguments(parser)
    parser.add_argument("--text", action="append", default=[], metavar="TEXT", help="to look for; may be repeated")
    parser.add_argument("--file", type=Path, metavar="FILE", help="a text to look for on each line, in UTF-8")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
    arguments = parser.parse_args(argv)
    sought = [*arguments.text, *(_lines(arguments.file) if arguments.file else [])]
    if not sought or not all(sought):
        raise ConfigError(
            "say what to look for: --text TEXT, or --file FILE with a text on each line, none of it empty"
        )
    store = open_store(arguments)
    with Bars() as bars:
        made = audit(store.root, store.every_file(), Texts(sought), bars)
    if arguments.json:
        write_json(made.as_dict())
    else:
        console.print(f"looked for {len(set(sought)):,} texts in {made.files:,} files, {made.bytes:,} bytes")
        for kind, count in sorted(made.undecoded.items()):
            console.print(f"  {count} x {escape(kind)}: only its bytes could be looked at", highlight=False)
        lines = [f"{one.path} ({one.where}) holds {one.text!r}" for one in made.found]
        lines += [f"{path} could not be read as what it is named" for path in made.unreadable]
        for line in lines[:SHOWN_PLACES]:
            console.print(f"[bold red]{escape(line)}[/]", highlight=False, soft_wrap=True)
        if len(lines) > SHOWN_PLACES:
            console.print(f"and {len(lines) - SHOWN_PLACES} more, told by --json", highlight=False)
    return int(bool(made.found or made.unreadable))


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except ValueError as error:
        raise ConfigError(f"--file {path} is no text in UTF-8 ({error}): convert it") from error


if __name__ == "__main__":
    run_job(main)
