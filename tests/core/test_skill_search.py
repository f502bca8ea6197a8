from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.recipes import RecipeError
from hgmem_core.skill_context import skill_context
from hgmem_core.skill_graph import SkillGraph, SkillGraphError, SkillVectors
from hgmem_core.skill_join import Finding, join_findings
from hgmem_core.skill_recipes import SKILL_RECIPES, DualPath, find_skill_recipe
from hgmem_core.skill_search import SkillQueries, search_many
from tests.core.skill_graphs import graph, names, units

X, Y, Z = (1, 0, 0), (0, 1, 0), (0, 0, 1)

# The plan is nearest to u1 and then u2; the task to r3 and then r2.
GRAPH = graph(
    {
        "r1": {"subtasks": ["u1"], "skills": ["a", "b"], "vector": (0, 1, 3), "lesson": "one"},
        "r2": {"subtasks": ["u2"], "skills": ["b", "c"], "vector": (2, 1, 0), "outcome": "failure", "lesson": "two"},
        "r3": {"subtasks": ["u3"], "skills": ["c", "d", "e"], "vector": X, "outcome": "unknown", "lesson": "three"},
        "r4": {"subtasks": ["u4"], "skills": ["b", "e"], "vector": Z},
    },
    skills={
        "a": {"vector": (1, 0.1, 0), "shown": 3, "utility": 0.9},
        "b": {"vector": (0, 1, 0), "shown": 3, "utility": 0.4},
        "c": {"vector": (1, 1, 0), "shown": 3, "utility": 0.5, "polarity": "negative", "name": "do not"},
        "d": {"vector": (1, 2, 0), "shown": 3, "utility": 0.1},
        "e": {"vector": (1, 2, 0), "shown": 3, "utility": 0.1},
    },
    subtasks={"u1": {"vector": Y}, "u2": {"vector": (1, 3, 0)}, "u3": {"vector": Z}, "u4": {"vector": Z}},
)


def queries(tasks=(X,), plans=(Y,), scores=None):
    given = np.zeros((len(tasks), 0)) if scores is None else np.array(scores)
    return SkillQueries(units(tasks), units(plans), given.astype(np.float32))


def found(recipe, own=GRAPH, **asked):
    (result,) = search_many(own, queries(**asked), recipe)
    return result


def skills(recipe, own=GRAPH, **asked):
    return "".join(names(own, "skill", found(recipe, own, **asked).skills))


def test_skills_come_by_how_many_retrieved_runs_hold_them_then_by_cosine_then_by_id():
    result = found(DualPath("x", 2, 2, 5))
    assert names(GRAPH, "subtask", result.subtasks) == ["u1", "u2"]
    assert names(GRAPH, "trajectory", result.trajectories) == ["r3", "r2", "r1"]
    # E* is r1, r2 through subtasks and r3, r2 through the task: b and c are in two of them, the rest in one.
    assert names(GRAPH, "skill", result.skills) == ["c", "b", "a", "d", "e"]
    assert result.weights.tolist() == [2, 2, 1, 1, 1]
    assert result.cosines.tolist() == pytest.approx([0.5**0.5, 0, 1 / 1.01**0.5, 0.2**0.5, 0.2**0.5])
    assert skills(DualPath("x", 2, 2, 3)) == "cba"


def test_each_path_can_be_left_out():
    no_subtask = found(DualPath("x", 0, 1, 5))
    assert (names(GRAPH, "skill", no_subtask.skills), no_subtask.subtasks.tolist()) == (["c", "d", "e"], [])
    no_trajectory = found(DualPath("x", 1, 0, 5))
    assert names(GRAPH, "skill", no_trajectory.skills) == ["a", "b"]
    assert names(GRAPH, "trajectory", no_trajectory.trajectories) == ["r1"]


def test_kappa_may_be_weighed_by_utility_or_divided_by_degree():
    by_utility = found(DualPath("x", 2, 2, 5, weight="utility"))
    assert names(GRAPH, "skill", by_utility.skills) == ["c", "a", "b", "d", "e"]
    assert by_utility.weights.tolist() == pytest.approx([1.0, 0.9, 0.8, 0.1, 0.1])
    by_degree = found(DualPath("x", 2, 2, 5, weight="degree"))
    assert names(GRAPH, "skill", by_degree.skills) == ["a", "c", "d", "b", "e"]
    assert by_degree.weights.tolist() == pytest.approx([1, 1, 1, 2 / 3, 1 / 2])


