"""From imports to a published version: every stage on every bucket, then publish."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hgmem_core.chat import ModelError
from hgmem_core.config import Config
from hgmem_core.encoding import Encoder
from pipelines.calls import Spent, drop_refused
from pipelines.chat_model import ChatModel
from pipelines.engine import BuildJob, Indexes, Watch
from pipelines.imports import Import, ImportedPart, imported_parts, read_imports
from pipelines.job_log import Checked, Published
from pipelines.pieces import Pieces
from pipelines.preflight import MEMORY_BYTES_A_TURN, available_memory, memory_warning, software_versions
from pipelines.publish import Gate, publish
from pipelines.run import Run
from pipelines.runner import Report
from pipelines.stages import stage_count
from pipelines.store import Output, Store
from pipelines.tombstone_files import read_tombstones
from pipelines.tuned_vectors import Tuned
from pipelines.versions import VersionError, open_version


@dataclass(frozen=True, slots=True)
class Built:
    """A built version, whether it became the current one, and what was done for it.

    Attributes:
        version: Its id.
        is_new: Whether the pointer moved to it.
        number: The number of the pointer, moved or not.
        turns: Turns in the version.
        trajectories: Runs of agents in the version.
        skills: Distinct skills that these taught.
        namespaces: Namespaces in the version; one with turns and runs counts once.
        report: What the stages did.
        kept: Why another version stays the current one; None if this one is it.
        refused: Whether that is because a gate refused this one.
        indexes: Of each of its buckets.
    """

    version: str
    is_new: bool
    number: int
    turns: int
    trajectories: int
    skills: int
    namespaces: int
    report: Report
    kept: str | None = None
    refused: bool = False
    indexes: Indexes = field(default_factory=dict, repr=False)


def build(
    run: Run,
    config: Config,
    encoder: Encoder,
    tuned: Tuned | None,
    chat: ChatModel | None,
    imports: Sequence[Import] | None = None,
    gate: Gate | None = None,
) -> Built:
    """Bring every bucket up to date with the imports and publish the result; do nothing twice.

    Args:
        run: The job.
        config: How.
        encoder: What makes the vectors.
        tuned: What makes tuned vectors; None for no such vectors.
        chat: A language model that is asked from here; None for none.
        imports: As they will be once something is erased; None for those of the store as they are.
        gate: Asked before the version becomes the current one; None lets every version pass.

    Raises:
        StoreError: Nothing was imported yet, an import or a tombstone is damaged, or the store was taken over by
            another job.
        ClusterError: Ray cannot do the work.
        ModelError: The language model cannot be used any more, or gave too few answers.
    """
    store = run.store
    imports = read_imports(store) if imports is None else imports
    parts = imported_parts(store, imports, read_tombstones(store))
    indexes, report = index_buckets(run, config, encoder, tuned, chat, parts)
    outcomes, made_by = report.outcomes, None if tuned is None else tuned.identity
    last = imports[-1].number
    published = publish(store, indexes, config, encoder.identity, outcomes, last, made_by, run.began_at, gate)
    Pieces(store).clear()
    drop_refused(store)
    turns, trajectories, skills = (
        sum(output.manifest.get(name, 0) for own in indexes.values() for output in own.values())
        for name in ("turns", "trajectories", "skills")
    )
    namespaces = sum(_namespaces(own) for own in indexes.values())
    run.log.write(Published(published.version, published.number, published.moved, turns, namespaces))
    return Built(
        version=published.version,
        is_new=published.moved,
        number=published.number,
        turns=turns,
        trajectories=trajectories,
        skills=skills,
        namespaces=namespaces,
        report=report,
        kept=published.kept,
        refused=published.refused,
        indexes=indexes,
    )


def index_buckets(
    run: Run,
    config: Config,
    encoder: Encoder,
    tuned: Tuned | None,
    chat: ChatModel | None,
    parts: Mapping[int, Sequence[ImportedPart]],
) -> tuple[Indexes, Report]:
    """Build buckets of such parts, and publish nothing; see `build`."""
    watch = Watch(run.progress, run.log, sum(stage_count(own, tuned) for own in parts.values()))
    _look_at_memory(run, parts)
    software, job_id = software_versions(), uuid.uuid4().hex
    job = BuildJob(run.store, config, encoder.identity, tuned, parts, _parents(run.store), software, job_id)
    indexes = run.engine.index(job, encoder, chat, watch)
    watch.finish()
    look_at_answers(run, config, watch.report, watch.report.outcomes)
    run.lease.check()
    return indexes, watch.report


_FEWEST_ROWS = 20


_FEWEST_REFUSED = 5


def look_at_answers(run: Run, config: Config, report: Report, decided: Mapping[str, Mapping[str, int]]) -> None:
    """Refuse to publish what a model was to decide and mostly did not; say what a server did not serve.

    Args:
        run: The job.
        config: Which model, for which stages.
        report: What calls took.
        decided: By stage, how many of what it was to decide had which outcome.

    Raises:
        ModelError: Of a stage, too many rows have the embedded engine's answer, or too many requests had none.
    """
    most = config.llm.max_fallback_rate
    asked = sum(report.spent.values(), Spent())
    if asked.refused >= _FEWEST_REFUSED and asked.refused > most * asked.calls:
        raise ModelError(
            f"{asked.refused} of {asked.calls} requests to {config.llm.model} were not served, more than "
            f"llm.max_fallback_rate={most:g}: look at the server and run this again, which asks them again"
        )
    if asked.refused:
        run.progress.note(
            f"{asked.refused} of {asked.calls} requests to the language model were not served; the embedded engine "
            "stands in, and the next job asks them again"
        )
    for stage in config.llm.stages if config.llm.engine != "none" else ():
        outcomes = decided.get(stage, {})
        rows, fallbacks = sum(outcomes.values()), outcomes.get("fallback", 0)
        if rows >= _FEWEST_ROWS and fallbacks > most * rows:
            raise ModelError(
                f"{stage}: {fallbacks} of {rows} rows have no answer of {config.llm.model}, more than "
                f"llm.max_fallback_rate={most:g}; outputs/{stage}/*/rejects.parquet in the store has its replies. What "
                "the server did not serve is asked again by the next job; else change the model, or raise the rate"
            )


def _look_at_memory(run: Run, parts: Mapping[int, Sequence[ImportedPart]]) -> None:
    largest = max((sum(part.rows for part in bucket) for bucket in parts.values()), default=0)
    available = available_memory()
    warning = memory_warning(run.engine.workers_here, largest, available)
    run.log.write(Checked("memory", run.engine.workers_here * largest * MEMORY_BYTES_A_TURN, available))
    if warning:
        run.progress.note(warning)


def _namespaces(indexes: Mapping[str, Output]) -> int:
    """Count the namespaces of a bucket; one with turns and runs is in both of its indexes."""
    if len(indexes) == 1:
        return sum(output.manifest["namespaces"] for output in indexes.values())
    files = {"index": "namespaces.arrow", "index_skills": "trajectories.arrow"}
    names = (indexes[stage].table(file).column("namespace").unique().to_pylist() for stage, file in files.items())
    return len(set().union(*names))


def _parents(store: Store) -> dict[int, list[Path]]:
    """Return the index folders of the current version; none if there is no version that this software reads."""
    try:
        manifest = open_version(store).manifest
    except VersionError:
        return {}
    parents: dict[int, list[Path]] = {}
    for about in (manifest, manifest.get("skills", {"buckets": {}})):
        for bucket, own in about["buckets"].items():
            parents.setdefault(int(bucket), []).append(store.root / own["folder"])
    return parents
