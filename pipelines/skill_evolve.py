"""Evolution of a version's skills: utilities by feedback, what is pruned and merged, a version of the same turns."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from hgmem_core.ids import bucket_of
from hgmem_core.lineage import select
from hgmem_core.model_config import LlmConfig
from hgmem_core.section import ConfigError
from hgmem_core.skill_recipes import DualPath, find_skill_recipe, with_counts
from pipelines.build import look_at_answers
from pipelines.calls import drop_refused
from pipelines.chat_model import ChatModel
from pipelines.engine import Choice, Watch
from pipelines.evolve_stage import COUNTS, DECISIONS_FILE, EvolveJob
from pipelines.feedback_files import Feedback
from pipelines.job_log import Published
from pipelines.pieces import Pieces
from pipelines.preflight import software_versions
from pipelines.progress import Progress
from pipelines.publish import publish_skills
from pipelines.retention import retain
from pipelines.run import open_run_with_model
from pipelines.runner import Report
from pipelines.skill_cycles import STAGE
from pipelines.store import Output, Store, StoreError
from pipelines.tombstone_files import read_tombstones
from pipelines.versions import Version, check_encoder, open_version

_NO_NODE = "the version has no such node: it was pruned, or is of other runs"
_FORGOTTEN = "some runs of the namespace are forgotten: rebuild first"


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
        left: Namespaces that stay as they were until a rebuild, since some of their runs are forgotten: a merged skill
            would say of them what is hidden.
        decisions: Files of DECISION rows, one for each bucket that evolved.
        report: What the stage did.
        engine: Which engine did it, and why.
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
    left: Sequence[str]
    decisions: Sequence[Path]
    report: Report = field(repr=False)
    engine: Choice
    why_kept: str | None = None


def evolve_skills(
    config: Config,
    encoder: Encoder,
    feedback: Feedback | None,
    cycles: int,
    began_at: datetime,
    progress: Progress,
    chat: ChatModel | None = None,
) -> EvolvedSkills:
    """Evolve the skills of the current version and publish what they are then.

    Namespaces without feedback on any of their nodes stay as they are, and so do those that have forgotten runs.

    Args:
        config: Which store, and by which rule; with a replay, what would have been shown.
        encoder: What made the version's vectors.
        feedback: What was shown; None for a replay of the version's own runs.
        cycles: How often to prune and merge.
        began_at: The time.
        progress: For whoever watches.
        chat: Asked in the place of the model that the configuration names.

    Raises:
        ConfigError: `skills.recipe` cannot be replayed.
        StoreError: Another job holds the store, it has no skills, no row of feedback is on any, the skills cannot be
            replayed as they were evolved already, a file is damaged, or more runs were forgotten meanwhile.
        ClusterError: Ray cannot do the work.
        ModelError: The language model cannot be used, or not any more, or gave too few answers.
    """
    recipe = _recipe(config) if feedback is None else None
    Store.open(config.store.root, config.store.cache)  # a new one would have nothing to evolve
    with open_run_with_model("evolve_skills", _own(config), began_at, progress, chat) as (run, own, chat):
        store = run.store
        version = open_version(store)
        _check(version, encoder, recipe)
        indexes = {int(bucket): _index_of(version, bucket) for bucket in version.manifest["skills"]["buckets"]}
        shown = _by_bucket(feedback, indexes, version.store_buckets) if feedback is not None else dict.fromkeys(indexes)
        left = _touched(version)
        job = EvolveJob(
            version, own, encoder.identity, indexes, shown, recipe, left, cycles, software_versions(), uuid.uuid4().hex
        )
        watch = Watch(progress, run.log, len(shown))
        made = {bucket: outputs[STAGE] for bucket, outputs in run.engine.index(job, encoder, chat, watch).items()}
        watch.finish()
        report = watch.report
        sums = {name: sum(output.manifest["evolved"][name] for output in made.values()) for name in COUNTS}
        answered = sums["asked"] - sums["unanswered"]
        look_at_answers(run, own, report, {STAGE: {"ok": answered, "fallback": sums["unanswered"]}})
        outcomes = _feedback_outcomes(feedback, sums)
        if not sums["credited"]:
            raise StoreError(_nothing_credited(version, outcomes["empty"], left))
        run.lease.check()
        if _touched(version) - left:
            raise StoreError(
                "runs that these skills were learnt from were forgotten meanwhile, so nothing was published: "
                "start this job again"
            )
        published = publish_skills(
            version,
            {**indexes, **made},
            {"from": version.id, **job.settings, "feedback": _source(feedback, outcomes)},
            {**report.outcomes, "feedback": outcomes},
            began_at,
        )
        Pieces(store).clear()
        drop_refused(store)
        manifest = version.manifest
        run.log.write(
            Published(published.version, published.number, published.moved, manifest["turns"], manifest["namespaces"])
        )
        retain(store, config.store.keep_versions, run.lease.check, run.log, progress)
    before = int(version.manifest["skills"]["skills"])
    reasons = dict(feedback.rejected) if feedback is not None else {}
    forgotten = _rows_of(feedback, left)
    for reason, count in ((_NO_NODE, outcomes["empty"] - forgotten), (_FORGOTTEN, forgotten)):
        if count:
            reasons[reason] = count
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
        left=sorted(left),
        decisions=[output.folder / DECISIONS_FILE for output in made.values()],
        report=report,
        engine=run.choice,
        why_kept=published.kept,
    )


def _own(config: Config) -> Config:
    """Return a configuration without logs to import, and with the language model for this stage alone, or none."""
    llm = config.llm.model_copy(update={"stages": [STAGE]}) if config.llm.decides(STAGE) else LlmConfig()
    return config.model_copy(update={"inputs": [], "llm": llm})


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


def _touched(version: Version) -> frozenset[str]:
    """Return the namespaces of which the version still has skills of forgotten runs."""
    tombstones = read_tombstones(version.store)
    by_bucket: dict[int, list[str]] = {}
    for namespace in tombstones.namespaces:
        by_bucket.setdefault(version.bucket_of(namespace), []).append(namespace)
    opened = ((version.open_skills(bucket), names) for bucket, names in by_bucket.items())
    return frozenset(name for index, names in opened if index for name in names if index.is_touched(name, tombstones))


def _nothing_credited(version: Version, rows: int, left: frozenset[str]) -> str:
    if left:
        return (
            f"nothing was published: runs of {len(left)} namespaces of version {version.id} are forgotten, and no "
            "feedback is on skills of others; rebuild the store, and start this job again"
        )
    return (
        f"none of the {rows} rows of feedback is on a node of version {version.id}, so nothing was published: give "
        "feedback on this store's skills, or evolve the version that was asked"
    )


def _rows_of(feedback: Feedback | None, namespaces: frozenset[str]) -> int:
    return 0 if feedback is None else select(feedback.rows, namespaces).num_rows


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
