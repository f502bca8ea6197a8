"""Constants of the recipe `hypergraph`, chosen on half of the conversations and reported on the other half."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from hgmem_core.blend import combined, components
from hgmem_core.lexical import Floats
from hgmem_core.metrics import METRICS
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import best_rows, speaker_factors
from hgmem_core.recipes import RECIPES, Blend
from hgmem_core.tasks.locomo import GROUPS
from hgmem_core.tasks.task import Questions, TaskError
from pipelines.progress import Progress
from pipelines.retriever import Retriever

GRID: Mapping[str, Sequence[float]] = {
    "fact": (0.4, 0.6, 0.8),
    "episode": (0.0, 0.1, 0.2),
    "topic": (0.0, 0.1, 0.2, 0.3),
    "other_speaker": (0.8, 0.9, 1.0),
}
"""The values tried; `words` stays as it is, since only the proportions count."""

REPORTED = ("recall@10", "ndcg@10")
_GROUP = "1-4"
_MULTI_HOP = "1"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question with everything that does not depend on the constants."""

    conversation: str
    category: str
    index: NamespaceIndex
    parts: Mapping[str, Floats]
    is_named: Floats | None
    """1 for turns of the one speaker whom it names, 0 for others' turns; None if it names none or several."""
    relevant: frozenset[str]


def tune(retriever: Retriever, questions: Questions, progress: Progress) -> dict[str, Any]:
    """Choose the constants on each half of the conversations and report them on the other.

    Conversations fall into halves by turns, in the order of their names. Chosen is what gives the greatest sum of
    recall@10 and nDCG@10 over the categories 1 to 4 of the half; the first of equals.

    Raises:
        TaskError: There are fewer than two conversations.

    Returns:
        For each half its conversations, the constants chosen on it, and the metrics on the other half; their means.
    """
    asked = _prepare(retriever, questions, progress)
    names = sorted({one.conversation for one in asked})
    if len(names) < 2:
        raise TaskError(f"tuning needs questions of at least two conversations; there are {len(names)}")
    halves = [names[::2], names[1::2]]
    settings = [
        replace(_base(), fact=fact, episode=episode, topic=topic, other_speaker=other)
        for fact, episode, topic, other in product(*GRID.values())
    ]
    progress.start("tune", len(settings))
    scores = []
    for recipe in settings:
        scores.append([_score(one, recipe) for one in asked])
        progress.advance("tune", 1)
    table = np.array(scores)  # [settings, questions, metrics]
    where = np.array([one.conversation in halves[0] for one in asked])
    multi_hop = np.array([one.category == _MULTI_HOP for one in asked])
    reports = []
    for chosen_on, mask in zip(halves, (where, ~where), strict=True):
        best = int(np.argmax(table[:, mask].mean(axis=1).sum(axis=1)))
        held_out = table[best, ~mask].mean(axis=0)
        reports.append(
            {
                "chosen_on": chosen_on,
                "constants": {name: getattr(settings[best], name) for name in GRID},
                **dict(zip(REPORTED, held_out.round(2).tolist(), strict=True)),
                "multi-hop recall@10": round(float(table[best, ~mask & multi_hop].mean(axis=0)[0]), 2),
            }
        )
    means = {
        name: round(float(np.mean([report[name] for report in reports])), 2)
        for name in (*REPORTED, "multi-hop recall@10")
    }
    return {"recipe": "hypergraph", "settings": len(settings), "halves": reports, "mean_of_held_out_halves": means}


def _base() -> Blend:
    recipe = RECIPES["hypergraph"]
    if not isinstance(recipe, Blend):
        raise TypeError("the recipe hypergraph is no blend")
    return recipe


def _prepare(retriever: Retriever, questions: Questions, progress: Progress) -> list[_Asked]:
    relevant: dict[str, set[str]] = {}
    for query_id, turn in zip(
        *(questions.qrels.column(name).to_pylist() for name in ("query_id", "turn_id")), strict=True
    ):
        relevant.setdefault(query_id, set()).add(turn)
    rows = [row for row in questions.queries.to_pylist() if row["group"] in GROUPS[_GROUP]]
    progress.start("prepare", len(rows))
    recipe = _base()
    prepared = []
    for row, vector in zip(rows, retriever.encode([row["text"] for row in rows]), strict=True):
        index = retriever.namespace(row["namespace"])
        if index is None:
            raise KeyError(row["namespace"])
        query = retriever.analyse(row["text"], recipe, vector)
        parts = components(index, query, np.array(index.term_numbers(query.terms), np.int64), recipe)
        named = speaker_factors(index, query.text, 0.0)
        prepared.append(
            _Asked(row["namespace"], row["group"], index, parts, named, frozenset(relevant[row["query_id"]]))
        )
        progress.advance("prepare", 1)
    return prepared


def _score(asked: _Asked, recipe: Blend) -> list[float]:
    scores = combined(asked.parts, recipe)
    if asked.is_named is not None:
        scores = np.where(asked.is_named > 0, scores, scores * np.float32(recipe.other_speaker))
    best = best_rows(scores, np.flatnonzero(scores > 0), 10, asked.index.id_order)
    ids = [asked.index.column("turn_id")[row].as_py() for row in best.tolist()]
    return [METRICS[name](ids, asked.relevant) for name in REPORTED]
