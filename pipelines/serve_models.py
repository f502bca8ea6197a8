"""What requests and answers of the endpoint hold; unknown fields are refused."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from hgmem_core.config import AnswerStyle
from hgmem_core.graph import Level
from hgmem_core.ids import check_namespace
from hgmem_core.ranking import RelationKind
from hgmem_core.search import Filters
from hgmem_core.skill_utility import NodeKind
from pipelines.selection import Selection
from pipelines.skill_response import FoundLesson, FoundSkill, FoundSubtask

MOST_NAMESPACES = 8
_MOST_NAME_CHARS = 512


def _namespace(text: str) -> str:
    try:
        return check_namespace(text)
    except ValueError as error:
        # The core's words repeat what was sent.
        raise ValueError(
            "no namespace: segments of printable text with / between them, none empty, padded, `.` or `..`"
        ) from error


def _whole(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds half of a surrogate pair, which is no text") from error
    return text


Text = Annotated[str, AfterValidator(_whole)]
Namespace = Annotated[str, Field(max_length=_MOST_NAME_CHARS), AfterValidator(_namespace)]
Name = Annotated[Text, Field(min_length=1, max_length=_MOST_NAME_CHARS)]
AnyLevel = Literal["turn", "topic", "episode", "fact"]


def _example(**content: Any) -> ConfigDict:  # noqa: ANN401 - of any model
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [content]})


class FilterFields(BaseModel):
    """Conditions that hold before anything is ranked; times have a zone."""

    model_config = ConfigDict(extra="forbid")

    said_from: AwareDatetime | None = Field(default=None, description="said at this time or later")
    said_until: AwareDatetime | None = Field(default=None, description="said before this time")
    ingested_from: AwareDatetime | None = Field(default=None, description="imported at this time or later")
    ingested_until: AwareDatetime | None = Field(default=None, description="imported before this time")
    speaker: Name | None = Field(default=None, description="said by exactly this speaker")
    session_id: Name | None = Field(default=None, description="said in exactly this session")


class Naming(BaseModel):
    """Whose memory is asked: one namespace, or several of them together."""

    namespace: Namespace | None = Field(
        default=None, description="whose memory, such as `acme/alice`: exactly this one; either this or `namespaces`"
    )
    namespaces: list[Namespace] | None = Field(
        default=None, min_length=1, max_length=MOST_NAMESPACES, description="several of them, asked together"
    )

    @model_validator(mode="after")
    def _says_whose(self) -> Self:
        if (self.namespace is None) == (self.namespaces is None):
            raise ValueError("either `namespace` or `namespaces` has to be there")
        if self.namespaces is not None and len(set(self.namespaces)) < len(self.namespaces):
            raise ValueError("a namespace is there twice")
        return self

    @property
    def asked(self) -> list[str]:
        """The namespaces, in the order in which equal ranks are broken."""
        return [self.namespace] if self.namespace is not None else list(self.namespaces or ())


class Asking(Naming):
    """What `search` and `context` share."""

    model_config = ConfigDict(extra="forbid")

    query: Text = Field(description="the question, in whole words and with names")
    recipe: Annotated[Text, Field(max_length=64)] | None = Field(
        default=None, description="how it is found; without one, the endpoint's own"
    )
    filters: FilterFields = Field(default=FilterFields(), description="what is looked at")
    as_of: AwareDatetime | None = Field(default=None, description="the memory as it stood at this time")

    @property
    def conditions(self) -> Filters:
        """The filters as a search takes them."""
        return Filters(**self.filters.model_dump(), as_of=self.as_of)


class SearchRequest(Asking):
    """A question."""

    model_config = _example(query="Where did Ana leave the red bicycle?", namespace="acme/ana", k=5)

    k: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None, description="the most hits, and the most nodes of each level"
    )
    levels: list[AnyLevel] = Field(default=["turn"], min_length=1, max_length=4, description="what is to be found")
    explain: bool = Field(
        default=False,
        description="whether each hit tells its rank and score in every list and the way to it, and what is around it",
    )


class ContextRequest(Asking):
    """A question whose answer is to be given by a model."""

    model_config = _example(query="Where did Ana leave the red bicycle?", namespace="acme/ana", tokens=800)

    tokens: Annotated[int, Field(strict=True, ge=1, le=100_000)] = Field(
        default=1_000, description="how many tokens the text may have"
    )


class QuestionRequest(Asking):
    """A question to be answered."""

    model_config = _example(query="Where did Ana leave the red bicycle?", namespace="acme/ana", style="short")

    tokens: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = Field(
        default=None, description="how many tokens of statements the answer may stand on; else the endpoint's own"
    )
    style: AnswerStyle | None = Field(
        default=None,
        description="whole sentences (`full`), the bare thing that is asked for (`short`), or whole sentences after a "
        "chain of thought (`steps`); without one, the endpoint's own",
    )


class AnswerRequest(QuestionRequest):
    """A question to be answered, at once or as it comes."""

    stream: bool = Field(
        default=False,
        description="answer with server-sent events: `delta` with a `text` to add, after `restarts` in the place of "
        "all before it; at last `answer` with the whole, or `problem`",
    )


class Leg(BaseModel):
    """The rank and the score that one list gave."""

    rank: int
    score: float


class PathNode(BaseModel):
    """A node on the way to a hit."""

    level: AnyLevel
    id: str
    relation: RelationKind = Field(description="what leads on from it")


class FoundTurn(BaseModel):
    """A turn of the log."""

    rank: int
    score: float
    namespace: str
    turn_id: str
    session_id: str
    position: int
    source_id: str | None
    speaker: str | None
    role: str | None
    said_at: datetime | None
    text: str
    attachments: str
    legs: dict[str, Leg] = {}
    path: list[PathNode] = Field(default=[], description="what a recipe of a graph passed on the way to it")


class FoundNode(BaseModel):
    """A topic, an episode or a fact, by the cosine of its vector with the question's."""

    rank: int
    score: float
    namespace: str
    level: Level
    id: str
    title: str | None
    text: str
    started_at: datetime | None
    ended_at: datetime | None
    turn_ids: list[str]


