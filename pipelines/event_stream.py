"""Server-sent events: read from a stream as its bytes come, and written."""

from dataclasses import dataclass, field

EVENT_STREAM = "text/event-stream"
"""Their content type."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        name: What it is called; `message` where nothing is said.
        data: What it holds; of several lines, joined.
    """

    name: str
    data: str


@dataclass(slots=True)
class EventReader:
    """Makes events of the bytes of a stream, wherever these are cut; comments and fields without a use are left out."""

    _rest: bytes = b""
    _name: str = ""
    _data: list[str] = field(default_factory=list)

    def feed(self, chunk: bytes) -> list[Event]:
        r"""Return the events that end within some more bytes.

        >>> reader = EventReader()
        >>> reader.feed(b'event: delta\ndata: {"te'), reader.feed(b'xt": "a"}\r\n\n')
        ([], [Event(name='delta', data='{"text": "a"}')])
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [event for line in lines if (event := self._taken(line.decode(errors="replace").rstrip("\r")))]

    def _taken(self, line: str) -> Event | None:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._name = value
            return None
        event = Event(self._name or "message", "\n".join(self._data)) if self._data else None
        self._name, self._data = "", []
        return event


def event_text(name: str, data: str) -> str:
    """Return an event as it is sent; `data` is of one line, as JSON is."""
    return f"event: {name}\ndata: {data}\n\n"
