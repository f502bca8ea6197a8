"""The configuration: one frozen tree, read once from one TOML text, passed down in slices.

An unknown key, a wrong type or a value out of range is refused with its dotted path.
"""

import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field, ValidationError, field_validator, model_validator

from hgmem_core.model_config import EncoderConfig, LlmConfig, RerankConfig
from hgmem_core.run_config import AnswerConfig, GateConfig, RetrieveConfig, RunConfig, ServeConfig
from hgmem_core.section import ConfigError, Section
from hgmem_core.stage_config import (
    ConsolidateConfig,
    ExtractConfig,
    GroupConfig,
    ImportConfig,
    IndexConfig,
    PropagateConfig,
    RelateConfig,
    SegmentConfig,
    SkillsConfig,
)

Format = Literal[
    "parquet", "jsonl", "csv", "openai", "chatgpt", "claude", "slack", "otel",
    "locomo", "longmemeval", "hotpotqa", "2wiki", "musique",
]  # fmt: skip
NAMES_ITS_MEMORY = frozenset({"locomo", "longmemeval"})
"""Formats whose importer says whose memory a row is."""
TrajectoryFormat = Literal["tau-bench", "intercode", "alfworld", "trajectories"]
"""Of logs that hold runs of agents; the other formats hold messages."""
TimeUnit = Literal["auto", "s", "ms", "us", "ns"]


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