class GraphNode(BaseModel):
    """What is around the hits: facts, episodes and topics that they belong to, and what is on the way to them."""

    namespace: str
    level: AnyLevel
    id: str
    title: str | None
    text: str
    members: list[str] = Field(description="ids of the hits, and of nodes here, that it holds")
    size: int = Field(description="how many it holds in all")


class DoubtFields(BaseModel):
    """What speaks against an answer."""

    code: str
    text: str


class AbstentionFields(BaseModel):
    """Whether an answer should be given."""

    probability: float
    abstains: bool
    reason: DoubtFields | None


class SearchAnswer(BaseModel):
    """What was found, best first."""

    version: str
    recipe: str
    hits: list[FoundTurn]
    nodes: list[FoundNode] = []
    hypergraph: list[GraphNode] = Field(default=[], description="around the first hits, if it is to be explained")
    reason: str | None = Field(description="why there is nothing")
    abstention: AbstentionFields | None
    reranked: bool
    timings_ms: dict[str, float]


class Citation(BaseModel):
    """What a statement of a context stands on."""

    number: int
    text: str
    day: str
    turn_ids: list[str]


class ContextAnswer(BaseModel):
    """A text for a prompt, in time order, with what each of its statements stands on."""

    version: str
    recipe: str
    text: str
    citations: list[Citation]
    tokens: int
    left_out: int
    reason: str | None
    abstention: AbstentionFields | None
    timings_ms: dict[str, float]


class ReasonFields(BaseModel):
    """Why there is no answer."""

    code: Literal["no_evidence", "unanswerable", "model_failed"]
    text: str


class TokenFields(BaseModel):
    """What the model was sent and wrote."""

    prompt: int
    completion: int


class CitedAnswer(BaseModel):
    """An answer with what it stands on, or why there is none."""

    version: str
    recipe: str
    outcome: Literal["answered", "abstained", "failed"]
    engine: Literal["llm", "extractive"] = Field(
        description="`extractive`: the best statements word for word, for there is no model"
    )
    style: AnswerStyle
    answer: str = Field(description="empty unless answered")
    citations: list[Citation] = Field(description="statements that the model was given; at least one if answered")
    reason: ReasonFields | None
    refused_citations: list[int] = Field(description="numbers that the model cited and was not given")
    reasoning: str | None = Field(description="the chain of thought of the style `steps`")
    passes: int = Field(description="how often the model was asked")
    tokens: TokenFields
    context_tokens: int = Field(description="of all statements that were found for it")
    left_out: int
    abstention: AbstentionFields | None
    timings_ms: dict[str, float]


class AnswerDelta(BaseModel):
    """A part of an answer's text as it comes."""

    text: str
    restarts: bool = Field(default=False, description="whether all before it counts no more")


class SkillsRequest(Naming):
    """What is to be done."""

    model_config = _example(task="put a clean plate on the table", namespace="acme/robot", skills=4)

    task: Text = Field(description="what is to be done, in words")
    recipe: Annotated[Text, Field(max_length=64)] | None = Field(
        default=None, description="how they are found; without one, the endpoint's own"
    )
    skills: Annotated[int, Field(strict=True, ge=1, le=100)] | None = Field(default=None, description="the most skills")
    tokens: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = Field(
        default=None, description="how many tokens the text may have"
    )


