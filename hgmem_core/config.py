"""The configuration: one frozen tree, read once from one TOML text, passed down in slices.

An unknown key, a wrong type or a value out of range is refused with its dotted path.
"""

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from hgmem_core.gate import read_floor
from hgmem_core.ids import check_namespace
from hgmem_core.model_config import (
    EncoderConfig,
    LlmConfig,
    RerankConfig,
)
from hgmem_core.section import ConfigError, Section

Format = Literal[
    "parquet", "jsonl", "csv", "openai", "chatgpt", "claude", "slack", "otel",
    "locomo", "longmemeval", "hotpotqa", "2wiki", "musique",
]  # fmt: skip
NAMES_ITS_MEMORY = frozenset({"locomo", "longmemeval"})
"""Formats whose importer says whose memory a row is."""
TrajectoryFormat = Literal["tau-bench", "intercode", "alfworld", "trajectories"]
"""Of logs that hold runs of agents; the other formats hold messages."""
TimeUnit = Literal["auto", "s", "ms", "us", "ns"]
Language = Literal[
    "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hindi", "hungarian", "italian",
    "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "turkish",
]  # fmt: skip


class ColumnsConfig(Section):
    """Which column of a tabular log holds what; an empty name means that the log does not have it."""

    text: str = "text"
    session: str = ""
    id: str = ""
    sequence: str = ""
    time: str = ""
    speaker: str = ""
    role: str = ""
    attachments: str = ""
    call_id: str = ""


class InputConfig(Section):
    """One log: its format, its files, whose memory it is, and how to read its columns and times."""

    format: Format | TrajectoryFormat
    paths: Annotated[list[str], Field(min_length=1)]
    namespace: str = ""
    """Template over the row's columns, such as `acme/{user}`; LoCoMo and LongMemEval name their own namespaces."""
    time_zone: str = "UTC"
    """The IANA zone in which times without one are meant."""
    time_unit: TimeUnit = "auto"
    """The unit of numeric times since 1970; `auto` goes by their size."""
    session_gap_minutes: Annotated[float, Field(ge=0.0, le=1_000_000.0)] = 0.0
    """Of a log without sessions: a longer silence begins another one; 0 leaves all of a namespace in one."""
    columns: ColumnsConfig = ColumnsConfig()

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        if value not in available_timezones():
            raise ValueError(f"{value!r} is not an IANA time zone, such as 'Europe/Paris' or 'UTC'")
        return value

    @model_validator(mode="after")
    def _names_its_memory(self) -> Self:
        if self.format not in NAMES_ITS_MEMORY and not self.namespace:
            raise ValueError("namespace is missing: say whose memory each row is, such as 'acme/{user}'")
        return self

    @property
    def zone(self) -> ZoneInfo:
        """The zone of times that name none."""
        return ZoneInfo(self.time_zone)


MOST_BUCKETS = 65_536
"""Of a store."""


class StoreConfig(Section):
    """Where the store lives and how it is cut."""

    root: str = "store"
    """A folder, or an address in object storage such as `s3://bucket/store`."""
    buckets: Annotated[int, Field(ge=0, le=MOST_BUCKETS)] = 0
    """Of a new store; `jobs.rebucket` changes them. 0: those it has, for a new one 8 to 4,096 by its logs' size."""
    keep_versions: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """At the end of a rebuild, versions beyond the newest so many are removed; 0 keeps all."""
    file_mode: Annotated[str, Field(pattern="^0?6[046][04]$")] = "0600"
    """Permissions of the files of a new store, octal, such as 0640 for a group; who may read may enter its folders."""
    cache: str = ""
    """Of a store in object storage: the folder for copies of what is used, on every machine; empty for
    `hgmem/stores` in the user's cache folder."""
    cache_gib: Annotated[float, Field(ge=0.0, le=1_000_000.0)] = 0.0
    """What those copies may take on a machine, in GiB: beyond, what was used longest ago goes; 0 for no bound."""

    @property
    def mode(self) -> int:
        """The permissions as a number."""
        return int(self.file_mode, 8)


