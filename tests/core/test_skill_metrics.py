from datetime import UTC, datetime

import numpy as np
import pytest

from hgmem_core.skill_metrics import (
    SkillScores,
    TemplateLifts,
    coverage,
    family_precision,
    harmful_rate,
    only_in_failures,
    prevailing_family,
    split_by_task,
    templates_of_runs,
)
from hgmem_core.tasks.run_families import database_of_task, kind_of_household_task, named_family, writes_of_task
from hgmem_core.trajectories import Run, Step, trajectories_table

IMPORTED = datetime(2026, 1, 1, tzinfo=UTC)
OPEN, TAKE, WAIT = "open <object>", "take <object> from <object>", "wait <number>"


def runs_table(*runs):
    """TRAJECTORY of pairs of a task and actions."""
    made = [
        Run(str(place), "n", str(place), task, f"do {task}", tuple(map(Step, actions)), "success", len(actions))
        for place, (task, *actions) in enumerate(runs)
    ]
    return trajectories_table(made, 0, IMPORTED)


def tasks_of(table):
    return table.column("task_id").to_pylist()


def test_all_runs_of_a_task_are_on_one_side_and_earlier_tasks_are_learned_from():
    earlier, later = split_by_task(
        runs_table(("a", "x 1"), ("b", "x 1"), ("c", "x 1"), ("a", "x 1"), ("d", "x 1")), 0.7
    )
    assert (tasks_of(earlier), tasks_of(later)) == (["a", "b", "a"], ["c", "d"])


@pytest.mark.parametrize(("share", "learned"), [(0.0, ["a"]), (1.0, ["a", "b"])])
def test_there_is_always_something_on_either_side_of_several_tasks(share, learned):
    earlier, later = split_by_task(runs_table(("a", "x 1"), ("b", "x 1"), ("c", "x 1")), share)
    assert tasks_of(earlier) == learned
    assert tasks_of(later) == ["a", "b", "c"][len(learned) :]


def test_one_task_alone_is_held_out_and_no_task_is_neither():
    for table in (runs_table(("a", "x 1"), ("a", "x 1")), runs_table()):
        earlier, later = split_by_task(table, 0.7)
        assert (earlier.num_rows, later.num_rows) == (0, table.num_rows)


def test_a_run_is_the_set_of_its_templates_and_words_to_a_user_are_none():
    table = runs_table(
        ("a", "open shelf 1", "Is that all?", "open shelf 2", "take cup 1 from shelf 2"), ("b", "Hello!")
    )
    assert templates_of_runs(table) == [frozenset({OPEN, TAKE}), frozenset()]


def test_coverage_weighs_templates_by_how_much_more_often_they_come_with_success():
    # Of two runs that succeeded both open, of two that failed one does: (2.5 / 3) / (1.5 / 3). All wait: 1.
    lifts = TemplateLifts(
        [{OPEN, WAIT}, {OPEN, WAIT}, {OPEN, WAIT}, {WAIT}], ["success", "success", "failure", "failure"]
    )
    assert lifts.of(OPEN) == pytest.approx(5 / 3)
    assert lifts.of(WAIT) == lifts.of(TAKE) == 1.0
    assert coverage({OPEN, WAIT}, f"First `{OPEN}`.", lifts) == pytest.approx(100 * 5 / 8)
    assert coverage({OPEN, TAKE}, f"`{TAKE}`", lifts) == pytest.approx(100 * 3 / 8)
    assert coverage({OPEN}, f"{OPEN}, `{OPEN} with <object>`", lifts) == 0.0


def test_a_template_that_no_run_has_weighs_one_though_outcomes_are_uneven():
    lifts = TemplateLifts([{OPEN}, {OPEN}, {OPEN}], ["failure", "failure", "unknown"])
    assert lifts.of(TAKE) == 1.0
    assert lifts.of(OPEN) == pytest.approx(0.5 / (2.5 / 3))


