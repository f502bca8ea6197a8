"""The owner of matplotlib: result documents of `jobs.benchmark`, and curves of trainings, as PNG files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

Result: TypeAlias = Mapping[str, Any]

_STYLE: dict[Any, Any] = {  # the stubs would have a literal for each name
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.edgecolor": "#666666",
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "figure.constrained_layout.h_pad": 0.12,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.dpi": 150,
    "figure.facecolor": "white",
}
# Stages of one kind have shades of one colour.
_STAGE_COLOURS = {
    "import": "#8c8c8c",
    "merge": "#bdbdbd",
    "encode_turns": "#08519c",
    "encode_facts": "#3182bd",
    "encode_episodes": "#6baed6",
    "encode_topics": "#bdd7e7",
    "segment": "#fdae6b",
    "extract": "#e6550d",
    "consolidate": "#a63603",
    "group": "#756bb1",
    "propagate": "#bcbddc",
    "relate": "#e7969c",
    "index": "#31a354",
}
_SERIES_COLOURS = ("#3182bd", "#e6550d", "#31a354", "#756bb1", "#636363", "#d6a400")
_MARKS = ("o", "s", "^", "D", "v", "P")
_VECTORS = {"free": "384 dimensions", "static": "256 dimensions", "minilm": "384 dimensions"}
_CAPTION_COLOUR = "#555555"
_FEW_POINTS = 40
"""Of a curve, each of which has a mark."""


def draw(results: Sequence[Result], folder: Path) -> list[Path]:
    """Draw every picture that there are results for into `folder`, and return the files.

    Args:
        results: Documents of the cases `scale`, `incremental` and `search`, in the order of their bars and lines.
        folder: Where to; made if need be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with matplotlib.rc_context(_STYLE):
        for name, case, picture in _PICTURES:
            chosen = [result for result in results if result["case"] == case]
            if chosen:
                files.append(folder / f"{name}.png")
                # Without the version of matplotlib, equal pictures are equal files.
                picture(chosen).savefig(files[-1], metadata={"Software": None})
    return files


def draw_curve(
    rows: Sequence[Mapping[str, float]], names: Mapping[str, str], title: str, note: str, path: Path
) -> None:
    """Draw each measure of a training against what its rows count: a panel for each.

    Args:
        rows: The first key is what they count, such as `epoch`; a row may lack a measure.
        names: Of measures, for people; of those that have none, the key.
        title: Of the whole.
        note: Written below.
        path: The PNG file.
    """
    along, *measures = sorted(rows[-1], key=lambda name: -sum(name in row for row in rows))
    with matplotlib.rc_context(_STYLE):
        columns = min(2, len(measures))
        lines = -(-len(measures) // columns)
        figure = Figure(figsize=(5.2 * columns + 0.6, 2.7 * lines + 1.1), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).ravel()
        for number, (axes, measure) in enumerate(zip(panels, measures, strict=False)):
            known = [row for row in rows if measure in row]
            mark = "o" if len(known) <= _FEW_POINTS else ""
            places, values = ([row[name] for row in known] for name in (along, measure))
            axes.plot(places, values, color=_SERIES_COLOURS[number % 6], marker=mark, markersize=4, linewidth=1.5)
            axes.set_title(names.get(measure, measure))
            axes.grid()
            axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        for axes in panels[len(measures) :]:
            axes.remove()
        for axes in panels[max(0, len(measures) - columns) : len(measures)]:
            axes.set_xlabel(along)
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=13)
        figure.supxlabel(note, x=0.01, ha="left", fontsize=8.5, color=_CAPTION_COLOUR)
        figure.savefig(path, metadata={"Software": None})


