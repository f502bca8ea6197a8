"""Import logs into a store: `python -m jobs.import_logs FORMAT INPUT... --out STORE --namespace 'acme/{user}'`."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import get_args

from hgmem_core.config import ColumnsConfig, Format, TimeUnit, TrajectoryFormat
from hgmem_core.section import ConfigError
from jobs.terminal import Bars, add_config_arguments, load_config, now, override, run_job, summarise, write_json
from pipelines.import_stage import import_logs
from pipelines.run import open_run
from pipelines.runner import Report


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.import_logs", description=__doc__)
    parser.add_argument("format", choices=(*get_args(Format), *get_args(TrajectoryFormat)), help="what the files hold")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="files, folders or patterns")
    parser.add_argument("--out", metavar="STORE", help="the store's root; made if it does not exist")
    parser.add_argument("--namespace", default="", metavar="TEMPLATE", help="whose memory, such as 'acme/{user}'")
    parser.add_argument("--columns", default="", metavar="NAME=COLUMN,...", help=f"of {_columns()}")
    parser.add_argument("--time-zone", default="UTC", metavar="ZONE", help="of times that name none")
    parser.add_argument("--time-unit", default="auto", choices=get_args(TimeUnit), help="of numeric times")
    add_config_arguments(parser)
    arguments = parser.parse_args(argv)
    config = load_config(arguments, _overrides(arguments))
    began_at = now()
    with Bars() as bars, open_run("import", config, began_at, bars) as run:
        imported = import_logs(run, config.inputs, config.imports, began_at)
    result: dict[str, object] = {"store": config.store.root, "import": imported.number, "turns": imported.turns}
    if imported.trajectories:
        result["trajectories"] = imported.trajectories
    if arguments.json:
        write_json({**result, "imported": asdict(imported)})
    else:
        summarise(imported, Report(), result, str(run.choice))
    return 0


def _columns() -> str:
    return ", ".join(ColumnsConfig.model_fields)


def _overrides(arguments: argparse.Namespace) -> list[str]:
    overrides = ["inputs=[{}]", override("inputs.0.format", arguments.format)]
    overrides.append(override("inputs.0.paths", arguments.inputs))
    overrides.append(override("inputs.0.namespace", arguments.namespace))
    overrides.append(override("inputs.0.time_zone", arguments.time_zone))
    overrides.append(override("inputs.0.time_unit", arguments.time_unit))
    for pair in filter(None, arguments.columns.split(",")):
        name, equals, column = pair.partition("=")
        if not equals:
            raise ConfigError(f"--columns {pair}: written name=column, with a name of {_columns()}")
        overrides.append(override(f"inputs.0.columns.{name.strip()}", column.strip()))
    if arguments.out:
        overrides.append(override("store.root", arguments.out))
    return overrides


if __name__ == "__main__":
    run_job(main)
