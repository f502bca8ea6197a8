"""Say what a store's language model took: calls, tokens, seconds and money, by stage or by namespace."""

import argparse
from collections.abc import Sequence

from jobs.terminal import add_config_arguments, console, load_config, plain_table, run_job, write_json
from pipelines.ledger import ledger
from pipelines.store import Store

_SHOWN = {
    "calls": "calls",
    "prompt_tokens": "prompt tokens",
    "completion_tokens": "answer tokens",
    "seconds": "seconds",
    "cost": "cost",
    "passes": "passes",
    "fallbacks": "fallbacks",
}


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.ledger", description=__doc__)
    parser.add_argument("--by", choices=["stage", "namespace", "both"], default="stage", help="what a row is of")
    add_config_arguments(parser, config_is_optional=False)
    arguments = parser.parse_args(argv)
    config = load_config(arguments)
    by = ["namespace", "stage"] if arguments.by == "both" else [arguments.by]
    rows = ledger(
        Store.open(config.store.root, config.store.cache, config.store.cache_gib), config.llm.prices, by
    ).to_dicts()
    if arguments.json:
        write_json({"store": config.store.root, "calls": rows})
        return 0
    table = plain_table(*by, *_SHOWN.values())
    for row in rows:
        table.add_row(*(str(row[name]) for name in by), *(_number(row[name]) for name in _SHOWN))
    console.print(table)
    return 0


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.4f}" if isinstance(value, float) else f"{value:,}"


if __name__ == "__main__":
    run_job(main)