def test_the_family_of_a_skill_is_that_of_more_than_half_of_all_its_runs():
    assert prevailing_family(["heat", "heat", "cool"]) == "heat"
    assert prevailing_family(["heat", "cool"]) is None
    assert prevailing_family(["heat", None]) is None
    assert prevailing_family([]) is None


def test_precision_looks_at_five_skills_or_as_many_as_there_are():
    assert family_precision(["heat", "cool", None, "heat", "heat", "heat"], "heat") == pytest.approx(60)
    assert family_precision(["heat", "cool"], "heat") == pytest.approx(50)
    assert family_precision([], "heat") == 0.0


def test_what_is_harmful_occurs_where_runs_failed_and_nowhere_else():
    harmful = only_in_failures([{OPEN, WAIT}, {OPEN}, {TAKE}], ["failure", "success", "unknown"])
    assert harmful == {WAIT}
    assert harmful_rate([f"`{OPEN}`, then `{WAIT}`", f"`{OPEN}`", "wait <number>", ""], harmful) == pytest.approx(25)
    assert harmful_rate([], harmful) == 0.0


def scores():
    # Task a has two runs of which one applies to the second metric; task b one run; task c is not of the second.
    nan = np.nan
    first = {"one": np.array([100.0, 0.0, 0.0, 30.0]), "two": np.array([40.0, nan, 80.0, nan])}
    other = {"one": np.array([0.0, 0.0, 0.0, 30.0]), "two": np.array([20.0, nan, 20.0, nan])}
    return SkillScores(["a", "a", "b", "c"], {"x": first, "y": other})


def test_means_are_of_tasks_and_not_of_runs():
    x, y = scores().rows()
    assert (x["system"], x["one"], x["two"]) == ("x", pytest.approx(26.67), 60.0)
    assert (y["one"], y["two"]) == (10.0, 20.0)
    assert x["tasks"] == {"one": 3, "two": 2}
    assert x["ci95"]["two"] == [40.0, 80.0]


def test_differences_are_paired_by_task():
    one, two = scores().differences("x")
    assert (one["system"], one["baseline"], one["metric"], one["difference"]) == ("y", "x", "one", -16.67)
    assert one["ci95"][0] < one["ci95"][1] <= 0
    assert (two["difference"], two["ci95"]) == (-40.0, [-60.0, -20.0])


def test_a_metric_that_applies_to_nothing_has_no_value_and_no_difference():
    nothing = {"one": np.full(2, np.nan)}
    empty = SkillScores(["a", "b"], {"x": nothing, "y": nothing})
    assert [(row["one"], row["tasks"], row["ci95"]) for row in empty.rows()] == 2 * [(None, {"one": 0}, {})]
    assert empty.differences("x") == []


def test_families_are_read_as_each_benchmark_names_them():
    assert kind_of_household_task("pick_two_obj_and_place-Cup-None-Shelf-7", {}) == "pick_two_obj_and_place"
    assert kind_of_household_task("shelf", {}) is None
    database = database_of_task({"7": "cats"})
    assert [database(name, {}) for name in ("ic_sql/dev/7", "ic_sql/7", "ic_sql/dev/8", "ic_bash/dev/7")] == [
        "cats",
        "cats",
        None,
        None,
    ]
    names = ["update_seat", "get_user", "calculate", "cancel_trip", "update_seat", "search_trips"]
    row = {"info": {"task": {"actions": [{"name": name} for name in names]}}}
    assert writes_of_task("1", row) == "cancel_trip, update_seat"
    assert writes_of_task("1", {"info": {"task": {"actions": [{"name": "get_user"}]}}}) == "nothing"
    assert [writes_of_task("1", row) for row in ({}, {"info": None}, {"info": {"task": {"actions": 3}}})] == 3 * [None]
    assert [named_family("1", row) for row in ({"family": "tea"}, {"family": 3}, {})] == ["tea", None, None]
