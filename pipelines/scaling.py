"""How the cost of a rebuild grows with the logs, and what a rebuild costs after a few new turns.

Every rebuild that is measured runs in a process of its own, so that no peak of memory and no warm cache of one is taken
for another's. What it costs at any size is measured too: the start of the engine alone, and the rebuild of a log that
has next to nothing in every bucket.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hgmem_core.config import Config, StoreConfig
from pipelines.benchmark import NOW, spread, synthetic_input
from pipelines.encoders import open_encoder
from pipelines.processes import Meter, Usage, in_fresh_process
from pipelines.progress import Progress, Silent
from pipelines.rebuild import rebuild
from pipelines.run import open_run
from pipelines.store import FEWEST_BUCKETS
from pipelines.synthetic import Spread, SyntheticLog, write_log, write_more
from pipelines.versions import open_version

SPREADS: tuple[Spread, ...] = ("few", "all")
NEW_SHARE = 0.01
_MIB = 1 << 20
_NAMESPACES_A_BUCKET = 8
"""Of one turn each, in the smallest log: enough for a turn in every bucket."""

_NODES = ("turns", "facts", "episodes", "topics", "store_buckets")


@dataclass(frozen=True, slots=True)
class Measured:
    """A rebuild as it was measured, the opening of the encoder included.

    Attributes:
        usage: Of all its processes.
        imported: Rows of the log by outcome.
        import_seconds: How long the import took.
        stages: By stage, `outcomes` of its input rows and `seconds` of work, summed over all workers.
        nodes: Turns, facts, episodes and topics of the version.
    """

    usage: Usage
    imported: Mapping[str, int]
    import_seconds: float
    stages: Mapping[str, Mapping[str, Any]]
    nodes: Mapping[str, int]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of work by stage, the import the first."""
        return {"import": self.import_seconds, **{name: about["seconds"] for name, about in self.stages.items()}}


