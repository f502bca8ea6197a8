"""Change the number of buckets of a store: `python -m jobs.rebucket CONFIG --buckets N`; rebuild it afterwards."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from hgmem_core.config import MOST_BUCKETS
from hgmem_core.section import ConfigError
from jobs.terminal import Bars, add_config_arguments, console, load_config, now, run_job, write_json
from pipelines.rebucket import rebucket
from pipelines.store import Store


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.rebucket", description=__doc__)
    parser.add_argument("--buckets", type=int, required=True, metavar="N", help="how many the store is to have")
    add_config_arguments(parser, config_is_optional=False)
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    if not 1 <= arguments.buckets <= MOST_BUCKETS:
        raise ConfigError(f"--buckets: {arguments.buckets} is not between 1 and {MOST_BUCKETS}")
    with Bars() as bars:
        done = rebucket(
            Store.open(config.store.root, config.store.cache, config.store.cache_gib), arguments.buckets, now(), bars
        )
    result = {"store": config.store.root, **asdict(done)}
    if arguments.json:
        write_json(result)
        return 0
    for name, value in result.items():
        console.print(f"[bold]{name}[/] {value}", markup=True, highlight=False, soft_wrap=True)
    if config.store.buckets not in (0, done.after):
        console.print(f"set store.buckets = {done.after} in {arguments.config}", highlight=False, soft_wrap=True)
    console.print("rebuild the store now: its current version stays that of the old buckets until then")
    return 0


if __name__ == "__main__":
    run_job(main)
