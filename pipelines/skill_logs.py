"""A folder of agents' runs by benchmark, for an evaluation of skills: trajectories, and labels apart from them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.config import InputConfig, TrajectoryFormat
from hgmem_core.importers import TRAJECTORY_IMPORTERS
from hgmem_core.tasks.run_families import (
    Family,
    database_of_task,
    kind_of_household_task,
    named_family,
    writes_of_task,
)
from hgmem_core.tasks.task import TaskError
from hgmem_core.trajectories import Run, merge_runs, number_equal_runs, trajectories_table
from pipelines.log_files import open_rows
from pipelines.store import file_sha256

DATABASES_FILE = "sql_task_id_to_db.json"
"""Beside InterCode's runs: the database of each SQL task by its number. A label."""
_ENDINGS = (".json", ".jsonl", ".json.gz", ".jsonl.gz")


@dataclass(frozen=True, slots=True)
class SkillLog:
    """The runs of one dataset.

    Attributes:
        trajectories: TRAJECTORY of one namespace, which is the dataset's name.
        families: Of each task that has one. Labels.
        refused: Rows that hold no usable run; those of a file that holds several datasets count for each of them.
        files: The SHA-256 of each file that was read, by its path within the folder, label files among them.
    """

    trajectories: pa.Table
    families: dict[str, str]
    refused: int
    files: dict[str, str]

    @property
    def name(self) -> str:
        """Return the name of the dataset."""
        return str(self.trajectories.column("namespace")[0].as_py())


@dataclass(frozen=True, slots=True)
class _Source:
    """How the runs in a folder are read; `namespace` tells datasets apart that lie in one."""

    format: TrajectoryFormat
    namespace: str
    family: Callable[[Path], Family]


_SOURCES = {
    "alfworld": _Source("alfworld", "alfworld", lambda _: kind_of_household_task),
    "intercode": _Source("intercode", "intercode/{environment}", lambda folder: database_of_task(_databases(folder))),
    "tau_bench_airline": _Source("tau-bench", "tau_bench_airline", lambda _: writes_of_task),
    "tau_bench_retail": _Source("tau-bench", "tau_bench_retail", lambda _: writes_of_task),
    "trajectories": _Source("trajectories", "trajectories", lambda _: named_family),
}


def read_skill_logs(folder: Path, now: datetime) -> list[SkillLog]:
    """Read the datasets that a folder holds, in the order of their names.

    Raises:
        TaskError: It holds none, or a label file is not what it should be.
        LogFileError: A file cannot be read.
    """
    logs = [log for name, source in _SOURCES.items() for log in _read(folder, name, source, now)]
    if not logs:
        raise TaskError(f"{folder}: no run of an agent; put logs into one of its folders {', '.join(_SOURCES)}")
    return sorted(logs, key=lambda log: log.name)


def _read(folder: Path, name: str, source: _Source, now: datetime) -> Iterator[SkillLog]:
    paths = [path for path in sorted((folder / name).glob("*")) if path.name.endswith(_ENDINGS)]
    logs = [path for path in paths if path.name != DATABASES_FILE]
    if not logs:
        return
    config = InputConfig(format=source.format, paths=[str(path) for path in logs], namespace=source.namespace)
    importer, family_of = TRAJECTORY_IMPORTERS[source.format], source.family(folder / name)
    families: dict[str, dict[str, str]] = {}
    imports, refused = [], 0
    for path in logs:
        runs: list[Run] = []
        for row in open_rows(str(path), config):
            for run in importer([row], config):  # row by row, so that a label is known to be of its run
                if not isinstance(run, Run):
                    refused += 1
                    continue
                runs.append(run)
                family = family_of(run.task_id, row.value)
                if family is not None:
                    families.setdefault(run.namespace, {})[run.task_id] = family
        imports.append(number_equal_runs(trajectories_table(runs, 0, now)))
    every = merge_runs(imports)[0]
    files = {str(path.relative_to(folder)): file_sha256(path) for path in paths}
    for namespace in pc.unique(every.column("namespace")).to_pylist():
        own = every.filter(pc.equal(every.column("namespace"), namespace))
        yield SkillLog(own, families.get(namespace, {}), refused, files)


def _databases(folder: Path) -> dict[str, str]:
    path = folder / DATABASES_FILE
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise TaskError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content.values()):
        raise TaskError(f"{path} is no object of databases by the number of a task")
    return content
