"""Show, compare, choose and remove the versions of a store: `python -m jobs.versions STORE list`."""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import Any

from rich.markup import escape

from hgmem_core.section import ConfigError
from jobs.terminal import add_store_arguments, console, now, open_store, plain_table, run_job, write_json
from pipelines.retention import prune, prune_held
from pipelines.store import Store
from pipelines.version_diff import LEVELS, Change, Level, NamespaceDiff, diff_versions
from pipelines.version_history import VersionRecord, history, index_entries
from pipelines.versions import Version, open_version, point_to

SHOWN_NAMESPACES = 20
"""Of a comparison, unless `--namespaces` says otherwise."""

_HIDDEN = ("version", "buckets", "skills", "outcomes", "checksum", "encoder", "index", "relations", "recipes")
"""Of a manifest: shown in another form, or by `--json` alone."""


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    arguments = _parser().parse_args(argv)
    return _COMMANDS[arguments.command](open_store(arguments), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m jobs.versions", description=__doc__)
    add_store_arguments(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="every version: when it was current, what is in it, what it takes")
    show = commands.add_parser("show", help="one version: how it was made and what is in it")
    show.add_argument("version", nargs="?", metavar="VERSION", help="its id; without one, the current version")
    diff = commands.add_parser("diff", help="what was added, removed and changed from one version to another")
    diff.add_argument("old", metavar="A", help="a version's id")
    diff.add_argument("new", metavar="B", help="a version's id")
    diff.add_argument(
        "--namespaces", type=int, default=SHOWN_NAMESPACES, metavar="N", help="how many are shown; without it 20"
    )
    rollback = commands.add_parser("rollback", help="make a version the current one")
    rollback.add_argument("version", metavar="VERSION", help="its id")
    remove = commands.add_parser("prune", help="remove old versions and what only they were made of")
    remove.add_argument("--keep", type=int, required=True, metavar="N", help="how many of the newest versions stay")
    remove.add_argument("--dry-run", action="store_true", help="say what would be removed, and stop")
    for command in (listing, show, diff, rollback, remove):
        command.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
    return parser


def _list(store: Store, arguments: argparse.Namespace) -> int:
    records = history(store)
    if arguments.json:
        write_json({"store": str(store), "versions": [_as_json(record) for record in records]})
        return 0
    if not records:
        console.print("no version yet: rebuild the store")
        return 0
    shown = ["turns", "facts", "topics", *(["skills"] if any(one.counts.get("skills") for one in records) else [])]
    table = plain_table("version", "pointer", "published", *shown, "disk", "shared")
    # An id is copied from here; times and pointers may take a second line on a narrow terminal.
    table.padding = 0
    for column, is_whole in zip(table.columns, (True, False, False), strict=False):
        column.no_wrap = is_whole
    for record in records:
        counts = [f"{record.counts.get(name, 0):,}" for name in shown]
        sizes = [size(record.bytes), size(record.shared_bytes)]
        numbers = " ".join(map(str, record.numbers)) or "-"
        mark = "*" if record.is_current else ""
        table.add_row(record.version + mark, numbers, _time(record.published_at), *counts, *sizes)
    console.print(table)
    console.print("* the current version", highlight=False)
    for record in records:
        if record.fault:
            _say("not served", record.fault)
    return 0


def _as_json(record: VersionRecord) -> dict[str, Any]:
    published = record.published_at
    return {**asdict(record), "published_at": None if published is None else published.isoformat()}


def _show(store: Store, arguments: argparse.Namespace) -> int:
    version = open_version(store, arguments.version)
    if arguments.json:
        write_json({"store": str(store), "manifest": version.manifest})
        return 0
    for name, value in _described(version, next(one for one in history(store) if one.version == version.id)).items():
        _say(name, str(value))
    stages = plain_table("stage", "rows", "outcomes")
    for stage, outcomes in version.manifest["outcomes"].items():
        told = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
        stages.add_row(stage, f"{sum(outcomes.values()):,}", told)
    console.print(stages)
    return 0


def _described(version: Version, record: VersionRecord) -> dict[str, object]:
    manifest = version.manifest
    files = [about for entry in index_entries(manifest) for about in entry["files"].values()]
    described: dict[str, object] = {
        "version": version.id,
        "current": "yes" if record.is_current else "no",
        "pointers": " ".join(map(str, record.numbers)) or "none: it never was the current version",
        "published": _time(record.published_at),
        **{name: value for name, value in manifest.items() if name not in _HIDDEN and value is not None},
        "encoder": f"{manifest['encoder']['name']}, {manifest['encoder']['dimension']} dimensions",
        "index": ", ".join(f"{name} {value}" for name, value in manifest["index"].items()),
        "recipes": " ".join(manifest["recipes"]),
        "buckets": f"{len(manifest['buckets'])} of {version.store_buckets} hold turns",
        "files": f"{len(files):,}, {size(sum(about['bytes'] for about in files))}",
        "disk": f"{size(record.bytes)}, of which {size(record.shared_bytes)} are of other versions, too",
    }
    if version.has_skills:
        skills = manifest["skills"]
        described["skills"] = f"{skills['skills']:,} of {skills['trajectories']:,} runs"
        if "evolved" in skills:
            described["evolved from"] = skills["evolved"]["from"]
    return described


def _diff(store: Store, arguments: argparse.Namespace) -> int:
    if arguments.namespaces < 0:
        raise ConfigError(f"--namespaces: {arguments.namespaces} is below 0")
    old, new = open_version(store, arguments.old), open_version(store, arguments.new)
    totals, states, shown = _summed(diff_versions(old, new), arguments.namespaces)
    if arguments.json:
        levels = {level: _counts(change) for level, change in totals.items()}
        found = {
            one.namespace: {"state": one.state, **{level: asdict(change) for level, change in one.levels.items()}}
            for one in shown
        }
        write_json({"from": old.id, "to": new.id, "namespaces": states, "totals": levels, "by_namespace": found})
        return 0
    table = plain_table("all", "added", "removed", "changed")
    table.add_row("namespaces", *(f"{states[state]:,}" for state in ("added", "removed", "changed")))
    for level, change in totals.items():
        table.add_row(level, *(f"{count:,}" for count in _counts(change).values()))
    console.print(table)
    for one in shown:
        console.print(f"[bold]{escape(one.namespace)}[/] {one.state}", highlight=False, soft_wrap=True)
        for level, change in one.levels.items():
            for how, count in _counts(change).items():
                if count:
                    ids = " ".join(change.examples[how]) + (" ..." if count > len(change.examples[how]) else "")
                    console.print(f"  {count:,} {level} {how}: {ids}", highlight=False, soft_wrap=True)
    if sum(states.values()) > len(shown):
        console.print(f"and {sum(states.values()) - len(shown):,} more namespaces: --namespaces N shows them")
    return 0


def _summed(
    found: Iterable[NamespaceDiff], shown: int
) -> tuple[dict[Level, Change], dict[str, int], list[NamespaceDiff]]:
    """Return the totals by level, the number of namespaces by what became of them, and the first namespaces."""
    totals = dict.fromkeys(LEVELS, Change())
    states = {"added": 0, "removed": 0, "changed": 0}
    first: list[NamespaceDiff] = []
    for one in found:
        states[one.state] += 1
        for level, change in one.levels.items():
            totals[level] += change
        if len(first) < shown:
            first.append(one)
    return totals, states, first


def _counts(change: Change) -> dict[str, int]:
    return {"added": change.added, "removed": change.removed, "changed": change.changed}


def _rollback(store: Store, arguments: argparse.Namespace) -> int:
    result = {"version": arguments.version, "number": point_to(store, arguments.version, now())}
    return _tell(store, arguments, result)


def _prune(store: Store, arguments: argparse.Namespace) -> int:
    if arguments.keep < 1:
        raise ConfigError(f"--keep: {arguments.keep} is not at least 1; the current version always stays")
    pruned = (
        prune_held(store, arguments.keep, dry_run=True) if arguments.dry_run else prune(store, arguments.keep, now())
    )
    result = {**asdict(pruned), "dry_run": arguments.dry_run}
    if not arguments.json:
        result["versions"] = " ".join(pruned.versions) or "none"
        result["kept"] = " ".join(pruned.kept)
        result["freed" if not arguments.dry_run else "would be freed"] = size(result.pop("bytes"))
    return _tell(store, arguments, result)


def _tell(store: Store, arguments: argparse.Namespace, result: Mapping[str, object]) -> int:
    if arguments.json:
        write_json({"store": str(store), **result})
    else:
        for name, value in chain([("store", str(store))], result.items()):
            _say(name.replace("_", " "), str(value))
    return 0


def _say(name: str, value: str) -> None:
    console.print(f"[bold]{name}[/] {escape(value)}", highlight=False, soft_wrap=True)


def _time(time: datetime | None) -> str:
    return "unknown" if time is None else f"{time:%Y-%m-%d %H:%M}"


def size(amount: int) -> str:
    """Write a number of bytes.

    >>> size(512), size(3 << 20)
    ('512 B', '3.0 MiB')
    """
    value, unit = float(amount), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{value:,.1f} {unit}" if unit != "B" else f"{amount} B"


_COMMANDS: Mapping[str, Callable[[Store, argparse.Namespace], int]] = MappingProxyType(
    {"list": _list, "show": _show, "diff": _diff, "rollback": _rollback, "prune": _prune}
)


if __name__ == "__main__":
    run_job(main)
