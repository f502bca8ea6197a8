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


class Silent:
    """Shows nothing."""

    def start(self, stage: str, total: int | None) -> None:
        """Ignore the announcement."""

    def advance(self, stage: str, amount: int) -> None:
        """Ignore the report."""
