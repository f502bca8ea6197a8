"""What a replica counts, for Prometheus: by route, status and stage, never by namespace or key."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
OTHER = "other"
"""The route of requests for addresses that there are not, whatever they are."""


class Metrics:
    """The metrics of one replica."""

    def __init__(self) -> None:
        """Begin at zero."""
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            "hgmem_request_seconds",
            "Requests, from their arrival at the replica to the answer.",
            ("route", "status"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._stages = Histogram(
            "hgmem_stage_seconds",
            "Parts of answering a request.",
            ("stage",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._switched = Counter(
            "hgmem_version_switches", "Versions that were opened and are served since.", registry=self._registry
        )
        self._refused = Gauge(
            "hgmem_version_refused",
            "1 while the version that should be served cannot be, and an older one is.",
            registry=self._registry,
        )
        self._answers = Counter(
            "hgmem_answers",
            "Questions that were answered, abstained from or failed, by what answers.",
            ("outcome", "engine"),
            registry=self._registry,
        )
        self._tokens = Counter(
            "hgmem_answer_tokens", "Tokens of a language model for answers.", ("kind",), registry=self._registry
        )
        self.waiting_answers = Gauge(
            "hgmem_waiting_answers", "Requests that wait for a model to be free.", registry=self._registry
        )
        self.waiting = Gauge("hgmem_waiting", "Requests that wait for a thread.", registry=self._registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(route, str(status)).observe(seconds)

    def stages(self, timings_ms: Mapping[str, float]) -> None:
        """Count what the parts of a request took."""
        for stage, spent in timings_ms.items():
            self._stages.labels(stage).observe(spent / 1e3)

    def answered(self, outcome: str, engine: str, prompt_tokens: int, completion_tokens: int) -> None:
        """Count an answer, or none, and the tokens that it took."""
        self._answers.labels(outcome, engine).inc()
        self._tokens.labels("prompt").inc(prompt_tokens)
        self._tokens.labels("completion").inc(completion_tokens)

    def switched(self) -> None:
        """Count a version that is served since."""
        self._switched.inc()

    def refused(self, is_refused: bool) -> None:
        """Note whether the version that should be served is refused."""
        self._refused.set(float(is_refused))

    def text(self) -> bytes:
        """Return everything in Prometheus's text format."""
        return generate_latest(self._registry)
