"""What runs teach is what a reader of the log would say of them, and nothing that belongs to one of them alone."""

from datetime import UTC, datetime

import pytest

from hgmem_core.action_templates import templates_within
from hgmem_core.run_patterns import AGAIN, REFUSED, PatternCounts, RunActions, is_error
from hgmem_core.skills import in_time_order, learn_skills, plan_tasks
from hgmem_core.trajectories import Run, Step, merge_runs, trajectories_table

NOW = datetime(2026, 1, 1, tzinfo=UTC)

TAKE, COOL, HEAT, PUT = (
    "take mug 1 from desk 2",
    "cool mug 1 with fridge 1",
    "heat mug 1 with microwave 1",
    "put mug 1 in/on desk 2",
)


def run(number, task, actions, outcome, namespace="kitchen", said_at=None):
    steps = tuple(Step(*(action if isinstance(action, tuple) else (action, "Done."))) for action in actions)
    return Run(f"log:{number}", namespace, f"t{number:03}", f"task-{number}", task, steps, outcome, len(steps),
               said_at=said_at)  # fmt: skip


def trajectories(*runs):
    return merge_runs([trajectories_table(runs, 0, NOW)])[0]


def mixed():
    """Runs that cool and heat; those that put without either fail."""
    runs = []
    for number in range(12):
        kind = number % 3
        task = ("Put a cold mug on the desk.", "Put a hot mug on the desk.", "Put a mug on the shelf, cold.")[kind]
        actions = ([TAKE, COOL, PUT], [TAKE, HEAT, PUT], [TAKE, PUT, PUT, PUT])[kind]
        runs.append(run(number, task, actions, "failure" if kind == 2 else "success"))
    return trajectories(*runs)


def mentions(table, polarity=None):
    rows = learn_skills(table, "english").mentions.to_pylist()
    return [row for row in rows if polarity in (None, row["polarity"])]


def lessons(table):
    return {row["trajectory_id"]: row["text"] for row in learn_skills(table, "english").lessons.to_pylist()}


def test_success_teaches_what_failure_lacks():
    taught = mentions(mixed(), "positive")
    assert {row["trajectory_id"] for row in taught} == {f"t{n:03}" for n in range(12) if n % 3 != 2}
    by_run = {row["trajectory_id"]: row for row in reversed(taught)}  # the first of each: the most telling
    assert "cool <object> with <object>" in templates_within(by_run["t000"]["text"])
    assert "heat <object> with <object>" in templates_within(by_run["t001"]["text"])
    # Runs of one kind are taught in the same words, and are told for which tasks.
    assert by_run["t000"]["text"] == by_run["t003"]["text"]
    assert "cold" in by_run["t000"]["text"].split("`")[0]
    assert "hot" in by_run["t001"]["text"].split("`")[0]
    assert "cool with" in by_run["t000"]["name"]


def test_failure_teaches_what_success_lacks():
    taught = mentions(mixed(), "negative")
    assert {row["trajectory_id"] for row in taught} == {f"t{n:03}" for n in range(12) if n % 3 == 2}
    assert all("avoid" in row["text"] for row in taught)
    assert not any({"cool <object> with <object>", "heat <object> with <object>"} & templates_within(row["text"])
                   for row in taught)  # fmt: skip
    assert any("again and again" in row["text"] for row in taught)


def test_no_run_teaches_more_than_three_skills_or_one_template_twice():
    by_run = {}
    for row in mentions(mixed()):
        by_run.setdefault(row["trajectory_id"], []).append(row)
    assert max(map(len, by_run.values())) <= 3
    for rows in by_run.values():
        said = set()
        for row in rows:
            assert templates_within(row["text"]) - said
            said |= templates_within(row["text"])


def test_a_lesson_of_failure_is_where_it_left_the_way_of_success():
    told = lessons(mixed())
    assert told["t000"] == (
        "What worked: `take <object> from <object>`, then `cool <object> with <object>`, "
        "then `put <object> in/on <object>`."
    )
    assert told["t002"] == (
        "It failed: after `take <object> from <object>` it went on with `put <object> in/on <object>`; runs that "
        "succeeded went on with `cool <object> with <object>` or `heat <object> with <object>`."
    )


def test_a_run_that_stopped_early_is_told_what_came_next():
    table = trajectories(
        run(1, "Cool a mug.", [TAKE, COOL, PUT], "success"), run(2, "Cool a cup.", [TAKE, COOL], "failure")
    )
    assert lessons(table)["t002"] == (
        "It failed: after `cool <object> with <object>` it stopped; runs that succeeded went on with "
        "`put <object> in/on <object>`."
    )


