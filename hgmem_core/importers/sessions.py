"""Sessions of logs that have none: one for all messages of a namespace, or one from each long silence to the next."""

from datetime import datetime, timedelta

from hgmem_core.importers.fields import DEFAULT_SESSION


class SilentGaps:
    """Says of which session the messages of a file are that name none, in the order of its rows."""

    def __init__(self, gap_minutes: float) -> None:
        """Cut where nothing is said for longer than `gap_minutes`; nowhere, where it is 0."""
        self._gap = timedelta(minutes=gap_minutes)
        self._open: dict[str, tuple[str, datetime]] = {}
        """The session of each namespace, and when something was last said in it."""

    def session(self, namespace: str, said_at: datetime | None) -> tuple[str, str | None]:
        """Return the session of the next message, and which one that was cut out of, None where it was not.

        A message without a time is of the session of the one before it.

        >>> gaps = SilentGaps(30)
        >>> [gaps.session("a", datetime(2024, 5, 8, 9, minute))[0] for minute in (0, 29)]
        ['log 2024-05-08T09:00:00', 'log 2024-05-08T09:00:00']
        """
        name, last = self._open.get(namespace, (DEFAULT_SESSION, None))
        if self._gap and said_at is not None:
            if last is None or abs(said_at - last) > self._gap:
                name = f"{DEFAULT_SESSION} {said_at.isoformat(timespec='seconds')}"
            self._open[namespace] = (name, said_at)
        return name, None if name == DEFAULT_SESSION else DEFAULT_SESSION
