import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgmem_core.ids import skill_id
from hgmem_core.schemas import DECISION
from hgmem_core.skill_cooccurrence import co_occurrence, propagate_skills, weighted
from hgmem_core.skill_evolution import (
    AS_PUBLISHED,
    MOST_ALIASES,
    SkillText,
    apply_evolution,
    joined_text,
    plan_evolution,
)
from hgmem_core.skill_texts import TEXT_CHARS
from hgmem_core.skill_utility import RETRIEVED, StepRange, utilities
from hgmem_core.stage_config import EvolutionConfig
from tests.core.skill_graphs import graph

RULE = EvolutionConfig(most_pruned=1.0, most_merged=1.0)
STEPS = StepRange(np.array(0.0), np.array(10.0))


def changed(rule, **settings):
    return EvolutionConfig.model_validate({**rule.model_dump(), **settings})


def evolve(own, rule=RULE, texts=None):
    plan = plan_evolution(own, rule, 7)
    given = [joined_text(plan.graph, pair) for pair in plan.pairs] if texts is None else texts
    return apply_evolution(plan, given, STEPS, rule, 7)


def ids(table, name="skill_id"):
    return table.column(name).to_pylist()


def members(tables):
    return sorted((row["hyperedge_id"], row["node_id"]) for row in tables.incidences.to_pylist())


def decided(evolved, *columns):
    return [tuple(row[name] for name in columns) for row in evolved.decisions.to_pylist()]


# Co-occurrence and propagation


def test_co_occurrence_counts_subtasks_in_the_size_of_a_run():
    own = graph(
        {
            "r1": {"skills": ["a", "b"], "subtasks": ["u", "v", "w"]},
            "r2": {"skills": ["a", "b", "c"], "subtasks": ["x"]},
            "r3": {"skills": ["c"]},
        }
    )
    shared = dense(co_occurrence(own.hypergraph))
    assert shared == pytest.approx(np.array([[0, 0.45, 0.25], [0.45, 0, 0.25], [0.25, 0.25, 0]]))


def dense(matrix):
    rows = np.zeros((len(matrix), len(matrix)))
    for row in range(len(matrix)):
        some = slice(matrix.columns.offsets[row], matrix.columns.offsets[row + 1])
        rows[row, matrix.columns.values[some]] = matrix.values[some]
    return rows


@st.composite
def hypergraphs(draw):
    runs = {
        f"r{place:02}": {
            "skills": draw(st.sets(st.sampled_from("abcdefgh"), max_size=5)),
            "subtasks": [f"u{place}{number}" for number in range(draw(st.integers(0, 3)))],
        }
        for place in range(draw(st.integers(1, 12)))
    }
    return graph(runs, {name: {} for name in "abcdefgh"})


