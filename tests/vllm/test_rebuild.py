"""A whole build whose facts a model on Ray extracts: what it says is noise, how it is asked and counted is not."""

import pyarrow.parquet as pq
import pytest

from hgmem_core.config import config_from
from pipelines.encoders import open_encoder
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from tests.pipelines.logs import COLUMNS, NOW, rows, write_jsonl
from tests.vllm.conftest import ENGINE_KWARGS, OUTPUTS

CONTEXT_TOKENS = 8_192


@pytest.mark.ray
def test_a_rebuild_asks_a_model_on_ray_and_keeps_its_answers(tmp_path, checkpoint, local_ray):
    log = write_jsonl(tmp_path / "log.jsonl", rows(["ana"], 16))
    arguments = ENGINE_KWARGS | {"max_model_len": CONTEXT_TOKENS, "structured_outputs_config": OUTPUTS}
    config = config_from(
        {
            "store": {"root": str(tmp_path / "store"), "buckets": 1},
            "encoder": {"name": "static"},
            "inputs": [{"format": "jsonl", "paths": [str(log)], "namespace": "acme/{user}", "columns": COLUMNS}],
            "llm": {
                "engine": "vllm",
                "model": str(checkpoint["chat"]),
                "stages": ["extract"],
                "max_fallback_rate": 1.0,
                "context_tokens": CONTEXT_TOKENS,
                "max_tokens": 512,
                "vllm": {"engine_kwargs": arguments, "bundles": [{"CPU": 1.0}], "batch_size": 8},
            },
        }
    )
    done = rebuild(config, open_encoder(config.encoder), NOW, Silent())
    assert done.engine.name == "ray"
    outcomes = done.built.report.outcomes["extract"]
    [episodes] = [pq.read_table(path).num_rows for path in tmp_path.glob("store/outputs/segment/*/episodes.parquet")]
    assert sum(outcomes.values()) == episodes > 0
    spent = done.built.report.spent["extract"]
    kept = [row for path in tmp_path.glob("store/calls/*/*.parquet") for row in pq.read_table(path).to_pylist()]
    assert spent.calls == len(kept) >= episodes
    assert spent.refused == 0
    assert spent.completion_tokens == sum(row["completion_tokens"] for row in kept) > 0
    assert all(row["answer"].startswith('{"facts":') for row in kept)
    again = rebuild(
        config.model_copy(update={"index": config.index.model_copy(update={"k1": 1.2})}),
        open_encoder(config.encoder),
        NOW,
        Silent(),
    )
    assert again.built.report.spent == {}
