import json

import pytest
from matplotlib.figure import Figure

from pipelines.training_curves import write_curves

ABOUT = {"recipe": "hage", "task": "locomo", "seed": 3}
ROWS = [
    {"epoch": 0, "recall@10": 41.0},
    {"epoch": 1, "loss": 2.0, "return": -1.0, "success": 0.1},
    {"epoch": 2, "loss": 1.0, "return": 3.0, "success": 0.3, "recall@10": 52.5},
]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn."""
    found = []
    save = Figure.savefig

    def keep(figure, path, **settings):
        found.append(figure)
        save(figure, path, **settings)

    monkeypatch.setattr(Figure, "savefig", keep)
    return found


def test_each_measure_has_a_panel_with_what_was_measured(tmp_path, drawn):
    write_curves(tmp_path, ROWS, ABOUT)
    [figure] = drawn
    lines = {axes.get_title(loc="left"): [list(values) for values in axes.lines[0].get_data()] for axes in figure.axes}
    assert lines == {
        "loss of the policy": [[1, 2], [2.0, 1.0]],
        "discounted return of a walk": [[1, 2], [-1.0, 3.0]],
        "share of walks that found all evidence": [[1, 2], [0.1, 0.3]],
        "recall@10 of the validation questions": [[0, 2], [41.0, 52.5]],
    }
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "epoch", "epoch"]
    written = {text.get_text() for text in figure.findobj(lambda part: hasattr(part, "get_text"))}
    assert {"Training of hage", "task locomo, seed 3"} <= written
    assert json.loads((tmp_path / "curves.json").read_text()) == {**ABOUT, "rows": ROWS}


def test_equal_curves_are_equal_files(tmp_path):
    pictures = []
    for _ in range(2):
        write_curves(tmp_path, ROWS, ABOUT)
        pictures.append((tmp_path / "curves.png").read_bytes())
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize("measures", [1, 2, 3, 5])
def test_any_number_of_measures_is_drawn(tmp_path, drawn, measures):
    names = [f"m{number}" for number in range(measures)]
    write_curves(tmp_path, [{"trees": trees, **dict.fromkeys(names, 1.0)} for trees in (10, 20)], ABOUT)
    assert [axes.get_title(loc="left") for axes in drawn[0].axes] == names
    assert [axes.get_xlabel() for axes in drawn[0].axes][-min(2, measures) :] == ["trees"] * min(2, measures)
