"""Keys of those who may ask the endpoint: `python -m jobs.keys make --keys FOLDER --grant acme/alice:read`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from hgmem_core.section import ConfigError
from jobs.terminal import add_config_arguments, console, load_config, now, override, run_job, write, write_json
from pipelines.serve_keys import Grant, Key, make_key, read_keys, revoke_key


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.keys", description=__doc__)
    parser.add_argument("what", choices=["make", "list", "revoke"], help="what to do")
    parser.add_argument("id", nargs="?", help="of the key to revoke")
    parser.add_argument("--keys", metavar="FOLDER", help="the folder of the keys, serve.keys of the configuration")
    parser.add_argument(
        "--grant",
        action="append",
        default=[],
        metavar="PREFIX:RIGHT",
        dest="grants",
        help="namespaces below a prefix (* for all), and read, write or admin; may be repeated",
    )
    parser.add_argument("--note", default="", help="whose key it is")
    add_config_arguments(parser)
    arguments = parser.parse_args(argv)
    config = load_config(arguments, [override("serve.keys", arguments.keys)] if arguments.keys else [])
    if not config.serve.keys:
        raise ConfigError("say where the keys are: --keys FOLDER, or serve.keys in the configuration")
    if (arguments.what == "revoke") != (arguments.id is not None):
        raise ConfigError("revoke takes the ID of a key, and nothing else does")
    folder = Path(config.serve.keys)
    if arguments.what == "make":
        return _make(folder, _grants(arguments.grants), arguments.note, arguments.json)
    keys = read_keys(folder) if arguments.what == "list" else [revoke_key(folder, arguments.id, now())]
    if arguments.json:
        write_json({"keys": [_about(key) for key in keys]})
        return 0
    for key in keys:
        grants = ", ".join(f"{grant.prefix}:{grant.right}" for grant in key.grants)
        until = "" if key.revoked_at is None else f" [red]revoked {key.revoked_at:%Y-%m-%d %H:%M UTC}[/]"
        about = f"{key.made_at:%Y-%m-%d}  {grants}  {key.note}"
        console.print(f"[bold]{key.id}[/]  {escape(about)}{until}", highlight=False, soft_wrap=True)
    return 0


def _make(folder: Path, grants: Sequence[Grant], note: str, as_json: bool) -> int:
    key, text = make_key(folder, grants, now(), note)
    if as_json:
        write_json({**_about(key), "key": text})
    else:
        write(text)
        console.print("[dim]it is shown this once: only its SHA-256 is kept[/]", highlight=False)
    return 0


def _grants(texts: Sequence[str]) -> list[Grant]:
    if not texts:
        raise ConfigError("say what the key may do: --grant acme/alice:read")
    try:
        return [Grant.parse(text) for text in texts]
    except ValueError as error:
        raise ConfigError(f"--grant: {error}") from error


def _about(key: Key) -> dict[str, object]:
    return key.model_dump(mode="json", exclude={"sha256"})


if __name__ == "__main__":
    run_job(main)
