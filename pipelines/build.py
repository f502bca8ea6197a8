"""From imports to a published version: merge, encode and index every bucket, then publish."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from hgmem_core.config import Config
from hgmem_core.dense import to_faiss
from hgmem_core.embeddings import EMBEDDINGS_REVISION, embed_turns
from hgmem_core.encoding import Encoder
from hgmem_core.ids import table_digest
from hgmem_core.index import INDEX_REVISION, build_index
from hgmem_core.schemas import OUTCOME, TURN, conform, embedding_schema
from hgmem_core.tokens import TOKENS_REVISION
from hgmem_core.turns import MERGE_REVISION, merge_imports
from pipelines.import_stage import ImportedPart, imported_parts
from pipelines.progress import Progress
from pipelines.runner import Produced, Report, Runner, Stage, for_each
from pipelines.store import Output, Store
from pipelines.versions import publish


@dataclass(frozen=True, slots=True)
class Built:
    """A published version, whether it is a new one, and what was done for it."""

    version: str
    is_new: bool
    number: int
    turns: int
    namespaces: int
    report: Report


def build(store: Store, config: Config, encoder: Encoder, progress: Progress) -> Built:
    """Bring every bucket up to date with the imports and publish the result; do nothing twice.

    Raises:
        StoreError: Nothing was imported yet.
    """
    parts = imported_parts(store)
    runner = Runner(store)
    stages = _stages(config, encoder)
    progress.start("build", sum(part.rows for bucket in parts.values() for part in bucket))
    work = partial(_build_bucket, runner, stages, config, encoder, progress)
    indexed = for_each(work, sorted(parts.items()), config.run.workers)
    outcomes = {stage: dict(counts) for stage, counts in runner.report.outcomes.items()}
    buckets = {number: output for (number, _), output in zip(sorted(parts.items()), indexed, strict=True)}
    version, number, is_new = publish(store, buckets, config.index, encoder.identity, outcomes)
    return Built(
        version=version,
        is_new=is_new,
        number=number,
        turns=sum(output.manifest["turns"] for output in indexed),
        namespaces=sum(output.manifest["namespaces"] for output in indexed),
        report=runner.report,
    )


def _stages(config: Config, encoder: Encoder) -> Mapping[str, Stage]:
    model = {"model": encoder.identity.as_dict()}
    encode = {**model, "batch_size": config.encoder.batch_size}
    index = {**config.index.model_dump(), "tokens": TOKENS_REVISION, "dimension": encoder.identity.dimension}
    return {
        "merge": Stage("merge", MERGE_REVISION, {}),
        "encode": Stage("encode", EMBEDDINGS_REVISION, encode),
        "index": Stage("index", INDEX_REVISION, index),
    }


def _build_bucket(
    runner: Runner,
    stages: Mapping[str, Stage],
    config: Config,
    encoder: Encoder,
    progress: Progress,
    bucket: tuple[int, list[ImportedPart]],
) -> Output:
    _, parts = bucket
    dimension = encoder.identity.dimension
    merged = runner.run(stages["merge"], [part.digest for part in parts], lambda: _merge(parts))
    turns_digest = merged.manifest["digest"]
    encoded = runner.run(stages["encode"], [turns_digest], lambda: _encode(merged, encoder, config.encoder.batch_size))
    index_inputs = [turns_digest, encoded.manifest["digest"]]
    indexed = runner.run(stages["index"], index_inputs, lambda: _index(merged, encoded, dimension, config))
    progress.advance("build", sum(part.rows for part in parts))
    return indexed


def _merge(parts: list[ImportedPart]) -> Produced:
    turns, outcomes = merge_imports([part.read() for part in parts])
    return Produced({"turns.parquet": turns}, outcomes, {"digest": table_digest(turns, TURN)})


def _encode(merged: Output, encoder: Encoder, batch_size: int) -> Produced:
    embeddings, outcomes = embed_turns(merged.table("turns.parquet"), encoder, batch_size)
    digest = table_digest(embeddings, embedding_schema(encoder.identity.dimension))
    return Produced({"embeddings.parquet": embeddings}, outcomes, {"digest": digest})


def _index(merged: Output, encoded: Output, dimension: int, config: Config) -> Produced:
    turns = merged.table("turns.parquet")
    index = build_index(turns, encoded.table("embeddings.parquet"), dimension, config.index)
    outcomes = pa.table(
        {
            "namespace": turns.column("namespace"),
            "stage": pa.array(["index"] * turns.num_rows),
            "row_id": turns.column("turn_id"),
            "outcome": pa.array(["ok"] * turns.num_rows),
            "passes": pa.array(np.ones(turns.num_rows, np.int32)),
            "reason": pa.nulls(turns.num_rows, pa.large_string()),
        }
    )
    files = {
        "namespaces.arrow": index.namespaces,
        "nodes.arrow": index.nodes,
        "postings.arrow": index.postings,
        "turn.faiss": to_faiss(index.vectors),
    }
    about = {"turns": index.nodes.num_rows, "namespaces": index.namespaces.num_rows}
    return Produced(files, conform(outcomes, OUTCOME), about)
