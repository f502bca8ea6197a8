"""How many of the sessions that hold a question's evidence are found, where a benchmark tells them."""

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa

from hgmem_core.metrics import recall
from hgmem_core.tasks.task import Questions
from pipelines.retriever import Retriever

SESSIONS_FOUND = (5, 10)
"""The k of `session_recall@k`."""


def session_recalls(
    retriever: Retriever, questions: Questions, run: pa.Table, recipes: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Return by metric, recipe and question the share of the sessions with evidence among the first k, in percent.

    Sessions are ranked by their best turn. Nothing is returned where no session of evidence is known.

    Args:
        retriever: That was asked.
        questions: All of them.
        run: RUN of all of them.
        recipes: That were asked.
    """
    if not questions.sessions:
        return {}
    ranked: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    columns = (run.column(name).to_pylist() for name in ("query_id", "id", "recipe"))
    for query_id, turn, recipe in zip(*columns, strict=True):
        ranked[query_id, recipe].append(turn)
    found: dict[str, dict[str, list[float]]] = {
        f"session_recall@{k}": {recipe: [] for recipe in recipes} for k in SESSIONS_FOUND
    }
    for row in questions.queries.to_pylist():
        query_id = row["query_id"]
        index = retriever.namespace(row["namespace"])
        columns = ([] if index is None else index.column(name).to_pylist() for name in ("turn_id", "session_id"))
        session_of = dict(zip(*columns, strict=True))
        for recipe in recipes:
            seen = list(dict.fromkeys(session_of[turn] for turn in ranked[query_id, recipe]))
            for k in SESSIONS_FOUND:
                found[f"session_recall@{k}"][recipe].append(recall(seen, questions.sessions[query_id], k))
    return found