class ImportConfig(Section):
    """Limits of the import stage."""

    max_turn_chars: Annotated[int, Field(ge=256, le=10_000_000)] = 32_768
    """A longer text becomes several turns, cut between paragraphs, sentences or words."""
    max_step_chars: Annotated[int, Field(ge=256, le=10_000_000)] = 32_768
    """Of a longer action or observation of an agent's run, only its two ends are kept."""
    max_reject_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.02
    """An import in which a larger share of the rows is rejected fails and keeps nothing."""
    redact: list[Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]] = []
    """Functions from str to str that every text goes through before it is kept, in order: `module:function`, such as
    `hgmem_core.redaction:emails` and `hgmem_core.redaction:phones`."""


class IndexConfig(Section):
    """How texts become postings and windows."""

    language: Language = "english"
    """Stems and stop words of text in Latin script; other scripts bring their own."""
    k1: Annotated[float, Field(gt=0.0, le=10.0)] = 1.5
    b: Annotated[float, Field(ge=0.0, le=1.0)] = 0.75
    ivf_from: Annotated[int, Field(ge=1)] = 65_536
    """Turns, facts, episodes or topics of a namespace from which their vectors have an IVF index besides."""


class GroupConfig(Section):
    """How episodes become topics."""

    join: Annotated[float, Field(ge=-1.0, le=2.0)] = 0.4
    """Nearness (cosine plus the weighted share of known names) from which an episode joins a topic."""
    join_second: Annotated[float, Field(ge=-1.0, le=2.0)] = 0.6
    """The same for a second topic."""
    name_weight: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    max_episodes: Annotated[int, Field(ge=1, le=1_000)] = 15
    """Episodes in one topic at most."""


class PropagateConfig(Section):
    """How vectors are drawn towards their hyperedges."""

    weight: Annotated[float, Field(gt=0.0, le=4.0)] = 0.5
    """λ of the stored vectors, from which a query derives those of the λ that its recipe asks for, 0 too."""
    aggregation: Literal["sum", "mean"] = "sum"
    """Of the hyperedges of one node."""


class SegmentConfig(Section):
    """How sessions are cut into episodes."""

    max_turns: Annotated[int, Field(ge=1, le=10_000)] = 40
    """The most turns of an episode."""
    max_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = 2_000
    """The most tokens of an episode, a token being four bytes; a longer turn is an episode of its own."""
    max_idle_hours: Annotated[float, Field(gt=0.0, le=100_000.0)] = 6.0
    """A turn that follows after a longer silence begins an episode."""
    min_turns: Annotated[int, Field(ge=1, le=100)] = 2
    """Below it only silence and the caps end an episode."""
    pause_minutes: Annotated[float, Field(gt=0.0, le=1_000_000.0)] = 30.0
    """A longer pause speaks for a new episode, more so with each doubling."""
    vector_weight: Annotated[float, Field(ge=0.0, le=10.0)] = 1.0
    """How much the cosines between a turn and those before it count."""
    word_weight: Annotated[float, Field(ge=0.0, le=10.0)] = 1.0
    """How much the terms that a turn takes up count."""
    cue_weight: Annotated[float, Field(ge=0.0, le=10.0)] = 1.0
    """How much questions, answers and words such as `that` count."""
    time_weight: Annotated[float, Field(ge=0.0, le=10.0)] = 1.0
    """How much each doubling of a pause counts, in log odds."""
    threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.43
    """How probable a new episode must be; a higher one gives fewer and longer episodes."""


class ExtractConfig(Section):
    """How turns become facts."""

    max_fact_chars: Annotated[int, Field(ge=64, le=8_192)] = 96
    """Sentences of a turn share a fact up to this; one that is longer alone has a fact of its own."""
    max_sentence_chars: Annotated[int, Field(ge=64, le=8_192)] = 320
    """A longer sentence is cut between words into several facts."""
    max_turn_facts: Annotated[int, Field(ge=1, le=1_024)] = 16
    """A turn that would give more facts gives as many longer ones."""
    max_keywords: Annotated[int, Field(ge=0, le=64)] = 8
    answer_turns: Annotated[int, Field(ge=1, le=32)] = 3
    """How many turns a question waits for its answer."""


