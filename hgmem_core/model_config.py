"""The parts of a configuration that say which models take part, and how they are run or reached."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hgmem_core.section import Section

EncoderName = Literal["minilm", "static", "multilingual", "sentence-transformers", "http", "vllm"]
PACKAGED_ENCODERS: tuple[EncoderName, ...] = ("minilm", "static", "multilingual")
LlmStage = Literal["segment", "extract", "consolidate", "group", "relate", "decompose", "skills", "evolve"]


class ServerConfig(Section):
    """How an OpenAI-compatible server is reached, and how much is asked of it at once."""

    url: str = "http://127.0.0.1:8000/v1"
    """Up to and with the version, such as `/v1`."""
    key_variable: str = ""
    """The environment variable that holds the server's key; empty for a server without one. Keys never lie in a
    configuration, since that is written into manifests."""
    concurrency: Annotated[int, Field(ge=1, le=65_536)] = 64
    """Requests in flight at a time, over all threads of the client."""
    timeout_seconds: Annotated[float, Field(gt=0.0, le=86_400.0)] = 600.0
    """For one try of one request."""
    retries: Annotated[int, Field(ge=0, le=100)] = 5
    """Further tries of a request after a time-out, a broken connection, 408, 429 or 5xx."""
    give_up_minutes: Annotated[float, Field(ge=0.0, le=10_000.0)] = 10.0
    """A server that answers nothing for so long ends the run; what it answered is kept."""


class VllmConfig(Section):
    """How vLLM engines run as actors on Ray."""

    engine_kwargs: dict[str, Any] = {}
    """Given to vLLM as they are, `tensor_parallel_size` and `max_model_len` among them."""
    replicas: Annotated[int, Field(ge=1, le=1_024)] = 1
    """Engines at a time."""
    bundles: list[dict[str, float]] = []
    """What one engine reserves, such as `[{ GPU = 1, CPU = 4 }]`; empty leaves it to Ray: a GPU for each rank."""
    batch_size: Annotated[int, Field(ge=1, le=4_096)] = 64
    """Rows that an engine is handed at a time; several batches are in flight."""


class VllmEngineConfig(Section):
    """One vLLM engine within a process."""

    engine_kwargs: dict[str, Any] = {}
    """Given to vLLM as they are."""


class EncoderConfig(Section):
    """What makes the vectors."""

    name: EncoderName = "minilm"
    """`minilm`, `static` and `multilingual` are packaged; the others run the `model` that is named: here, at an
    OpenAI-compatible server, or on vLLM in actors on Ray."""
    model: str = ""
    """Name or folder, as for whoever runs it."""
    dimension: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Floats that are kept of a vector, for models that were trained to be cut so; 0 keeps all."""
    max_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = 2_048
    """Of one piece of text; a longer text is split, and its vector is the mean of its pieces'. A model run here that
    takes fewer gets fewer; a server that takes fewer must be known."""
    tokenizer: str = ""
    """The model's `tokenizer.json`, or the folder that holds it, for a model at a server or on vLLM; empty means that
    of a `model` that is on this machine, else an upper bound by bytes."""
    query_instruction: str = ""
    """What a query looks for, for models that are told so; empty means what the model itself or, for Qwen3, this
    software says."""
    query_prefix: str = ""
    """Put before a query instead, word for word."""
    document_prefix: str = ""
    """Put before everything else; empty means what a model run here itself says."""
    download: bool = False
    """Whether a model run here may be fetched by name if it is not on this machine."""
    cache_dir: str = ""
    """Where the exported `minilm` is kept; empty means the user's cache folder."""
    tuned: str = ""
    """The folder of a tuned encoder, or of heads for this one's vectors: turns get vectors of it, too, for recipes that
    read them. Empty for none."""
    batch_size: Annotated[int, Field(ge=1, le=1_024)] = 32
    """Pieces of text that go through the model together, or in one request; vLLM makes its own batches."""
    http: ServerConfig = ServerConfig()
    vllm: VllmEngineConfig = VllmEngineConfig()

    @model_validator(mode="after")
    def _names_its_model(self) -> Self:
        if (self.name in PACKAGED_ENCODERS) == bool(self.model):
            raise ValueError(
                f"name={self.name} has a model of its own: leave out model, or name what runs it"
                if self.model
                else f"model is missing: name the one that {self.name} is to run"
            )
        prefixes = self.query_instruction, self.query_prefix, self.document_prefix
        if self.name in PACKAGED_ENCODERS and (self.dimension or any(prefixes)):
            raise ValueError(f"name={self.name} takes no dimension, instruction or prefix")
        if self.query_instruction and self.query_prefix:
            raise ValueError("query_instruction and query_prefix exclude each other")
        return self


class RerankServerConfig(Section):
    """How a server is reached that answers while somebody waits."""

    url: str = "http://127.0.0.1:8000/v1"
    """Up to and with the version, such as `/v1`, where there is one."""
    key_variable: str = ""
    """The environment variable that holds the server's key; empty for a server without one."""
    timeout_seconds: Annotated[float, Field(gt=0.0, le=86_400.0)] = 20.0
    """For one try of a request; there are three."""


