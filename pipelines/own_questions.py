"""A file of one's own questions as a task, with the turns that they name looked up in a version."""

from collections import defaultdict
from functools import lru_cache
from pathlib import Path

from hgmem_core.config import InputConfig
from hgmem_core.encoding import Encoder
from hgmem_core.tasks.own_questions import Held, own_task, read_questions
from hgmem_core.tasks.task import Task
from pipelines.evaluation import read_task_file
from pipelines.retriever import Retriever
from pipelines.versions import Version

_FORMAT = InputConfig(format="jsonl", paths=["questions"], namespace="questions")


def check_own_questions(path: Path) -> None:
    """Look whether a file holds questions, whatever the turns that they name.

    Raises:
        TaskError: It does not; the file and the question are named.
    """
    read_questions(read_task_file("questions", path, _FORMAT))


def open_own_questions(path: Path, version: Version, encoder: Encoder) -> Task:
    """Read questions, a JSON object a line, and find the turns that they name.

    Args:
        path: The file; see `hgmem_core.tasks.own_questions`.
        version: Of the memory that is to be asked; what is forgotten is not in it.
        encoder: Of the version.

    Raises:
        TaskError: The file cannot be used, or the version has none of the turns; the file is named.
    """
    retriever = Retriever(version, encoder)

    @lru_cache(maxsize=64)
    def turns_of(namespace: str) -> Held | None:
        index = retriever.namespace(namespace)
        if index is None:
            return None
        held: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        columns = (index.column(name).to_pylist() for name in ("session_id", "source_id", "turn_id"))
        for session, source, turn in zip(*columns, strict=True):
            for name in {turn, source} - {None}:
                held[name].append((session, turn))
        return held

    return own_task(read_task_file("questions", path, _FORMAT), turns_of)
