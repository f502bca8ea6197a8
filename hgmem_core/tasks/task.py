"""What the evaluation of a benchmark needs: its files, its questions, what is imported, how it is reported."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.config import Format, InputConfig
from hgmem_core.schemas import QREL, QUERY, STRING, TableSchema, conform

RETRIEVAL_METRICS = ("recall@5", "recall@10", "recall@20", "recall@30", "ndcg@10", "hit@10", "mrr", "all@10")
"""What a task measures at least, by the names of `hgmem_core.metrics.METRICS`."""


class TaskError(ValueError):
    """The file is not the benchmark that it should be."""


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of a benchmark.

    Attributes:
        queries: QUERY; `group` is what kind of question it is.
        qrels: QREL; at least one row a query.
        counts: How many questions and pieces of evidence there were, and what became of them.
    """

    queries: pa.Table
    qrels: pa.Table
    counts: Mapping[str, int]

    @classmethod
    def of(
        cls,
        queries: Sequence[tuple[str, str, str, str]],
        qrels: Sequence[tuple[str, str, str, int]],
        counts: Mapping[str, int],
    ) -> "Questions":
        """Return the questions of QUERY's and QREL's rows, given as tuples in the order of their columns."""
        return cls(_table(queries, QUERY), _table(qrels, QREL), counts)

    def within(self, namespaces: Set[str]) -> "Questions":
        """Return the questions that are asked in some namespaces; the counts stay those of all."""
        wanted = pa.array(sorted(namespaces), STRING)
        queries, qrels = (
            table.filter(pc.is_in(table.column("namespace"), value_set=wanted)) for table in (self.queries, self.qrels)
        )
        return Questions(queries, qrels, self.counts)


def _table(rows: Sequence[Sequence[object]], schema: TableSchema) -> pa.Table:
    columns = {name: [row[place] for row in rows] for place, name in enumerate(schema.arrow.names)}
    return conform(pa.table(columns, schema=schema.arrow), schema)


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file of a benchmark, read.

    Attributes:
        path: Where it lies.
        rows: The JSON values of its list or its lines.
    """

    path: str
    rows: Sequence[Any]


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """The files of a benchmark.

    Attributes:
        data: The questions, and what they are asked of unless that is in a file of its own.
        corpus: That file, or None.
    """

    data: TaskFile
    corpus: TaskFile | None

    @property
    def imported(self) -> TaskFile:
        """The file that becomes the memory."""
        return self.corpus or self.data


@dataclass(frozen=True, slots=True)
class Task:
    """A benchmark with its files, ready to be evaluated.

    Attributes:
        name: What jobs and result documents call it.
        files: Where it was read from.
        inputs: What is imported.
        questions: Asked of it, each in its own namespace.
        groups: The groups of a report, and which values of QUERY.group each holds.
        metrics: Measured, by the names of `hgmem_core.metrics.METRICS`.
        learned_from: The group whose questions train models.
        unanswerable: Values of QUERY.group of the questions to which the memory holds no answer.
    """

    name: str
    files: TaskFiles
    inputs: tuple[InputConfig, ...]
    questions: Questions
    groups: Mapping[str, Set[str]]
    metrics: tuple[str, ...]
    learned_from: str = "all"
    unanswerable: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Benchmark:
    """How a benchmark becomes a task.

    Attributes:
        title: Its name for people.
        format: Of its files.
        takes_corpus: Whether what is imported may be in a file of its own.
        read: Makes the task of its files; raises TaskError, which names file, question and field.
    """

    title: str
    format: Format
    takes_corpus: bool
    read: Callable[[TaskFiles], Task]
