"""Evolution of a version's skills: utilities by feedback, what is pruned and merged, a version of the same turns.

An evolved bucket is an output of stage `evolve`: the files of a skill index, with all decisions since its skills were
learnt. So feedback on a skill that was merged since is credited to the one that it is now.
"""

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.config import Config, ConfigError
from hgmem_core.encoding import Encoder
from hgmem_core.ids import bucket_of, digest_of_parts, namespace_digests, rows_of
from hgmem_core.lineage import select
from hgmem_core.replay import REPLAY_REVISION, replay
from hgmem_core.schemas import DECISION, FEEDBACK, OUTCOME, STRING, conform
from hgmem_core.skill_evolution import EVOLUTION_REVISION, EvolutionRule
from hgmem_core.skill_graph import SkillGraph, SkillTables
from hgmem_core.skill_index import NODE_TABLES, SKILL_TABLES, BucketSkills, SkillIndex
from hgmem_core.skill_recipes import DualPath, find_skill_recipe, with_counts
from hgmem_core.skill_utility import UTILITY_REVISION, NodeKind, outcome_codes, step_range
from hgmem_core.vector_rows import aligned_vectors
from pipelines.feedback_files import Feedback
from pipelines.job_log import BucketDone, LeaseTaken, Published, log_path, open_job_log
from pipelines.lease import hold_lease
from pipelines.preflight import check_writable
from pipelines.progress import Progress
from pipelines.publish import publish_skills
from pipelines.runner import Produced, Record, Report, Runner, Stage
from pipelines.skill_memory import evolve, with_shown_utilities
from pipelines.skill_stages import index_files
from pipelines.store import DamagedOutput, Output, Store, StoreError
from pipelines.versions import Version, check_encoder, open_version

EVOLVE_REVISION = 1
"""Raised when equal skills and equal feedback give other files, whatever the core says."""

STAGE = "evolve"
DECISIONS_FILE = "decisions.parquet"
RULE = EvolutionRule()

_JUDGED: tuple[NodeKind, ...] = ("subtask", "skill")
_NO_NODE = "the version has no such node: it was pruned, or is of other runs"


@dataclass(frozen=True, slots=True)
class EvolvedSkills:
    """An evolved version.

    Attributes:
        version: Its id.
        evolved_from: That of the version before.
        is_new: Whether it became the current one.
        before: Skills before.
        after: Skills after: those before without the pruned and the merged ones.
        pruned: Skills that were pruned.
        merged: Merges, each of which makes one skill of two.
        pruned_subtasks: Subtasks that were pruned.
        kept: Decisions to keep what could have been pruned or merged.
        feedback: What became of the rows of feedback.
        reasons: Why some were of no use, and how many for each reason.
        decisions: Files of DECISION rows, one for each bucket that evolved.
        report: What the stage did.
        why_kept: Why another version stays the current one; None if this one is it.
    """

    version: str
    evolved_from: str
    is_new: bool
    before: int
    after: int
    pruned: int
    merged: int
    pruned_subtasks: int
    kept: int
    feedback: Mapping[str, int]
    reasons: Mapping[str, int]
    decisions: Sequence[Path]
    report: Report = field(repr=False)
    why_kept: str | None = None


