"""Traces in OTLP's JSON encoding: spans with plain values, and what they inherit from the spans around them."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hgmem_core.importers.content import MAX_DEPTH
from hgmem_core.importers.fields import integer_of

Attributes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """One span of a trace.

    Attributes:
        row_id: Where it stands in its row, such as `traces.jsonl:3[0.0.2]`.
        trace_id: Hex digits as they are written, or None.
        started, ended: Nanoseconds since 1970, or None.
        attributes: Its own.
        inherited: Its own, and those of the spans that it is inside of, inner ones before outer, and of its resource.
        events: Names and attributes of its events, in order.
    """

    row_id: str
    trace_id: str | None
    started: int | None
    ended: int | None
    attributes: Attributes
    inherited: Attributes
    events: tuple[tuple[str, Attributes], ...]


def read_spans(row_id: str, value: object) -> Iterator[Span | str]:
    """Yield the spans of an export request by their beginning, and, for what is none, where it stands and what it is.

    Raises:
        ValueError: The value is no request with `resourceSpans`.
    """
    groups = value.get("resourceSpans") if isinstance(value, Mapping) else None
    if not isinstance(groups, list):
        raise ValueError("the row is not an OTLP trace, an object with a list of 'resourceSpans'")
    found: list[tuple[str, Attributes, Mapping[str, Any]]] = []
    for first, group in enumerate(groups):
        scopes = group.get("scopeSpans") if isinstance(group, Mapping) else None
        if not isinstance(scopes, list):
            yield f"{row_id}[{first}]: no list of 'scopeSpans'"
            continue
        resource = group.get("resource")
        shared = attributes_of(resource.get("attributes") if isinstance(resource, Mapping) else None)
        for second, scope in enumerate(scopes):
            spans = scope.get("spans") if isinstance(scope, Mapping) else None
            if not isinstance(spans, list):
                yield f"{row_id}[{first}.{second}]: no list of 'spans'"
                continue
            for third, span in enumerate(spans):
                place = f"{row_id}[{first}.{second}.{third}]"
                if isinstance(span, Mapping):
                    found.append((place, shared, span))
                else:
                    yield f"{place}: a span that is no object"
    yield from _spans(found)


def _spans(found: list[tuple[str, Attributes, Mapping[str, Any]]]) -> list[Span]:
    own = [attributes_of(span.get("attributes")) for _, _, span in found]
    by_id = {_key(span, "spanId"): number for number, (_, _, span) in enumerate(found)}
    spans = []
    for number, (place, shared, span) in enumerate(found):
        around: list[Attributes] = []
        seen = {number}
        parent = by_id.get(_key(span, "parentSpanId"))
        while parent is not None and parent not in seen:
            seen.add(parent)
            around.append(own[parent])
            parent = by_id.get(_key(found[parent][2], "parentSpanId"))
        inherited = dict(shared)
        for attributes in (*reversed(around), own[number]):
            inherited |= attributes
        events = span.get("events")
        spans.append(
            Span(
                row_id=place,
                trace_id=_text(span.get("traceId")),
                started=_nanoseconds(span.get("startTimeUnixNano")),
                ended=_nanoseconds(span.get("endTimeUnixNano")),
                attributes=own[number],
                inherited=inherited,
                events=tuple(
                    (str(event.get("name")), attributes_of(event.get("attributes")))
                    for event in (events if isinstance(events, list) else ())
                    if isinstance(event, Mapping)
                ),
            )
        )
    return sorted(spans, key=lambda span: (span.started is None, span.started or 0))


def _key(span: Mapping[str, Any], field: str) -> tuple[str | None, str | None]:
    own = _text(span.get(field))
    return (None, None) if own is None else (_text(span.get("traceId")), own)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _nanoseconds(value: object) -> int | None:
    number = integer_of(value, "time", [])
    return number if number is not None and number > 0 else None


def attributes_of(value: object) -> Attributes:
    """Return OTLP's list of keys and values as a dict; what is no pair of a key and a value is left out.

    >>> attributes_of([{"key": "user.id", "value": {"stringValue": "ana"}}])
    {'user.id': 'ana'}
    """
    return _pairs(value, 0)


def _pairs(value: object, depth: int) -> Attributes:
    found: Attributes = {}
    for item in value if isinstance(value, list) else []:
        if isinstance(item, Mapping) and isinstance(item.get("key"), str):
            found[item["key"]] = _plain(item.get("value"), depth)
    return found


def _plain(value: object, depth: int) -> Any:  # noqa: ANN401 - JSON in, JSON out
    if not isinstance(value, Mapping) or depth > MAX_DEPTH:
        return None
    if "intValue" in value:  # written as text, for JSON's numbers are floats
        return integer_of(value["intValue"], "intValue", [])
    if "bytesValue" in value:
        return _decoded(value["bytesValue"])
    if isinstance(value.get("arrayValue"), Mapping):
        items = value["arrayValue"].get("values")
        return [_plain(item, depth + 1) for item in items] if isinstance(items, list) else []
    if isinstance(value.get("kvlistValue"), Mapping):
        return _pairs(value["kvlistValue"].get("values"), depth + 1)
    return next((value[kind] for kind in ("stringValue", "doubleValue", "boolValue") if kind in value), None)


def _decoded(value: object) -> str | None:
    try:
        return base64.b64decode(value).decode(errors="replace") if isinstance(value, str) else None
    except ValueError:
        return None
