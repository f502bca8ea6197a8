"""Outcomes that the endpoint was told, kept in a store: `feedback/<id>.json`, one a query, the first one counts."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel

from hgmem_core.ids import content_id
from hgmem_core.messages import LogRow
from hgmem_core.skill_utility import NodeKind
from pipelines.files import read_as
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
    content = {"rows": [row.model_dump(mode="json") for row in rows]}
    try:
        store.write_json(store.root / FOLDER / f"{name}.json", content)
    except FileExistsError:
        return False
    return True


def told_rows(folder: Path) -> Iterator[LogRow]:
    """Yield every row that was told, in the order of the files' names.

    Raises:
        StoreError: A file is damaged; names it.
    """
    for path in sorted(folder.glob("*.json")):
        for row in read_as(_File, path, "remove it").rows:
            yield LogRow(path.name, row.model_dump(mode="json"))