def benchmark_scale(
    config: Config, sizes: Sequence[int], turns_a_namespace: int, repeats: int, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Measure full rebuilds of synthetic logs of several sizes.

    Args:
        config: How; its inputs and its store's root are not used.
        sizes: Turns of each log.
        turns_a_namespace: On average.
        repeats: Of each size.
        folder: Where logs and stores are made; each is removed once it was measured.
        progress: Told of finished rebuilds.

    Returns:
        Seconds and CPU seconds of starting the engine, and of the rebuild of next to nothing. For each size seconds,
        CPU seconds of all processes, their peak memory, the size of the store, milliseconds of work a turn by stage,
        outcomes by stage, and how any counts do not add up. Milliseconds that a further turn costs between consecutive
        sizes, and each of these divided by the one before.
    """
    progress.start("rebuild", (len(sizes) + 1) * repeats)
    fixed = _fixed(config, repeats, folder, progress)
    rows = []
    for turns in sorted(set(sizes)):
        log = SyntheticLog(turns, max(1, turns // turns_a_namespace))
        runs, store = _repeat_full(config, log, repeats, folder, progress)
        rows.append(_row(log, runs, store))
    slopes = _slopes([fixed["smallest"], *rows])
    return {
        "case": "scale",
        **_about(config, repeats),
        "turns_a_namespace": turns_a_namespace,
        **fixed,
        "sizes": rows,
        "slopes": slopes,
        "slope_ratios": [
            {name: _ratio(after[name], before[name]) for name in ("wall_ms_a_turn", "cpu_ms_a_turn")}
            for before, after in pairwise(slopes)
        ],
    }


def benchmark_incremental(
    config: Config, turns: int, turns_a_namespace: int, repeats: int, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Measure rebuilds of a store whose log grew by a hundredth: in few namespaces, and in as many as there are turns.

    Args:
        config: See `benchmark_scale`.
        turns: Of the log before it grew.
        turns_a_namespace: On average.
        repeats: Of the full rebuild of that log, and of each further one.
        folder: See `benchmark_scale`.
        progress: Told of finished rebuilds.

    Returns:
        Seconds and CPU seconds of all processes: of the full rebuild, and after the log grew; the latter's share.
    """
    log = SyntheticLog(turns, max(1, turns // turns_a_namespace))
    progress.start("rebuild", (2 + len(SPREADS)) * repeats)
    fixed = _fixed(config, repeats, folder, progress)
    start = fixed["engine_start"]["cpu_seconds"]["median"]
    base = folder / "base"
    write_log(base / "log", log)
    full: list[Measured] = []
    for _ in range(repeats):
        shutil.rmtree(base / "store", ignore_errors=True)
        full.append(_measure(config, base / "store", [base / "log"]))
        progress.advance("rebuild", 1)
    whole = _times([run.usage for run in full])
    grown = {}
    for kind in SPREADS:
        more = folder / f"more-{kind}"
        sizes = log.grown(kind, NEW_SHARE)
        write_more(more, log, sizes)
        runs = []
        for _ in range(repeats):
            store = folder / "grown"
            shutil.copytree(base / "store", store, copy_function=_copy)
            runs.append(_measure(config, store, [base / "log", more]))
            shutil.rmtree(store)
            progress.advance("rebuild", 1)
        new = sum(runs[0].imported.values())
        grown[kind] = {
            "new_turns": new,
            "namespaces_with_new_turns": int((sizes > log.sizes()).sum()),
            **_times([run.usage for run in runs]),
            "cpu_share": _share([run.usage.cpu_seconds for run in runs], whole["cpu_seconds"], 0.0),
            "cpu_share_without_start": _share([run.usage.cpu_seconds for run in runs], whole["cpu_seconds"], start),
            "wall_share": _share([run.usage.wall_seconds for run in runs], whole["wall_seconds"], 0.0),
            "mismatches": _mismatches(runs, new, log.turns + new),
        }
    return {
        "case": "incremental",
        **_about(config, repeats),
        "turns": log.turns,
        "namespaces": log.namespaces,
        **fixed,
        "full": {**whole, "mismatches": _mismatches(full, log.turns, log.turns)},
        "grown": grown,
    }


def _about(config: Config, repeats: int) -> dict[str, Any]:
    run = config.run
    place = {"workers": run.workers} if run.engine == "local" else {"ray": run.ray.model_dump()}
    about = {"engine": run.engine, **place, "encoder": config.encoder.name, "buckets": config.store.buckets}
    return {**about, "repeats": repeats}


def _repeat_full(
    config: Config, log: SyntheticLog, repeats: int, folder: Path, progress: Progress
) -> tuple[list[Measured], dict[str, int]]:
    """Rebuild a log several times, each in a store of its own; return the runs, and how large the store became."""
    place = folder / f"full-{log.turns}"
    write_log(place / "log", log)
    runs = []
    size = {}
    for _ in range(repeats):
        runs.append(_measure(config, place / "store", [place / "log"]))
        size = _size(place / "store")
        shutil.rmtree(place / "store")
        progress.advance("rebuild", 1)
    shutil.rmtree(place)
    return runs, size


def _fixed(config: Config, repeats: int, folder: Path, progress: Progress) -> dict[str, Any]:
    """Return what is spent at any size: the start and end of the engine, and the rebuild of a turn here and there."""
    place = StoreConfig(root=str(folder / "empty"), buckets=config.store.buckets)
    starts = [in_fresh_process({}, _start, config.model_copy(update={"store": place})) for _ in range(repeats)]
    few = _NAMESPACES_A_BUCKET * (config.store.buckets or FEWEST_BUCKETS)
    runs, _ = _repeat_full(config, SyntheticLog(few, few), repeats, folder, progress)
    return {"engine_start": _times(starts), "smallest": {"turns": few, **_times([run.usage for run in runs])}}


def _start(config: Config) -> Usage:
    with Meter() as meter, open_run("start", config, NOW, Silent()):
        pass
    return meter.usage


def _measure(config: Config, store: Path, logs: Sequence[Path]) -> Measured:
    place = StoreConfig(root=str(store), buckets=config.store.buckets)
    config = config.model_copy(update={"store": place, "inputs": [synthetic_input(*logs)]})
    return in_fresh_process({}, _rebuild, config)


def _rebuild(config: Config) -> Measured:
    with Meter() as meter:
        done = rebuild(config, open_encoder(config.encoder), NOW, Silent())
    manifest = open_version(done.store, done.built.version).manifest
    return Measured(
        usage=meter.usage,
        imported=done.imported.outcomes if done.imported else {},
        import_seconds=done.imported.seconds if done.imported else 0.0,
        stages=done.built.report.as_dict(),
        nodes={name: manifest[name] for name in _NODES},
    )


def _size(store: Path) -> dict[str, int]:
    files = [path.stat().st_size for path in store.rglob("*") if path.is_file()]
    return {"bytes": sum(files), "files": len(files)}


def _copy(source: str, target: str) -> None:
    """Copy a file of a store; outputs never change, so another name for them is enough."""
    if "outputs" in Path(source).parts:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _times(usages: Sequence[Usage]) -> dict[str, Any]:
    return {
        "wall_seconds": spread([usage.wall_seconds for usage in usages]),
        "cpu_seconds": spread([usage.cpu_seconds for usage in usages]),
    }


def _ratio(after: float, before: float) -> float | None:
    """Return how many times a slope is another; None of one that is no more than noise."""
    return round(after / before, 3) if before > 0 else None


def _share(seconds: Sequence[float], whole: Mapping[str, float], start: float) -> dict[str, float]:
    """Return what runs took as a share of the median of `whole`, `start` seconds of each not counted."""
    return spread([(taken - start) / (whole["median"] - start) for taken in seconds])


def _row(log: SyntheticLog, runs: Sequence[Measured], store: Mapping[str, int]) -> dict[str, Any]:
    return {
        "turns": log.turns,
        "namespaces": log.namespaces,
        "largest_namespace": int(log.sizes()[0]),
        **_times([run.usage for run in runs]),
        "peak_memory_mib": spread([run.usage.peak_memory_bytes / _MIB for run in runs], 1),
        "most_processes": max(run.usage.most_processes for run in runs),
        "store_mib": round(store["bytes"] / _MIB, 1),
        "store_files": store["files"],
        "ms_a_turn": {
            "wall": spread([1e3 * run.usage.wall_seconds / log.turns for run in runs]),
            "cpu": spread([1e3 * run.usage.cpu_seconds / log.turns for run in runs]),
        },
        "ms_a_turn_by_stage": {
            stage: spread([1e3 * run.seconds[stage] / log.turns for run in runs]) for stage in runs[0].seconds
        },
        "outcomes": {
            "import": dict(runs[0].imported),
            **{stage: dict(about["outcomes"]) for stage, about in runs[0].stages.items()},
        },
        "nodes": dict(runs[0].nodes),
        "mismatches": _mismatches(runs, log.turns, log.turns),
    }


def _slopes(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what a further turn costs from each size to the next: what is spent at any size is in none of them."""
    slopes = []
    for before, after in pairwise(rows):
        more = after["turns"] - before["turns"]
        slope = {"from_turns": before["turns"], "to_turns": after["turns"]}
        for name in ("wall", "cpu"):
            seconds = after[f"{name}_seconds"]["median"] - before[f"{name}_seconds"]["median"]
            slope[f"{name}_ms_a_turn"] = round(1e3 * seconds / more, 4)
        slopes.append(slope)
    return slopes


def _mismatches(runs: Sequence[Measured], new: int, turns: int) -> list[str]:
    """Say which counts do not add up, over all runs; each once.

    Args:
        runs: Rebuilds of the same logs.
        new: Turns that were imported.
        turns: Turns that there are.
    """
    found: dict[str, None] = {}
    for run in runs:
        rows = {stage: sum(about["outcomes"].values()) for stage, about in run.stages.items()}
        nodes = dict(run.nodes)
        drafts = rows["encode_facts"]
        kept = drafts - run.stages["consolidate"]["outcomes"].get("empty", 0)
        encoded = [run.stages[f"encode_{kind}s"]["outcomes"] for kind in ("fact", "episode", "topic")]
        vectors = drafts + nodes["episodes"] + nodes["topics"] - sum(one.get("empty", 0) for one in encoded)
        wanted = {stage: turns for stage in ("merge", "encode_turns", "segment", "index")}
        wanted |= {stage: nodes["episodes"] for stage in ("extract", "encode_episodes", "group")}
        wanted |= {"consolidate": drafts, "encode_topics": nodes["topics"], "propagate": vectors}
        wanted |= {"relate": turns + kept}
        checks = [(f"rows of {stage}", rows[stage], count) for stage, count in wanted.items()]
        checks.append(("rows of import", sum(run.imported.values()), new))
        checks.append(("turns of the version", nodes["turns"], turns))
        checks.append(("facts of the version", nodes["facts"], kept))
        found |= {f"{what}: {is_} instead of {should}": None for what, is_, should in checks if is_ != should}
    return list(found)
