"""Outcomes that the endpoint was told, kept in a store: `feedback/<id>.json`, one a query, the first one counts."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hgmem_core.ids import content_id
from hgmem_core.messages import LogRow
from hgmem_core.skill_utility import NodeKind
from pipelines.files import file_sha256, read_as
from pipelines.store import Store

FOLDER = "feedback"


class Row(BaseModel, frozen=True):
    """A row of FEEDBACK."""

    namespace: str
    query_id: str
    node_kind: NodeKind
    node_id: str
    shown_at: datetime
    outcome: str
    n_steps: int


class _File(BaseModel, frozen=True):
    rows: list[Row]


def add_outcome(store: Store, rows: Sequence[Row]) -> bool:
    """Keep the rows of one query; return False if it has some already, which then stay.

    Args:
        store: Where.
        rows: All of one namespace and query.
    """
    name = content_id("feedback", rows[0].namespace, rows[0].query_id)
    try:
        store.write_json(store.root / FOLDER / f"{name}.json", _content(rows))
    except FileExistsError:
        return False
    return True


def erase_outcomes(store: Store, is_erased: Callable[[Row], bool]) -> dict[Path, str]:
    """Remove rows of what is erased.

    Args:
        store: Whose lease this process holds.
        is_erased: Says so of a row.

    Returns:
        The files that are gone or written anew, with the sha256 that each had.

    Raises:
        StoreError: A file is damaged; names it.
    """
    touched = {}
    for path in store.files(store.root / FOLDER, "*.json"):
        rows = read_as(_File, path, "remove it").rows
        left = [row for row in rows if not is_erased(row)]
        if len(left) == len(rows):
            continue
        touched[path] = file_sha256(path)
        if left:
            store.write_json(path, _content(left), replace=True)
        else:
            store.remove_file(path)
    return touched


def _content(rows: Sequence[Row]) -> dict[str, Any]:
    return {"rows": [row.model_dump(mode="json") for row in rows]}


def told_rows(folder: Path) -> Iterator[LogRow]:
    """Yield every row that was told, in the order of the files' names.

    Raises:
        StoreError: A file is damaged; names it.
    """
    for path in sorted(folder.glob("*.json")):
        for row in read_as(_File, path, "remove it").rows:
            yield LogRow(path.name, row.model_dump(mode="json"))
