"""What is measured of the endpoint: a small store on Serve, and counts of made-up answers."""

import pytest

from hgmem_core.config import config_from
from pipelines.progress import Silent
from pipelines.serve_load import Asked, Told, together
from pipelines.serve_soak import Current, counted


def answer(began, ended, version="a", status=200):
    return Asked(0, began, ended, status, version)


def test_an_answer_may_be_of_any_version_that_was_current_while_it_was_made():
    current = Current([(0.0, "a"), (10.0, "b"), (20.0, "a")])
    late = [
        current.seconds_late(answer(began, ended, version))
        for began, ended, version in [(1, 2, "a"), (9, 11, "a"), (9, 11, "b"), (13, 14, "a"), (21, 22, "a")]
    ]
    assert late == [0, 0, 0, 3, 0]
    assert current.seconds_late(answer(8, 9, "b")) == current.seconds_late(answer(8, 9, "c")) == float("inf")


def test_what_became_of_requests_is_counted():
    current = Current([(0.0, "a"), (10.0, "b")])
    asked = [
        answer(1, 2), answer(11, 12), answer(18, 19), answer(8, 9, "b"), answer(11, 12, "b"),
        answer(4, 6, "", 500), answer(5.2, 5.3, "", 500), answer(3, 4, "", 500), answer(6, 7, "", 0),
    ]  # fmt: skip
    assert counted(asked, current, [(5.0, 5.5)], within_s=7.0) == {
        "requests": 9, "answers": 5, "wrong_versions": 2, "late_seconds": 8.0, "errors_in_flight": 2, "other_errors": 2,
    }  # fmt: skip


def test_a_rate_of_several_is_of_the_time_when_all_of_them_work():
    class Scripted:
        def __init__(self, *times):
            self.asked = [answer(began, ended) for began, ended in times]

        def start(self, requests):
            assert requests == len(self.asked)

        def told(self):
            return Told(self.asked, 0.0)

    early, late = Scripted((0, 2), (2, 4), (4, 6)), Scripted((2, 3), (3, 4), (4, 8))
    assert together([early, late], 3) == 4 / 4  # from 2 to 6: two of either


@pytest.mark.ray
def test_the_endpoint_is_measured_beside_the_direct_call(local_ray, tmp_path):
    from pipelines.serve_benchmark import Sizes, benchmark_serve

    serve = {"refresh_seconds": 0.1, "timeout_seconds": 60}
    config = config_from({"store": {"root": str(tmp_path / "store")}, "serve": serve})
    result = benchmark_serve(config, Sizes(facts=200, questions=3, requests=24, soak=64, replicas=2), Silent())

    assert result["mismatches"] == []
    assert (result["turns"], result["questions"], result["replicas"]) == (40, 3, 2)
    for part in ("one_at_a_time", "many_at_a_time"):
        measured = result[part]
        assert (measured["requests"], measured["errors"]) == (24, 0)
        assert 0 < measured["p50_ms"] <= measured["p95_ms"]
    cpu, many = result["cpu_ms_a_request"], result["many_at_a_time"]
    assert cpu["added"] == pytest.approx(cpu["proxy"] + cpu["replicas"] - cpu["direct"], abs=0.02)
    assert cpu["proxy"] > 0 < cpu["replicas"]
    assert many["ratio"] == pytest.approx(many["a_second"] / many["two_direct_a_second"], abs=0.01)
    assert min(result["memory_mib"].values()) > 10
    assert (result["cancelled"]["requests"], result["cancelled"]["next_status"]) == (200, 200)
    assert result["swap"]["seconds"] > 0

    soak = result["soak"]
    assert soak["requests"] == 64 == soak["answers"] + soak["errors_in_flight"] + soak["other_errors"]
    assert (soak["wrong_versions"], soak["other_errors"], soak["rollback_statuses"]) == (0, 0, [200])
    assert soak["memory_mib_after"] > soak["memory_mib_before"] / 2