def test_nothing_of_one_task_alone_is_told_of():
    table = trajectories(
        run(1, "Put the Zanzibar vase 4711 on the desk.", [TAKE, PUT], "success"),
        run(2, "Put the cup on the desk.", [TAKE, PUT], "success"),
        run(3, "Put the cup on the desk.", [TAKE], "failure"),
    )
    said = " ".join(row["text"] for row in mentions(table)) + " ".join(lessons(table).values())
    assert "4711" not in said
    assert "zanzibar" not in said.lower()


def test_one_run_teaches_its_way():
    [skill] = mentions(trajectories(run(1, "Cool a mug.", [TAKE, COOL, PUT], "success")))
    assert templates_within(skill["text"]) == {
        "take <object> from <object>",
        "cool <object> with <object>",
        "put <object> in/on <object>",
    }
    assert skill["polarity"] == "positive"
    assert "failed" not in skill["text"]


def test_an_unknown_outcome_teaches_nothing_and_changes_nothing():
    known = mixed()
    more = trajectories(
        *(run(n, "Put a cold mug on the desk.", [TAKE, COOL, PUT], "success") for n in range(3)),
        run(9, "Put a cold mug on the desk.", [TAKE, PUT, PUT, PUT], "unknown"),
    )
    assert "t009" not in {row["trajectory_id"] for row in mentions(more)} | set(lessons(more))
    assert mentions(known)


def test_words_alone_teach_nothing():
    table = trajectories(run(1, "Help me.", ["How can I help you today?"], "success"))
    assert mentions(table) == []
    assert lessons(table) == {}
    assert mentions(trajectories()) == []


def test_a_namespace_learns_nothing_from_another():
    one = [run(n, "Cool a mug.", [TAKE, COOL, PUT], "success") for n in range(3)]
    other = [run(n, "Cool a mug.", [TAKE, HEAT], "failure", namespace="office") for n in range(3)]
    alone = mentions(trajectories(*one))
    together = [row for row in mentions(trajectories(*one, *other)) if row["namespace"] == "kitchen"]
    assert together == alone


def test_runs_are_taught_of_in_time_order_those_without_a_time_last():
    at = [datetime(2026, 1, day, tzinfo=UTC) for day in (3, 1, 2)]
    table = trajectories(
        *(run(n, "Cool a mug.", [TAKE, COOL], "success", said_at=when) for n, when in enumerate(at)),
        run(7, "Cool a mug.", [TAKE, COOL], "success"),
    )
    assert in_time_order(table)["trajectory_id"].to_pylist() == ["t001", "t002", "t000", "t007"]
    assert [row["trajectory_id"] for row in mentions(table)] == ["t001", "t002", "t000", "t007"]


def test_patterns_say_how_actions_went():
    steps = [{"action": "open box 1", "observation": "Error: the box is locked"}] + 3 * [
        {"action": "look", "observation": "Nothing new."}
    ]
    did = RunActions.of(steps)
    assert did.sequence == ("open <object>", "look")
    assert {(REFUSED, "open <object>"), (AGAIN, "look"), ("open <object>", "look")} <= did.patterns
    assert (AGAIN, "open <object>") not in did.patterns
    # Two different things in a row are no repetition.
    doors = [{"action": f"open box {n}", "observation": None} for n in range(3)]
    assert (AGAIN, "open <object>") not in RunActions.of(doors).patterns


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ("Error executing query: no such table", True),
        ("bash: foo: command not found", True),
        ("Nothing happens.", True),
        ("You open the drawer 1. In it, you see an error log.", False),
        ("[('people',), ('poker_player',)]", False),
        ("", False),
        (None, False),
    ],
)
def test_an_error_is_told_by_its_beginning(seen, expected):
    assert is_error(seen) == expected


def test_lift_is_smoothed_and_one_where_nothing_is_known():
    counts = PatternCounts()
    one = ("open <object>",)
    assert counts.lift(one) == 1
    counts.add(RunActions.of([{"action": "open box 1", "observation": None}]), "success")
    assert counts.lift(one) == pytest.approx((1.5 / 2) / 0.5)
    for _ in range(9):
        counts.add(RunActions.of([{"action": "look", "observation": None}]), "failure")
    assert counts.lift(one) == pytest.approx((1.5 / 2) / (0.5 / 10))
    assert counts.rarity("look") < counts.rarity("open <object>")


def test_plans_are_of_the_task_alone():
    table = trajectories(
        run(1, "Find two mugs, then wash them.", [TAKE], "success"),
        run(2, "Find two mugs, then wash them.", [HEAT], "failure"),
    )
    subtasks, incidences = plan_tasks(table)
    texts = {}
    for row in subtasks.to_pylist():
        texts.setdefault(row["trajectory_id"], []).append((row["position"], row["text"]))
    assert sorted(texts["t001"]) == sorted(texts["t002"]) == [(0, "Find two mugs"), (1, "wash them")]
    assert set(incidences["node_id"].to_pylist()) == set(subtasks["subtask_id"].to_pylist())
    assert set(incidences["role"].to_pylist()) == {"subtask"}
