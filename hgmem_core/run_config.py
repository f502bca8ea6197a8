"""The parts of a configuration that say how a version is asked, served and judged, and where the stages are run."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from hgmem_core.gate import read_floor
from hgmem_core.metrics import METRICS
from hgmem_core.section import Section


class RetrieveConfig(Section):
    """Defaults of a query."""

    recipe: str = "default"
    k: Annotated[int, Field(ge=1, le=1_000)] = 10
    analysis: Literal["rules", "llm"] = "rules"
    """Who says what a question asks for, to recipes that read it: rules, or the model of `llm` over them."""
    models: str = ""
    """The folder of trained models, for recipes that need one; see `python -m jobs.train`."""
    abstain_below: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """The probability that the memory holds the answer below which a query abstains; 0 for never. It takes the model
    `abstention`."""


class GateConfig(Section):
    """What a version must find before a rebuild makes it the current one; without `data` there is no gate."""

    task: Literal["questions", "locomo", "longmemeval", "hotpotqa", "2wiki", "musique"] = "questions"
    """Your own `questions`, or a benchmark that the store has imported."""
    data: str = ""
    """The file with the questions."""
    corpus: str = ""
    """MuSiQue: the file with the paragraphs, if those are not with the questions."""
    recipe: str = "default"
    """Which recipe is asked."""
    at_least: list[str] = []
    """What its metrics must reach, in percent: `recall@10=70`, or `GROUP/recall@10=50` for a group of questions."""
    not_worse: bool = True
    """Whether the version must not be worse than the current one: no 95 % interval of a paired difference below 0."""

    @field_validator("at_least")
    @classmethod
    def _are_floors(cls, value: list[str]) -> list[str]:
        for text in value:
            metric = read_floor(text).metric
            if metric.removeprefix("session_") not in METRICS:
                raise ValueError(f"{metric!r} is no metric of retrieval; there are {', '.join(METRICS)}")
        return value

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.data and not self.at_least and not self.not_worse:
            raise ValueError("the gate lets everything pass: set at_least, such as ['recall@10=70'], or not_worse")
        return self


AnswerStyle = Literal["full", "short", "steps"]
"""How an answer is worded: whole sentences, the bare thing that was asked for, or whole sentences after a chain of
thought."""


class AnswerConfig(Section):
    """How questions are answered, by the model of `llm` at a server, else by the best statements word for word."""

    style: AnswerStyle = "full"
    context_tokens: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    """Of the statements that an answer may stand on."""
    max_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = 512
    """Of an answer, its chain of thought included; a second try after one that was cut off may take twice as many."""
    timeout_seconds: Annotated[float, Field(gt=0.0, le=3_600.0)] = 60.0
    """For the model to answer, waiting and second tries included; what is found first has the time of any query."""
    concurrency: Annotated[int, Field(ge=1, le=1_024)] = 8
    """Answers that a replica of the endpoint has in the making at the same time; searches do not wait for them."""


class ServeConfig(Section):
    """How the endpoint answers, and whom. Paths are of the machine that answers; Serve's own settings are Serve's."""

    keys: str = ""
    """The folder of the keys that may ask; see `python -m jobs.keys`. Without it only this machine may."""
    hosts: list[str] = ["localhost", "127.0.0.1", "[::1]"]
    """Names under which the endpoint is asked, without a port; a request for any other is refused."""
    origins: list[str] = []
    """Web pages of other origins that may ask, such as `https://desk.example.com`."""
    audit: str = ""
    """The file that uses of keys and deletions are appended to; without it they go to standard error."""
    max_k: Annotated[int, Field(ge=1, le=1_000)] = 200
    """The most hits of a request."""
    max_text_chars: Annotated[int, Field(ge=1, le=1_000_000)] = 8_192
    """Of a question or a task."""
    max_body_kib: Annotated[int, Field(ge=1, le=16_384)] = 64
    """Of a request."""
    threads: Annotated[int, Field(ge=1, le=256)] = 2
    """Requests that a replica works on at the same time."""
    queue: Annotated[int, Field(ge=0, le=100_000)] = 64
    """Requests that may wait for one of them; beyond, a request is told to come again."""
    retry_after_seconds: Annotated[int, Field(ge=1, le=3_600)] = 1
    """When to."""
    timeout_seconds: Annotated[float, Field(gt=0.0, le=3_600.0)] = 10.0
    """For a request, its waiting included; its body has as long to come."""
    version_timeout_seconds: Annotated[float, Field(gt=0.0, le=86_400.0)] = 600.0
    """For a request to roll back or to reload, which has all files of a version verified."""
    batch: Annotated[int, Field(ge=1, le=1_024)] = 8
    """Questions that are encoded together, if so many wait."""
    refresh_seconds: Annotated[float, Field(gt=0.0, le=3_600.0)] = 2.0
    """From one look for a new version, for keys and for what is to be forgotten to the next."""


class ResourcesConfig(Section):
    """What Ray reserves for one task or actor of a kind of work, and how many run at once."""

    cpus: Annotated[float, Field(ge=0.0, le=1_024.0)] = 1.0
    gpus: Annotated[float, Field(ge=0.0, le=64.0)] = 0.0
    memory_gib: Annotated[float, Field(ge=0.0, le=16_384.0)] = 0.0
    """Memory to reserve; 0 reserves none."""
    concurrency: Annotated[int, Field(ge=0, le=65_536)] = 0
    """The most that run at once; 0 means as many as fit."""


class RayConfig(Section):
    """Where Ray is, and what it gives to the kinds of work."""

    address: str = ""
    """Of a running cluster, or `local` for one that is started for this run; empty means that of a submitted job or of
    `RAY_ADDRESS`, else a local one."""
    autoscaling: bool = False
    """The cluster adds nodes on demand: what asks for more than there is now waits, and is not refused."""
    imports: ResourcesConfig = ResourcesConfig()
    """Tasks that read log files."""
    buckets: ResourcesConfig = ResourcesConfig()
    """Tasks that run every stage but the encoders, on some buckets each, one at a time."""
    ask: ResourcesConfig = ResourcesConfig(concurrency=1)
    """Actors that ask a language model's server (`llm.engine=http`); each has an `llm.http.concurrency` of its own."""
    encode: ResourcesConfig = ResourcesConfig(cpus=0.0)
    """The encoder's actors; with `cpus` = 0 they take what the packaged encoder is known to need."""


