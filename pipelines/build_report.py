"""The report of a build: what became of the rows of a version, what it took, and what its hypergraph looks like."""

from collections.abc import Mapping

from hgmem_core.messages import OUTCOMES
from hgmem_core.relations import PAPER
from hgmem_core.summarise import shorten
from pipelines.build_log import BuildLog, find_log
from pipelines.report_charts import Charts
from pipelines.report_page import Finding, Page, Section, Table, Tile
from pipelines.version_counts import SHOWN, Counted, count_version
from pipelines.version_history import index_entries
from pipelines.versions import Version, current_version, pointers


def build_page(version: Version) -> Page:
    """Return the report of a version.

    Raises:
        StoreError: One of its outputs, or an import, is gone or damaged.
    """
    counted, log = count_version(version), find_log(version)
    manifest, charts = version.manifest, Charts()
    current = current_version(version.store)
    is_current = current is not None and current[1] == version.id
    published = next((one.published_at for _, one in pointers(version.store) if one.version == version.id), None)
    about = (
        f"{'the current version' if is_current else 'not the current version'} · "
        f"published {'at an unknown time' if published is None else f'{published:%Y-%m-%d %H:%M} UTC'} · "
        f"encoder {manifest['encoder']['name']} · hgmem {manifest['software_version']}"
    )
    bytes_of = sum(file["bytes"] for entry in index_entries(manifest) for file in entry["files"].values())
    tiles = [Tile(name, f"{manifest[name]:,}") for name in ("namespaces", "turns", "episodes", "facts", "topics")]
    tiles.append(Tile("index", f"{bytes_of / 2**20:,.1f} MiB", f"{len(manifest['buckets'])} buckets"))
    if log and log.seconds is not None:
        tiles.append(Tile("job", f"{log.seconds:,.1f} s", log.engine))
    sections = [_rows_section(version, counted, log, charts)]
    if log is not None:
        sections.append(_time_section(log, charts))
    sections += [_sizes_section(counted, charts), _relations_section(counted, charts), _provenance(version)]
    return Page(f"Build {version.id}", about, tiles, _findings(version, counted, log), sections)


def differing(version: Version, counted: Counted) -> list[str]:
    """Return the stages of which the manifest counts other outcomes than the files of the version hold."""
    said: Mapping[str, Mapping[str, int]] = version.manifest["outcomes"]
    return [stage for stage, own in said.items() if {**own} != {**counted.outcomes.get(stage, {})}]


def _findings(version: Version, counted: Counted, log: BuildLog | None) -> list[Finding]:
    rejected = sum(own["rejected"] for own in counted.outcomes.values())
    fallen = sum(own["fallback"] for own in counted.outcomes.values())
    total = sum(sum(own.values()) for own in counted.outcomes.values())
    found = []
    wrong = differing(version, counted)
    if wrong:
        found.append(Finding(f"Counts do not reconcile: files and manifest differ in {', '.join(wrong)}.", "bad"))
    else:
        found.append(Finding(f"Counts reconcile: all {total:,} rows of all stages have one outcome each.", "good"))
    lost = sum(count for (_, is_final), count in counted.rejects.items() if is_final)
    imported = sum(counted.outcomes["import"].values())
    if rejected:
        (stage, _, reason), count = max(
            ((key, count) for key, count in counted.reasons.items() if key[1] == "rejected"), key=lambda one: one[1]
        )
        most = f"{count:,} in {stage} for this reason: {shorten(reason, 120)}"
        found.append(Finding(f"{rejected:,} {'row was' if rejected == 1 else 'rows were'} rejected, {most}.", "bad"))
    else:
        found.append(Finding("No row was rejected.", "good"))
    if lost != counted.outcomes["import"]["rejected"]:
        found.append(Finding(f"Of {imported:,} imported rows, {lost:,} are in the log of rejects as lost.", "bad"))
    if fallen:
        found.append(Finding(f"{fallen:,} rows fell back to what is made without a language model.", "bad"))
    if log is None:
        found.append(Finding("No log of the job that built it is left in the store: what it took is not known."))
    elif log.stages:
        slowest = max(log.stages, key=lambda stage: log.stages[stage][0])
        share = log.stages[slowest][0] / (sum(seconds for seconds, *_ in log.stages.values()) or 1.0)
        found.append(Finding(f"Most of the work was {slowest}: {log.stages[slowest][0]:,.1f} s, {share:.0%} of it."))
    if log is not None and log.retries:
        found.append(Finding(f"Work was done again {log.retries.total():,} times after errors.", "bad"))
    return found


def _rows_section(version: Version, counted: Counted, log: BuildLog | None, charts: Charts) -> Section:
    order = ["import", *(log.stages if log else ())]
    stages = sorted(counted.outcomes, key=lambda stage: (order.index(stage) if stage in order else len(order), stage))
    wrong = differing(version, counted)
    rows = []
    for stage in stages:
        own = counted.outcomes[stage]
        agrees = "not counted" if stage not in version.manifest["outcomes"] else "no" if stage in wrong else "yes"
        rows.append(
            (stage, agrees, f"{sum(own.values()):,}", *(f"{own[name]:,}" if own[name] else "–" for name in OUTCOMES))
        )
    tables = [Table("Rows by stage", ("stage", "manifest agrees", "rows", *OUTCOMES), rows, texts=2)]
    if counted.reasons:
        reasons = [(*key, f"{count:,}") for key, count in counted.reasons.most_common(SHOWN)]
        tables.append(Table("Reasons", ("stage", "outcome", "reason", "rows"), reasons, texts=3))
    if counted.rejects:
        lost = [
            (reason, "lost" if is_final else "kept in part", f"{count:,}")
            for (reason, is_final), count in counted.rejects.most_common(SHOWN)
        ]
        tables.append(Table("Rejects of the imports", ("reason", "the row was", "rows"), lost, texts=2))
        columns = ("stage", "row", "reason", "its raw text begins")
        tables.append(Table("Examples of rejects", columns, counted.examples, texts=4, is_folded=True))
    uneven = {stage: own for stage, own in counted.outcomes.items() if set(own) - {"ok"}}
    drawn = []
    if len(uneven) > 1:
        parts = {
            stage: {str(name): float(own[name]) for name in OUTCOMES[1:] if own[name]} for stage, own in uneven.items()
        }
        drawn.append(charts.bars("Rows that were not ok", parts, "rows"))
    lead = (
        "Every row that a stage was given has one outcome. The import counts all imports of the store; the other "
        "stages those rows of this version's files, which its manifest has to agree with."
    )
    return Section("What became of the rows", lead, drawn, tables)


