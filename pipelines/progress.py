"""How far a job is, for whoever shows it: the dataflow reports, the jobs draw."""

from typing import Protocol


class Progress(Protocol):
    """Takes reports of work done; may be called from several threads."""

    def start(self, stage: str, total: int | None) -> None:
        """Announce a stage and its amount of work, None where that is not known beforehand."""
        ...

    def advance(self, stage: str, amount: int) -> None:
        """Report that `amount` more of a stage's work is done."""
        ...

    def finish(self, stage: str) -> None:
        """Report that a stage is done; one with a known amount of work is when all of it was reported."""
        ...

    def note(self, text: str) -> None:
        """Say something that whoever watches should know, in one line; nothing of what the logs hold."""
        ...


class Silent:
    """Shows nothing."""

    def start(self, stage: str, total: int | None) -> None:
        """Ignore the announcement."""

    def advance(self, stage: str, amount: int) -> None:
        """Ignore the report."""

    def finish(self, stage: str) -> None:
        """Ignore the report."""

    def note(self, text: str) -> None:
        """Ignore the note."""