class ConsolidateConfig(Section):
    """When two facts are one."""

    near_duplicate_cosine: Annotated[float, Field(ge=0.0, le=1.0)] = 0.9
    """Statements of the same words but for articles, fillers and contractions are one from this similarity on."""


class RelateConfig(Section):
    """How many relations a fact has; those of turns are as HAGE has them."""

    near: Annotated[int, Field(ge=1, le=32)] = 2
    """Facts on either side that it is related to by when they were said, and by when they hold."""
    similar: Annotated[int, Field(ge=1, le=64)] = 10
    """Nearest facts by cosine."""
    same_term: Annotated[int, Field(ge=1, le=32)] = 2
    """Facts on either side for each rare name or keyword that it shares with them."""


class EvolutionConfig(Section):
    """What a cycle of evolution prunes and what it merges; the last three go beyond the paper."""

    fewest_shown: Annotated[int, Field(ge=1, le=1_000_000)] = 3
    """N_min: what was shown for fewer runs is not judged."""
    prune_below: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """τ_prune: a node is pruned if its utility is below this."""
    merge_from: Annotated[float, Field(ge=-1.0, le=1.0)] = 0.85
    """δ_merge, the least cosine of propagated vectors."""
    restart: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """a of the propagation, the share of a skill's own vector at each step; the paper does not give its own."""
    depth: Annotated[int, Field(ge=0, le=16)] = 2
    """L of the propagation, the number of steps; likewise."""
    successes_only: bool = False
    """Whether efficiency looks at runs that succeeded only, so that to fail fast is no merit."""
    raw_floor: Annotated[float, Field(ge=-1.0, le=1.0)] = 0.6
    """The least cosine of the skills' own vectors, because propagation draws together what occurs in the same runs; -1
    for no such floor, as published."""
    most_pruned: Annotated[float, Field(ge=0.0, le=1.0)] = 0.25
    """The largest share of subtasks, and of skills, that a cycle prunes, worst first; the paper has none."""
    most_merged: Annotated[float, Field(ge=0.0, le=1.0)] = 0.25
    """The largest share of skills that vanish in the merges of a cycle, most similar pairs first; likewise."""


class SkillsConfig(Section):
    """How runs of agents become skills, and how many of these a query shows."""

    same_from: Annotated[float, Field(ge=0.0, le=1.0)] = 0.9
    """The cosine from which two skills of a polarity are one."""
    recipe: str = "skills/covering"
    subtasks: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Subtasks nearest to the plan; like the next two, 0 leaves what the recipe says, and what a recipe leaves out
    stays out."""
    trajectories: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Runs nearest to the task."""
    skills: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Skills and mistakes that are shown, together."""
    context_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    """Of the text for a prompt."""
    libraries: Annotated[list[Annotated[str, AfterValidator(check_namespace)]], Field(max_length=8)] = []
    """Namespaces that are asked beside those that a query names, as far as the asker may read them."""
    evolution: EvolutionConfig = EvolutionConfig()


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
            read_floor(text)
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
    """For a request, its waiting included."""
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


class Config(Section):
    """The whole tree."""

    store: StoreConfig = StoreConfig()
    inputs: list[InputConfig] = []
    imports: ImportConfig = ImportConfig()
    encoder: EncoderConfig = EncoderConfig()
    rerank: RerankConfig = RerankConfig()
    segment: SegmentConfig = SegmentConfig()
    extract: ExtractConfig = ExtractConfig()
    consolidate: ConsolidateConfig = ConsolidateConfig()
    group: GroupConfig = GroupConfig()
    propagate: PropagateConfig = PropagateConfig()
    relate: RelateConfig = RelateConfig()
    index: IndexConfig = IndexConfig()
    skills: SkillsConfig = SkillsConfig()
    retrieve: RetrieveConfig = RetrieveConfig()
    gate: GateConfig = GateConfig()
    answer: AnswerConfig = AnswerConfig()
    serve: ServeConfig = ServeConfig()
    run: RunConfig = RunConfig()
    llm: LlmConfig = LlmConfig()
    judge: LlmConfig = LlmConfig()
    """Who marks answers in evaluations; with `engine` = none the model of `llm`. Its `stages` do not matter."""

    @model_validator(mode="after")
    def _has_a_place_for_vllm(self) -> Self:
        if self.llm.engine == "vllm" and self.run.engine == "local":
            raise ValueError("llm.engine=vllm runs as actors on Ray: set run.engine=ray, or llm.engine=http")
        if self.encoder.name == "vllm" and self.run.engine == "local":
            raise ValueError("encoder.name=vllm runs in actors on Ray: set run.engine=ray, or encoder.name=http")
        return self


def parse_config(text: str, overrides: Iterable[str] = ()) -> Config:
    r"""Read a configuration from TOML `text` and `a.b=value` overrides, the last one winning.

    A value is read as TOML; what is not TOML is a string, so `store.root=/data/x` needs no quotes. What begins with a
    quote or a square bracket has to be TOML.

    Raises:
        ConfigError: One line for each fault, starting with its dotted path.

    >>> parse_config("[store]\nbuckets = 4", ["retrieve.k=5"]).store.buckets
    4
    """
    tree = _toml("the configuration", text)
    for override in overrides:
        _override(tree, override)
    return config_from(tree)


def config_from(tree: Mapping[str, Any]) -> Config:
    """Check a parsed tree; see `parse_config`."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_fault(item) for item in error.errors())) from error