def _stages(results: Sequence[Result]) -> Figure:
    """Return the work a turn by stage: a stacked bar for each engine and size."""
    bars = [(result, row) for result in results for row in result["sizes"]]
    figure = Figure(figsize=(max(7.5, 3.2 + 1.25 * len(bars)), 6.2), layout="constrained")
    axes = figure.subplots()
    places = _places([len(result["sizes"]) for result in results])
    floor = [0.0] * len(bars)
    for stage, colour in _STAGE_COLOURS.items():
        heights = [row["ms_a_turn_by_stage"].get(stage, {"median": 0.0})["median"] for _, row in bars]
        axes.bar(places, heights, 0.48, floor, color=colour, edgecolor="white", linewidth=0.6, label=stage)
        floor = [below + height for below, height in zip(floor, heights, strict=True)]
    for place, top in zip(places, floor, strict=True):
        axes.annotate(f"{top:.2f}", (place, top), (0, 5), textcoords="offset points", ha="center")
    cpu = [row["ms_a_turn"]["cpu"] for _, row in bars]
    beside = [place + 0.42 for place in places]
    axes.errorbar(
        beside,
        [one["median"] for one in cpu],
        yerr=_errors(cpu),
        fmt="D",
        color="black",
        markeredgecolor="white",
        markersize=8,
        capsize=4,
        label="CPU of all processes",
    )
    for place, one in zip(beside, cpu, strict=True):
        axes.annotate(
            f"{one['median']:.2f}", (place, one["max"]), (0, 7), textcoords="offset points", ha="center", fontsize=9
        )
    axes.set_ylim(0, 1.12 * max([*floor, *(one["max"] for one in cpu)]))
    axes.set_xticks(places, [f"{row['turns']:,}\nturns" for _, row in bars])
    _name_groups(axes, places, results)
    axes.set_ylabel("milliseconds a turn")
    axes.grid(axis="y")
    axes.set_title("Work a turn, by stage")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.01, 1.0))
    _caption(
        figure,
        results,
        "Bars: time that workers spent, waiting included. Diamonds: CPU time, start-up and all overhead included.",
    )
    return figure


def _memory_and_disk(results: Sequence[Result]) -> Figure:
    """Return the peak of memory and the size of the store against the turns: a line for each engine."""
    figure = Figure(figsize=(11, 5.4), layout="constrained")
    panels = figure.subplots(1, 2)
    for number, result in enumerate(results):
        turns = [row["turns"] for row in result["sizes"]]
        style = {"color": _SERIES_COLOURS[number % 6], "marker": _MARKS[number % 6], "linewidth": 2, "markersize": 7}
        memory = [row["peak_memory_mib"] for row in result["sizes"]]
        peaks = [one["median"] for one in memory]
        panels[0].errorbar(turns, peaks, yerr=_errors(memory), capsize=4, label=_series(result), **style)
        stores = [row["store_mib"] for row in result["sizes"]]
        panels[1].plot(turns, stores, label=_series(result), **style)
        for axes, values in ((panels[0], peaks), (panels[1], stores)):
            for place, value in zip(turns, values, strict=True):
                beside = (-8, 6) if number % 2 else (8, -12)
                align = "right" if number % 2 else "left"
                axes.annotate(
                    _mebibytes(value),
                    (place, value),
                    beside,
                    textcoords="offset points",
                    ha=align,
                    fontsize=9,
                    color=style["color"],
                )
    sizes = sorted({row["turns"] for result in results for row in result["sizes"]})
    titles = (("Peak memory, all processes", "memory (PSS)"), ("Disk used by the store", "size of all files"))
    for axes, (title, what) in zip(panels, titles, strict=True):
        axes.set(xscale="log", yscale="log", xlabel="turns in the log", ylabel=what)
        axes.set_title(title)
        axes.margins(x=0.22, y=0.18)
        axes.grid(which="major")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(LogLocator(base=2, numticks=12))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _mebibytes(value)))
        axes.yaxis.set_minor_locator(NullLocator())
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(results))
    _caption(figure, results, "Memory: the sum of each process's share of its pages (PSS).")
    return figure