def _time_section(log: BuildLog, charts: Charts) -> Section:
    drawn = []
    if log.stages:
        seconds = {stage: {"work": own[0]} for stage, own in log.stages.items()}
        drawn.append(charts.bars("Time by stage", seconds, "seconds of work"))
    if log.peaks:
        peaks = {stage: {"memory": float(round(own / 2**20))} for stage, own in log.peaks.items()}
        drawn.append(charts.bars("Peak memory by the end of a stage", peaks, "MiB"))
    rows = []
    for stage, (spent, made, reused) in log.stages.items():
        peak = f"{log.peaks[stage] / 2**20:,.0f}" if stage in log.peaks else "–"
        rows.append((stage, f"{spent:,.2f}", peak, f"{made:,}", f"{reused:,}"))
    tables = [Table("By stage", ("stage", "seconds", "peak MiB", "buckets made", "reused"), rows)]
    if log.asked:
        names = ("calls", "refused", "prompt_tokens", "completion_tokens", "thinking_tokens", "seconds")
        asked = [(stage, *(f"{own.get(name, 0):,}" for name in names)) for stage, own in log.asked.items()]
        tables.append(Table("Calls of a language model", ("stage", *(name.replace("_", " ") for name in names)), asked))
    if log.retries:
        tables.append(
            Table("Work done again", ("error", "times"), [(name, f"{n:,}") for name, n in log.retries.items()])
        )
    needed = "" if log.memory is None else f" Before it began it was taken to need {log.memory / 2**20:,.0f} MiB."
    unread = f" {log.unreadable:,} lines of the log are no events." if log.unreadable else ""
    lead = (
        f"From the log {log.name} of the job that published this version first, engine {log.engine}. Seconds are "
        "summed over workers, so with several they exceed the time that passed. Peak memory is the most that the "
        f"driving process had up to the end of a stage's last bucket; workers on Ray are not in it.{needed}{unread}"
    )
    return Section("Time and memory", lead, drawn, tables)


def _sizes_section(counted: Counted, charts: Charts) -> Section:
    drawn = [
        charts.histogram(title, values, unit, of)
        for title, values, unit, of in (
            ("Episodes", counted.episode_turns, "turns", "episodes"),
            ("Topics", counted.topic_episodes, "episodes", "topics"),
            ("Facts of an episode", counted.episode_facts, "facts", "episodes"),
        )
        if values
    ]
    names = {
        "topic": ("Weights of episodes in topics", "episodes"),
        "episode": ("Weights of facts in episodes", "facts"),
    }
    for kind, (title, of) in names.items():
        values = [float(weight) for part in counted.weights[kind] for weight in part]
        if values:
            drawn.append(charts.histogram(title, values, "weight", of))
    rows = [
        (shorten(title, 120) or "without a title", namespace, f"{size:,}") for size, namespace, title in counted.topics
    ]
    tables = (
        [Table("The largest topics", ("topic", "namespace", "episodes"), rows, texts=2, is_folded=True)] if rows else []
    )
    return Section("Episodes, topics and weights", "The dashed line is the median.", drawn, tables)


def _relations_section(counted: Counted, charts: Charts) -> Section:
    graphs = [graph for graph in counted.relations if counted.related[graph]]
    drawn = [
        charts.bars(
            f"Relations of {graph}s", {kind: {"all": counted.relations[graph][kind]} for kind in PAPER}, "relations"
        )
        for graph in graphs
    ]
    rows = [
        (kind, *(f"{counted.relations[graph][kind]:,} ({counted.relations[graph][kind] / counted.related[graph]:.0%})"
                 for graph in graphs))
        for kind in PAPER
    ]  # fmt: skip
    rows.append(("all", *(f"{counted.related[graph]:,}" for graph in graphs)))
    table = Table("Relations by kind", ("kind", *(f"of {graph}s" for graph in graphs)), rows)
    lead = (
        "Directed relations of the event graphs. One may be of several kinds, so that shares add up to more than all."
    )
    return Section("Relations", lead, drawn, [table] if graphs else [])


def _provenance(version: Version) -> Section:
    manifest = version.manifest
    kept = (
        "version",
        "software_version",
        "schema_version",
        "index_revision",
        "default_recipe",
        "propagation",
        "checksum",
    )
    rows = [(name.replace("_", " "), str(manifest[name])) for name in kept]
    rows += [(f"encoder {name.replace('_', ' ')}", str(value) or "none") for name, value in manifest["encoder"].items()]
    rows += [(f"index {name.replace('_', ' ')}", str(value)) for name, value in manifest["index"].items()]
    for name in ("namespaces", "trajectories", "skills", "subtasks"):
        if name in manifest.get("skills", {}):
            rows.append((f"skills: {name}", f"{manifest['skills'][name]:,}"))
    return Section("How it was made", tables=[Table("From the manifest", ("what", "value"), rows, texts=2)])
