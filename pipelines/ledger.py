"""What a language model took: tokens, seconds and money by stage and namespace, from the calls that a store keeps.

Answered calls of every build are counted, since what was answered once is not asked again; refused ones only until a
build ends well. Passes and fallbacks are those of the current version's rows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import polars as pl

from hgmem_core.model_config import LlmStage, PriceConfig
from hgmem_core.schemas import OUTCOME
from pipelines.calls import is_sound
from pipelines.runner import OUTCOMES_FILE
from pipelines.store import Store
from pipelines.versions import VersionError, open_version

MODEL_STAGES = get_args(LlmStage)
_SUMS = ("prompt_tokens", "completion_tokens", "thinking_tokens", "seconds")
_CALL_COLUMNS = ("namespace", "stage", "reasoning", "answer", "refusal", *_SUMS)


def ledger(store: Store, prices: PriceConfig, by: Sequence[str] = ("stage",)) -> pl.DataFrame:
    """Return what calls took, a row for each stage, or each namespace and stage.

    Args:
        store: Whose calls.
        prices: Of a million tokens.
        by: `stage`, `namespace`, or both.

    Returns:
        The columns of `by`; `calls`; `refused`; `in_reasoning`, answers that lay in the reasoning; tokens and summed
        seconds; `cost`; `rows` that the stage had to decide for the current version (turns, episodes, facts or runs, of
        which one call may decide many), the `passes` over them, and their `fallbacks`.
    """
    sums = [pl.col(name).fill_null(0).sum() for name in _SUMS]
    refused, in_reasoning = (
        pl.col("refusal").is_not_null(),
        pl.col("answer").is_null() & pl.col("reasoning").is_not_null(),
    )
    counted = (
        _calls(store)
        .group_by(by)
        .agg(pl.len().alias("calls"), refused.sum().alias("refused"), in_reasoning.sum().alias("in_reasoning"), *sums)
    )
    cost = (pl.col("prompt_tokens") * prices.prompt + pl.col("completion_tokens") * prices.completion) / 1e6
    is_fallback = pl.col("outcome") == "fallback"
    rows = (
        _rows(store)
        .group_by(by)
        .agg(pl.len().alias("rows"), pl.col("passes").sum(), is_fallback.sum().alias("fallbacks"))
    )
    # Rows may have fallen back without a call that is kept: the server did not serve it.
    every = counted.with_columns(cost.alias("cost")).join(rows, on=list(by), how="full", coalesce=True)
    asked = every.filter(pl.col("calls").is_not_null() | (pl.col("fallbacks") > 0))
    return (
        asked.with_columns(pl.col("calls", "refused", "in_reasoning", *_SUMS, "cost").fill_null(0)).sort(by).collect()
    )


def _calls(store: Store) -> pl.LazyFrame:
    paths = [path for path in store.files(store.root / "calls", "bucket-*/*.parquet") if is_sound(path)]
    if paths:
        return pl.scan_parquet(paths).select(_CALL_COLUMNS)
    types = dict.fromkeys(_CALL_COLUMNS, pl.String()) | dict.fromkeys(_SUMS, pl.Float64())
    return pl.LazyFrame(schema=types)


def _rows(store: Store) -> pl.LazyFrame:
    """Return the OUTCOME rows of the stages that a model takes part in, of the current version."""
    paths = [path for path in _outcome_files(store) if path.exists()]
    if not paths:
        types = {name: pl.String() for name in OUTCOME.arrow.names} | {"passes": pl.Int32()}
        return pl.LazyFrame(schema=types)
    return pl.scan_parquet(paths)


def _outcome_files(store: Store) -> Iterator[Path]:
    try:
        version = open_version(store)
    except VersionError:  # nothing was published yet
        return
    skills = version.manifest.get("skills", {"buckets": {}})
    for about in (*version.manifest["buckets"].values(), *skills["buckets"].values()):
        index = store.find(store.root / about["folder"])
        made_from = index.manifest["made_from"] if index else {}
        if index and index.manifest["stage"] in MODEL_STAGES:
            yield index.folder / OUTCOMES_FILE
        for stage in MODEL_STAGES:
            if stage in made_from:
                path = store.output_folder(stage, made_from[stage]) / OUTCOMES_FILE
                store.fetch(path)
                yield path
