"""Texts to EMBEDDING rows: what an encoder sees of a turn or a node, one namespace at a time."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from hgmem_core.encoding import Encoder, Vectors, encode_runs
from hgmem_core.heads import Heads
from hgmem_core.schemas import OUTCOME, conform, embedding_schema, namespace_ranges
from hgmem_core.summarise import shorten
from hgmem_core.turns import date_texts, turn_texts
from hgmem_core.units import BEFORE, session_numbers, session_spans
from hgmem_core.vector_rows import aligned_vectors

EMBEDDINGS_REVISION = 1
"""Raised when equal turns and an equal encoder give other vectors."""


def dated_texts(turns: pa.Table) -> list[str]:
    """Return the text of each turn with its time in front: `(1:56 pm on 8 May, 2023) speaker: text`."""
    return [date + text for date, text in zip(date_texts(turns), turn_texts(turns), strict=True)]


CONTEXT_FORM = "context-1"
"""The form of `context_texts`, another one whenever equal turns get other texts: encoders are tuned to one form."""

MOST_BEFORE_CHARS = 512
"""Of each earlier turn in a turn's context: a long one must not drown what the turn itself says."""


def context_texts(turns: pa.Table) -> list[str]:
    """Return the text of each turn of one namespace after the two before it: `(time) one two >> speaker: text`.

    Those before it are of the same session; the first turn of a session has none, and no `>>`.
    """
    plain = turn_texts(turns)
    earlier = [shorten(text, MOST_BEFORE_CHARS) for text in plain]
    first, _ = session_spans(session_numbers(turns), BEFORE, 0)
    texts = []
    for row, (date, start, text) in enumerate(zip(date_texts(turns), first.tolist(), plain, strict=True)):
        before = " ".join(earlier[start:row])
        texts.append(f"{date}{before} >> {text}" if before else date + text)
    return texts


def texts_of_turns(turns: pa.Table, texts_of: Callable[[pa.Table], list[str]] = dated_texts) -> list[str]:
    """Return what an encoder sees of each turn, one namespace at a time; by default its dated text."""
    texts: list[str] = []
    for _, start, stop in namespace_ranges(turns):
        texts += texts_of(turns.slice(start, stop - start))
    return texts


def tuned_by_heads(turns: pa.Table, embeddings: pa.Table, heads: Heads) -> Vectors:
    """Return the vectors that heads make of turns' own, float32 `[n, dimension]`, zeros for a turn without one.

    Args:
        turns: TURN.
        embeddings: EMBEDDING rows of them, level `turn`, variant `base`.
        heads: Of the same encoder.
    """
    vectors, _ = aligned_vectors(turns.column("turn_id"), embeddings)
    parts = [np.zeros((0, heads.dimension), np.float32)]
    for _, start, stop in namespace_ranges(turns):
        parts.append(heads.documents(vectors[start:stop], session_numbers(turns.slice(start, stop - start))))
    return np.concatenate(parts)


def embed_turns(turns: pa.Table, encoder: Encoder, batch_size: int) -> tuple[pa.Table, pa.Table]:
    """Encode the dated text of every turn; see `embed_nodes`."""
    return embed_nodes("turn", turns.select(["namespace", "turn_id"]), texts_of_turns(turns), encoder, batch_size)


def embed_nodes(
    level: str, nodes: pa.Table, texts: Sequence[str], encoder: Encoder, batch_size: int
) -> tuple[pa.Table, pa.Table]:
    """Encode the text of every node, one namespace at a time, and return `embedding_rows` of the vectors."""
    return embedding_rows(level, nodes, encode_by_namespace(nodes, texts, encoder, batch_size))


def encode_by_namespace(
    nodes: pa.Table, texts: Sequence[str], encoder: Encoder, batch_size: int, as_queries: bool = False
) -> Vectors:
    """Return the vector of every node's text, float32 `[n, dimension]`; see `hgmem_core.encoding.encode_runs`.

    Args:
        nodes: Sorted by namespace.
        texts: What stands for each.
        encoder: Makes the vectors; it sees the texts of one namespace at a time, unless it makes its own batches.
        batch_size: Pieces of text in one batch.
        as_queries: Whether others are searched with them, and they themselves are not.
    """
    bounds = [0, *(stop for _, _, stop in namespace_ranges(nodes))]
    prefix = encoder.identity.prefix if as_queries else encoder.identity.document_prefix
    return encode_runs(encoder, texts, bounds, batch_size, prefix)


def embedding_rows(
    level: str, nodes: pa.Table, vectors: Vectors, variant: Literal["base", "tuned"] = "base"
) -> tuple[pa.Table, pa.Table]:
    """Return vectors as tables.

    Args:
        level: The nodes' level.
        nodes: Their namespace and id, two columns in this order, sorted by namespace.
        vectors: One for each, zeros for one of which the encoder sees no token.
        variant: Of the vectors.

    Returns:
        EMBEDDING of the level, and OUTCOME of stage `encode_<level>s`, for tuned ones `encode_tuned`: `empty` for a
        node of which the encoder sees no token, which then has no vector.
    """
    has_vector = np.asarray(vectors.any(axis=1))
    schema = embedding_schema(vectors.shape[1])
    kept = nodes.filter(pa.array(has_vector))
    size = kept.num_rows
    values = pa.array(vectors[has_vector].reshape(-1))
    embeddings = pa.table(
        {
            "namespace": kept.column(0),
            "level": pa.array([level] * size, pa.large_string()),
            "node_id": kept.column(1),
            "variant": pa.array([variant] * size, pa.large_string()),
            "vector": pa.FixedSizeListArray.from_arrays(values, vectors.shape[1]),
        }
    )
    stage = f"encode_{level}s" if variant == "base" else "encode_tuned"
    outcomes = pa.table(
        {
            "namespace": nodes.column(0),
            "stage": pa.array([stage] * nodes.num_rows, pa.large_string()),
            "row_id": nodes.column(1),
            "outcome": pa.array(np.where(has_vector, "ok", "empty")),
            "passes": pa.array(np.ones(nodes.num_rows, np.int32)),
            "reason": pa.array(
                [None if seen else "the encoder sees no token" for seen in has_vector.tolist()], pa.string()
            ),
        }
    )
    return conform(embeddings, schema), conform(outcomes, OUTCOME)
