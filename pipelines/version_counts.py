"""What the files of a version hold, added up: outcomes of rows, sizes, weights, relations."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.relations import PAPER
from hgmem_core.summarise import shorten
from pipelines.imports import read_imports
from pipelines.runner import OUTCOMES_FILE
from pipelines.store import Output, Store, StoreError
from pipelines.version_history import index_entries
from pipelines.versions import Version

SHOWN = 20
"""Topics and rejects that are kept as examples."""

_RAW_CHARS = 200
_ID = re.compile(r"\b[0-9a-f]{16,}\b")
_WEIGHED = {"group": "topic", "consolidate": "episode"}
"""Stages that say which hyperedge holds which node with which weight, and the kind of hyperedge."""


@dataclass(slots=True)
class Counted:
    """What the files of a version hold, added up.

    Attributes:
        outcomes: Of rows, by stage.
        reasons: Of rows whose outcome is not `ok`, by stage, outcome and reason.
        rejects: Of attempts at rows of logs, by reason and whether the row was lost.
        examples: Some of them: stage, source, reason, and the start of the raw text.
        episode_turns: The size of each episode in turns.
        topic_episodes: The size of each topic in episodes.
        episode_facts: The size of each episode in facts.
        topics: Each topic's size, namespace and title.
        weights: Of members in hyperedges, by kind of hyperedge.
        relations: By graph, how many there are of each kind; one may be of several.
        related: By graph, how many there are.
    """

    outcomes: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    rejects: Counter[tuple[str, bool]] = field(default_factory=Counter)
    examples: list[tuple[str, str, str, str]] = field(default_factory=list)
    episode_turns: list[int] = field(default_factory=list)
    topic_episodes: list[int] = field(default_factory=list)
    episode_facts: list[int] = field(default_factory=list)
    topics: list[tuple[int, str, str]] = field(default_factory=list)
    weights: defaultdict[str, list[npt.NDArray[np.float32]]] = field(default_factory=lambda: defaultdict(list))
    relations: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    related: Counter[str] = field(default_factory=Counter)


def count_version(version: Version) -> Counted:
    """Add up what the outputs of a version, and the imports of its store, hold.

    Raises:
        StoreError: One of them is gone or damaged.
    """
    counted = Counted()
    for output in _outputs(version):
        _take_outcomes(counted, output.table(OUTCOMES_FILE))
        _take_sizes(counted, output)
    for one in read_imports(version.store):
        imported = version.store.find(one.folder)
        if imported is None:
            raise StoreError(f"the import {one.folder} is gone or damaged: import its logs again")
        for name in imported.manifest["files"]:
            if name.startswith("outcomes-"):
                _take_outcomes(counted, imported.table(name))
            elif name.startswith("rejects-"):
                _take_rejects(counted, imported.table(name))
    return counted


def _outputs(version: Version) -> Iterator[Output]:
    store = version.store
    for entry in index_entries(version.manifest):
        index = _found(store, entry["folder"])
        yield index
        for stage, identity in index.manifest["made_from"].items():
            yield _found(store, str(store.output_folder(stage, identity).relative_to(store.root)))


def _found(store: Store, folder: str) -> Output:
    output = store.find(store.root / folder)
    if output is None:
        raise StoreError(f"{store.root / folder} is gone or damaged: run the rebuild again, which makes it again")
    return output


def _take_outcomes(counted: Counted, table: pa.Table) -> None:
    for row in table.group_by(["stage", "outcome", "reason"]).aggregate([([], "count_all")]).to_pylist():
        stage, outcome, count = row["stage"], row["outcome"], row["count_all"]
        counted.outcomes[stage][outcome] += count
        if outcome != "ok":
            # What was merged into what, say, is one reason, whatever the ids.
            reason = _ID.sub("an id", row["reason"] or "no reason given")
            counted.reasons[stage, outcome, reason] += count


def _take_rejects(counted: Counted, table: pa.Table) -> None:
    for row in table.group_by(["reason", "final"]).aggregate([([], "count_all")]).to_pylist():
        counted.rejects[row["reason"], row["final"]] += row["count_all"]
    for row in table.slice(0, max(0, SHOWN - len(counted.examples))).to_pylist():
        raw = shorten(row["raw"] or "", _RAW_CHARS)
        counted.examples.append((row["stage"], row["source_id"], row["reason"], raw))


def _take_sizes(counted: Counted, output: Output) -> None:
    stage = output.manifest["stage"]
    if stage == "segment":
        episodes = output.table("episodes.parquet")
        counted.episode_turns += pc.list_value_length(episodes.column("turn_ids")).to_pylist()
    if stage in _WEIGHED:
        members = output.table("incidences.parquet")
        counted.weights[_WEIGHED[stage]].append(members.column("weight").to_numpy())
        sizes = Counter(members.column("hyperedge_id").to_pylist())
        (counted.topic_episodes if stage == "group" else counted.episode_facts).extend(sizes.values())
        if stage == "group":
            topics = output.table("topics.parquet").select(["namespace", "topic_id", "title"]).to_pylist()
            mine = [(sizes[row["topic_id"]], row["namespace"], row["title"] or "") for row in topics]
            counted.topics = sorted([*counted.topics, *mine], key=lambda one: (-one[0], *one[1:]))[:SHOWN]
    if stage == "relate":
        for graph in ("turn", "fact"):
            features = output.table(f"{graph}_relations.parquet").column("features").combine_chunks()
            width = features.type.list_size
            values = np.asarray(features.flatten()).reshape(-1, width)
            counted.related[graph] += len(values)
            for number, kind in enumerate(PAPER):
                counted.relations[graph][kind] += int((values[:, number] > 0).sum())