def evolve_skills(
    config: Config,
    encoder: Encoder,
    feedback: Feedback | None,
    cycles: int,
    began_at: datetime,
    progress: Progress,
) -> EvolvedSkills:
    """Evolve the skills of the current version and publish what they are then.

    Namespaces without feedback on any of their nodes stay as they are.

    Args:
        config: Which store; with a replay, what would have been shown.
        encoder: What made the version's vectors.
        feedback: What was shown; None for a replay of the version's own runs.
        cycles: How often to prune and merge.
        began_at: The time.
        progress: For whoever watches.

    Raises:
        ConfigError: `skills.recipe` cannot be replayed.
        StoreError: Another job holds the store, it has no skills, no row of feedback is on any, the skills cannot be
            replayed as they were evolved already, or a file is damaged.
    """
    recipe = _recipe(config) if feedback is None else None
    store = Store.open(Path(config.store.root).absolute())
    with (
        hold_lease(store, "evolve_skills", began_at) as lease,
        open_job_log("evolve_skills", log_path(store, began_at)) as log,
    ):
        log.write(LeaseTaken(lease.holder.host, lease.holder.pid, lease.taken_from is not None))
        store.sweep()
        check_writable(store)
        version = open_version(store)
        _check(version, encoder, recipe)
        report = Report()

        def tell(record: Record) -> None:
            report.add(record)
            rows = sum(record.outcomes.values())
            log.write(BucketDone(STAGE, record.bucket, round(record.seconds, 4), rows, record.made))

        evolution = _Evolution(version, encoder, config.encoder.batch_size, recipe, cycles)
        indexes = {int(bucket): _index_of(version, bucket) for bucket in version.manifest["skills"]["buckets"]}
        shown = _by_bucket(feedback, indexes, version.store_buckets) if feedback is not None else dict.fromkeys(indexes)
        progress.start(STAGE, len(shown))
        made: dict[int, Output] = {}
        job = uuid.uuid4().hex
        for bucket, rows in shown.items():
            runner = Runner(store, bucket, {}, tell, job)
            made[bucket] = evolution.bucket(runner, bucket, indexes[bucket], rows)
            progress.advance(STAGE, 1)
        progress.finish(STAGE)
        sums = {name: sum(output.manifest["evolved"][name] for output in made.values()) for name in _COUNTS}
        outcomes = _feedback_outcomes(feedback, sums)
        if not sums["credited"]:
            raise StoreError(
                f"none of the {outcomes['empty']} rows of feedback is on a node of version {version.id}, so nothing "
                "was published: give feedback on this store's skills, or evolve the version that was asked"
            )
        lease.check()
        published = publish_skills(
            version,
            {**indexes, **made},
            {"from": version.id, **evolution.settings, "feedback": _source(feedback, outcomes)},
            {**report.outcomes, "feedback": outcomes},
            began_at,
        )
        manifest = version.manifest
        log.write(
            Published(published.version, published.number, published.moved, manifest["turns"], manifest["namespaces"])
        )
    before = int(version.manifest["skills"]["skills"])
    reasons = dict(feedback.rejected) if feedback is not None else {}
    if outcomes["empty"]:
        reasons[_NO_NODE] = outcomes["empty"]
    return EvolvedSkills(
        version=published.version,
        evolved_from=version.id,
        is_new=published.moved,
        before=before,
        after=before - sums["pruned"] - sums["merged"],
        pruned=sums["pruned"],
        merged=sums["merged"],
        pruned_subtasks=sums["pruned_subtasks"],
        kept=sums["kept"],
        feedback=outcomes,
        reasons=reasons,
        decisions=[output.folder / DECISIONS_FILE for output in made.values()],
        report=report,
        why_kept=published.kept,
    )


_COUNTS = ("pruned", "merged", "pruned_subtasks", "kept", "rows", "credited")


def _recipe(config: Config) -> DualPath:
    settings = config.skills
    recipe = find_skill_recipe(settings.recipe)
    recipe = with_counts(recipe, settings.subtasks, settings.trajectories, settings.skills)
    if not isinstance(recipe, DualPath) or recipe.weight != "count" or recipe.edges != "hyper":
        raise ConfigError(
            f"skills.recipe: what {recipe.name} would have shown cannot be replayed; replay skills/full with "
            "--set skills.recipe=skills/full, or give feedback"
        )
    return recipe


def _check(version: Version, encoder: Encoder, recipe: DualPath | None) -> None:
    """Refuse a version that cannot be evolved so."""
    if not version.has_skills:
        raise StoreError(f"version {version.id} has no skills: import runs of agents and rebuild first")
    check_encoder(version, encoder.identity)
    evolved = version.manifest["skills"].get("evolved")
    if evolved and recipe is not None:
        raise StoreError(
            f"the skills of version {version.id} were evolved already, from version {evolved['from']}, and a replay "
            "needs them as they were learnt: rebuild and replay again, with more cycles if you like, or give feedback"
        )


