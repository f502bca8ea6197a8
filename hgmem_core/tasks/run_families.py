"""Which family a task of agents' runs belongs to. Labels: they measure what was retrieved, and never reach a memory."""

from collections.abc import Callable, Mapping
from typing import Any

Family = Callable[[str, Mapping[str, Any]], str | None]
"""Gives the family of a task from its id and the row of the log that a run of it came from; None if it has none."""

_READS = ("get_", "search_", "list_", "find_")
_CHANGES_NOTHING = frozenset(["calculate", "think", "transfer_to_human_agents"])


def kind_of_household_task(task_id: str, row: Mapping[str, Any]) -> str | None:
    """Return what a game of ALFWorld asks for: its folder's name up to the first hyphen.

    >>> kind_of_household_task("look_at_obj_in_light-Book-None-DeskLamp-304", {})
    'look_at_obj_in_light'
    """
    kind, hyphen, _ = task_id.partition("-")
    return kind if hyphen else None


def database_of_task(databases: Mapping[str, str]) -> Family:
    """Return what tells the database of an InterCode task, by the number of the task."""

    def family(task_id: str, row: Mapping[str, Any]) -> str | None:
        environment, _, number = task_id.partition("/")
        return databases.get(number.rpartition("/")[2]) if environment == "ic_sql" else None

    return family


def writes_of_task(task_id: str, row: Mapping[str, Any]) -> str | None:
    """Return which of the right actions of a tau-bench task change something, each once, in the order of their names.

    >>> writes_of_task("7", {"info": {"task": {"actions": [{"name": "get_user"}, {"name": "cancel_order"}]}}})
    'cancel_order'
    """
    found: Any = row
    for key in ("info", "task", "actions"):
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, list):
        return None
    names = {str(action.get("name")) for action in found if isinstance(action, Mapping)}
    writes = sorted(name for name in names if not name.startswith(_READS) and name not in _CHANGES_NOTHING)
    return ", ".join(writes) or "nothing"


def named_family(task_id: str, row: Mapping[str, Any]) -> str | None:
    """Return the `family` of a row that has one."""
    family = row.get("family")
    return family if isinstance(family, str) and family else None
