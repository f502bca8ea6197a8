"""Stage `evolve`: a bucket's skills after some cycles, judged by what was shown; a job that does it on any engine.

An evolved bucket is one output: the files of a skill index, with all decisions since its skills were learnt. So
feedback on a skill that was merged since is credited to the one that it is now.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.config import Config
from hgmem_core.encoding import EncoderIdentity
from hgmem_core.ids import digest_of_parts, namespace_digests, rows_of
from hgmem_core.passes import reject_table
from hgmem_core.replay import REPLAY_REVISION, replay
from hgmem_core.schemas import DECISION, FEEDBACK, OUTCOME, STRING, conform
from hgmem_core.skill_evolution import EVOLUTION_REVISION, utility_rule
from hgmem_core.skill_graph import SkillGraph, SkillTables
from hgmem_core.skill_index import NODE_TABLES, SKILL_TABLES, BucketSkills, SkillIndex
from hgmem_core.skill_merge_llm import MERGE, SKILL_MERGE_LLM_REVISION
from hgmem_core.skill_recipes import DualPath
from hgmem_core.skill_utility import UTILITY_REVISION, NodeKind, outcome_codes, step_range
from hgmem_core.vector_rows import aligned_vectors
from pipelines.chat_model import identity, terms_of
from pipelines.runner import Produced, Record, Runner, Stage
from pipelines.skill_cycles import STAGE, Asked, Cycled, Evolving, evolution
from pipelines.skill_memory import with_shown_utilities
from pipelines.skill_stages import index_files
from pipelines.stages import made_of
from pipelines.steps import Answers, Steps
from pipelines.store import Output, Store, StoreError
from pipelines.tuned_vectors import Tuned
from pipelines.versions import Version

EVOLVE_REVISION = 2
"""Raised when equal skills and equal feedback give other files, whatever the core says."""

DECISIONS_FILE = "decisions.parquet"
COUNTS = ("pruned", "merged", "pruned_subtasks", "kept", "rows", "credited", "asked", "unanswered")
"""Of a bucket, in its manifest under `evolved`: skills pruned, merges, subtasks pruned, decisions to keep; rows of
feedback, those on a node that is there; pairs that a language model was asked about, those without its answer."""

_JUDGED: tuple[NodeKind, ...] = ("subtask", "skill")

Shown: TypeAlias = Callable[[SkillGraph], pa.Table]
"""Gives FEEDBACK of what was shown of a graph."""


@dataclass(frozen=True, slots=True)
class EvolveJob:
    """How the buckets of a version evolve; see `pipelines.engine.BucketJob`.

    Attributes:
        version: Whose skills.
        config: How.
        encoder: What made the vectors.
        indexes: The skill index of each bucket of the version.
        feedback: FEEDBACK of each bucket that is to evolve; None for a replay of its own runs.
        recipe: What is replayed; None where there is feedback.
        left: Namespaces that stay as they are.
        cycles: How often to prune and merge.
        software: What the driver runs.
        id: Of this job, no other's.
    """

    version: Version
    config: Config
    encoder: EncoderIdentity
    indexes: Mapping[int, Output]
    feedback: Mapping[int, pa.Table | None]
    recipe: DualPath | None
    left: frozenset[str]
    cycles: int
    software: Mapping[str, str]
    id: str

    @property
    def store(self) -> Store:
        """That of the version."""
        return self.version.store

    @property
    def tuned(self) -> Tuned | None:
        """None: skills have no tuned vectors."""
        return None

    @property
    def buckets(self) -> Sequence[int]:
        """Those that are to evolve."""
        return sorted(self.feedback)

    @property
    def saves_between(self) -> bool:
        """They do not: all cycles make one output."""
        return False

    def identity_of_encoder(self, stage: str) -> Mapping[str, Any]:
        """Return the identity of the one encoder."""
        del stage
        return self.encoder.as_dict()

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the result beside skills and feedback, JSON-ready."""
        llm = self.config.llm
        settings = {
            "rule": self.config.skills.evolution.model_dump(),
            "cycles": self.cycles,
            "revisions": [EVOLUTION_REVISION, UTILITY_REVISION, REPLAY_REVISION],
            "recipe": None if self.recipe is None else asdict(self.recipe),
        }
        if llm.decides(STAGE):
            about = {"prompt": MERGE.fingerprint, "revision": SKILL_MERGE_LLM_REVISION}
            settings["llm"] = {**identity(llm), **about}
        return settings

    def outputs(self, bucket: int, answers: Answers, tell: Callable[[Record], object]) -> dict[str, Output]:
        """Evolve a bucket and return its skill index."""
        runner = Runner(self.store, bucket, {}, tell, self.id)
        return {STAGE: made_of(runner, lambda: self._steps(runner, bucket), answers)}

    def _steps(self, runner: Runner, bucket: int) -> Steps[Output]:
        index = self.indexes[bucket]
        task = runner.begin(self._stage(bucket), [index])
        if isinstance(task, Output):
            return runner.sound(task)
        return runner.finish(task, (yield from self._evolved(bucket)))

    def _stage(self, bucket: int) -> Stage:
        """Return the stage of a bucket.

        A version may list an output for which a server did not serve every request, so that it stays; an output that
        is made again has another identity.
        """
        index, feedback = self.indexes[bucket], self.feedback[bucket]
        digests = {} if feedback is None else namespace_digests(feedback, FEEDBACK)
        settings = {
            **self.settings,
            # Not its digest: that of an evolved one tells what its skills were made of, and not by which feedback.
            "index": index.identity,
            "encoder": self.encoder.as_dict(),
            "batch_size": self.config.encoder.batch_size,
            "feedback": digest_of_parts([json.dumps(digests, sort_keys=True)]),
        }
        left = sorted(name for name in self.left if self.version.bucket_of(name) == bucket)
        if left:
            settings["left"] = left
        for number in count():
            stage = Stage(STAGE, EVOLVE_REVISION, {**settings, **({"again": number} if number else {})})
            found = self.store.find(self.store.output_folder(STAGE, stage.identity([index.digest])))
            if found is None or found.manifest.get("unserved_in", self.id) == self.id:
                break
        return stage

    def _shown(self, bucket: int) -> Shown:
        feedback, recipe, index = self.feedback[bucket], self.recipe, self.indexes[bucket]
        if recipe is None or feedback is not None:
            return lambda graph: _of(feedback, graph.namespace)
        tasks, plans = (_embeddings(self.store, index, stage) for stage in ("encode_tasks", "encode_plans"))

        def replayed(graph: SkillGraph) -> pa.Table:
            runs = graph.ids("trajectory")
            return replay(graph, aligned_vectors(runs, tasks)[0], aligned_vectors(runs, plans)[0], recipe)

        return replayed

    def _evolved(self, bucket: int) -> Steps[Produced]:
        index, rule, llm = self.indexes[bucket], self.config.skills.evolution, self.config.llm
        shown, utility = self._shown(bucket), utility_rule(rule)
        opened = self.version.open_skills(bucket)
        assert opened is not None  # the version lists the bucket
        earlier = index.table(DECISIONS_FILE) if DECISIONS_FILE in index.manifest["files"] else DECISION.empty()
        first = 1 + pc.max(earlier.column("cycle")).as_py() if earlier.num_rows else 0
        graphs = {graph.namespace: graph for graph in _graphs(opened)}
        evolving: list[Evolving] = []
        counts = Counter(rows=0, credited=0)
        for name, graph in graphs.items():
            if name in self.left:
                continue
            rows = _as_now(shown(graph), _of(earlier, name))
            credited = _credited(graph, rows)
            counts += Counter(rows=rows.num_rows, credited=credited)
            if credited:
                rows = _once(rows)
                outcomes, n_steps = outcome_codes(rows.column("outcome")), rows.column("n_steps").to_numpy()
                steps = step_range(outcomes, n_steps.astype(np.int64), utility)
                evolving.append(Evolving(with_shown_utilities(graph, rows, utility), steps))
        terms = terms_of(llm) if llm.decides(STAGE) else None
        cycled = yield from evolution(evolving, rule, self.cycles, first, terms)
        after = {**graphs, **{one.graph.namespace: one.graph for one in cycled}}
        decisions = conform(pa.concat_tables([DECISION.empty(), *(one.decisions for one in cycled)]), DECISION)
        asked = [one for own in cycled for one in own.asked]
        rejects = [row for one in asked for row in one.rejects]
        about = {
            # A rebuild goes on from what was learnt.
            "made_from": {"index_skills": index.identity, **index.manifest["made_from"]},
            "evolved": {
                **dict.fromkeys(COUNTS, 0),
                **counts,
                **_counted(decisions),
                "asked": len(asked),
                "unanswered": sum(one.settled.outcome == "fallback" for one in asked),
            },
        }
        produced = index_files(_joined(list(after.values())), _outcomes(graphs, cycled), about)
        every = conform(pa.concat_tables([earlier.cast(DECISION.arrow), decisions]), DECISION)
        files = {**produced.files, DECISIONS_FILE: every}
        if terms is not None:
            files["rejects.parquet"] = reject_table(rejects)
        unserved = sum(row["reason"].startswith("refused:") for row in rejects)
        return replace(produced, files=files, unserved=unserved)