class SkillsAnswer(BaseModel):
    """What past runs teach for a task; `query_id` is what its outcome is told by."""

    query_id: str
    version: str
    recipe: str
    namespaces: list[str]
    plan: list[str] = Field(description="the steps that the task was cut into")
    skills: list[FoundSkill]
    mistakes: list[FoundSkill]
    lessons: list[FoundLesson]
    subtasks: list[FoundSubtask]
    reason: str | None
    context: str
    context_tokens: int
    left_out: int
    timings_ms: dict[str, float]


class ShownNode(BaseModel):
    """A node that was shown."""

    model_config = ConfigDict(extra="forbid")

    kind: NodeKind = "skill"
    id: Name


class OutcomeRequest(BaseModel):
    """How a run went that skills were shown to."""

    model_config = _example(
        namespace="acme/robot",
        query_id="b1946ac92492d2347c6235b4d2611184",
        shown=[{"kind": "skill", "id": "0123456789abcdef01234567"}],
        outcome="success",
        n_steps=7,
    )

    namespace: Namespace
    query_id: Name
    shown: list[ShownNode] = Field(min_length=1, max_length=100)
    outcome: Literal["success", "failure", "unknown"]
    n_steps: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]


class OutcomeAnswer(BaseModel):
    """Whether the outcome is new; the first one of a query counts."""

    is_new: bool


class MemoryRequest(BaseModel):
    """What is asked for by its id."""

    model_config = _example(id="0123456789abcdef01234567", namespace="acme/ana")

    id: Name = Field(description="of a turn, fact, episode or topic")
    namespace: Namespace = Field(description="whose memory it is of")


class Source(BaseModel):
    """A turn that something stands on."""

    turn_id: str
    session_id: str
    position: int
    source_id: str | None
    speaker: str | None
    said_at: datetime | None
    text: str


class Hyperedge(BaseModel):
    """One that a memory belongs to, or is."""

    kind: Literal["topic", "episode", "fact"]
    id: str
    title: str | None
    members: list[str] = Field(description="ids: of a topic its episodes, of an episode its facts, of a fact its turns")


class MemoryAnswer(BaseModel):
    """A turn, fact, episode or topic with what it stands on and what it belongs to."""

    version: str
    namespace: str
    level: AnyLevel
    id: str
    title: str | None
    text: str
    started_at: datetime | None
    ended_at: datetime | None
    superseded_by: str | None
    sources: list[Source]
    hyperedges: list[Hyperedge]


class NamespaceRequest(BaseModel):
    """A namespace."""

    model_config = _example(namespace="acme/ana")

    namespace: Namespace


class StatsAnswer(BaseModel):
    """How much there is of a namespace."""

    version: str
    namespace: str
    turns: int
    sessions: int
    facts: int
    episodes: int
    topics: int
    skills: int
    runs: int
    first_said_at: datetime | None
    last_said_at: datetime | None
    timeline: list[int] = Field(description="how many turns were said in each of equal parts of that time")


class VersionAnswer(BaseModel):
    """What is served, and what should be and is not."""

    version: str
    pointer: int
    refused: str | None = Field(
        default=None, description="the version that the store points to, if it cannot be served"
    )
    default_recipe: str = Field(description="of a request that names none")
    recipes: list[str] = Field(description="those that can be asked")


class RollbackRequest(BaseModel):
    """The version to serve."""

    model_config = _example(version="0123456789abcdef")

    version: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


class ForgetRequest(BaseModel):
    """What to forget: a turn, a session, a run of an agent, or all that the namespace has by now."""

    model_config = _example(namespace="acme/ana", session="s1")

    namespace: Namespace
    session: Name | None = None
    turn: Name | None = None
    trajectory: Name | None = None

    @model_validator(mode="after")
    def _says_one(self) -> "ForgetRequest":
        if len([one for one in (self.session, self.turn, self.trajectory) if one is not None]) > 1:
            raise ValueError("one of `session`, `turn` and `trajectory`: each says all of what it is")
        return self

    @property
    def selection(self) -> Selection:
        """The same as it is forgotten by."""
        return Selection(
            self.namespace,
            session=self.session,
            turns=() if self.turn is None else (self.turn,),
            trajectories=() if self.trajectory is None else (self.trajectory,),
        )


class ForgetAnswer(BaseModel):
    """How much that hides; no replica shows it after the configured seconds."""

    tombstone: int | None = Field(description="the number of the file that says so; null where it was forgotten before")
    turns: int
    runs: int
    facts: int = Field(description="of which no source remains")


class Health(BaseModel):
    """How the endpoint is."""

    status: Literal["alive", "ready"]
