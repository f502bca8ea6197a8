"""A report as one HTML page: no script, no request, whatever is in a log nothing but text. The owner of jinja2."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Literal, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipelines.report_charts import Chart

Tone: TypeAlias = Literal["good", "bad", "plain"]


@dataclass(frozen=True, slots=True)
class Tile:
    """A number to see first: its name, the number as it is written, and what belongs to it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence to read first, and whether it is good news."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts.

    Attributes:
        title: What it holds.
        columns: Their names.
        rows: As they are written.
        texts: How many columns from the left hold texts; the others hold numbers.
        is_folded: Whether it is opened by whoever wants it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Missed:
    """A piece of evidence that was missed: who said what, why it was missed, and its place in each list."""

    speaker: str
    text: str
    why: str
    legs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question that was answered badly.

    Attributes:
        text: What was asked.
        about: Of which kind, where, and how much was found.
        missed: Evidence.
        first: What was ranked first: speaker, text, and whether it is evidence.
    """

    text: str
    about: str
    missed: Sequence[Missed]
    first: Sequence[tuple[str, str, bool]]


@dataclass(frozen=True, slots=True)
class Questions:
    """The worst questions of a recipe."""

    title: str
    questions: Sequence[Question]
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page.

    Attributes:
        title: Its heading.
        lead: What it shows, in a sentence or two.
        charts: Beside each other where there is room.
        tables: Below.
        asked: Worst questions, below these.
    """

    title: str
    lead: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    asked: Sequence[Questions] = ()

    @property
    def anchor(self) -> str:
        """What links to it.

        >>> Section("Time, by stage").anchor
        'time-by-stage'
        """
        return "-".join("".join(letter if letter.isalnum() else " " for letter in self.title.lower()).split())


@dataclass(frozen=True, slots=True)
class Page:
    """A report.

    Attributes:
        title: What it is of.
        about: Where that comes from, in a line.
        tiles: The numbers to see first.
        findings: The sentences to read first.
        sections: The rest.
    """

    title: str
    about: str
    tiles: Sequence[Tile]
    findings: Sequence[Finding]
    sections: Sequence[Section] = field(default_factory=tuple)


def render(page: Page) -> str:
    """Return a page as HTML: one file with all that it needs."""
    environment = Environment(
        loader=PackageLoader("pipelines", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["drawn"] = lambda chart: Markup(chart.svg)  # an XML library wrote it
    style = Markup((files("pipelines") / "report" / "report.css").read_text(encoding="utf-8"))
    return environment.get_template("page.html").render(page=page, style=style)
