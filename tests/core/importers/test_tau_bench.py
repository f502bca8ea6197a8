import json

import pytest

from hgmem_core.config import InputConfig
from hgmem_core.importers import TRAJECTORY_IMPORTERS
from hgmem_core.messages import Dropped, LogRow
from hgmem_core.trajectories import Run, Step, anonymous_trajectory_id


def read(*rows, namespace="shop/agents"):
    config = InputConfig(format="tau-bench", paths=["runs.json"], namespace=namespace)
    numbered = [LogRow(f"runs.json:{number}", row) for number, row in enumerate(rows, 1)]
    return list(TRAJECTORY_IMPORTERS["tau-bench"](numbered, config))


def says(role, content, **fields):
    return {"role": role, "content": content, **fields}


def calls(name, arguments, call_id="c1", **fields):
    function = {"name": name, "arguments": arguments}
    return says("assistant", None, tool_calls=[{"id": call_id, "type": "function", "function": function}], **fields)


def answers(content, call_id="c1"):
    return says("tool", content, tool_call_id=call_id, name="any")


TALK = [
    says("system", "You sell kites."),
    says("user", "My kite is torn."),
    says("assistant", "Which order is it?"),
    says("user", "Order K7."),
    calls("find_order", '{"id": "K7"}'),
    answers('{"state": "sent"}'),
]


def run_of(*messages, **fields):
    return {"task_id": 4, "reward": 1.0, "traj": list(messages or TALK), **fields}


def test_a_conversation_becomes_a_run():
    (run,) = read(run_of())
    steps = (Step("Which order is it?", "Order K7."), Step('find_order({"id": "K7"})', '{"state": "sent"}'))
    assert run == Run(
        row_id="runs.json:1",
        namespace="shop/agents",
        trajectory_id=anonymous_trajectory_id("shop/agents", "4", "My kite is torn.", steps, None),
        task_id="4",
        task="My kite is torn.",
        steps=steps,
        outcome="success",
        n_steps=2,
    )


def test_what_the_benchmark_knows_of_a_task_is_not_read():
    labels = {"task": {"instruction": "You are vera_1, hide it", "actions": [{"name": "refund"}]}, "reward_info": {}}
    (run,) = read(run_of(info=labels))
    (refusal,) = read({"info": labels, "reward": 1.0})
    assert isinstance(refusal, Dropped)
    for result in (run, refusal):
        assert "vera_1" not in repr(result) and "refund" not in repr(result)


@pytest.mark.parametrize(
    ("reward", "outcome"),
    [(1.0, "success"), (1, "success"), (0.0, "failure"), (0.75, "failure"), ("1.0", "success"), (True, "success")],
)
def test_a_reward_of_one_is_a_success(reward, outcome):
    (run,) = read(run_of(reward=reward))
    assert (run.outcome, run.note) == (outcome, None)


@pytest.mark.parametrize("reward", [None, float("nan"), 1.5, -1, "much", float("inf"), [1], "nan", 10**400])
def test_a_reward_that_says_nothing_leaves_the_outcome_unknown_with_a_note(reward):
    (run,) = read(run_of(reward=reward))
    assert run.outcome == "unknown"
    assert "taken as unknown" in run.note


def test_several_calls_at_once_get_the_answers_that_name_them():
    both = says(
        "assistant", "", tool_calls=[calls("a", "{}", "1")["tool_calls"][0], calls("b", "{}", "2")["tool_calls"][0]]
    )
    (run,) = read(run_of(says("user", "Go on"), both, answers("of b", "2"), answers("of a", "1")))
    assert run.steps == (Step("a({})", "of a"), Step("b({})", "of b"))
    assert run.note is None


def test_answers_without_an_id_go_to_the_calls_in_their_order():
    first, second = calls("a", "{}", None), calls("b", "{}", None)
    (run,) = read(run_of(says("user", "Go on"), first, says("tool", "one"), second, says("function", "two")))
    assert run.steps == (Step("a({})", "one"), Step("b({})", "two"))


def test_an_answer_to_no_call_is_left_out_with_a_note():
    (run,) = read(run_of(says("user", "Go on"), calls("a", "{}"), answers("x"), answers("stray", "c9")))
    assert run.steps == (Step("a({})", "x"),)
    assert "answers no call" in run.note


def test_a_call_of_the_older_shape_is_read():
    old = says("assistant", None, function_call={"name": "look", "arguments": {"at": 3}})
    (run,) = read(run_of(says("user", "Go on"), old, says("function", "seen", name="look")))
    assert run.steps == (Step('look({"at":3})', "seen"),)


@pytest.mark.parametrize(
    ("tool_calls", "note"),
    [
        ([{"id": "c1", "type": "function", "function": {"arguments": "{}"}}], "without a name"),
        (["look"], "not an object"),
        ("look", "not a list"),
        ([{"function": {"name": "look", "arguments": '{"at": '}}], "not JSON"),
    ],
)
def test_a_call_of_unknown_shape_is_noted_and_the_run_goes_on(tool_calls, note):
    odd = says("assistant", None, tool_calls=tool_calls)
    (run,) = read(run_of(*TALK, odd))
    assert run.steps[:2] == read(run_of())[0].steps
    assert note in run.note


def test_words_beside_a_call_are_a_thought_and_no_step():
    (run,) = read(run_of(says("user", "Go on"), calls("a", "{}") | {"content": "I wonder"}, answers("x")))
    assert run.steps == (Step("a({})", "x"),)


def test_what_is_said_before_the_user_speaks_is_no_step():
    (run,) = read(run_of(says("assistant", "How can I help?"), *TALK))
    assert (run.task, len(run.steps)) == ("My kite is torn.", 2)


def test_content_parts_and_null_bytes_are_read_as_text():
    parts = says("user", [{"type": "text", "text": "My kite\x00 is torn."}])
    (run,) = read(run_of(parts, *TALK[2:]))
    assert run.task == "My kite is torn."
    assert "control characters removed" in run.note


@pytest.mark.parametrize(
    ("row", "outcome", "reason"),
    [
        (run_of(says("user", "Go on")), "empty", "no steps"),
        (run_of(says("assistant", "Hello?")), "rejected", "what the task was"),
        (run_of() | {"traj": "text"}, "rejected", "list of messages"),
        ([1], "rejected", "must be an object"),
        (run_of() | {"traj": [None, 3, {"content": "x"}]}, "rejected", "what the task was"),
    ],
)
def test_a_row_without_a_run_is_accounted_for(row, outcome, reason):
    (dropped,) = read(row)
    assert dropped.outcome == outcome
    assert reason in dropped.reason


def test_a_row_without_its_namespace_is_refused_and_the_next_one_is_read():
    refusal, run = read(run_of(), run_of(team="kites"), namespace="shop/{team}")
    assert "'team'" in refusal.reason
    assert run.namespace == "shop/kites"


def test_runs_are_known_by_what_was_done_and_not_by_how_it_ended():
    once, again, other = read(
        run_of(), json.loads(json.dumps(run_of(reward=0.0))), run_of(*TALK, says("assistant", "Bye"))
    )
    assert once.trajectory_id == again.trajectory_id != other.trajectory_id
