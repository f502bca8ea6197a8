"""Bring a store up to date: import the configuration's new logs, build, publish a version."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from jobs.terminal import Bars, add_config_arguments, load_config, now, run_job, summarise, write_json
from pipelines.encoders import open_encoder
from pipelines.rebuild import rebuild


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.rebuild", description=__doc__)
    add_config_arguments(parser, config_is_optional=False)
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    with Bars() as bars:
        done = rebuild(config, open_encoder(config.encoder), now(), bars)
    built = done.built
    result: dict[str, object] = {
        "store": config.store.root,
        "version": built.version,
        "published": built.is_new,
        "turns": built.turns,
        "namespaces": built.namespaces,
    }
    if built.kept:
        result["kept"] = built.kept
    if arguments.json:
        imported = asdict(done.imported) if done.imported else None
        write_json({**result, "engine": done.engine.name, "imported": imported, "stages": built.report.as_dict()})
    else:
        summarise(done.imported, built.report, result, str(done.engine))
    return 0


if __name__ == "__main__":
    run_job(main)
