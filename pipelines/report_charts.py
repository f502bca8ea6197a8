"""Charts of reports: SVG to stand in a page, its texts as text, its colours those of the page's style sheet."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import count
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ElementTree.register_namespace("", _SVG)
ElementTree.register_namespace("xlink", _XLINK)

# matplotlib writes colours as numbers: each of these stands for a variable of the style sheet.
_INK, _SOFT, _LINE = "#010101", "#020202", "#030303"
_SERIES = ("#0a0101", "#0a0202", "#0a0303", "#0a0404", "#0a0505", "#0a0606")
_VARIABLES = {_INK: "--ink", _SOFT: "--soft", _LINE: "--line"} | {
    colour: f"--series-{number}" for number, colour in enumerate(_SERIES, 1)
}
_MARKS = ("o", "s", "^", "D", "v", "P")

_WIDTH_INCHES = 4.7
_STYLE: dict[Any, Any] = {  # the stubs would have a literal for each name
    "svg.fonttype": "none",
    "svg.hashsalt": "hgmem",  # equal charts are equal texts
    "text.parse_math": False,  # a $ in a name is a $
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _SOFT,
    "axes.edgecolor": _LINE,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _SOFT,
    "ytick.color": _LINE,
    "xtick.labelcolor": _SOFT,
    "ytick.labelcolor": _INK,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture and what it says.

    Attributes:
        title: Above it.
        svg: The picture, with the same in words for who cannot see it.
        note: Below it; may be empty.
    """

    title: str
    svg: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; `low` and `high` are None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None


class Charts:
    """Draws the charts of one page; no two of them share an id."""

    def __init__(self) -> None:
        """Draw nothing yet."""
        self._numbers = count(1)

    def bars(self, title: str, parts: Mapping[str, Mapping[str, float]], unit: str) -> Chart:
        """Draw a horizontal bar for each name, of one or more parts that are named alike in all.

        Args:
            title: Above it.
            parts: By the names of bars, the first on top, the length of each part.
            unit: What lengths count.
        """
        names = list(dict.fromkeys(part for own in parts.values() for part in own))
        with matplotlib.rc_context(_STYLE):
            figure, axes = _panel(0.75 + 0.29 * len(parts) + 0.25 * (len(names) > 1))
            floor = np.zeros(len(parts))
            for part, colour in zip(names, _colours(len(names)), strict=True):
                lengths = np.array([own.get(part, 0) for own in parts.values()], float)
                axes.barh(range(len(parts)), lengths, 0.66, floor, color=colour, label=part)
                floor += lengths
            for place, length in enumerate(floor.tolist()):
                _beside(axes, length, place, _number(length))
            _names_of_rows(axes, list(parts))
            axes.set_xlim(0, 1.2 * max([*floor.tolist(), 1e-9]))
            _along(axes, unit)
            if len(names) > 1:
                _legend(figure, axes)
            told = "; ".join(
                f"{name} "
                + ", ".join(f"{part} {_number(own[part])}" if len(names) > 1 else _number(own[part]) for part in own)
                for name, own in parts.items()
            )
            return self._chart(figure, title, f"{unit}: {told}")

    def histogram(self, title: str, values: Sequence[float], unit: str, of: str) -> Chart:
        """Draw how often values are how large.

        Args:
            title: Above it.
            values: At least one.
            unit: What a value counts.
            of: What has values, such as `episodes`.
        """
        numbers = np.asarray(values, float)
        low, high = float(numbers.min()), float(numbers.max())
        is_whole = bool((numbers == numbers.round()).all())
        edges: Any = np.linspace(low, high, 21) if high > low else np.array([low - 0.5, low + 0.5])
        if is_whole:
            step = max(1, int(np.ceil((high - low + 1) / 20)))
            edges = np.arange(low, high + step + 1, step) - 0.5
        with matplotlib.rc_context(_STYLE):
            figure, axes = _panel(2.4)
            axes.hist(numbers, edges, color=_SERIES[0], rwidth=0.9)
            middle = float(np.median(numbers))
            axes.axvline(middle, color=_INK, linewidth=1.2, linestyle=(0, (4, 3)))
            axes.grid(axis="y")
            axes.set(xlabel=unit, ylabel=of)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=is_whole))
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.tick_params(axis="y", labelcolor=_SOFT)
            tenth, most = np.percentile(numbers, [10, 90])
            told = (
                f"{len(numbers):,} {of}: median {_number(middle)} (dashed), 80 % of them from {_number(float(tenth))} "
                f"to {_number(float(most))}, all from {_number(low)} to {_number(high)}"
            )
            return self._chart(figure, title, told, told)

    def intervals(
        self, title: str, rows: Mapping[str, Mapping[str, Estimate]], unit: str, is_difference: bool = False
    ) -> Chart:
        """Draw estimates with their intervals: a row for each name, in it a mark for each series.

        Args:
            title: Above it.
            rows: By their names, the first on top, the estimates by series.
            unit: Of the estimates.
            is_difference: Whether 0 is drawn, for intervals to hold it or not.
        """
        series = list(dict.fromkeys(name for own in rows.values() for name in own))
        with matplotlib.rc_context(_STYLE):
            figure, axes = _panel(0.8 + len(rows) * (0.16 + 0.16 * len(series)) + 0.25 * (len(series) > 1))
            for number, (name, colour) in enumerate(zip(series, _colours(len(series)), strict=True)):
                shift = 0.72 * ((number + 0.5) / len(series) - 0.5)
                known = [(place + shift, own[name]) for place, own in enumerate(rows.values()) if name in own]
                for place, one in known:
                    if one.low is not None and one.high is not None:
                        axes.plot([one.low, one.high], [place, place], color=colour, linewidth=2, solid_capstyle="butt")
                places, values = [place for place, _ in known], [one.value for _, one in known]
                axes.plot(
                    values, places, _MARKS[number % len(_MARKS)], color=colour, markersize=5.5, linewidth=0, label=name
                )
            if is_difference:
                axes.axvline(0, color=_INK, linewidth=1)
            _names_of_rows(axes, list(rows))
            _along(axes, unit)
            if len(series) > 1:
                _legend(figure, axes)
            told = "; ".join(
                f"{row} {', '.join(f'{name} {_estimate(one)}' for name, one in own.items())}"
                for row, own in rows.items()
            )
            return self._chart(figure, title, f"{unit}: {told}")

    def curve(self, title: str, rows: Sequence[Mapping[str, float]], along: str, measure: str) -> Chart:
        """Draw a measure of a training; rows without it are left out.

        Args:
            title: Above it.
            rows: At least one has the measure.
            along: The key of what rows count, such as `epoch`.
            measure: Its key.
        """
        known = [(row[along], row[measure]) for row in rows if measure in row]
        with matplotlib.rc_context(_STYLE):
            figure, axes = _panel(2.4)
            places, values = zip(*known, strict=True)
            axes.plot(
                places, values, color=_SERIES[0], linewidth=1.6, marker="o" if len(known) <= 40 else "", markersize=4
            )
            axes.grid()
            axes.set(xlabel=along, ylabel=measure)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.tick_params(axis="y", labelcolor=_SOFT)
            told = f"{measure} {_number(values[0])} at {along} {places[0]:g}, {_number(values[-1])} at {places[-1]:g}"
            return self._chart(figure, title, told)

    def _chart(self, figure: Figure, title: str, told: str, note: str = "") -> Chart:
        prefix = f"chart{next(self._numbers)}-"
        written = StringIO()
        # Without date and software, equal charts are equal texts.
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        return Chart(title, _for_page(written.getvalue(), prefix, f"{title}. {told}"), note)


