import pytest
from matplotlib.figure import Figure

from pipelines.plots import draw

MACHINE = {"cpu": "Some CPU", "cores": 2, "memory_gib": 24}
ABOUT = {"machine": MACHINE, "commit": "0123456789abcdef", "repeats": 3, "encoder": "static"}


def spread(middle):
    return {"median": middle, "min": 0.9 * middle, "max": 1.2 * middle}


def scale(engine):
    sizes = [
        {
            "turns": turns,
            "ms_a_turn_by_stage": {"import": spread(0.5), "extract": spread(1.5), "index": spread(1.0)},
            "ms_a_turn": {"cpu": spread(2.5)},
            "peak_memory_mib": spread(turns / 50),
            "store_mib": turns / 40,
        }
        for turns in (10_000, 100_000)
    ]
    return {"case": "scale", "engine": engine, "sizes": sizes, **ABOUT}


def incremental(engine):
    grown = {
        kind: {
            "new_turns": 100,
            "namespaces_with_new_turns": count,
            "cpu_share": spread(0.02),
            "cpu_seconds": spread(1.0),
        }
        for kind, count in (("few", 2), ("all", 100))
    }
    return {"case": "incremental", "engine": engine, "turns": 10_000, "namespaces": 200, "grown": grown, **ABOUT}


def search(turns, slowest):
    times = {"bm25": 0.2, "hypermem": slowest}
    tails = {name: 2 * time for name, time in times.items()}
    return {"case": "search", "turns": turns, "p50_ms": times, "p95_ms": tails, **ABOUT, "encoder": "free"}


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn, by the name of their file."""
    found = {}
    save = Figure.savefig

    def keep(figure, path, **settings):
        found[path.name] = figure
        save(figure, path, **settings)

    monkeypatch.setattr(Figure, "savefig", keep)
    return found


def texts(figure):
    """All that is written in a figure, joined."""
    return "\n".join(text.get_text() for text in figure.findobj(lambda part: hasattr(part, "get_text")))


def test_every_case_has_its_pictures(figures, tmp_path):
    results = [scale("local"), scale("ray"), incremental("ray"), search(600, 0.7), search(50_000, 30.0)]
    files = draw(results, tmp_path / "new" / "plots")
    assert [file.name for file in files] == [
        "scale-stages.png",
        "scale-memory-disk.png",
        "incremental.png",
        "search.png",
    ]
    for file in files:
        assert file.read_bytes().startswith(b"\x89PNG")
        written = texts(figures[file.name])
        assert "Some CPU, 2 cores, 24 GiB; commit 01234567" in written
        assert ("medians of 3 repeats" in written) == (file.name != "search.png")
        for axes in figures[file.name].axes:
            assert axes.get_title(loc="left")
            assert axes.get_xlabel() or axes.get_ylabel()
    assert [file.name for file in draw(results[2:3], tmp_path)] == ["incremental.png"]


def test_equal_results_give_equal_files(tmp_path):
    [one], [other] = draw([search(600, 0.7)], tmp_path / "one"), draw([search(600, 0.7)], tmp_path / "other")
    assert one.read_bytes() == other.read_bytes()


def test_bars_stack_the_stages_of_each_engine_and_size(figures, tmp_path):
    draw([scale("local"), scale("ray")], tmp_path)
    [axes] = figures["scale-stages.png"].axes
    tops = {}
    for bar in axes.patches:
        place = round(bar.get_x(), 3)
        tops[place] = max(tops.get(place, 0.0), bar.get_y() + bar.get_height())
    assert list(tops.values()) == pytest.approx([3.0] * 4)
    written = texts(figures["scale-stages.png"])
    for expected in ("local, static", "ray, static", "10,000\nturns", "100,000\nturns", "milliseconds a turn", "3.00"):
        assert expected in written
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"import", "extract", "index", "CPU of all processes"} <= set(labels)


def test_memory_and_disk_are_lines_against_turns(figures, tmp_path):
    draw([scale("local"), scale("ray")], tmp_path)
    memory, disk = figures["scale-memory-disk.png"].axes
    for axes in (memory, disk):
        assert axes.get_xlabel() == "turns in the log"
        assert [label.get_text() for label in axes.get_xticklabels()] == ["10,000", "100,000"]
        assert "GiB" in "".join(label.get_text() for label in axes.get_yticklabels())
    [legend] = figures["scale-memory-disk.png"].legends
    assert [text.get_text() for text in legend.get_texts()] == ["local, static", "ray, static"]
    assert list(disk.lines[0].get_ydata()) == [250.0, 2_500.0]
    assert "2.44 GiB" in texts(figures["scale-memory-disk.png"])


def test_shares_and_latencies_are_written_beside_their_marks(figures, tmp_path):
    draw([incremental("local"), search(600, 0.7), search(50_000, 30.0)], tmp_path)
    written = texts(figures["incremental.png"])
    assert "100 new in 2 of 200 namespaces" in written
    assert "2.0 %   (1.0 s of CPU)" in written
    written = texts(figures["search.png"])
    assert "30.00 / 60.00" in written
    assert "50,000 turns, 384 dimensions" in written
    [axes] = figures["search.png"].axes
    assert axes.get_xscale() == "log"
