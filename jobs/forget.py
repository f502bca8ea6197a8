"""Forget a namespace, a session, or some of what was said or done there; with `--restore`, remember it again.

It is hidden at once, in every version, and left out of the next build and of logs that are imported later. The next
build also erases it from the files of the store; with `--now` this job does, and with nothing named, what was forgotten
before.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from rich.markup import escape

from hgmem_core.config import Config
from hgmem_core.ids import check_namespace
from hgmem_core.section import ConfigError
from jobs.terminal import (
    Bars,
    add_config_arguments,
    console,
    counted,
    load_config,
    now,
    run_job,
    time_argument,
    write_json,
)
from pipelines.encoders import open_encoder
from pipelines.erase import Erased
from pipelines.erasure_record import KIND
from pipelines.forget import Change, Selection, forget, restore
from pipelines.rebuild import erase
from pipelines.store import Store
from pipelines.tombstone_files import give_up_lost


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.forget", description=__doc__)
    parser.add_argument("--namespace", help="whose memory: exactly this one, all of it without more")
    parser.add_argument("--session", metavar="ID", help="this session of it")
    parser.add_argument("--turn", action="append", default=[], metavar="ID", help="this turn; may be repeated")
    parser.add_argument("--source-id", action="append", default=[], metavar="ID", help="the log's own id of a message")
    parser.add_argument("--trajectory", action="append", default=[], metavar="ID", help="this run of an agent")
    parser.add_argument("--before", metavar="TIME", type=time_argument, help="what was said or done before this time")
    parser.add_argument("--speaker", metavar="NAME", help="what this speaker said")
    parser.add_argument("--contains", metavar="TEXT", help="what says this, in letters of either case")
    parser.add_argument("--restore", action="store_true", help="lift the tombstones of these arguments")
    parser.add_argument("--allow-unknown", action="store_true", help="forget also what was never imported, in advance")
    parser.add_argument("--now", action="store_true", help="erase it, and what was forgotten before, from all files")
    parser.add_argument("--dry-run", action="store_true", help="tell what it would hide, and write nothing")
    parser.add_argument(
        "--give-up-lost",
        action="store_true",
        help="put empty files in the place of tombstone files that are missing or damaged: the last resort",
    )
    add_config_arguments(parser, config_is_optional=False)
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    if arguments.now and (arguments.restore or arguments.dry_run):
        raise ConfigError("--now erases: leave out --restore and --dry-run")
    if arguments.give_up_lost:
        if arguments.now or arguments.restore or arguments.dry_run or not _names_nothing(arguments):
            raise ConfigError("--give-up-lost goes by itself: forget again in another call")
        return _give_up_lost(config, arguments.json)
    if arguments.now and _names_nothing(arguments):
        return _erase(config, arguments.json, {})
    selection = _selection(arguments)
    store = Store.open(config.store.root, config.store.cache, config.store.cache_gib)
    if arguments.restore:
        change = restore(store, selection, now(), arguments.dry_run)
    else:
        change = forget(store, selection, now(), arguments.allow_unknown, arguments.dry_run)
    about = {"store": config.store.root, "restored": arguments.restore, "dry_run": arguments.dry_run}
    if not arguments.json:
        show(change, arguments.restore, arguments.dry_run)
    if arguments.now:
        return _erase(config, arguments.json, {**about, **asdict(change)})
    if arguments.json:
        write_json({**about, **asdict(change)})
    return 0


def _names_nothing(arguments: argparse.Namespace) -> bool:
    return not any(value for name, value in vars(arguments).items() if name in _SELECTING)


_SELECTING = ("namespace", "session", "turn", "source_id", "trajectory", "before", "speaker", "contains")


def _erase(config: Config, as_json: bool, told: Mapping[str, object]) -> int:
    """Erase from the files of the store what is forgotten, and say so."""
    with Bars() as bars:
        erased = erase(config, open_encoder(config.encoder), now(), bars)
    if as_json:
        done = None if erased is None else {**asdict(erased), "certificate": certificate_of(config, erased)}
        write_json({**told, "erased": done})
    elif erased is None:
        console.print("[bold]erased[/] nothing: all that is forgotten was erased before", highlight=False)
    else:
        what = counted(erased.turns, "turn or run", "turns and runs")
        whose, files = counted(erased.namespaces, "namespace", "namespaces"), counted(erased.removed, "file", "files")
        console.print(f"[bold]erased[/] {what} of {whose}, {files} removed", highlight=False)
        console.print(f"[bold]certificate[/] {escape(certificate_of(config, erased))}", highlight=False, soft_wrap=True)
        for version in erased.dropped:
            console.print(f"version {version} has other settings and lacks these buckets now", highlight=False)
    return 0


def _give_up_lost(config: Config, as_json: bool) -> int:
    """Replace tombstone files that are missing or damaged by empty ones, and say which."""
    store = Store.open(config.store.root, config.store.cache, config.store.cache_gib)
    lost = [path.relative_to(store.root).as_posix() for path in give_up_lost(store)]
    if as_json:
        write_json({"store": config.store.root, "given_up": lost})
        return 0
    for name in lost:
        console.print(f"[bold]given up[/] {name}: nothing is hidden by it any more", highlight=False)
    console.print(
        "forget again what was forgotten" if lost else "no tombstone file is missing or damaged", highlight=False
    )
    return 0


def certificate_of(config: Config, erased: Erased) -> str:
    """Return where in the store, not in a mirror of it, a certificate is."""
    return f"{config.store.root}/{KIND}/{erased.certificate.name}"


_COUNTED = {
    "trajectories": ("run of an agent", "runs of agents"),
    "facts": ("fact", "facts"),
    "facts_with_fewer_sources": ("fact with other sources, too", "facts with other sources, too"),
    "summaries": ("summary of an episode or a topic", "summaries of episodes and topics"),
    "skills": ("skill", "skills"),
}
"""What a change counts beside turns, of one and of several."""


def show(change: Change, restored: bool, dry_run: bool) -> None:
    """Print for people what was hidden, or is back."""
    did = "restored" if restored else "hidden"
    console.print(f"[bold]{f'would be {did}' if dry_run else did}[/]", highlight=False)
    lines = []
    if change.turns:
        lines.append(f"{counted(change.turns, 'turn', 'turns')} of {counted(change.sessions, 'session', 'sessions')}")
    lines += [counted(count, *words) for name, words in _COUNTED.items() if (count := getattr(change, name))]
    for line in lines:
        console.print(f"  {line}", highlight=False)
    if not lines:
        said = (
            "what was erased comes back when its log is imported again" if restored else "nothing that was not before"
        )
        console.print(f"  {said}", highlight=False)
    if change.number is not None:
        console.print(f"[bold]tombstones[/] {change.tombstones:,}, in file {change.number}", highlight=False)


def _selection(arguments: argparse.Namespace) -> Selection:
    """Return what the arguments mean.

    Raises:
        ConfigError: They do not go together.
    """
    if arguments.namespace is None:
        raise ConfigError("--namespace is missing: say whose memory; --now alone erases what is forgotten already")
    try:
        check_namespace(arguments.namespace)
    except ValueError as error:
        raise ConfigError(f"--namespace: {error}") from error
    filters = [name for name in ("before", "speaker", "contains") if getattr(arguments, name) is not None]
    if arguments.turn and (arguments.session or arguments.source_id or arguments.trajectory or filters):
        raise ConfigError(
            "--turn names turns by themselves: leave out --session, --source-id, --trajectory and filters"
        )
    if arguments.trajectory and (arguments.session or arguments.source_id or filters):
        raise ConfigError("--trajectory names runs by themselves: leave out --session, --source-id and filters")
    if arguments.source_id and filters:
        raise ConfigError(f"--source-id names messages by themselves: leave out --{filters[0]}")
    for name in ("session", "speaker", "contains"):
        if getattr(arguments, name) == "":
            raise ConfigError(f"--{name} is empty; leave it out, or say which")
    if arguments.allow_unknown and arguments.restore:
        raise ConfigError("--allow-unknown is of no use to --restore, which lifts what was written")
    return Selection(
        namespace=arguments.namespace,
        session=arguments.session,
        turns=tuple(arguments.turn),
        source_ids=tuple(arguments.source_id),
        trajectories=tuple(arguments.trajectory),
        before=arguments.before,
        speaker=arguments.speaker,
        contains=arguments.contains,
    )


if __name__ == "__main__":
    run_job(main)