def test_more_runs_raise_kappa():
    assert found(DualPath("x", 2, 4, 1)).weights.tolist() == [3]


def test_flat_recipes_rank_skills_by_themselves():
    assert skills(find_skill_recipe("skills/dense")) == "acdeb"
    no_hypergraph = found(find_skill_recipe("skills/no-hypergraph"))
    assert names(GRAPH, "skill", no_hypergraph.skills) == list("acdeb")
    assert names(GRAPH, "trajectory", no_hypergraph.trajectories) == ["r3", "r2", "r1", "r4"]
    assert found(find_skill_recipe("skills/dense")).trajectories.tolist() == []
    assert skills(find_skill_recipe("skills/bm25"), scores=[[0, 2, 3, 0.5, 3]]) == "cebd"


def test_bm25_without_scores_says_what_it_needs():
    with pytest.raises(ValueError, match=r"'skills/bm25' needs BM25 scores of shape \[1, 5\].*\[1, 0\]"):
        skills(find_skill_recipe("skills/bm25"))


def test_pairs_replace_runs():
    result = found(DualPath("x", 2, 2, 5, edges="pairs"))
    # u1 leads to (u1, a) and (u1, b), u2 to (u2, b) and (u2, c); the nearest pairs are (u3, c) and (u3, d) of r3.
    assert dict(zip(names(GRAPH, "skill", result.skills), result.weights.tolist(), strict=True)) == {
        "c": 2, "b": 2, "a": 1, "d": 1,
    }  # fmt: skip
    assert names(GRAPH, "trajectory", result.trajectories) == ["r3", "r2", "r1"]
    # All pairs of r3, three with its subtask and three among its skills, and of r2 the first two.
    wide = found(DualPath("x", 0, 8, 5, edges="pairs"))
    assert dict(zip(names(GRAPH, "skill", wide.skills), wide.weights.tolist(), strict=True)) == {
        "c": 4, "d": 3, "e": 3, "b": 1,
    }  # fmt: skip


def test_pairs_pass_over_runs_that_have_none():
    own = graph({"r1": {"subtasks": ["u", "w"], "vector": X}, "r2": {"subtasks": ["v"], "skills": ["a"], "vector": Y}})
    result = found(DualPath("x", 0, 1, 5, edges="pairs"), own)
    assert (names(own, "skill", result.skills), names(own, "trajectory", result.trajectories)) == (["a"], ["r2"])


def test_a_task_without_a_vector_and_an_empty_memory_find_nothing():
    empty = graph({})
    for recipe in SKILL_RECIPES.values():
        for own, task in ((empty, X), (GRAPH, (0, 0, 0))):
            scores = np.zeros((1, own.hypergraph.n_skills))
            result = found(recipe, own, tasks=[task], plans=[(0, 0, 0)], scores=scores)
            assert (result.skills.tolist(), result.trajectories.tolist()) == ([], [])
            assert context_of(result, 100, own, recipe).text == ""


vectors = st.tuples(*[st.integers(-2, 2)] * 3)


@st.composite
def graphs(draw):
    runs = {
        f"r{place}": {
            "skills": draw(st.sets(st.sampled_from("abcdef"), max_size=3)),
            "subtasks": [f"u{place}{number}" for number in range(draw(st.integers(0, 2)))],
            "vector": draw(vectors),
        }
        for place in range(draw(st.integers(0, 8)))
    }
    skills = {name: {"vector": draw(vectors), "shown": 1, "utility": draw(st.floats(0, 1))} for name in "abcdef"}
    every = [node for run in runs.values() for node in run["subtasks"]]
    return graph(runs, skills, {node: {"vector": draw(vectors)} for node in every})


@given(graphs(), st.lists(st.tuples(vectors, vectors), max_size=6), st.sampled_from(sorted(SKILL_RECIPES)))
@settings(max_examples=150, deadline=None)
def test_many_tasks_at_once_find_what_each_finds_alone(own, asked, name):
    recipe = SKILL_RECIPES[name]
    scores = np.arange(6 * len(asked)).reshape(len(asked), 6) % 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hgmem_core.skill_search._BLOCK", 4)
        together = search_many(own, queries([task for task, _ in asked], [plan for _, plan in asked], scores), recipe)
    assert len(together) == len(asked)
    for place, ((task, plan), many) in enumerate(zip(asked, together, strict=True)):
        alone = found(recipe, own, tasks=[task], plans=[plan], scores=scores[place : place + 1])
        for field in ("skills", "weights", "cosines", "trajectories", "subtasks"):
            assert getattr(many, field).tolist() == getattr(alone, field).tolist()


