"""The parts of a configuration that say how logs become a version: one for each stage of a build."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from hgmem_core.ids import check_namespace
from hgmem_core.section import Section

Language = Literal[
    "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hindi", "hungarian", "italian",
    "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "turkish",
]  # fmt: skip


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