@given(
    hypergraphs(),
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
    st.floats(0, 1),
    st.integers(0, 4),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_the_recurrence_is_the_closed_form(own, utility, restart, depth, seed):
    hypergraph, utility = own.hypergraph, np.array(utility)
    held = np.zeros((8, len(hypergraph)))
    for edge in range(len(hypergraph)):
        held[hypergraph.skills.of(edge), edge] = 1
    sizes = np.array(
        [len(hypergraph.skills.of(edge)) + len(hypergraph.subtasks.of(edge)) for edge in range(len(hypergraph))]
    )
    shared = held @ np.diag(1 / np.maximum(sizes, 1)) @ held.T
    np.fill_diagonal(shared, 0)
    weights = shared * np.minimum(utility[:, None], utility)
    found = weighted(co_occurrence(hypergraph), utility)
    assert np.abs(dense(found) - weights).max() < 1e-12
    looped = weights + np.eye(8)
    scale = np.diag(looped.sum(axis=1) ** -0.5)
    normal = scale @ looped @ scale
    power = np.linalg.matrix_power
    closed = (1 - restart) ** depth * power(normal, depth)
    closed = closed + restart * sum((1 - restart) ** step * power(normal, step) for step in range(depth))
    vectors = np.random.default_rng(seed).standard_normal((8, 5))
    moved = propagate_skills(found, vectors, restart, depth)
    assert np.abs(moved - closed @ vectors).max() < 1e-10


# Pruning


def test_a_utility_of_exactly_the_threshold_is_kept_and_few_runs_do_not_judge():
    [slow] = utilities(np.array([7]), np.array([2]), np.array([10.0]), STEPS, RETRIEVED)  # 0.7 * 2 / 7
    own = graph(
        {"r1": {"skills": ["at", "below", "rare", "slow"], "subtasks": ["u", "v"]}},
        {
            "at": {"shown": 3, "utility": 0.2},
            "below": {"shown": 3, "utility": 0.2 - 1e-8},
            "rare": {"shown": 2, "utility": 0.0},
            "slow": {"shown": 7, "utility": slow},
        },
        {"u": {"shown": 5, "utility": 0.1}},
    )
    evolved = evolve(own)
    assert ids(evolved.tables.skills) == ["at", "rare", "slow"]
    assert ids(evolved.tables.subtasks, "subtask_id") == ["v"]
    assert ids(evolved.tables.trajectories, "trajectory_id") == ["r1"]
    assert members(evolved.tables) == [("r1", "at"), ("r1", "rare"), ("r1", "slow"), ("r1", "v")]
    assert ids(evolved.tables.utilities, "node_id") == ["at", "rare", "slow"]
    reason = "utility below 0.2 in at least 3 runs"
    assert decided(evolved, "cycle", "decision", "node_kind", "node_id", "other_id", "reason", "shown") == [
        (7, "prune", "skill", "below", "", reason, 3),
        (7, "prune", "subtask", "u", "", reason, 5),
    ]


def test_a_cycle_prunes_no_more_than_its_share_the_worst_first():
    bad = {"a": (3, 0.1), "b": (3, 0.05), "c": (9, 0.05), "d": (3, 0.1)}
    own = graph({"r1": {"skills": bad}}, {name: {"shown": n, "utility": u} for name, (n, u) in bad.items()})
    evolved = evolve(own, changed(RULE, most_pruned=0.5))
    assert ids(evolved.tables.skills) == ["a", "d"]
    assert decided(evolved, "decision", "node_id") == [("keep", "a"), ("keep", "d"), ("prune", "b"), ("prune", "c")]
    assert all(
        "share is used up" in reason for kind, reason in decided(evolved, "decision", "reason") if kind == "keep"
    )


def test_a_run_that_loses_its_nodes_stays_for_its_lesson():
    own = graph({"r1": {"skills": ["a"], "lesson": "look first"}}, {"a": {"shown": 3, "utility": 0.0}})
    evolved = evolve(own)
    assert members(evolved.tables) == []
    assert ids(evolved.tables.trajectories, "trajectory_id") == ids(evolved.tables.lessons, "trajectory_id") == ["r1"]


# Merging

SIMILAR = {"vector": (1, 0, 0)}, {"vector": (0.95, 0.3, 0)}


def two(**changes):
    """Two similar skills, each in runs of its own and both in one."""
    first = {**SIMILAR[0], "shown": 4, "succeeded": 4, "mean_steps": 2.0, "utility": 0.9, "aliases": ["older"]}
    second = {**SIMILAR[1], "shown": 2, "succeeded": 1, "mean_steps": 8.0, "utility": 0.5, "aliases": ["other"]}
    return graph(
        {"r1": {"skills": ["a"]}, "r2": {"skills": ["b"]}, "r3": {"skills": ["a", "b"], "subtasks": ["u"]}},
        {"a": first, "b": second, **changes},
    )


def test_similar_skills_become_one_with_all_that_they_had():
    evolved = evolve(two())
    (merged,) = evolved.tables.skills.to_pylist()
    assert (merged["name"], merged["text"]) == ("name of a", "text of a text of b")
    assert merged["aliases"] == ["older", "name of b", "other"]
    new = merged["skill_id"]
    assert members(evolved.tables) == [("r1", new), ("r2", new), ("r3", new), ("r3", "u")]
    (known,) = evolved.tables.utilities.to_pylist()
    assert (known["node_id"], known["shown"], known["succeeded"], known["mean_steps"]) == (new, 6, 5, 4.0)
    assert known["utility"] == pytest.approx(0.7 * 5 / 6 + 0.3 * 0.6)
    rows = decided(evolved, "decision", "node_id", "other_id", "into_id", "shown")
    assert rows == [("merge", "a", "b", new, 4), ("merge", "b", "a", new, 2)]
    for similarity, raw in decided(evolved, "similarity", "raw_similarity"):
        assert 0.85 <= raw <= similarity <= 1


def test_the_better_text_stays_then_the_more_used_then_the_lower_id():
    def kept(one, other):
        own = graph({"r": {"skills": ["a", "b"]}}, {"a": {**SIMILAR[0], **one}, "b": {**SIMILAR[1], **other}})
        return evolve(own).tables.skills.column("name")[0].as_py()

    assert kept({"shown": 9, "utility": 0.4}, {"shown": 1, "utility": 0.5}) == "name of b"
    assert kept({"shown": 1, "utility": 0.5}, {"shown": 9, "utility": 0.5}) == "name of b"
    assert kept({}, {}) == "name of a"


def test_a_merged_skill_that_keeps_its_text_keeps_its_id_and_its_vector():
    text = {"name": "look", "text": "look first"}
    name = skill_id("n", "positive", "look", "look first")
    own = graph(
        {"r": {"skills": ["b", name]}},
        {name: {**SIMILAR[0], **text, "shown": 1, "utility": 1.0}, "b": {**SIMILAR[1], "text": "Look first"}},
    )
    evolved = evolve(own)
    assert (ids(evolved.tables.skills), evolved.unembedded) == ([name], ())
    evolved = evolve(own, texts=[SkillText("look", "look first, then act", ())])
    assert (
        ids(evolved.tables.skills)
        == list(evolved.unembedded)
        == [skill_id("n", "positive", "look", "look first, then act")]
    )


def test_texts_told_apart_and_texts_of_another_skill_do_not_merge():
    taken = skill_id("n", "positive", "third", "of its own")
    own = two(**{taken: {"name": "third", "text": "of its own", "vector": (0, 0, 1)}})
    for text, reason in (
        ("too long for one text", "too long for one text"),
        (SkillText("third", "of its own", ()), f"that of skill {taken}"),
    ):
        evolved = evolve(own, texts=[text])
        assert evolved.tables.skills.equals(own.tables.skills)
        assert members(evolved.tables) == members(own.tables)
        ((decision, why),) = decided(evolved, "decision", "reason")
        assert (decision, reason in why) == ("keep", True)


def test_a_joined_text_and_its_aliases_are_bounded():
    many = {"aliases": [f"alias {number}" for number in range(40)], "text": "long " * 500}
    own = graph({"r": {"skills": ["a", "b"]}}, {"a": {**SIMILAR[0], **many}, "b": {**SIMILAR[1], **many}})
    (merged,) = evolve(own).tables.skills.to_pylist()
    assert len(merged["text"]) <= TEXT_CHARS
    assert len(merged["aliases"]) == MOST_ALIASES


def test_what_to_do_is_never_merged_with_a_mistake():
    own = two(b={"vector": (1, 0, 0), "polarity": "negative"})
    for rule in (RULE, AS_PUBLISHED):
        evolved = evolve(own, rule)
        assert ids(evolved.tables.skills) == ["a", "b"]
        assert evolved.decisions.num_rows == 0


def test_mistakes_merge_among_themselves():
    own = two(b={"vector": (1, 0, 0), "polarity": "negative"}, c={"vector": (1, 0, 0), "polarity": "negative"})
    assert sorted((row["name"], row["polarity"], row["aliases"]) for row in evolve(own).tables.skills.to_pylist()) == [
        ("name of a", "positive", ["older"]),
        ("name of b", "negative", ["name of c"]),
    ]


# Five runs of size 5 hold both of two orthogonal skills, and nothing else holds them.
COMPLEMENTS = graph(
    {f"r{run}": {"skills": ["search", "verify"], "subtasks": [f"u{run}{one}" for one in range(3)]} for run in range(5)},
    {
        "search": {"vector": (1, 0, 0), "shown": 9, "utility": 0.9},
        "verify": {"vector": (0, 1, 0), "shown": 9, "utility": 0.9},
    },
)


def test_skills_that_go_together_are_merged_as_published_and_kept_apart_by_their_own_vectors():
    loose = changed(AS_PUBLISHED, restart=0.2)
    merged = evolve(COMPLEMENTS, loose)
    assert merged.tables.skills.num_rows == 1
    assert decided(merged, "similarity", "raw_similarity")[0] == (pytest.approx(0.92, abs=0.005), 0.0)
    kept = evolve(COMPLEMENTS, changed(loose, raw_floor=0.6))
    assert ids(kept.tables.skills) == ["search", "verify"]
    assert decided(kept, "decision", "node_id", "other_id", "reason") == [
        ("keep", "search", "verify", "their own vectors are less similar than 0.6")
    ]


def test_each_skill_is_merged_once_a_cycle_the_most_similar_first():
    skills = {
        name: {"vector": (np.cos(np.radians(angle)), np.sin(np.radians(angle)), 0)}
        for name, angle in {"a": 0, "b": 12, "c": 20, "d": 29}.items()
    }
    own = graph({f"r{name}": {"skills": [name]} for name in skills}, skills)
    evolved = evolve(own)
    merges = {
        (one, other) for kind, one, other in decided(evolved, "decision", "node_id", "other_id") if kind == "merge"
    }
    assert merges == {("b", "c"), ("c", "b"), ("a", "d"), ("d", "a")}
    reasons = {reason for kind, reason in decided(evolved, "decision", "reason") if kind == "keep"}
    assert reasons == {"one of them is merged in this cycle already"}


def test_equally_similar_pairs_go_by_their_ids_and_a_cycle_has_its_share():
    skills = {name: {"vector": (1, 0, 0)} for name in "abcdef"}
    own = graph({f"r{name}": {"skills": [name]} for name in skills}, skills)
    evolved = evolve(own, changed(RULE, most_merged=1 / 3))
    merges = [
        (one, other) for kind, one, other in decided(evolved, "decision", "node_id", "other_id") if kind == "merge"
    ]
    assert merges == [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    assert [
        one for kind, one, why in decided(evolved, "decision", "node_id", "reason") if "share is used up" in why
    ] == ["e"]
    assert evolved.tables.skills.num_rows == 4


def test_nothing_to_do_leaves_everything_as_it_is():
    for own in (graph({}), graph({"r": {"skills": ["a"], "subtasks": ["u"]}})):
        evolved = evolve(own)
        assert evolved.decisions.schema.equals(DECISION.arrow)
        assert evolved.decisions.num_rows == 0
        assert evolved.tables == own.tables


@given(hypergraphs(), st.data())
@settings(max_examples=60, deadline=None)
def test_after_any_cycle_memberships_name_what_there_is_and_only_merges_move_them(own, data):
    changes = {
        name: {
            "vector": data.draw(st.tuples(*[st.integers(-1, 2)] * 3)),
            "shown": data.draw(st.integers(0, 6)),
            "utility": data.draw(st.sampled_from([0.0, 0.1, 0.2, 0.6, 1.0])),
            "polarity": data.draw(st.sampled_from(["positive", "negative"])),
        }
        for name in "abcdefgh"
    }
    runs = {run: {"skills": [], "subtasks": []} for run in ids(own.tables.trajectories, "trajectory_id")}
    for row in own.tables.incidences.to_pylist():
        runs[row["hyperedge_id"]][f"{row['node_kind']}s"].append(row["node_id"])
    before = graph(runs, changes)
    rule = data.draw(st.sampled_from([RULE, EvolutionConfig(), AS_PUBLISHED]))
    evolved = evolve(before, rule)
    now = evolved.tables
    left = {*ids(now.skills), *ids(now.subtasks, "subtask_id")}
    assert {node for _, node in members(now)} <= left
    pruned = {node for kind, node in decided(evolved, "decision", "node_id") if kind == "prune"}
    into = {node: new for kind, node, new in decided(evolved, "decision", "node_id", "into_id") if kind == "merge"}
    assert members(now) == sorted(
        {(run, into.get(node, node)) for run, node in members(before.tables) if node not in pruned}
    )
    assert (
        left
        == {into.get(node, node) for node in [*before.ids("skill").to_pylist(), *before.ids("subtask").to_pylist()]}
        - pruned
    )
    polarity = dict(zip(ids(before.tables.skills), before.tables.skills.column("polarity").to_pylist(), strict=True))
    for one, other in decided(evolved, "node_id", "other_id"):
        assert not other or polarity[one] == polarity[other]
