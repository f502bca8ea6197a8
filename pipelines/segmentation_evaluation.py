"""Segmentation evaluation: cut a benchmark's conversations into episodes and compare with where people cut them."""

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hgmem_core import __version__
from hgmem_core.config import Config, config_digest
from hgmem_core.embeddings import embed_turns
from hgmem_core.encoding import Encoder
from hgmem_core.segment import segment
from hgmem_core.segmentation_metrics import METRICS, Boundaries, even_boundaries, score_segmentation
from hgmem_core.tasks.task import TaskError
from hgmem_core.tasks.tiage import Conversation, read_conversations
from hgmem_core.turns import merge_imports, messages_table
from pipelines.progress import Progress
from pipelines.store import file_sha256

RESULT_SCHEMA_VERSION = 1
RANDOM_SEED = 0
RANDOM_DRAWS = 100


def tiage_file(folder: Path, split: str) -> Path:
    """Return where a split lies in a copy of TIAGE's annotations."""
    return folder / f"anno_{split}.json"


def tiage_conversations(data: Path) -> list[Conversation]:
    """Read the conversations of a TIAGE file.

    Raises:
        TaskError: `data` is not one.
    """
    try:
        content = json.loads(data.read_bytes())
    except (OSError, ValueError) as error:
        raise TaskError(f"{data} cannot be read as TIAGE's JSON: {error}") from error
    try:
        return read_conversations(content)
    except TaskError as error:
        raise TaskError(f"{data}: {error}") from error


def evaluate_segmentation(
    folder: Path, split: str, config: Config, encoder: Encoder, now: datetime, progress: Progress
) -> dict[str, Any]:
    """Segment the conversations of a split and return the result document, with the baselines' scores beside.

    `none` cuts nowhere and `all` everywhere; `even` and `random` are told how often people cut each conversation, and
    cut as often, at equal distances or anywhere (the mean of `RANDOM_DRAWS` draws).

    Raises:
        TaskError: The split's file is missing or not TIAGE's.
    """
    data = tiage_file(folder, split)
    conversations = tiage_conversations(data)
    gold = [conversation.boundaries for conversation in conversations]
    progress.start("segment", len(conversations))
    turns = _turns(conversations, now)
    vectors, _ = embed_turns(turns, encoder, config.encoder.batch_size)
    episodes, _ = segment(turns, vectors, config.segment, config.index.language)
    progress.advance("segment", len(conversations))
    found = _boundaries(episodes, conversations)
    scores = {"hgmem": score_segmentation(gold, found), **_baselines(gold)}
    return {
        "schema_version": RESULT_SCHEMA_VERSION,
        "task": "segmentation",
        "split": split,
        "data_sha256": file_sha256(data),
        "software_version": __version__,
        "encoder": encoder.identity.as_dict(),
        "config": config.model_dump(),
        "config_sha256": config_digest(config),
        "prompts_sha256": None,
        "conversations": len(conversations),
        "turns": turns.num_rows,
        "gold_boundaries": sum(int(own.sum()) for own in gold),
        "results": [
            {"system": name, **{metric: round(own[metric], 4) for metric in METRICS}} for name, own in scores.items()
        ],
    }


def _turns(conversations: Sequence[Conversation], now: datetime) -> pa.Table:
    messages = [message for conversation in conversations for message in conversation.messages()]
    # One message, one turn: labels are by turn, so no text may be split.
    longest = max(len(message.text) for message in messages)
    return merge_imports([messages_table(messages, 0, now, max(longest, 1))])[0]


def _boundaries(episodes: pa.Table, conversations: Sequence[Conversation]) -> list[Boundaries]:
    starts: defaultdict[str, list[int]] = defaultdict(list)
    columns = (episodes.column(name).to_pylist() for name in ("namespace", "first_position"))
    for namespace, position in zip(*columns, strict=True):
        starts[namespace].append(position)
    return [
        np.isin(np.arange(1, len(conversation.texts)), starts[conversation.namespace]) for conversation in conversations
    ]


def _baselines(gold: Sequence[Boundaries]) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng(RANDOM_SEED)
    draws = [score_segmentation(gold, [rng.permutation(own) for own in gold]) for _ in range(RANDOM_DRAWS)]
    return {
        "none": score_segmentation(gold, [np.zeros_like(own) for own in gold]),
        "all": score_segmentation(gold, [np.ones_like(own) for own in gold]),
        "even": score_segmentation(gold, [even_boundaries(len(own), int(own.sum())) for own in gold]),
        "random": {metric: float(np.mean([draw[metric] for draw in draws])) for metric in METRICS},
    }
