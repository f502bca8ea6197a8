import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import TRAJECTORY_IMPORTERS
from hgmem_core.messages import LogRow
from hgmem_core.trajectories import Step

GAME = """You are in a shed. You see a bench 2, and a crate 1.
Your task is to: put a warm brick on bench.
> Think: A brick may be in the crate.
> ActionPath: Start
> open crate 1
The crate 1 is open.
In it, you see a brick 3.
> ActionPath: Start->Open(crate 1)
> think
Nothing happens.
> take brick 3 from crate 1
You pick it up.
>
> go to bench 2"""


def read(*rows):
    config = InputConfig(format="alfworld", paths=["runs.jsonl"], namespace="shed")
    numbered = [LogRow(f"runs.jsonl:{number}", row) for number, row in enumerate(rows, 1)]
    return list(TRAJECTORY_IMPORTERS["alfworld"](numbered, config))


def game(text=GAME, name="warm_then_place-Brick-None-Bench-9/trial_1", result=True):
    return {"name": name, "result": result, "traj": text}


def test_a_game_becomes_a_run_without_thoughts():
    (run,) = read(game())
    assert run.steps == (
        Step("open crate 1", "The crate 1 is open.\nIn it, you see a brick 3."),
        Step("take brick 3 from crate 1", "You pick it up."),
        Step("go to bench 2"),
    )
    assert (run.task, run.outcome, run.n_steps) == ("put a warm brick on bench.", "success", 3)
    assert run.note is None


def test_the_kind_of_a_task_is_no_part_of_what_it_says():
    (run,) = read(game())
    assert run.task_id == "warm_then_place-Brick-None-Bench-9"
    assert "warm_then_place" not in run.task + repr(run.steps)


@pytest.mark.parametrize(
    ("result", "outcome"), [(False, "failure"), (0, "failure"), (1, "success"), ("true", "success")]
)
def test_a_result_may_be_a_number(result, outcome):
    assert read(game(result=result))[0].outcome == outcome


def test_trials_of_a_game_share_its_task():
    first, second = read(game(), game(name="warm_then_place-Brick-None-Bench-9/trial_2", result=False))
    assert first.task_id == second.task_id


@pytest.mark.parametrize(
    ("row", "outcome", "reason"),
    [
        (game(text="Your task is to: wait.\n> Think: no"), "empty", "no steps"),
        (game(text="A room.\n> look\nIt is dark."), "rejected", "what the task was"),
        (game(text=None), "rejected", "'traj' is null"),
        (game(text="\x00"), "rejected", "what the task was"),
    ],
)
def test_a_game_without_a_run_is_accounted_for(row, outcome, reason):
    (dropped,) = read(row)
    assert dropped.outcome == outcome
    assert reason in dropped.reason
