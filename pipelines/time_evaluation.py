"""How many of the temporal expressions of a log are placed: the rules of `hgmem_core.dates` against a list of words."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from hgmem_core import __version__
from hgmem_core.config import Config, InputConfig, config_digest
from hgmem_core.dates import find_times
from hgmem_core.importers.locomo import read_locomo
from hgmem_core.messages import LogRow, Message
from hgmem_core.tasks.task import TaskError
from hgmem_core.time_triggers import KINDS, time_triggers
from pipelines.store import file_sha256

RESULT_SCHEMA_VERSION = 1
MOST_SHAPES = 25
"""Shapes of unplaced triggers that a result names, the commonest ones."""


def locomo_messages(data: Path) -> Iterator[Message]:
    """Yield the turns of a LoCoMo file.

    Raises:
        TaskError: The file cannot be read, or is not LoCoMo's.
    """
    try:
        samples = json.loads(data.read_bytes())
    except (OSError, ValueError) as error:
        raise TaskError(f"{data} cannot be read as LoCoMo's JSON: {error}") from error
    if not isinstance(samples, list):
        raise TaskError(f"{data} is not a list of LoCoMo's samples")
    rows = [LogRow(f"{data.name}:{number}", sample, None) for number, sample in enumerate(samples)]
    for read in read_locomo(rows, InputConfig(format="locomo", paths=[str(data)])):
        if isinstance(read, Message):
            yield read


def evaluate_times(data: Path, config: Config) -> dict[str, Any]:
    """Return the result document: of the words that speak of time in a LoCoMo file, how many are placed.

    A trigger is placed where a phrase that has an interval shares a sign with it.

    Raises:
        TaskError: The file cannot be read, or is not LoCoMo's.
    """
    counts: Counter[tuple[str, bool]] = Counter()
    shapes: Counter[tuple[str, str]] = Counter()
    messages = 0
    for message in locomo_messages(data):
        messages += 1
        zone = ZoneInfo(message.time_zone or "UTC")
        placed = [
            (mention.place, mention.place + len(mention.phrase))
            for mention in find_times(message.text, message.said_at, zone)
            if mention.is_placed
        ]
        for trigger in time_triggers(message.text):
            is_placed = any(start < trigger.end and trigger.start < end for start, end in placed)
            counts[trigger.kind, is_placed] += 1
            if not is_placed:
                shapes[trigger.kind, trigger.shape] += 1
    return {
        "schema_version": RESULT_SCHEMA_VERSION,
        "task": "time",
        "data_sha256": file_sha256(data),
        "software_version": __version__,
        "config": config.model_dump(),
        "config_sha256": config_digest(config),
        "prompts_sha256": None,
        "turns": messages,
        "results": [
            {
                "kind": kind,
                "n": counts[kind, True] + counts[kind, False],
                "placed": round(100 * counts[kind, True] / max(1, counts[kind, True] + counts[kind, False]), 1),
                "unplaced": [
                    {"shape": shape, "n": number}
                    for (own, shape), number in sorted(shapes.items(), key=lambda item: (-item[1], item[0]))
                    if own == kind
                ][:MOST_SHAPES],
            }
            for kind in KINDS
        ],
    }
