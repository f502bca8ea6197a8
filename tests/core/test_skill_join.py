"""What several namespaces have for a task, and contexts that say as much as they can of what runs did."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.skill_context import skill_context
from hgmem_core.skill_join import Finding, join_findings, take_turns
from hgmem_core.skill_recipes import SKILL_RECIPES, DualPath
from tests.core.skill_graphs import graph
from tests.core.test_skill_search import GRAPH, X, found, graphs, vectors, words

COVERING = DualPath("x", 0, 9, 3, fill="actions")


def joined(recipe, *graphs, **asked):
    return join_findings([Finding(own, found(recipe, own, **asked)) for own in graphs], recipe)


def skill_ids(one):
    return [
        one.findings[own].graph.ids("skill")[int(one.findings[own].found.skills[place])].as_py()
        for own, place in one.skills
    ]


def kept(recipe, *graphs, **asked):
    return skill_ids(joined(recipe, *graphs, **asked))


def own_graph(letter, count, polarity="positive"):
    """Runs that are less and less like the task X, each with a skill of its own."""
    return graph(
        {
            f"{letter}r{place}": {
                "skills": [f"{letter}{place}"],
                "vector": (1, place, 0),
                "lesson": f"{letter} {place}",
            }
            for place in range(count)
        },
        {f"{letter}{place}": {"vector": (1, place, 0), "polarity": polarity} for place in range(count)},
    )


def test_namespaces_take_turns_in_the_order_in_which_they_were_asked():
    own, other = own_graph("p", 2), own_graph("q", 4)
    recipe = DualPath("x", 0, 4, 5)
    assert kept(recipe, own, other) == ["p0", "q0", "p1", "q1", "q2"]
    assert kept(recipe, other, own) == ["q0", "p0", "q1", "p1", "q2"]
    one = joined(recipe, own, other)
    assert one.trajectories == take_turns([2, 4])


@given(graphs(), vectors, vectors, st.sampled_from(sorted(SKILL_RECIPES)))
@settings(max_examples=100, deadline=None)
def test_a_namespace_without_anything_changes_nothing(own, task, plan, name):
    recipe, empty = SKILL_RECIPES[name], graph({})
    alone = found(recipe, own, tasks=[task], plans=[plan], scores=[[0] * own.hypergraph.n_skills])
    nothing = found(recipe, empty, tasks=[task], plans=[plan])
    for findings in ([Finding(own, alone)], [Finding(own, alone), Finding(empty, nothing)]):
        one = join_findings(findings, recipe)
        assert one.skills == [(0, place) for place in range(len(alone.skills))]
        assert one.trajectories == [(0, place) for place in range(len(alone.trajectories))]
        assert one.subtasks == [(0, place) for place in range(len(alone.subtasks))]


def test_a_covering_recipe_keeps_a_mistake_whichever_namespace_it_is_of():
    good, bad = own_graph("p", 5), own_graph("q", 5, "negative")
    mixed = graph(
        {"r": {"skills": ["a", "b", "c", "d"], "vector": X}},
        {name: {"vector": (1, place, 0), "polarity": polarity} for place, (name, polarity) in enumerate(
            {"a": "positive", "b": "positive", "c": "positive", "d": "negative"}.items()
        )},
    )  # fmt: skip
    assert kept(COVERING, mixed) == ["a", "b", "d"]
    assert kept(DualPath("x", 0, 9, 3), mixed) == ["a", "b", "c"]
    assert kept(COVERING, good, mixed) == ["p0", "a", "d"]
    assert kept(COVERING, good, bad) == ["p0", "q0", "p1"]
    assert kept(DualPath("x", 0, 9, 1, fill="actions"), mixed) == ["a"]


def context(fill, budget, *graphs, skills=3):
    recipe = DualPath("x", 0, 9, skills, fill=fill)
    return skill_context(joined(recipe, *graphs), fill, budget, words)


def test_a_context_over_several_namespaces_has_one_budget_and_says_a_thing_once():
    own, other = own_graph("p", 2), own_graph("q", 2)
    every = context("turns", 1_000, own, other)
    assert every.text == (
        "## Past Experience\n- [success] p 0\n- [success] q 0\n- [success] p 1\n- [success] q 1\n\n"
        "## Relevant Skills\n- name of p0: text of p0\n- name of q0: text of q0\n- name of p1: text of p1"
    )
    assert every.skills == ((0, 0), (1, 0), (0, 1))
    assert words(context("turns", 20, own, other).text) <= 20
    twice = context("turns", 1_000, own, own)
    assert (twice.text.count("text of p0"), twice.text.count("[success] p 0"), twice.left_out) == (1, 1, 0)


ACTIONS = graph(
    {
        "r0": {"vector": (9, 0, 1), "lesson": "`open` again, with many words that say nothing more of it"},
        "r1": {"vector": (9, 1, 1), "lesson": "`open`", "skills": ["short"]},
        "r2": {"vector": (9, 2, 1), "lesson": "`open` `close`"},
        "r3": {"vector": (9, 3, 1), "lesson": "`close` `shut`"},
        "r4": {"vector": (9, 4, 1), "lesson": "`break`", "outcome": "failure", "skills": ["bad"]},
    },
    {
        "short": {"vector": (0, 1, 0), "text": "do `open`"},
        "bad": {"vector": (0, 1, 0), "text": "`break`", "polarity": "negative"},
    },
)


def test_a_context_begins_with_a_mistake_and_what_most_runs_did_for_a_token():
    # open is taught by r0, r1 and r2, close by r2 and r3, shut by r3 alone; break is no way to success.
    mistake = "## Mistakes to Avoid\n- name of bad: `break`"
    assert context("actions", 9, ACTIONS).text == mistake
    first = "## Past Experience\n- [success] `open` `close`"
    assert context("actions", 16, ACTIONS).text == f"{first}\n\n{mistake}"
    assert context("actions", 20, ACTIONS).text == f"{first}\n- [success] `close` `shut`\n\n{mistake}"
    assert "`shut`" not in context("turns", 20, ACTIONS).text


def test_short_lines_go_before_a_long_one_that_says_the_same():
    lessons = ["`open` `close` and so on and on and on and on", "`open`", "`close`"]
    own = graph({f"r{place}": {"vector": (9, place, 0), "lesson": lesson} for place, lesson in enumerate(lessons)})
    assert context("actions", 18, own).text == "## Past Experience\n- [success] `open`\n- [success] `close`"


def test_a_context_with_room_for_all_leaves_nothing_out_however_it_is_filled():
    one, other = (context(fill, 1_000, ACTIONS) for fill in ("turns", "actions"))
    assert sorted(one.text.splitlines()) == sorted(other.text.splitlines())
    assert other.left_out == 0


def test_lines_that_name_no_action_come_by_turns():
    own = own_graph("p", 3)
    assert context("actions", 1_000, own).text == context("turns", 1_000, own).text
    assert [context(fill, 14, own).skills for fill in ("actions", "turns")] == [((0, 0),)] * 2


@given(graphs(), vectors, st.integers(0, 60), st.sampled_from(["turns", "actions"]))
@settings(max_examples=100, deadline=None)
def test_no_context_is_longer_than_its_budget(own, task, budget, fill):
    recipe = DualPath("x", 2, 9, 5, fill=fill)
    one = joined(recipe, own, GRAPH, tasks=[task])
    text = skill_context(one, fill, budget, words)
    assert words(text.text) == text.tokens <= budget
