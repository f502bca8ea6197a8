"""Tasks against the skills of one opened version: what to do, what to avoid, and what past runs of such tasks teach."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from hgmem_core.config import SkillsConfig
from hgmem_core.encoding import Encoder
from hgmem_core.ids import check_namespace
from hgmem_core.lexical import Floats
from hgmem_core.ranking import EmptyReason
from hgmem_core.skill_context import SkillContext, skill_context
from hgmem_core.skill_graph import SkillGraph
from hgmem_core.skill_index import SkillIndex
from hgmem_core.skill_recipes import FlatSkills, find_skill_recipe, with_counts
from hgmem_core.skill_search import Retrieved, SkillQueries, search_many
from hgmem_core.skill_words import SkillWords
from hgmem_core.tokens import tokenizer
from pipelines.skill_memory import task_vectors
from pipelines.tombstone_files import TombstoneWatch
from pipelines.versions import Version

OPEN_GRAPHS = 128
"""Namespaces whose skills are kept open; each holds its vectors in memory."""

MOST_RUNS = 5
"""That are named of a skill."""


@dataclass(frozen=True, slots=True)
class FoundSkill:
    """What to do, or a mistake to avoid.

    Attributes:
        rank: Among all that were found, from 1.
        skill_id: Its id.
        polarity: `positive` for what to do, `negative` for a mistake.
        name: A few words.
        text: When it is of use, and what to do.
        aliases: Names of similar ones that joined it.
        weight: What it is ranked by: κ, the number of retrieved runs that taught it, or what the recipe puts in its
            place.
        cosine: With the task.
        utility: γ: how runs went in which it took part.
        shown: ν: how many these are.
        succeeded: σ: how many of them succeeded.
        taught_by: Runs that taught it, by their own ids where the log has some: retrieved ones first, five at most.
        in_context: Whether the context has it.
    """

    rank: int
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
    trajectory_id: str
    source_id: str | None
    task: str
    outcome: str
    said_at: datetime | None
    text: str
    cosine: float
    in_context: bool


@dataclass(frozen=True, slots=True)
class SkillResponse:
    """The answer to one task.

    Attributes:
        version: The version that answered.
        recipe: The recipe's name.
        skills: What to do, best first.
        mistakes: What to avoid, best first.
        lessons: Of the retrieved runs that have one, nearest first.
        reason: Why nothing was found, else None.
        context: A text for a prompt.
        context_tokens: Its length.
        left_out: Lines that the budget had no room for.
        timings_ms: Milliseconds spent on encoding the task and its plan, and on the search.
    """

    version: str
    recipe: str
    skills: list[FoundSkill]
    mistakes: list[FoundSkill]
    lessons: list[FoundLesson]
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


@dataclass(frozen=True, slots=True)
class _Open:
    graph: SkillGraph
    words: SkillWords


class SkillRetriever:
    """Finds skills in one version; threads may share it."""

    def __init__(
        self, version: Version, encoder: Encoder, count_tokens: Callable[[str], int], watch: TombstoneWatch
    ) -> None:
        """Open the version.

        Args:
            version: To be asked.
            encoder: What made its vectors.
            count_tokens: Of a text.
            watch: Knows which runs are forgotten.
        """
        self.version = version
        self._watch = watch
        self._encoder = encoder
        self._count_tokens = count_tokens
        self._tokenize = tokenizer(version.index.language)
        self._buckets: dict[int, SkillIndex | None] = {}
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()

    def graph(self, namespace: str) -> SkillGraph | None:
        """Return the opened skill hypergraph of a namespace, or None if the version has no run of it."""
        found = self._opened(namespace)
        return None if found is None else found.graph

    def close(self, namespaces: Iterable[str]) -> None:
        """Close some namespaces, so that they are opened anew: other runs of theirs are forgotten now."""
        with self._lock:
            for namespace in namespaces:
                self._open.pop(namespace, None)

    def _opened(self, namespace: str) -> _Open | None:
        with self._lock:
            found = self._open.get(namespace)
            if found is not None:
                self._open.move_to_end(namespace)
                return found
            bucket = self.version.bucket_of(namespace)
            if bucket not in self._buckets:
                self._buckets[bucket] = self.version.open_skills(bucket)
            index = self._buckets[bucket]
            graph = index.open(namespace, self._watch.tombstones) if index else None
            if graph is None:
                return None
            settings = self.version.index
            found = _Open(graph, SkillWords(graph.tables.skills, self._tokenize, settings.k1, settings.b))
            self._open[namespace] = found
            if len(self._open) > OPEN_GRAPHS:
                self._open.popitem(last=False)
            return found

    def search(self, namespace: str, task: str, settings: SkillsConfig) -> SkillResponse:
        """Find skills, mistakes and lessons for one task within one namespace.

        Args:
            namespace: Whose memory is asked; exactly this one, no part of a path.
            task: What is to be done.
            settings: The recipe, how many of each, and the budget of the context.

        Raises:
            RecipeError: No such recipe.
            ValueError: The namespace is not usable.
            VersionError: A file of the namespace's bucket is damaged.
        """
        recipe = find_skill_recipe(settings.recipe)
        recipe = with_counts(recipe, settings.subtasks, settings.trajectories, settings.skills)
        opened = self._opened(check_namespace(namespace))
        if opened is None:
            return SkillResponse(self.version.id, recipe.name, [], [], [], "unknown_namespace", "", 0, 0, {})
        began = time.perf_counter()
        tasks, plans = task_vectors(self._encoder, [task])
        encoded = time.perf_counter()
        scores = np.zeros((1, 0), np.float32)
        if isinstance(recipe, FlatSkills) and recipe.kind == "bm25":
            scores = opened.words.scores(task)[None]
        [found] = search_many(opened.graph, SkillQueries(tasks, plans, scores), recipe)
        context = skill_context(opened.graph, found, settings.context_tokens, self._count_tokens)
        skills = list(_skills(opened.graph, found, context))
        lessons = list(_lessons(opened.graph, found, context, opened.graph.vectors.trajectories @ tasks[0]))
        ended = time.perf_counter()
        reason: EmptyReason | None = None
        if not skills and not lessons:
            reason = "no_match" if tasks.any() else "no_query_terms"
        return SkillResponse(
            version=self.version.id,
            recipe=recipe.name,
            skills=[skill for skill in skills if skill.polarity == "positive"],
            mistakes=[skill for skill in skills if skill.polarity == "negative"],
            lessons=lessons,
            reason=reason,
            context=context.text,
            context_tokens=context.tokens,
            left_out=context.left_out,
            timings_ms={"analyse": 1e3 * (encoded - began), "search": 1e3 * (ended - encoded)},
        )


def _skills(graph: SkillGraph, found: Retrieved, context: SkillContext) -> Iterator[FoundSkill]:
    rows = graph.tables.skills.take(found.skills).to_pylist()
    known = graph.skill_tally
    for place, (skill, row) in enumerate(zip(found.skills.tolist(), rows, strict=True)):
        runs = graph.hypergraph.edges_of_skill.of(skill)
        nearest = [run for run in found.trajectories.tolist() if run in runs]
        others = [run for run in runs[:MOST_RUNS].tolist() if run not in nearest]
        yield FoundSkill(
            rank=place + 1,
            skill_id=row["skill_id"],
            polarity=row["polarity"],
            name=row["name"],
            text=row["text"],
            aliases=row["aliases"],
            weight=float(found.weights[place]),
            cosine=float(found.cosines[place]),
            utility=float(known.utility[skill]),
            shown=int(known.shown[skill]),
            succeeded=int(known.succeeded[skill]),
            taught_by=_names(graph, [*nearest, *others][:MOST_RUNS]),
            in_context=skill in context.skills,
        )


def _names(graph: SkillGraph, runs: Sequence[int]) -> list[str]:
    """Return the log's own ids of runs, or those of this store."""
    rows = graph.tables.trajectories.select(["source_id", "trajectory_id"]).take(pa.array(runs, pa.int64()))
    return [row["source_id"] or row["trajectory_id"] for row in rows.to_pylist()]


def _lessons(graph: SkillGraph, found: Retrieved, context: SkillContext, cosines: Floats) -> Iterator[FoundLesson]:
    teaching = [run for run in found.trajectories.tolist() if graph.lessons[run]]
    columns = ["trajectory_id", "source_id", "task", "outcome", "said_at"]
    rows = graph.tables.trajectories.select(columns).take(pa.array(teaching, pa.int64())).to_pylist()
    for place, (run, row) in enumerate(zip(teaching, rows, strict=True)):
        yield FoundLesson(
            rank=place + 1,
            text=graph.lessons[run],
            cosine=float(cosines[run]),
            in_context=run in context.trajectories,
            **row,
        )