@given(graphs(), vectors, vectors)
@settings(max_examples=100, deadline=None)
def test_kappa_is_that_of_a_plain_loop(own, task, plan):
    result = found(DualPath("x", 2, 2, 3), own, tasks=[task], plans=[plan])
    subtask_ids = names(own, "subtask", result.subtasks)
    members = own.tables.incidences.to_pylist()
    (near,) = search_many(own, queries([task], [plan]), DualPath("x", 0, 2, 0))
    star = {row["hyperedge_id"] for row in members if row["node_id"] in subtask_ids}
    star |= set(names(own, "trajectory", near.trajectories))
    held = [row["node_id"] for row in members if row["hyperedge_id"] in star and row["node_kind"] == "skill"]
    kappa = {skill: held.count(skill) for skill in set(held)}
    ids = own.ids("skill").to_pylist()
    cosines = dict(zip(ids, (own.vectors.skills @ units([task])[0]).tolist(), strict=True))
    best = sorted(kappa, key=lambda skill: (-kappa[skill], -round(cosines[skill], 5), skill))[:3]
    assert names(own, "skill", result.skills) == best
    assert set(names(own, "trajectory", result.trajectories)) == star


def words(text):
    return len(text.split())


def context_of(result, budget, own=GRAPH, recipe=DualPath("x")):  # noqa: B008
    return skill_context(join_findings([Finding(own, result)], recipe), recipe.fill, budget, words)


def test_a_context_has_lessons_with_outcomes_then_skills_then_mistakes():
    context = context_of(found(DualPath("x", 2, 2, 3)), 1000)
    assert context.text == (
        "## Past Experience\n- [unknown] three\n- [failure] two\n- [success] one\n\n"
        "## Relevant Skills\n- name of b: text of b\n- name of a: text of a\n\n"
        "## Mistakes to Avoid\n- do not: text of c"
    )
    assert (context.tokens, context.left_out) == (words(context.text), 0)
    assert names(GRAPH, "skill", [skill for _, skill in context.skills]) == ["c", "b", "a"]
    assert names(GRAPH, "trajectory", [run for _, run in context.trajectories]) == ["r3", "r2", "r1"]


def test_a_context_keeps_its_budget_and_the_best_first():
    result = found(DualPath("x", 2, 2, 3))
    for budget in range(40):
        context = context_of(result, budget)
        assert words(context.text) == context.tokens <= budget
        assert len(context.skills) + len(context.trajectories) + context.left_out == 6
    assert context_of(result, 10).text == "## Mistakes to Avoid\n- do not: text of c"
    assert context_of(result, 8).text == "## Past Experience\n- [unknown] three"


def test_a_lesson_is_said_once_and_a_line_break_makes_no_item():
    own = graph(
        {
            "r1": {"skills": ["a"], "vector": X, "lesson": "same\n- thing"},
            "r2": {"skills": ["a"], "vector": X, "lesson": "same - thing"},
            "r3": {"skills": ["a"], "vector": X, "lesson": "same - thing", "outcome": "failure"},
        }
    )
    context = context_of(found(DualPath("x", 0, 3, 0), own), 100, own)
    assert context.text == "## Past Experience\n- [success] same - thing\n- [failure] same - thing"


def test_an_unknown_recipe_is_answered_with_those_there_are():
    with pytest.raises(RecipeError, match=r"no skill recipe 'skills/ful'; there are skills/full, .*skills/bm25"):
        find_skill_recipe("skills/ful")
    assert all(find_skill_recipe(name).name == name for name in SKILL_RECIPES)


def test_vectors_and_memberships_must_fit_the_tables():
    tables, given = GRAPH.tables, GRAPH.vectors
    with pytest.raises(SkillGraphError, match=r"vectors of skills have shape \[4, 3\]; there are 5 rows"):
        SkillGraph.of(tables, SkillVectors(given.subtasks, given.skills[1:], given.trajectories))
    fewer = replace(tables, skills=tables.skills.slice(1))
    with pytest.raises(SkillGraphError, match="skill 'a' of run 'r1'"):
        SkillGraph.of(fewer, SkillVectors(given.subtasks, given.skills[1:], given.trajectories))
