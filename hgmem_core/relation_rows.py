"""RELATION as arrays, and as rows of a bucket's index: one row a node, its targets and their features as lists."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hgmem_core.ids import rows_of
from hgmem_core.lexical import Floats, Ints
from hgmem_core.relations import Relations
from hgmem_core.schemas import SCHEMA_VERSION, layout_of, namespace_ranges, with_layout

RELATION_ROW = pa.schema(
    [
        pa.field(name, pa.large_list(pa.field("item", kind, nullable=False)), nullable=False)
        for name, kind in (("targets", pa.uint32()), ("features", pa.float32()))
    ],
    metadata={"hgmem.table": "RELATION_ROW", "hgmem.schema_version": str(SCHEMA_VERSION)},
)
"""The targets of a node, rising, count from the first node of its namespace. A target has as many features as the
layout, which is in the metadata, has names; they follow one another."""


def relation_rows(relations: pa.Table, nodes: pa.Table, ids: str) -> pa.Table:
    """Return the rows of a graph.

    Args:
        relations: RELATION of the graph.
        nodes: Its nodes in the order of the rows, sorted by namespace.
        ids: The column of `nodes` that has their ids.
    """
    layout = layout_of(relations.schema)
    source, target = (rows_of(relations.column(name), nodes.column(ids)) for name in ("source_id", "target_id"))
    features, order = features_of(relations), np.lexsort((target, source))
    if (np.diff(order) != 1).any():  # those of facts are in order already, and too many to copy for nothing
        source, target, features = source[order], target[order], features[order]
    first = np.zeros(nodes.num_rows, np.int64)
    for _, start, stop in namespace_ranges(nodes):
        first[start:stop] = start
    counts = np.bincount(source, minlength=nodes.num_rows)
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = ((bounds, (target - first[target]).astype(np.uint32)), (bounds * len(layout), features.ravel()))
    arrays = [
        pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values), field.type)
        for field, (offsets, values) in zip(RELATION_ROW, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=with_layout(RELATION_ROW, layout))


def relations_of(rows: pa.Table) -> Relations:
    """Return the relations of one namespace, whose RELATION_ROW rows these are; the features stay where they are."""
    layout = layout_of(rows.schema)
    bounds, targets = _list(rows, "targets")
    _, features = _list(rows, "features")
    return Relations(bounds, targets.astype(np.int64), features.reshape(-1, len(layout)), layout)


def features_of(relations: pa.Table) -> Floats:
    """Return the features of RELATION rows, float32 `[n, len(layout)]`."""
    column = relations.column("features").combine_chunks()
    return np.asarray(column.flatten().to_numpy(), np.float32).reshape(-1, len(layout_of(relations.schema)))


def with_features(relations: pa.Table, features: Floats) -> pa.Table:
    """Return RELATION rows with other features, float32 `[n, len(layout)]`."""
    place = relations.schema.get_field_index("features")
    field = relations.schema.field(place)
    column = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), type=field.type)
    return relations.set_column(place, field, column)


def _list(rows: pa.Table, name: str) -> tuple[Ints, npt.NDArray[Any]]:
    """Return where the lists of a column begin and end, and their values."""
    lists = rows.column(name).chunk(0) if rows.num_rows else pa.array([], rows.schema.field(name).type)
    offsets = lists.offsets.to_numpy()
    return offsets - offsets[0], lists.values.to_numpy()[offsets[0] : offsets[-1]]