class RerankConfig(Section):
    """Which model orders what a recipe found anew, by reading it together with the query."""

    engine: Literal["none", "sentence-transformers", "http", "vllm"] = "none"
    """`sentence-transformers` runs a cross-encoder here, `vllm` a model on vLLM here; `http` asks a server."""
    model: str = ""
    """Name or folder, as for whoever runs it."""
    candidates: Annotated[int, Field(ge=1, le=1_000)] = 100
    """How many of a recipe's best are read, for `hypermem` at each stage; the rest stays behind them."""
    max_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = 2_048
    """Of a candidate's text, a token being four bytes; the rest of it is not read."""
    instruction: str = ""
    """What makes a candidate relevant, for models that are told so; empty means what this software says."""
    template: Literal["auto", "qwen3", "none"] = "auto"
    """`qwen3` puts query and candidate into the form that Qwen3-Reranker was trained on, `none` sends them as they are;
    `auto` goes by the model's name."""
    protocol: Literal["rerank", "tei", "yes_no"] = "rerank"
    """Of the server: `rerank` as vLLM, Jina and Cohere have it, `tei` as Text Embeddings Inference has it, `yes_no`
    asks a language model through `/completions` and goes by the odds of its answer."""
    download: bool = False
    """Whether a model run here may be fetched by name if it is not on this machine."""
    http: RerankServerConfig = RerankServerConfig()
    vllm: VllmEngineConfig = VllmEngineConfig()

    @model_validator(mode="after")
    def _names_its_model(self) -> Self:
        if self.engine != "none" and not self.model:
            raise ValueError(f"model is missing: name the one that {self.engine} is to run")
        return self


class PriceConfig(Section):
    """What tokens cost, in any currency, per million; 0 where nothing is charged."""

    prompt: Annotated[float, Field(ge=0.0)] = 0.0
    completion: Annotated[float, Field(ge=0.0)] = 0.0


class LlmConfig(Section):
    """Which language model takes part, and in what."""

    engine: Literal["none", "http", "vllm"] = "none"
    """`none` leaves everything to the embedded engines; `http` asks an OpenAI-compatible server; `vllm` runs the model
    as actors on Ray."""
    model: str = ""
    """Its name at the server, or for `vllm` its name or folder."""
    stages: list[LlmStage] = ["segment", "extract", "consolidate", "group"]
    """What it decides; the embedded engines do the rest."""
    thinking: Literal["off", "on", "default"] = "off"
    """Whether a model that can think does so, by `enable_thinking` of its chat template; `default` sends nothing of the
    kind, for servers that know no such argument."""
    guided: bool = True
    """Whether the answer's JSON schema goes with each request; without it the prompt alone asks for JSON."""
    context_tokens: Annotated[int, Field(ge=2_048, le=10_000_000)] = 16_384
    """Prompt and answer together; longer input is cut into windows."""
    max_tokens: Annotated[int, Field(ge=64, le=1_000_000)] = 4_096
    """Of an answer; a second try may take twice as many."""
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] = 0.0
    tokenizer: str = ""
    """The model's `tokenizer.json`, or the folder that holds it; empty means that of a `model` that is on this machine,
    else the server's `/tokenize` (`server`), else an upper bound by bytes (`bytes`)."""
    window_turns: Annotated[int, Field(ge=8, le=1_000)] = 40
    """Turns that one request segments."""
    window_overlap: Annotated[int, Field(ge=2, le=500)] = 8
    """Turns that two windows share; each decides the half that is nearer to its middle."""
    pair_cosine: Annotated[float, Field(ge=0.0, le=1.0)] = 0.8
    """Facts that are so near, and that the rules did not settle, are decided by the model."""
    max_relations: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Relations between facts that the model scores, of each namespace, where it takes part in `relate`."""
    max_fallback_rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """A build in which a larger share of a stage's rows has no answer of the model, of 20 rows or more, is not
    published."""
    prices: PriceConfig = PriceConfig()
    http: ServerConfig = ServerConfig()
    vllm: VllmConfig = VllmConfig()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.engine != "none" and not self.model:
            raise ValueError("model is missing: name the one that the server or vLLM is to run")
        if self.window_overlap * 2 > self.window_turns:
            raise ValueError(f"window_overlap={self.window_overlap} is more than half of {self.window_turns} turns")
        if self.max_tokens * 2 + 1_536 > self.context_tokens:
            raise ValueError(
                f"context_tokens={self.context_tokens} has no room for a prompt beside two answers of "
                f"max_tokens={self.max_tokens}: raise the one to {self.max_tokens * 2 + 1_536}, or lower the other"
            )
        return self

    def decides(self, stage: LlmStage) -> bool:
        """Say whether the model takes part in a stage."""
        return self.engine != "none" and stage in self.stages
