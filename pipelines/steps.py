"""How a bucket goes from stage to stage: what exists is found, what is missing is made, and what it takes is asked for.

The build of a bucket is a generator. It gives out texts to be encoded, or requests to a language model, and goes on
with the answers: in place where the engine is local, at a later time where it is on Ray.
"""

from collections.abc import Callable, Generator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from hgmem_core.chat import Reply, Request
from hgmem_core.embeddings import embedding_rows
from hgmem_core.encoding import Vectors
from hgmem_core.schemas import TableSchema
from pipelines.runner import Produced, Runner, Stage
from pipelines.store import Output


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts that a bucket needs the vectors of before it can go on.

    Attributes:
        stage: The stage that is waiting.
        nodes: Namespace and id of each, sorted by namespace.
        texts: What the encoder is to see of each.
        as_queries: Whether others are searched with them, and they themselves are not.
    """

    stage: str
    nodes: pa.Table
    texts: Sequence[str]
    as_queries: bool = False


class Answers(Protocol):
    """Whoever answers what a bucket waits for."""

    def encode(self, waiting: list[Texts]) -> list[Vectors]:
        """Return the vectors of each text, float32 `[len(texts), dimension]`."""
        ...

    def ask(self, requests: list[Request]) -> list[Reply]:
        """Return a language model's reply to each request."""
        ...


Made = TypeVar("Made")

Steps: TypeAlias = Generator[list[Texts] | list[Request], Any, Made]
"""The build of a bucket, or of a part: gives out texts or requests, takes their vectors or replies."""

Encoding: TypeAlias = Generator[list[Texts], list[Vectors], Made]
"""A stage that needs vectors on its way."""

Asking: TypeAlias = Generator[list[Request], list[Reply], Made]
"""A stage that may ask a language model on its way."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of an output, or their rows of some namespaces, by name."""

    runner: Runner
    output: Output
    namespaces: Set[str] | None

    def __getitem__(self, name: str) -> pa.Table:
        """Read one."""
        return self.runner.read(self.output, _file(name), self.namespaces)


def _file(name: str) -> str:
    """Return the file of a table: vectors are mapped, the rest is compressed."""
    return f"{name}.arrow" if name == "embeddings" else f"{name}.parquet"


def produced(
    tables: Mapping[str, tuple[pa.Table, TableSchema]], outcomes: pa.Table, rejects: pa.Table | None = None
) -> Produced:
    """Return tables that later stages read, by name, as what a stage produces; `rejects` are a model's bad replies."""
    files = {_file(name): table for name, (table, _) in tables.items()}
    unserved = 0
    if rejects is not None:
        files["rejects.parquet"] = rejects
        unserved = sum(reason.startswith("refused:") for reason in rejects.column("reason").to_pylist())
    return Produced(files, outcomes, {_file(name): schema for name, (_, schema) in tables.items()}, unserved=unserved)


def answered(answers: Answers, waiting: list[Texts] | list[Request]) -> list[Vectors] | list[Reply]:
    """Return the answers to what a bucket gave out."""
    requests = [one for one in waiting if isinstance(one, Request)]
    return answers.ask(requests) if requests else answers.encode([one for one in waiting if isinstance(one, Texts)])


class StageSteps:
    """Takes a bucket through stages."""

    def __init__(self, runner: Runner, stages: Mapping[str, Stage], embedding: TableSchema) -> None:
        """Take what the stages are, by name, and the schema of the encoder's vectors."""
        self._runner = runner
        self._stages = stages
        self._embedding = embedding

    def after(self, stage: str, inputs: Sequence[Output], work: Callable[..., Asking[Produced]]) -> Asking[Output]:
        """Run a stage after others; `work` takes the tables of each."""
        task = self._runner.begin(self._stages[stage], inputs)
        if isinstance(task, Output):
            return task
        made = yield from work(*(Tables(self._runner, output, task.fresh) for output in inputs))
        return self._runner.finish(task, made)

    def encode(
        self, nodes: Mapping[str, Sequence[Output]], texts: Callable[[str, Sequence[Tables]], Texts]
    ) -> Encoding[list[Output]]:
        """Encode the nodes of some levels; texts of all of them are given out at once.

        Args:
            nodes: For each level where its nodes are.
            texts: Of a level, of the tables of those outputs.
        """
        tasks = {level: self._runner.begin(self._stages[f"encode_{level}s"], own) for level, own in nodes.items()}
        waiting = {
            level: texts(level, [Tables(self._runner, output, task.fresh) for output in nodes[level]])
            for level, task in tasks.items()
            if not isinstance(task, Output)
        }
        answers = iter((yield list(waiting.values())) if waiting else [])
        outputs = []
        for level, task in tasks.items():
            if isinstance(task, Output):
                outputs.append(task)
            else:
                embeddings, outcomes = embedding_rows(level, waiting[level].nodes, next(answers))
                made = produced({"embeddings": (embeddings, self._embedding)}, outcomes)
                outputs.append(self._runner.finish(task, made))
        return outputs
