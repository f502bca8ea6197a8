import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hgmem_core.skill_dedup as skill_dedup
from hgmem_core.ids import skill_id
from hgmem_core.similar import row_cosines
from hgmem_core.skill_dedup import dedup_skills
from tests.core.skill_graphs import units


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(skill_dedup, "_BLOCK", 4)


def mentions(*rows):
    """Mentions of (run, polarity, name), in namespace n, whose text follows from the name."""
    runs, polarities, names = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {"namespace": ["n"] * len(rows), "trajectory_id": runs, "polarity": polarities, "name": names}
    columns["text"] = [f"text of {name}" for name in names]
    return pa.table({name: pa.array(values, pa.large_string()) for name, values in columns.items()})


def found(rows, vectors):
    """Aliases by (polarity, name), and the runs of each skill."""
    result = dedup_skills(mentions(*rows), np.array(vectors, np.float32))
    skills = {row["skill_id"]: (row["polarity"], row["name"]) for row in result.skills.to_pylist()}
    aliases = {skills[row["skill_id"]]: row["aliases"] for row in result.skills.to_pylist()}
    held = sorted((row["hyperedge_id"], *skills[row["node_id"]]) for row in result.incidences.to_pylist())
    for row, mention in zip(result.skills.to_pylist(), result.mentions.tolist(), strict=True):
        assert rows[mention][1:] == (row["polarity"], row["name"])
    return aliases, held


UP, AT_90 = (1.0, 0.0), (0.9, np.sqrt(0.19))


def test_exactly_the_threshold_merges_and_what_is_older_keeps_its_text():
    vectors = np.array([UP, AT_90], np.float32)
    assert row_cosines(vectors, np.array([0]), vectors, np.array([1]))[0] == np.float32(0.9)
    aliases, held = found([("r1", "positive", "old"), ("r2", "positive", "new")], [UP, AT_90])
    assert aliases == {("positive", "old"): ["new"]}
    assert held == [("r1", "positive", "old"), ("r2", "positive", "old")]
    aliases, _ = found([("r1", "positive", "old"), ("r2", "positive", "new")], [UP, (0.8999, np.sqrt(1 - 0.8999**2))])
    assert list(aliases.values()) == [[], []]


def test_what_to_do_and_what_to_avoid_stay_apart():
    aliases, _ = found([("r1", "positive", "same"), ("r2", "negative", "same")], [UP, UP])
    assert aliases == {("positive", "same"): [], ("negative", "same"): []}


def test_a_skill_joins_the_nearest_leader_and_not_what_joined_one():
    degrees = {"a": 0, "b": 40, "near-b": 22, "chained": 45}
    rows = [(f"r{place}", "positive", name) for place, name in enumerate(degrees)]
    angles = np.radians(list(degrees.values()))
    aliases, _ = found(rows, np.stack([np.cos(angles), np.sin(angles)], axis=1))
    assert aliases == {("positive", "a"): [], ("positive", "b"): ["near-b", "chained"]}


@pytest.mark.parametrize("block", [1, 4])
def test_what_joined_a_skill_draws_no_other_to_it(monkeypatch, block):
    monkeypatch.setattr(skill_dedup, "_BLOCK", block)
    angles = np.radians([0, 20, 40])
    rows = [(f"r{place}", "positive", name) for place, name in enumerate(("a", "near-a", "near-that"))]
    aliases, _ = found(rows, np.stack([np.cos(angles), np.sin(angles)], axis=1))
    assert aliases == {("positive", "a"): ["near-a"], ("positive", "near-that"): []}


def test_of_two_equally_near_leaders_the_lower_id_is_joined():
    spread = [(0.95, np.sqrt(1 - 0.95**2)), (0.95, -np.sqrt(1 - 0.95**2)), UP]
    for name in ("one", "two", "three", "four"):
        rows = [("r1", "positive", "left"), ("r2", "positive", "right"), ("r3", "positive", name)]
        ids = {side: skill_id("n", "positive", side, f"text of {side}") for side in ("left", "right")}
        aliases, _ = found(rows, spread)
        assert aliases["positive", min(ids, key=ids.get)] == [name]


def test_a_skill_learnt_twice_from_a_run_is_in_it_once():
    _, held = found([("r1", "positive", "a"), ("r1", "positive", "a"), ("r1", "positive", "b")], [UP, UP, AT_90])
    assert held == [("r1", "positive", "a")]


def test_no_mentions_make_no_skills():
    result = dedup_skills(mentions(), np.zeros((0, 2), np.float32))
    assert (result.skills.num_rows, result.incidences.num_rows, len(result.mentions)) == (0, 0, 0)


def one_by_one(rows, vectors):
    """The rule as it reads, one mention after the other."""
    leaders, joined = [], {}
    for (_, polarity, name), vector in zip(rows, vectors, strict=True):
        if (polarity, name) in joined:
            continue
        near = [
            (
                -row_cosines(vector[None], np.array([0]), own[None], np.array([0]))[0],
                skill_id("n", *key, f"text of {key[1]}"),
                key,
            )
            for key, own in leaders
            if key[0] == polarity
        ]
        best = min(near, default=(0.0, "", None))
        if -best[0] >= np.float32(0.9):
            joined[polarity, name] = best[2]
        else:
            joined[polarity, name] = (polarity, name)
            leaders.append(((polarity, name), vector))
    return joined


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_all_at_once_is_one_by_one(data):
    """Vectors are few and close, so that ties, chains and leaders within a block occur."""
    texts = data.draw(
        st.dictionaries(
            st.tuples(st.sampled_from(["positive", "negative"]), st.sampled_from("abcdefghijkl")),
            st.tuples(st.integers(3, 6), st.integers(-3, 3), st.integers(-1, 1)),
            min_size=1,
        )
    )
    said = data.draw(st.lists(st.sampled_from(sorted(texts)), max_size=25))
    rows = [(f"r{place // 2}", *key) for place, key in enumerate(said)]
    vectors = units(texts[key] for key in said)
    expected = one_by_one(rows, vectors)
    aliases, held = found(rows, vectors)
    assert set(aliases) == set(expected.values())
    assert held == sorted({(run, *expected[polarity, name]) for run, polarity, name in rows})
    joined = {
        leader: [
            name
            for key, (_, name) in zip(expected.values(), expected, strict=True)
            if key == leader and name != leader[1]
        ]
        for leader in aliases
    }
    assert aliases == joined
