from pipelines.skill_benchmark import benchmark_skills


def test_every_part_is_timed_by_wall_and_by_processor():
    result = benchmark_skills(300, 40, 20, 3)
    assert (result["case"], result["trajectories"], result["skills"], result["queries"]) == ("skills", 300, 40, 20)
    # At most three skills a run: at most six ordered pairs.
    assert 300 <= result["memberships"] <= 900
    assert 0 < result["co_occurrences"] <= min(6 * 300, 40 * 39)
    assert result["memberships"] / 40 < result["largest_hub"] <= 300
    assert result["peak_rss_mib"] > 0
    for kind in ("seconds", "cpu_seconds"):
        assert set(result[kind]) == {"total", "hypergraph", "co_occurrence", "propagation", "kappa"}
        assert all(0 <= taken <= result[kind]["total"] + 0.02 for taken in result[kind].values())
    assert len(result["seconds_of_each_repeat"]) == 3
    assert min(result["seconds_of_each_repeat"]) <= result["seconds"]["total"] <= max(result["seconds_of_each_repeat"])
