"""Turns to EMBEDDING rows: what text an encoder sees of a turn, one namespace at a time."""

import numpy as np
import pyarrow as pa

from hgmem_core.encoding import Encoder, Vectors, encode_texts
from hgmem_core.index import namespace_ranges
from hgmem_core.schemas import OUTCOME, conform, embedding_schema
from hgmem_core.turns import date_texts, turn_texts

EMBEDDINGS_REVISION = 1
"""Raised when equal turns and an equal encoder give other vectors."""


def dated_texts(turns: pa.Table) -> list[str]:
    """Return the text of each turn with its time in front: `(1:56 pm on 8 May, 2023) speaker: text`."""
    return [date + text for date, text in zip(date_texts(turns), turn_texts(turns), strict=True)]


def embed_turns(turns: pa.Table, encoder: Encoder, batch_size: int) -> tuple[pa.Table, pa.Table]:
    """Encode the dated text of every turn; see `hgmem_core.encoding.encode_texts`.

    Returns:
        EMBEDDING of level `turn`, variant `base`, and OUTCOME of stage `encode`: `empty` for a turn of which the
        encoder sees no token, which then has no vector.
    """
    parts: list[Vectors] = [np.zeros((0, encoder.identity.dimension), np.float32)]
    for _, start, stop in namespace_ranges(turns):
        parts.append(encode_texts(encoder, dated_texts(turns.slice(start, stop - start)), batch_size))
    vectors = np.concatenate(parts)
    has_vector = np.asarray(vectors.any(axis=1))
    schema = embedding_schema(encoder.identity.dimension)
    kept = turns.filter(pa.array(has_vector))
    size = kept.num_rows
    values = pa.array(vectors[has_vector].reshape(-1))
    embeddings = pa.table(
        {
            "namespace": kept.column("namespace"),
            "level": pa.array(["turn"] * size),
            "node_id": kept.column("turn_id"),
            "variant": pa.array(["base"] * size),
            "vector": pa.FixedSizeListArray.from_arrays(values, encoder.identity.dimension),
        }
    )
    outcomes = pa.table(
        {
            "namespace": turns.column("namespace"),
            "stage": pa.array(["encode"] * turns.num_rows, pa.large_string()),
            "row_id": turns.column("turn_id"),
            "outcome": pa.array(np.where(has_vector, "ok", "empty")),
            "passes": pa.array(np.ones(turns.num_rows, np.int32)),
            "reason": pa.array(
                [None if seen else "the encoder sees no token" for seen in has_vector.tolist()], pa.string()
            ),
        }
    )
    return conform(embeddings, schema), conform(outcomes, OUTCOME)
