"""The answer to a task: skills, mistakes and lessons, whose they are, where they are from, what they are ranked by."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from hgmem_core.encoding import Vectors
from hgmem_core.ranking import EmptyReason
from hgmem_core.skill_context import SkillContext
from hgmem_core.skill_graph import SkillGraph
from hgmem_core.skill_join import Joined
from hgmem_core.skill_utility import Tally

MOST_RUNS = 5
"""That are named of a skill."""


@dataclass(frozen=True, slots=True)
class FoundSkill:
    """What to do, or a mistake to avoid.

    Attributes:
        rank: Among all that were found, from 1.
        namespace: Whose it is.
        skill_id: Its id.
        polarity: `positive` for what to do, `negative` for a mistake.
        name: A few words.
        text: When it is of use, and what to do.
        aliases: Names of similar ones that joined it.
        weight: What it is ranked by in its namespace: κ, the number of retrieved runs that taught it, or what the
            recipe puts in its place.
        cosine: With the task.
        utility: γ: how runs went in which it took part.
        shown: ν: how many these are.
        succeeded: σ: how many of them succeeded.
        taught_by: Runs that taught it, by their own ids where the log has some: retrieved ones first, five at most.
        in_context: Whether the context has it.
    """

    rank: int
    namespace: str
    skill_id: str
    polarity: str
    name: str
    text: str
    aliases: list[str]
    weight: float
    cosine: float
    utility: float
    shown: int
    succeeded: int
    taught_by: list[str]
    in_context: bool


@dataclass(frozen=True, slots=True)
class FoundLesson:
    """What a retrieved run teaches.

    Attributes:
        rank: Nearest to the task first, from 1.
        namespace: Whose it is.
        trajectory_id: The run's id.
        source_id: The log's own id of it, or None.
        task: What it was to do.
        outcome: How it ended.
        said_at: When it was made, or None.
        text: The lesson.
        cosine: Of the run with the task.
        in_context: Whether the context has it; of equal ones it has the first.
    """

    rank: int
    namespace: str
    trajectory_id: str
    source_id: str | None
    task: str
    outcome: str
    said_at: datetime | None
    text: str
    cosine: float
    in_context: bool


@dataclass(frozen=True, slots=True)
class FoundSubtask:
    """A step of a past run's plan, by which runs were found; feedback may be given on it as on a skill.

    Attributes:
        rank: Nearest to the plan first, from 1.
        namespace: Whose it is.
        subtask_id: Its id.
        text: What was to be done.
        cosine: With the task's whole plan.
        utility: γ: how runs went in which it took part.
        shown: ν: how many these are.
        succeeded: σ: how many of them succeeded.
    """

    rank: int
    namespace: str
    subtask_id: str
    text: str
    cosine: float
    utility: float
    shown: int
    succeeded: int


@dataclass(frozen=True, slots=True)
class SkillResponse:
    """The answer to one task.

    Attributes:
        version: The version that answered.
        recipe: The recipe's name.
        namespaces: Those that were asked and that the version has, libraries last.
        plan: The steps that the task was cut into.
        skills: What to do, best first.
        mistakes: What to avoid, best first.
        lessons: Of the retrieved runs that have one, nearest first.
        subtasks: Steps of past runs that are nearest to the plan; none where the recipe does not look for them.
        reason: Why nothing was found, else None.
        context: A text for a prompt.
        context_tokens: Its length.
        left_out: Lines that the budget had no room for.
        timings_ms: Milliseconds spent on encoding the task and its plan, and on the search.
    """

    version: str
    recipe: str
    namespaces: list[str]
    plan: list[str]
    skills: list[FoundSkill]
    mistakes: list[FoundSkill]
    lessons: list[FoundLesson]
    subtasks: list[FoundSubtask]
    reason: EmptyReason | None
    context: str
    context_tokens: int
    left_out: int
    timings_ms: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return the response as JSON-ready values, times in ISO 8601."""
        content = asdict(self)
        for lesson in content["lessons"]:
            lesson["said_at"] = lesson["said_at"].isoformat() if lesson["said_at"] else None
        return content


def found_skills(joined: Joined, names: Sequence[str], context: SkillContext) -> Iterator[FoundSkill]:
    """Yield the skills and mistakes that were found, best first; `names` are those of the joined namespaces."""
    for rank, (own, place) in enumerate(joined.skills, start=1):
        graph, found = joined.findings[own].graph, joined.findings[own].found
        skill = int(found.skills[place])
        row = graph.tables.skills.slice(skill, 1).to_pylist()[0]
        runs = graph.hypergraph.edges_of_skill.of(skill)
        nearest = [run for run in found.trajectories.tolist() if run in runs]
        others = [run for run in runs[:MOST_RUNS].tolist() if run not in nearest]
        yield FoundSkill(
            rank=rank,
            namespace=names[own],
            skill_id=row["skill_id"],
            polarity=row["polarity"],
            name=row["name"],
            text=row["text"],
            aliases=row["aliases"],
            weight=float(found.weights[place]),
            cosine=float(found.cosines[place]),
            taught_by=_names(graph, [*nearest, *others][:MOST_RUNS]),
            in_context=(own, skill) in context.skills,
            **_known(graph.skill_tally, skill),
        )


def _known(tally: Tally, node: int) -> Mapping[str, Any]:
    return {
        "utility": float(tally.utility[node]),
        "shown": int(tally.shown[node]),
        "succeeded": int(tally.succeeded[node]),
    }


def _names(graph: SkillGraph, runs: Sequence[int]) -> list[str]:
    """Return the log's own ids of runs, or those of this store."""
    rows = graph.tables.trajectories.select(["source_id", "trajectory_id"]).take(pa.array(runs, pa.int64()))
    return [row["source_id"] or row["trajectory_id"] for row in rows.to_pylist()]


def found_lessons(joined: Joined, names: Sequence[str], context: SkillContext, task: Vectors) -> Iterator[FoundLesson]:
    """Yield the lessons of the runs that were found, nearest to the task, of which the vector is given, first."""
    columns = ["trajectory_id", "source_id", "task", "outcome", "said_at"]
    cosines = [finding.graph.vectors.trajectories @ task for finding in joined.findings]
    rank = 0
    for own, place in joined.trajectories:
        graph = joined.findings[own].graph
        run = int(joined.findings[own].found.trajectories[place])
        if not graph.lessons[run]:
            continue
        rank += 1
        yield FoundLesson(
            rank=rank,
            namespace=names[own],
            text=graph.lessons[run],
            cosine=float(cosines[own][run]),
            in_context=(own, run) in context.trajectories,
            **graph.tables.trajectories.select(columns).slice(run, 1).to_pylist()[0],
        )


def found_subtasks(joined: Joined, names: Sequence[str], plan: Vectors) -> Iterator[FoundSubtask]:
    """Yield the subtasks that were found, nearest to the plan, of which the vector is given, first."""
    for rank, (own, place) in enumerate(joined.subtasks, start=1):
        graph = joined.findings[own].graph
        subtask = int(joined.findings[own].found.subtasks[place])
        yield FoundSubtask(
            rank=rank,
            namespace=names[own],
            cosine=float(graph.vectors.subtasks[subtask] @ plan),
            **graph.tables.subtasks.select(["subtask_id", "text"]).slice(subtask, 1).to_pylist()[0],
            **_known(graph.subtask_tally, subtask),
        )
