"""Single values of a log row: namespaces, ids, numbers, times, and refusals that say which value was wrong."""

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from hgmem_core.config import InputConfig
from hgmem_core.ids import check_namespace
from hgmem_core.messages import Dropped, LogRow
from hgmem_core.text import beginning, clean, is_blank
from hgmem_core.times import parse_time

RAW_CHARS = 2_000
"""How much of a refused row is kept."""

DEFAULT_SESSION = "log"
"""The session of messages whose log knows no sessions."""

ABSENT: Any = object()
"""What `lookup` returns where a row has no such column; a null is None."""

_FIELD = re.compile(r"\{([^{}]*)\}")
_EXACT_FLOAT = 2**53
_INT64 = 2**63


def lookup(row: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - a log may hold anything
    """Return the value of column `name`, or of the nested one where `name` is a dotted path, or `ABSENT`."""
    value = row.get(name, ABSENT)
    if value is not ABSENT or "." not in name:
        return value
    value = row
    for step in name.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return ABSENT
        value = value[step]
    return value


def is_missing(value: object) -> bool:
    """Say whether `value` is absent, null, or the NaN that stands for null in tables of floats."""
    return value is None or value is ABSENT or (isinstance(value, float | Decimal) and value != value)


def shown(value: object) -> str:
    """Return the start of `value` as it can be quoted in a message."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:60] + "…")
    if isinstance(value, bool | float | Decimal | UUID | datetime):
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**60 else "an integer of more than 60 digits"
    return "null" if value is None else f"a value of type {type(value).__name__}"


def raw_of(value: object) -> str | None:
    """Return the start of a refused value as text for the REJECT table, or None where there is none."""
    if value is None:
        return None
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    except (RecursionError, ValueError):
        return f"({shown(value)} that cannot be written as JSON)"
    return clean(beginning(text, RAW_CHARS))[0]


def refused(row_id: str, reason: str, value: object = None, namespace: str = "") -> Dropped:
    """Return the refusal of one message because of `reason`; `value` is the message as it was read."""
    return Dropped(row_id, "rejected", reason, raw_of(value), namespace)


def empty(row_id: str, namespace: str = "", reason: str = "no text and no attachment") -> Dropped:
    """Return the result for a message that holds nothing to keep."""
    return Dropped(row_id, "empty", reason, None, namespace)


def unreadable(row: LogRow) -> Dropped:
    """Return the refusal of a row that could not even be parsed."""
    return refused(row.row_id, row.error or "the row could not be read", row.raw)


def joined(notes: list[str]) -> str | None:
    """Return the notes of a message as one, each said once, or None where there are none."""
    return "; ".join(dict.fromkeys(notes)) if notes else None


def name_of(value: object, label: str, notes: list[str]) -> str | None:
    """Return an id, role or name as cleaned text, or None where it is missing, blank or, with a note, not one.

    Whole numbers lose their `.0`, for tables write ids so as soon as one is null.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        if is_missing(value):
            return None
        try:
            value = _name_text(value)
        except ValueError as error:
            notes.append(f"{label}: {error}: left out")
            return None
    name, note = clean(value)
    if note:
        notes.append(f"{label}: {note}")
    return name if name and not is_blank(name) else None


def _name_text(value: object) -> str:
    """Return a value that is not a string as the text of a name."""
    if isinstance(value, bytes):
        return value.decode()  # UnicodeDecodeError is a ValueError
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError(f"{shown(value)} is not a name or number")
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a name or number")
    if isinstance(value, float) and not -_EXACT_FLOAT < value < _EXACT_FLOAT:
        raise ValueError(f"the float {value} is too large to be an exact id; store ids as integers or text")
    return str(int(value)) if value == int(value) else str(value)


def integer_of(value: object, label: str, notes: list[str]) -> int | None:
    """Return an order number as a 64-bit integer, or None where it is missing or, with a note, not one."""
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        return None
    number: int | None = None
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        whole = -_INT64 <= value < _INT64 and value == int(value)
        number = int(value) if whole else None
    elif isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,19}(?:\.0*)?\s*", value, re.ASCII):
        number = int(value.split(".")[0])
    if number is None or not -_INT64 <= number < _INT64:
        notes.append(f"{label}: {shown(value)} is not a 64-bit integer: left out")
        return None
    return number


def time_of(value: object, label: str, config: InputConfig, notes: list[str]) -> datetime | None:
    """Return a time in UTC, or None where it is missing or, with a note, not understood."""
    if is_missing(value):
        return None
    try:
        return parse_time(value, config.zone, config.time_unit)
    except ValueError as error:
        notes.append(f"{label}: {error}: left out")
        return None


def template_fields(template: str) -> list[str]:
    """Return the columns that a namespace template such as `acme/{user}` names.

    Raises:
        ValueError: A brace has no partner or encloses nothing.
    """
    names = [name.strip() for name in _FIELD.findall(template)]
    if not all(names) or "{" in _FIELD.sub("", template) or "}" in _FIELD.sub("", template):
        raise ValueError(f"namespace {template!r}: each column is written in one pair of braces, as in 'acme/{{user}}'")
    return names


class NamespaceTemplate:
    """A namespace with columns in it, filled row by row. No row gets one that its own columns do not spell out."""

    def __init__(self, template: str) -> None:
        """Prepare `template`, such as `acme/{user}`.

        Raises:
            ValueError: See `template_fields`.
        """
        self._names = template_fields(template)
        self._literals = _FIELD.split(template)[::2]

    def fill(self, row: Mapping[str, Any]) -> str:
        """Return the namespace of `row`.

        Raises:
            ValueError: Says which column is missing, null, empty, or no name; or what is wrong with the namespace.
        """
        parts = [self._literals[0]]
        for name, literal in zip(self._names, self._literals[1:], strict=True):
            parts += (_segment(lookup(row, name), name), literal)
        return check_namespace("".join(parts))


def _segment(value: object, name: str) -> str:
    """Return the value of a namespace column: one segment, as it stands, for a repaired tenant would be another's."""
    if is_missing(value) or value == "":
        what = "is not in the row" if value is ABSENT else "is empty"
        raise ValueError(f"namespace column {name!r} {what}: every row must say whose memory it is")
    try:
        text = value if isinstance(value, str) else _name_text(value)
    except ValueError as error:
        raise ValueError(f"namespace column {name!r}: {error}") from error
    if "/" in text:
        raise ValueError(f"namespace column {name!r}: {shown(text)} holds a '/', which would reach another namespace")
    return text