def _rebuilds(results: Sequence[Result]) -> Figure:
    """Return what a rebuild costs after the log grew, as a share of the full one: a bar for each engine and spread."""
    rows = [(result, kind, result["grown"][kind]) for result in results for kind in result["grown"]]
    figure = Figure(figsize=(9.5, 2.4 + 0.75 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for number, (_, kind, row) in enumerate(rows):
        share = {name: 100 * value for name, value in row["cpu_share"].items()}
        colour = _SERIES_COLOURS[("few", "all").index(kind)]
        axes.barh(number, share["median"], 0.62, color=colour, xerr=_errors([share]), capsize=4, ecolor="#333333")
        said = f"{share['median']:.1f} %   ({row['cpu_seconds']['median']:,.1f} s of CPU)"
        axes.annotate(said, (share["max"], number), (8, 0), textcoords="offset points", va="center")
    axes.set_yticks(
        range(len(rows)),
        [
            f"{_series(result)}, {result['turns']:,} turns\n"
            f"{row['new_turns']:,} new in {row['namespaces_with_new_turns']:,} of {result['namespaces']:,} namespaces"
            for result, _, row in rows
        ],
    )
    axes.invert_yaxis()
    axes.set_xlim(0, 1.45 * max(100 * row["cpu_share"]["max"] for _, _, row in rows))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.set_xlabel("CPU of the rebuild, as a share of the full rebuild's")
    axes.grid(axis="x")
    axes.set_title("A rebuild after 1 % new turns")
    _caption(figure, results, "CPU of all processes, engine start-up included.")
    return figure


def _searches(results: Sequence[Result]) -> Figure:
    """Return the time of a search by recipe: the median, and how far the 95th percentile lies from it."""
    results = sorted(results, key=lambda result: int(result["turns"]))
    recipes = list(dict.fromkeys(recipe for result in results for recipe in result["p50_ms"]))
    figure = Figure(figsize=(9.5, 1.9 + (0.22 + 0.2 * len(results)) * len(recipes)), layout="constrained")
    axes = figure.subplots()
    for number, result in enumerate(results):
        shift = 0.62 * ((number + 0.5) / len(results) - 0.5)
        places = [recipes.index(recipe) + shift for recipe in result["p50_ms"]]
        medians = list(result["p50_ms"].values())
        tails = list(result["p95_ms"].values())
        colour = _SERIES_COLOURS[number % 6]
        axes.hlines(places, medians, tails, color=colour, linewidth=3, alpha=0.45)
        name = f"{result['turns']:,} turns, {_VECTORS.get(result['encoder'], result['encoder'])}"
        axes.plot(medians, places, _MARKS[number % 6], color=colour, markersize=7, label=name)
        axes.plot(tails, places, "|", color=colour, markersize=10, markeredgewidth=2)
        for place, middle, tail in zip(places, medians, tails, strict=True):
            label = f"{middle:.2f} / {tail:.2f}"
            axes.annotate(label, (tail, place), (8, 0), textcoords="offset points", va="center", fontsize=9)
    every = [value for result in results for name in ("p50_ms", "p95_ms") for value in result[name].values()]
    if max(every) > 10 * min(every):
        axes.set_xscale("log")
        axes.set_xlim(0.7 * min(every), 2.6 * max(every))
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, 1.3 * max(every))
    axes.set_yticks(range(len(recipes)), recipes)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds a search in one namespace, one thread, query vector given")
    axes.grid(axis="x")
    axes.set_title("Search by recipe")
    axes.legend(loc="upper right", title="namespace of")
    _caption(figure, results, "Marks: medians; bars reach to the 95th percentile; labels tell both.")
    return figure


_PICTURES: tuple[tuple[str, str, Callable[[Sequence[Result]], Figure]], ...] = (
    ("scale-stages", "scale", _stages),
    ("scale-memory-disk", "scale", _memory_and_disk),
    ("incremental", "incremental", _rebuilds),
    ("search", "search", _searches),
)


def _places(sizes: Sequence[int]) -> list[float]:
    """Return where bars stand that come in groups of these sizes."""
    places: list[float] = []
    for group, size in enumerate(sizes):
        places += [len(places) + 0.6 * group + number for number in range(size)]
    return places


def _name_groups(axes: Axes, places: Sequence[float], results: Sequence[Result]) -> None:
    start = 0
    for result in results:
        group = places[start : start + len(result["sizes"])]
        start += len(group)
        axes.annotate(
            _series(result),
            ((group[0] + group[-1]) / 2, 0),
            (0, -44),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            va="top",
            fontweight="bold",
        )


def _series(result: Result) -> str:
    return f"{result['engine']}, {result['encoder']}"


def _errors(values: Sequence[Mapping[str, float]]) -> list[list[float]]:
    """Return how far the least and the largest lie from the medians."""
    return [[one["median"] - one["min"] for one in values], [one["max"] - one["median"] for one in values]]


def _mebibytes(value: float) -> str:
    return f"{value / 1024:.3g} GiB" if value >= 1_000 else f"{value:.3g} MiB"


def _caption(figure: Figure, results: Sequence[Result], note: str) -> None:
    """Write below a picture where its numbers come from."""
    machines = dict.fromkeys(
        f"{result['machine']['cpu']}, {result['machine']['cores']} cores, {result['machine']['memory_gib']} GiB"
        for result in results
    )
    commits = dict.fromkeys(str(result["commit"])[:8] for result in results)
    where = f"{'; '.join(machines)}; commit {', '.join(commits)}"
    repeats = sorted({result["repeats"] for result in results})
    if results[0]["case"] != "search" and repeats != [1]:
        where += f"; medians of {' or '.join(map(str, repeats))} repeats, thin lines from the least to the largest"
    figure.supxlabel(f"{note}\n{where}".strip(), x=0.01, ha="left", fontsize=8.5, color=_CAPTION_COLOUR)
