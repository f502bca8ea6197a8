import pytest

from pipelines import http_benchmark
from pipelines.http_benchmark import Span, benchmark_http, mean_in_flight
from pipelines.progress import Silent


def test_requests_in_flight_are_weighed_by_time():
    spans = [Span(0, 4), Span(0, 2), Span(3, 4)]
    assert mean_in_flight(spans) == 7 / 4
    assert mean_in_flight(spans, 2, 4) == 3 / 2


def test_requests_in_flight_are_measured(monkeypatch):
    monkeypatch.setattr(http_benchmark, "in_fresh_process", lambda environment, work, *given: work(*given))
    result = benchmark_http(40, 8, 0.1, 1, Silent())
    assert (result["case"], result["requests"], result["concurrency"], result["latency_ms"]) == ("http", 40, 8, 100)
    # Five times eight answers: 0.5 s, and whatever this machine takes beside it.
    assert 0.5 <= result["seconds"]["median"] < 5
    assert result["mean_in_flight"]["median"] == pytest.approx(4 / result["seconds"]["median"], rel=0.25)
    assert 4 < result["mean_without_ends"]["median"] <= 8
    assert result["cpu_ms_a_request"]["median"] > 0