def _index_of(version: Version, bucket: str) -> Output:
    folder = version.store.root / version.manifest["skills"]["buckets"][bucket]["folder"]
    output = version.store.find(folder)
    if output is None:
        raise StoreError(f"{folder} has no readable manifest; rebuild the store, which makes it again")
    return output


def _by_bucket(feedback: Feedback, indexes: Mapping[int, Output], buckets: int) -> dict[int, pa.Table]:
    """Return the feedback on each bucket that has some and is in the version."""
    found: dict[int, list[str]] = {}
    for namespace in pc.unique(feedback.rows.column("namespace")).to_pylist():
        found.setdefault(bucket_of(namespace, buckets), []).append(namespace)
    return {
        bucket: select(feedback.rows, frozenset(names)) for bucket, names in sorted(found.items()) if bucket in indexes
    }


def _feedback_outcomes(feedback: Feedback | None, sums: Mapping[str, int]) -> dict[str, int]:
    """Count rows of feedback: credited, on nodes that are not there, and rejected."""
    rows = sums["rows"] if feedback is None else feedback.rows.num_rows
    rejected = 0 if feedback is None else sum(feedback.rejected.values())
    return {"ok": sums["credited"], "empty": rows - sums["credited"], "rejected": rejected}


def _source(feedback: Feedback | None, outcomes: Mapping[str, int]) -> dict[str, Any]:
    about = {"replay": True} if feedback is None else {"sha256": feedback.sha256}
    return {**about, "rows": sum(outcomes.values())}


Shown: TypeAlias = Callable[[SkillGraph], pa.Table]
"""Gives FEEDBACK of what was shown of a graph."""