def _for_page(svg: str, prefix: str, told: str) -> str:
    """Return an SVG file as an element of a page, with ids that are its own and the page's colours."""
    root = ElementTree.fromstring(svg)
    for own in ("metadata", "defs/{*}style"):  # a style of all elements would be the page's, too
        for element in root.findall("{*}" + own):
            next(parent for parent in root.iter() if element in parent).remove(element)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id":
                element.set(name, prefix + value)
            elif name == f"{{{_XLINK}}}href":
                element.set(name, "#" + prefix + value.removeprefix("#"))
            else:
                value = re.sub(r"url\(#", f"url(#{prefix}", value)
                element.set(name, _COLOURS.sub(lambda found: f"var({_VARIABLES[found[0]]})", value))
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", told)
    return ElementTree.tostring(root, encoding="unicode")


_COLOURS = re.compile("|".join(map(re.escape, _VARIABLES)))


def _panel(height_inches: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
    return figure, figure.subplots()


def _colours(amount: int) -> list[str]:
    return [_SERIES[number % len(_SERIES)] for number in range(amount)]


def _names_of_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [name if len(name) <= 28 else name[:27] + "…" for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.4, -0.6)


def _along(axes: Axes, unit: str) -> None:
    axes.set_xlabel(unit)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.grid(axis="x")


def _legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=3, handlelength=1.2, columnspacing=1.2)


def _beside(axes: Axes, value: float, place: float, text: str) -> None:
    axes.annotate(text, (value, place), (4, 0), textcoords="offset points", va="center", fontsize=9, color=_SOFT)


def _estimate(one: Estimate) -> str:
    return _number(one.value) + ("" if one.low is None or one.high is None else f" ({one.low:.1f} to {one.high:.1f})")


def _number(value: float) -> str:
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
