"""From a RUN and its QREL to a table of metrics by recipe and group."""

from collections import defaultdict
from collections.abc import Mapping, Set
from typing import Any

import pyarrow as pa

from hgmem_core.metrics import METRICS


def score_run(
    run: pa.Table, queries: pa.Table, qrels: pa.Table, groups: Mapping[str, Set[str]]
) -> list[dict[str, Any]]:
    """Return one row for each recipe of the RUN and each group: `recipe`, `group`, `n`, and the metrics' means.

    A query for which a recipe returned nothing counts with 0, not as absent. Groups without a query are left out.

    Args:
        run: RUN of one or more recipes; recipes keep the order of their first appearance.
        queries: QUERY.
        qrels: QREL; every query has at least one row.
        groups: For each group, in order, the values of QUERY.group that it holds.
    """
    relevant: defaultdict[str, set[str]] = defaultdict(set)
    for query_id, turn in zip(qrels.column("query_id").to_pylist(), qrels.column("turn_id").to_pylist(), strict=True):
        relevant[query_id].add(turn)
    ranked: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for query_id, item, recipe in zip(
        *(run.column(name).to_pylist() for name in ("query_id", "id", "recipe")), strict=True
    ):
        ranked[recipe][query_id].append(item)
    group_of = dict(zip(queries.column("query_id").to_pylist(), queries.column("group").to_pylist(), strict=True))
    rows = []
    for recipe, lists in ranked.items():
        scores = {
            query_id: [metric(lists.get(query_id, []), relevant[query_id]) for metric in METRICS.values()]
            for query_id in group_of
        }
        for group, members in groups.items():
            chosen = [scores[query_id] for query_id, own in group_of.items() if own in members]
            if chosen:
                means = (round(sum(values) / len(chosen), 4) for values in zip(*chosen, strict=True))
                rows.append(
                    {"recipe": recipe, "group": group, "n": len(chosen), **dict(zip(METRICS, means, strict=True))}
                )
    return rows