@dataclass(frozen=True, slots=True)
class _Evolution:
    """How the buckets of a version evolve; `recipe` is None where there is feedback."""

    version: Version
    encoder: Encoder
    batch_size: int
    recipe: DualPath | None
    cycles: int

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the result beside skills and feedback, JSON-ready."""
        return {
            "rule": asdict(RULE),
            "cycles": self.cycles,
            "revisions": [EVOLUTION_REVISION, UTILITY_REVISION, REPLAY_REVISION],
            "recipe": None if self.recipe is None else asdict(self.recipe),
        }

    def bucket(self, runner: Runner, bucket: int, index: Output, feedback: pa.Table | None) -> Output:
        """Return the evolved skill index of a bucket."""
        digests = {} if feedback is None else namespace_digests(feedback, FEEDBACK)
        settings = {
            **self.settings,
            # Not its digest: that of an evolved one tells what its skills were made of, and not by which feedback.
            "index": index.identity,
            "encoder": self.encoder.identity.as_dict(),
            "batch_size": self.batch_size,
            "feedback": digest_of_parts([json.dumps(digests, sort_keys=True)]),
        }
        stage = Stage(STAGE, EVOLVE_REVISION, settings)

        def make() -> Output:
            return runner.make(stage, [index], lambda _: self._evolved(bucket, index, self._shown(index, feedback)))

        found = make()
        try:
            return runner.sound(found)
        except DamagedOutput:  # it was made by an earlier job
            runner.remove(found.folder)
            return make()

    def _shown(self, index: Output, feedback: pa.Table | None) -> Shown:
        recipe = self.recipe
        if recipe is None or feedback is not None:
            return lambda graph: _of(feedback, graph.namespace)
        tasks, plans = (_embeddings(self.version.store, index, stage) for stage in ("encode_tasks", "encode_plans"))

        def replayed(graph: SkillGraph) -> pa.Table:
            runs = graph.ids("trajectory")
            return replay(graph, aligned_vectors(runs, tasks)[0], aligned_vectors(runs, plans)[0], recipe)

        return replayed

    def _evolved(self, bucket: int, index: Output, shown: Shown) -> Produced:
        opened = self.version.open_skills(bucket)
        assert opened is not None  # the version lists the bucket
        earlier = index.table(DECISIONS_FILE) if DECISIONS_FILE in index.manifest["files"] else DECISION.empty()
        first = 1 + pc.max(earlier.column("cycle")).as_py() if earlier.num_rows else 0
        before = list(_graphs(opened))
        after: list[SkillGraph] = []
        parts = [DECISION.empty()]
        counts = {"rows": 0, "credited": 0}
        for graph in before:
            rows = _as_now(shown(graph), _of(earlier, graph.namespace))
            credited = _credited(graph, rows)
            counts["rows"] += rows.num_rows
            counts["credited"] += credited
            if credited:
                rows = _once(rows)
                outcomes, n_steps = outcome_codes(rows.column("outcome")), rows.column("n_steps").to_numpy()
                steps = step_range(outcomes, n_steps.astype(np.int64), RULE.utility)
                graph = with_shown_utilities(graph, rows, RULE.utility)
                graph, made = evolve(graph, self.encoder, RULE, self.cycles, self.batch_size, steps, first)
                parts.append(made)
            after.append(graph)
        decisions = conform(pa.concat_tables(parts), DECISION)
        about = {
            # A rebuild goes on from what was learnt.
            "made_from": {"index_skills": index.identity, **index.manifest["made_from"]},
            "evolved": {**counts, **_counted(decisions)},
        }
        produced = index_files(_joined(after), _outcomes(before, after, decisions), about)
        every = conform(pa.concat_tables([earlier.cast(DECISION.arrow), decisions]), DECISION)
        return replace(produced, files={**produced.files, DECISIONS_FILE: every})


def _of(table: pa.Table, namespace: str) -> pa.Table:
    return table.filter(pc.field("namespace") == namespace)


def _embeddings(store: Store, index: Output, stage: str) -> pa.Table:
    """Return the EMBEDDING rows that a stage made on the way to an index."""
    folder = store.output_folder(stage, index.manifest["made_from"][stage])
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
    merges = decisions.filter(pc.field("decision") == "merge").sort_by("cycle")
    ids = feedback.column("node_id").to_pylist()
    for cycle in pc.unique(merges.column("cycle")).to_pylist():
        own = merges.filter(pc.field("cycle") == cycle)
        into = dict(zip(own.column("node_id").to_pylist(), own.column("into_id").to_pylist(), strict=True))
        ids = [into.get(node, node) for node in ids]
    return feedback.set_column(feedback.column_names.index("node_id"), "node_id", pa.array(ids, STRING))


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


def _outcomes(before: Sequence[SkillGraph], after: Sequence[SkillGraph], decisions: pa.Table) -> pa.Table:
    """Return OUTCOME of every skill and subtask: `empty` for what was pruned, or is a part of another one now."""
    reasons: dict[tuple[str, str], str] = {}
    gone = decisions.filter(pc.field("decision") != "keep").sort_by("cycle")
    for row in gone.to_pylist():
        why = row["reason"] if row["decision"] == "prune" else f"merged into {row['into_id']}"
        reasons.setdefault((row["namespace"], row["node_id"]), why)
    rows = []
    for old, new in zip(before, after, strict=True):
        for kind in _JUDGED:
            left = set(new.ids(kind).to_pylist())
            for node in old.ids(kind).to_pylist():
                is_left = node in left
                rows.append(
                    {
                        "namespace": old.namespace,
                        "stage": STAGE,
                        "row_id": node,
                        "outcome": "ok" if is_left else "empty",
                        "passes": 1,
                        "reason": None if is_left else reasons[old.namespace, node],
                    }
                )
    return conform(pa.Table.from_pylist(rows, OUTCOME.arrow), OUTCOME)


def _joined(graphs: Sequence[SkillGraph]) -> BucketSkills:
    """Return the index of a bucket of the graphs of its namespaces, in order."""
    tables = {
        name: pa.concat_tables([getattr(graph.tables, name) for graph in graphs]).combine_chunks()
        for name in SKILL_TABLES
    }
    vectors = [getattr(graph.vectors, name) for graph in graphs for name in NODE_TABLES]
    return BucketSkills(SkillTables(**tables), np.concatenate(vectors))
