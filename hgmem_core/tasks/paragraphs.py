"""Questions over the paragraphs of a pooled corpus, with the paragraphs that their answers need."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from hgmem_core.config import Format, InputConfig
from hgmem_core.ids import turn_id
from hgmem_core.importers.paragraphs import Paragraph, Pieces, Pool
from hgmem_core.tasks.task import RETRIEVAL_METRICS, Gold, Questions, Task, TaskError, TaskFile, TaskFiles

METRICS = ("recall@2", *RETRIEVAL_METRICS)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and what its answer needs.

    Attributes:
        query_id: Its own id.
        text: What is asked.
        group: See QUERY.
        supporting: Paragraphs, each by where it stands in the question: `context[2]`.
        answers: See `Gold`.
    """

    query_id: str
    text: str
    group: str
    supporting: Mapping[str, Paragraph]
    answers: tuple[str, ...]


def paragraph_task(
    name: Format,
    files: TaskFiles,
    pieces: Pieces,
    read: Callable[[object], Paragraph],
    question: Callable[[object], Question],
    groups: Mapping[str, Set[str]],
) -> Task:
    """Return the task of asking a file's questions of the namespace `<name>/paragraphs`, which holds all paragraphs.

    Args:
        name: Of the task and of the format of its files.
        files: Its own.
        pieces: The importer's.
        read: The importer's.
        question: Reads the row of a question, or raises ValueError.
        groups: See `Task`.

    Raises:
        TaskError: Names the file, the question and the field that is not as it should be.
    """
    namespace = f"{name}/paragraphs"
    pool = _pool(files.imported, pieces, read)
    queries: dict[str, tuple[str, str, str, str]] = {}
    qrels: list[tuple[str, str, str, int]] = []
    golds: list[Gold] = []
    for number, row in enumerate(files.data.rows, 1):
        where = f"{files.data.path}: question {number}"
        try:
            asked = question(row)
        except ValueError as error:
            raise TaskError(f"{where}: {error}") from error
        where += f" ({asked.query_id!r})"
        if asked.query_id in queries:
            raise TaskError(f"{where}: its id occurs twice")
        if not asked.supporting:
            raise TaskError(f"{where}: none of its paragraphs is marked as supporting")
        queries[asked.query_id] = (namespace, asked.query_id, asked.text, asked.group)
        golds.append(Gold(namespace, asked.query_id, asked.text, asked.group, asked.answers))
        held: dict[str, None] = {}
        for field, paragraph in asked.supporting.items():
            found = pool.find(paragraph)
            if found is None:
                raise TaskError(f"{where}: {field} ({paragraph.title!r}) is not in {files.imported.path}")
            held[found] = None
        qrels += [(namespace, asked.query_id, turn_id(namespace, found, found), 1) for found in held]
    if not queries:
        raise TaskError(f"{files.data.path}: it holds no question")
    counts = {"questions": len(queries), "evidence": len(qrels), "paragraphs": len(pool)}
    imported = InputConfig(format=name, paths=[files.imported.path], namespace=namespace)
    questions = Questions.of(list(queries.values()), qrels, counts)
    return Task(name, files, (imported,), questions, groups, METRICS, golds=tuple(golds))


def _pool(file: TaskFile, pieces: Pieces, read: Callable[[object], Paragraph]) -> Pool:
    """Return the pool of what the importer reads."""
    pool = Pool()
    for number, row in enumerate(file.rows, 1):
        where = f"{file.path}: row {number}"
        try:
            for field, piece in pieces(row).items():
                where = f"{file.path}: row {number}{field}"
                pool.add(read(piece))
        except ValueError as error:
            raise TaskError(f"{where}: {error}") from error
    return pool
