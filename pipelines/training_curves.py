"""The curve of a training beside its model: as JSON for programs, as PNG for people."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hgmem_core.training_run import VALIDATED
from pipelines.plots import draw_curve

CURVES_JSON, CURVES_PNG = "curves.json", "curves.png"

_NAMES = {
    "loss": "loss of the policy",
    "return": "discounted return of a walk",
    "listwise loss": "listwise loss of the evidence",
    "earned": "recall@10 + nDCG@10 / 2 of a draw",
    "success": "share of walks that found all evidence",
    VALIDATED: f"{VALIDATED} of the validation questions",
}


def write_curves(folder: Path, rows: Sequence[Mapping[str, float]], about: Mapping[str, Any]) -> None:
    """Write a curve into the folder of a model.

    Args:
        folder: Of the model.
        rows: Of the curve, at least one; the first key of each is what they count, such as `epoch`.
        about: `recipe`, `task`, `seed` and what else tells of which training it is.
    """
    text = json.dumps({**about, "rows": list(rows)}, ensure_ascii=False, indent=1)
    (folder / CURVES_JSON).write_text(text + "\n", encoding="utf-8")
    note = ", ".join(f"{name} {value}" for name, value in about.items() if name != "recipe")
    draw_curve(rows, _NAMES, f"Training of {about['recipe']}", note, folder / CURVES_PNG)
