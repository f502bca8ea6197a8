"""What the evaluation of a benchmark needs: its files, its questions, what is imported, how it is reported."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType
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
        sessions: The sessions that hold the evidence, by query; empty where a benchmark does not tell them.
    """

    queries: pa.Table
    qrels: pa.Table
    counts: Mapping[str, int]
    sessions: Mapping[str, Set[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        queries: Sequence[tuple[str, str, str, str]],
        qrels: Sequence[tuple[str, str, str, int]],
        counts: Mapping[str, int],
        sessions: Mapping[str, Set[str]] = MappingProxyType({}),
    ) -> "Questions":
        """Return the questions of QUERY's and QREL's rows, given as tuples in the order of their columns."""
        return cls(_table(queries, QUERY), _table(qrels, QREL), counts, sessions)

    def within(self, namespaces: Set[str]) -> "Questions":
        """Return the questions that are asked in some namespaces; the counts stay those of all."""
        return self._where("namespace", namespaces)

    def only(self, query_ids: Set[str]) -> "Questions":
        """Return some of the questions; the counts stay those of all."""
        return self._where("query_id", query_ids)

    def _where(self, column: str, values: Set[str]) -> "Questions":
        wanted = pa.array(sorted(values), STRING)
        queries, qrels = (
            table.filter(pc.is_in(table.column(column), value_set=wanted)) for table in (self.queries, self.qrels)
        )
        return Questions(queries, qrels, self.counts, self.sessions)


def _table(rows: Sequence[Sequence[object]], schema: TableSchema) -> pa.Table:
    columns = {name: [row[place] for row in rows] for place, name in enumerate(schema.arrow.names)}
    return conform(pa.table(columns, schema=schema.arrow), schema)


@dataclass(frozen=True, slots=True)
class Gold:
    """A question and its right answers: labels, which only whoever marks an answer may see.

    Attributes:
        namespace: In which it is asked.
        query_id: Its own id.
        text: What is asked.
        group: See QUERY.
        answers: Each of them is right; none where the memory holds no answer.
        asked_on: The day of the question; None where the benchmark does not tell it.
    """

    namespace: str
    query_id: str
    text: str
    group: str
    answers: tuple[str, ...]
    asked_on: date | None = None


def right_answers(*values: object) -> tuple[str, ...]:
    """Return the right answers that a file gives, each once: texts and numbers, without what is neither or blank.

    >>> right_answers("Lisbon", 2022, None, " ", "Lisbon")
    ('Lisbon', '2022')
    """
    written = (str(value).strip() for value in values if isinstance(value, str | int | float))
    return tuple(dict.fromkeys(text for text in written if text))


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
        golds: Every question of the files with its answers, also one whose evidence is unknown; empty where the files
            have no answers.
        notes: What of the files could not be used, and why.
    """

    name: str
    files: TaskFiles
    inputs: tuple[InputConfig, ...]
    questions: Questions
    groups: Mapping[str, Set[str]]
    metrics: tuple[str, ...]
    learned_from: str = "all"
    unanswerable: Set[str] = frozenset()
    golds: tuple[Gold, ...] = ()
    notes: tuple[str, ...] = ()


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
