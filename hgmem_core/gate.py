"""Whether measured numbers are good enough: floors of metrics, and no loss against an earlier version.

A loss is a paired difference from the earlier version, on the same questions, whose 95 % interval lies below 0.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hgmem_core.section import ConfigError

_FLOOR = re.compile(r"(?:(?P<group>.+)/)?(?P<metric>[^/=]+)=(?P<at_least>[+-]?\d+(?:\.\d+)?)")


class GateFailed(RuntimeError):
    """Numbers are not good enough: says which, and by how much."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What a metric must reach.

    Attributes:
        group: Of questions; None for the one that a task is mainly reported by.
        metric: Its name in a result, such as `recall@10`.
        at_least: In percent.
    """

    group: str | None
    metric: str
    at_least: float


def read_floor(text: str) -> Floor:
    """Read a floor, written `recall@10=70`, or `multi-session/recall@10=50` for a group of questions.

    Raises:
        ConfigError: It is not written so.

    >>> read_floor("multi-session/recall@10=50")
    Floor(group='multi-session', metric='recall@10', at_least=50.0)
    """
    found = _FLOOR.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no floor; write METRIC=PERCENT or GROUP/METRIC=PERCENT, such as recall@10=70")
    return Floor(found["group"], found["metric"].strip(), float(found["at_least"]))


def gated(result: Mapping[str, Any], floors: Sequence[Floor], headline: str) -> dict[str, Any]:
    """Return a result document with its `gate`: whether it passed, and each condition with its numbers.

    Args:
        result: Its `results`, and those of its `answers`, are rows of a recipe, a group and metrics; every recipe has
            to reach every floor. Its `comparisons`, if it has some, are paired differences from an earlier version.
        floors: See there.
        headline: The group of floors that name none.

    Raises:
        ConfigError: A floor names a group or a metric that was not measured.
    """
    rows = [*result["results"], *result.get("answers", {}).get("results", ())]
    reached = [one for floor in floors for one in _reached(rows, floor, floor.group or headline)]
    compared = [{**row, "passed": row["ci95"][1] >= 0} for row in result.get("comparisons", ())]
    passed = all(one["passed"] for one in (*reached, *compared))
    others = {name: value for name, value in result.items() if name != "comparisons"}
    return {**others, "gate": {"passed": passed, "floors": reached, "comparisons": compared}}


def _reached(rows: Sequence[Mapping[str, Any]], floor: Floor, group: str) -> list[dict[str, Any]]:
    own = [row for row in rows if row["group"] == group]
    if not own:
        groups = ", ".join(dict.fromkeys(row["group"] for row in rows))
        raise ConfigError(f"{floor.metric}={floor.at_least:g}: no group {group!r} was asked; there are {groups}")
    measured = [row for row in own if isinstance(row.get(floor.metric), int | float)]
    if not measured:
        names = dict.fromkeys(name for row in own for name, value in row.items() if isinstance(value, float))
        raise ConfigError(f"{floor.metric} was not measured; there are {', '.join(names)}")
    return [
        {
            "recipe": row["recipe"],
            "group": group,
            "metric": floor.metric,
            "at_least": floor.at_least,
            "value": row[floor.metric],
            "passed": row[floor.metric] >= floor.at_least,
        }
        for row in measured
    ]


def failures(gate: Mapping[str, Any]) -> list[str]:
    """Return a line for each condition that does not hold, with the numbers."""
    lines = [
        f"{one['recipe']}, {one['group']}: {one['metric']} is {one['value']:.2f}, "
        f"{one['at_least'] - one['value']:.2f} below {one['at_least']:g}"
        for one in gate["floors"]
        if not one["passed"]
    ]
    for one in gate["comparisons"]:
        if not one["passed"]:
            low, high = one["ci95"]
            lines.append(
                f"{one['recipe']}, {one['group']}: {one['metric']} is {-one['difference']:.2f} below version "
                f"{one['baseline']} (difference {one['difference']:+.2f}, 95 % interval {low:+.2f} .. {high:+.2f})"
            )
    return lines
