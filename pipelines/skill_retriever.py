"""Tasks against the skills of one opened version: what to do, what to avoid, and what past runs of such tasks teach."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hgmem_core.encoding import Encoder, Vectors
from hgmem_core.ids import check_namespace
from hgmem_core.ranking import EmptyReason
from hgmem_core.skill_context import skill_context
from hgmem_core.skill_graph import SkillGraph
from hgmem_core.skill_index import SkillIndex
from hgmem_core.skill_join import Finding, join_findings
from hgmem_core.skill_recipes import FlatSkills, SkillRecipe, find_skill_recipe, with_counts
from hgmem_core.skill_search import SkillQueries, search_many
from hgmem_core.skill_words import SkillWords
from hgmem_core.stage_config import SkillsConfig
from hgmem_core.subtasks import subtasks
from hgmem_core.tokens import tokenizer
from pipelines.open_namespaces import OpenNamespaces
from pipelines.skill_memory import task_vectors
from pipelines.skill_response import SkillResponse, found_lessons, found_skills, found_subtasks
from pipelines.tombstone_files import TombstoneWatch
from pipelines.versions import Version

OPEN_GRAPHS = 128
"""Namespaces whose skills are kept open; each holds its vectors in memory."""

MOST_NAMESPACES = 8
"""That are asked for one task, libraries not counted."""


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
        self._open = OpenNamespaces(version, version.open_skills, self._open_in, OPEN_GRAPHS)

    def graph(self, namespace: str) -> SkillGraph | None:
        """Return the opened skill hypergraph of a namespace, or None if the version has no run of it."""
        found = self._open.get(namespace)
        return None if found is None else found.graph

    def close(self, namespaces: Iterable[str]) -> None:
        """Close some namespaces, so that they are opened anew: other runs of theirs are forgotten now."""
        self._open.close(namespaces)

    def _open_in(self, index: SkillIndex, namespace: str) -> _Open | None:
        graph = index.open(namespace, self._watch.tombstones)
        if graph is None:
            return None
        settings = self.version.index
        return _Open(graph, SkillWords(graph.tables.skills, self._tokenize, settings.k1, settings.b))

    def search(
        self, namespaces: str | Sequence[str], task: str, settings: SkillsConfig, libraries: Sequence[str] = ()
    ) -> SkillResponse:
        """Find skills, mistakes and lessons for one task in exactly the namespaces that are named, parts of no path.

        The ranked lists of several are joined by reciprocal rank fusion, equal ones in the order of the namespaces.
        How many skills are kept and the budget of the context hold over all of them, other numbers in each. One that
        the version does not have is passed over.

        Args:
            namespaces: Whose memory is asked: one, or up to `MOST_NAMESPACES`.
            task: What is to be done.
            settings: The recipe, how many of each, and the budget of the context. Its `libraries` are not looked at:
                who may read which is for the caller to decide.
            libraries: Namespaces that are asked beside those, as far as the asker may read them.

        Raises:
            RecipeError: No such recipe.
            ValueError: No namespace or too many are named, or one is not usable.
            VersionError: A file of a namespace's bucket is damaged.
        """
        recipe = find_skill_recipe(settings.recipe)
        recipe = with_counts(recipe, settings.subtasks, settings.trajectories, settings.skills)
        asked = check_asked(namespaces)
        opened = {name: self._open.get(name) for name in dict.fromkeys([*asked, *map(check_namespace, libraries)])}
        known = {name: own for name, own in opened.items() if own is not None}
        plan = subtasks(task)
        if not known:
            return SkillResponse(
                self.version.id, recipe.name, [], plan, [], [], [], [], "unknown_namespace", "", 0, 0, {}
            )
        began = time.perf_counter()
        tasks, plans = task_vectors(self._encoder, [task])
        encoded = time.perf_counter()
        joined = join_findings([_found(own, task, tasks, plans, recipe) for own in known.values()], recipe)
        context = skill_context(joined, recipe.fill, settings.context_tokens, self._count_tokens)
        names = list(known)
        skills = list(found_skills(joined, names, context))
        lessons = list(found_lessons(joined, names, context, tasks[0]))
        steps = list(found_subtasks(joined, names, plans[0]))
        ended = time.perf_counter()
        reason: EmptyReason | None = None
        if not skills and not lessons:
            reason = "no_match" if tasks.any() else "no_query_terms"
        return SkillResponse(
            version=self.version.id,
            recipe=recipe.name,
            namespaces=names,
            plan=plan,
            skills=[skill for skill in skills if skill.polarity == "positive"],
            mistakes=[skill for skill in skills if skill.polarity == "negative"],
            lessons=lessons,
            subtasks=steps,
            reason=reason,
            context=context.text,
            context_tokens=context.tokens,
            left_out=context.left_out,
            timings_ms={"analyse": 1e3 * (encoded - began), "search": 1e3 * (ended - encoded)},
        )


def check_asked(namespaces: str | Sequence[str]) -> list[str]:
    """Return the namespaces that are asked, each once.

    Raises:
        ValueError: There is none, or there are more than `MOST_NAMESPACES`, or one is not usable.
    """
    names = [namespaces] if isinstance(namespaces, str) else list(dict.fromkeys(namespaces))
    if not 1 <= len(names) <= MOST_NAMESPACES:
        raise ValueError(f"{len(names)} namespaces are asked for skills; name 1 to {MOST_NAMESPACES}")
    return [check_namespace(name) for name in names]


def _found(opened: _Open, task: str, tasks: Vectors, plans: Vectors, recipe: SkillRecipe) -> Finding:
    scores = np.zeros((1, 0), np.float32)
    if isinstance(recipe, FlatSkills) and recipe.kind == "bm25":
        scores = opened.words.scores(task)[None]
    [found] = search_many(opened.graph, SkillQueries(tasks, plans, scores), recipe)
    return Finding(opened.graph, found)
