"""Bring a store up to date: import the configuration's new logs, build, publish a version."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from hgmem_core.config import Config
from hgmem_core.gate import GateFailed
from hgmem_core.model_config import PACKAGED_ENCODERS, EncoderConfig
from hgmem_core.section import ConfigError
from jobs.forget import certificate_of
from jobs.terminal import (
    Bars,
    add_config_arguments,
    console,
    load_config,
    now,
    run_job,
    show_calls,
    summarise,
    write_json,
)
from pipelines.calls import Spent, cost
from pipelines.encoders import open_encoder
from pipelines.estimate import estimate
from pipelines.rebuild import rebuild


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.rebuild", description=__doc__)
    add_config_arguments(parser, config_is_optional=False)
    parser.add_argument("--dry-run", action="store_true", help="say what a language model would be asked, and stop")
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    if arguments.dry_run:
        return _estimate(config, arguments.json)
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
    if built.trajectories:
        result |= {"trajectories": built.trajectories, "skills": built.skills}
    if built.kept:
        result["kept"] = built.kept
    if done.erased:
        result |= {"erased": done.erased.turns, "certificate": certificate_of(config, done.erased)}
        if done.erased.dropped:
            result["versions_without_it"] = done.erased.dropped
    if arguments.json:
        imported = asdict(done.imported) if done.imported else None
        write_json({**result, "engine": done.engine.name, "imported": imported, "stages": built.report.as_dict()})
    else:
        summarise(done.imported, built.report, result, str(done.engine), config.llm.prices)
    if built.refused:
        raise GateFailed(built.kept)
    return 0


def _estimate(config: Config, as_json: bool) -> int:
    if config.llm.engine == "none":
        raise ConfigError("llm.engine: a dry run counts what a language model would be asked; name one")
    name = config.encoder.name
    # A model elsewhere is not asked either: vectors of the small packaged one stand in.
    stand_in = (
        config if name in PACKAGED_ENCODERS else config.model_copy(update={"encoder": EncoderConfig(name="static")})
    )
    with Bars() as bars:
        found = estimate(stand_in, open_encoder(stand_in.encoder), now(), bars)
    total = sum(found.stages.values(), Spent())
    prices = config.llm.prices
    if as_json:
        stages = {stage: {**asdict(spent), "cost": cost(spent, prices)} for stage, spent in found.stages.items()}
        write_json({"turns": found.turns, "stages": stages, "calls": total.calls, "cost": cost(total, prices)})
        return 0
    show_calls({**found.stages, "all": total}, prices)
    console.print(f"first passes over {found.turns:,} turns; prompt tokens: {found.counted_by}; answers are a guess")
    return 0


if __name__ == "__main__":
    run_job(main)