def _of(table: pa.Table, namespace: str) -> pa.Table:
    return table.filter(pc.field("namespace") == namespace)


def _embeddings(store: Store, index: Output, stage: str) -> pa.Table:
    """Return the EMBEDDING rows that a stage made on the way to an index."""
    folder: Path = store.output_folder(stage, index.manifest["made_from"][stage])
    output = store.find(folder)
    if output is None:
        raise StoreError(f"{folder} has no readable manifest; rebuild the store, which makes it again")
    return output.table("embeddings.arrow")


def _graphs(index: SkillIndex) -> Iterator[SkillGraph]:
    for namespace in index.namespaces():
        graph = index.open(namespace)
        assert graph is not None  # the index lists the namespace
        yield graph


def _as_now(feedback: pa.Table, decisions: pa.Table) -> pa.Table:
    """Return feedback with the skills that merged ones are now, by the DECISION rows since they were learnt."""
    ids = feedback.column("node_id").to_pylist()
    for _, into in _merges(decisions):
        ids = [into.get(node, node) for node in ids]
    return feedback.set_column(feedback.column_names.index("node_id"), "node_id", pa.array(ids, STRING))


def _merges(decisions: pa.Table) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the cycles that merged something, in order, and for each skill that was merged the new one."""
    merges = decisions.filter(pc.field("decision") == "merge").sort_by("cycle")
    for cycle in pc.unique(merges.column("cycle")).to_pylist():
        own = merges.filter(pc.field("cycle") == cycle)
        yield cycle, dict(zip(own.column("node_id").to_pylist(), own.column("into_id").to_pylist(), strict=True))


def _once(feedback: pa.Table) -> pa.Table:
    """Return feedback with each node once for a query: two skills that were shown for it may be one now."""
    frame = pl.DataFrame(pl.from_arrow(feedback)).unique(list(FEEDBACK.key), keep="first", maintain_order=True)
    return conform(frame.to_arrow(), FEEDBACK)


def _credited(graph: SkillGraph, feedback: pa.Table) -> int:
    """Count the rows of feedback on nodes that are there."""
    kinds: tuple[NodeKind, ...] = get_args(NodeKind)
    known = 0
    for kind in kinds:
        own = feedback.filter(pc.field("node_kind") == kind)
        known += int((rows_of(own.column("node_id"), graph.ids(kind)) >= 0).sum())
    return known


def _counted(decisions: pa.Table) -> dict[str, int]:
    of = Counter(zip(*(decisions.column(name).to_pylist() for name in ("decision", "node_kind")), strict=True))
    return {
        "pruned": of["prune", "skill"],
        "merged": of["merge", "skill"] // 2,  # a merge has a row for both
        "pruned_subtasks": of["prune", "subtask"],
        "kept": of["keep", "skill"] + of["keep", "subtask"],
    }


def _outcomes(graphs: Mapping[str, SkillGraph], cycled: Sequence[Cycled]) -> pa.Table:
    """Return OUTCOME of every skill and subtask.

    `empty` is what was pruned, itself or as a part of another skill; `fallback` is a skill that a language model was
    asked about in vain, so that the embedded engine's text stands, whatever became of it.
    """
    by_namespace = {one.graph.namespace: one for one in cycled}
    rows = []
    for name, graph in graphs.items():
        own = by_namespace.get(name)
        became = _became(graph, own) if own is not None else {}
        for kind in _JUDGED:
            for node in graph.ids(kind).to_pylist():
                outcome, passes, reason = became.get(node, ("ok", 1, None))
                rows.append(
                    {"namespace": name, "stage": STAGE, "row_id": node}
                    | {"outcome": outcome, "passes": passes, "reason": reason}
                )
    return conform(pa.Table.from_pylist(rows, OUTCOME.arrow), OUTCOME)


def _became(graph: SkillGraph, cycled: Cycled) -> dict[str, tuple[str, int, str | None]]:
    """Return the outcome, the passes and the reason of each node that did not just stay as it was."""
    pruned = cycled.decisions.filter(pc.field("decision") == "prune").to_pylist()
    why = {row["node_id"]: row["reason"] for row in pruned}
    merges = dict(_merges(cycled.decisions))
    asked: dict[int, dict[str, Asked]] = {}
    for one in cycled.asked:
        asked.setdefault(one.cycle, {}).update(dict.fromkeys(one.skills, one))
    left = set(cycled.graph.ids("skill").to_pylist())
    became: dict[str, tuple[str, int, str | None]] = {
        node: ("empty", 1, why[node]) for node in graph.ids("subtask").to_pylist() if node in why
    }
    for skill in graph.ids("skill").to_pylist():
        now, told = skill, []
        for cycle in sorted({*merges, *asked}):
            told += [asked[cycle][now]] if now in asked.get(cycle, {}) else []
            now = merges.get(cycle, {}).get(now, now)
        passes = max([1, *(one.settled.passes for one in told)])
        in_vain = next((one.settled.reason for one in told if one.settled.outcome == "fallback"), None)
        if in_vain is not None:
            became[skill] = ("fallback", passes, in_vain)
        elif now not in left:
            became[skill] = ("empty", passes, why[now])
        elif now != skill or told:
            became[skill] = ("ok", passes, f"merged into {now}" if now != skill else None)
    return became


def _joined(graphs: Iterable[SkillGraph]) -> BucketSkills:
    """Return the index of a bucket of the graphs of its namespaces, in order."""
    every = list(graphs)
    tables = {
        name: pa.concat_tables([getattr(graph.tables, name) for graph in every]).combine_chunks()
        for name in SKILL_TABLES
    }
    vectors = [getattr(graph.vectors, name) for graph in every for name in NODE_TABLES]
    return BucketSkills(SkillTables(**tables), np.concatenate(vectors))