def _fault(item: Mapping[str, Any]) -> str:
    path = ".".join(str(step) for step in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"{path}: unknown key"
    message = str(item["msg"]).removeprefix("Value error, ")
    if not path:
        return message  # of the whole tree: it names its paths itself
    return f"{path}: {message}" if isinstance(item["input"], dict) else f"{path}: {message} (got {item['input']!r})"


def _toml(what: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{what} is not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{what} is nested too deeply") from error


def _override(tree: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"{override}: an override is written a.b=value")
    value: Any = text
    try:
        value = _toml(path, f"value = {text}")["value"]
    except ConfigError:
        if text.lstrip().startswith(('"', "'", "[")):
            raise
    *parents, leaf = path.strip().split(".")
    branch: Any = tree
    for step in parents:
        branch = branch[_index(branch, step, path)] if isinstance(branch, list) else branch.setdefault(step, {})
        if not isinstance(branch, dict | list):
            raise ConfigError(f"{path}: {step} is a value, not a section")
    if isinstance(branch, list):
        branch[_index(branch, leaf, path)] = value
    else:
        branch[leaf] = value


def _index(branch: list[Any], step: str, path: str) -> int:
    if not step.isdigit() or int(step) >= len(branch):
        raise ConfigError(f"{path}: {step} is not one of the {len(branch)} elements")
    return int(step)


def config_digest(section: Section) -> str:
    """Return the sha256 of what a section says, defaults included."""
    return hashlib.sha256(section.model_dump_json().encode()).hexdigest()


def to_toml(config: Config) -> str:
    """Write the whole tree, defaults included, as TOML that `parse_config` reads back to the same tree."""
    lines: list[str] = []
    for name, value in config.model_dump().items():
        if isinstance(value, list):
            for item in value:
                lines += [f"[[{name}]]", *_toml_body(name, item), ""]
        else:
            lines += [f"[{name}]", *_toml_body(name, value), ""]
    return "\n".join(lines)


def _toml_body(path: str, section: Mapping[str, Any]) -> list[str]:
    values = [f"{key} = {_toml_value(value)}" for key, value in section.items() if not isinstance(value, dict)]
    tables = [(key, value) for key, value in section.items() if isinstance(value, dict)]
    for key, value in tables:
        values += [f"[{path}.{key}]", *_toml_body(f"{path}.{key}", value)]
    return values


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(
            f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else "\\" + c if c in '"\\' else c for c in value
        )
        return f'"{escaped}"'
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_value(key)} = {_toml_value(item)}" for key, item in value.items()) + " }"
    return repr(value)