class TrainConfig(Section):
    """How models that learn in epochs are trained: results depend on all but `checkpoint_epochs` and `retries`."""

    epochs: Annotated[int, Field(ge=1, le=100_000)] = 200
    """Times that every question is learned from, at most."""
    validate_epochs: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Epochs from one look at the questions that are held back to the next."""
    patience: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Looks in a row that find no more than the best before; then training ends, and the best weights are kept."""
    workers: Annotated[int, Field(ge=1, le=1_024)] = 1
    """Processes that train together, a CPU each."""
    use_gpu: bool = False
    """Whether each worker has a GPU, too."""
    checkpoint_epochs: Annotated[int, Field(ge=1, le=100_000)] = 10
    """Epochs from one checkpoint to the next: what is lost at most when a worker, or the job, is."""
    retries: Annotated[int, Field(ge=0, le=1_000)] = 3
    """How often workers that were lost are replaced."""


class RunConfig(Section):
    """How the stages are run; results do not depend on it, but for those of `train`."""

    engine: Literal["auto", "local", "ray"] = "auto"
    """Threads of this process, or a Ray cluster; `auto` takes Ray from `ray_from_mib` of logs on."""
    workers: Annotated[int, Field(ge=1, le=1_024)] = 2
    """Threads that work on buckets, where the engine is local."""
    ray_from_mib: Annotated[float, Field(ge=0.0, le=1_000_000.0)] = 16.0
    """Mebibytes of logs, known and new, from which `auto` takes Ray: below, starting it costs more than it saves."""
    stall_minutes: Annotated[float, Field(gt=0.0, le=10_000.0)] = 30.0
    """A Ray run in which nothing is finished for so long fails and says what it waits for."""
    ray: RayConfig = RayConfig()
    train: TrainConfig = TrainConfig()
