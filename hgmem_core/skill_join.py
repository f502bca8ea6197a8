"""What several namespaces have for one task, as one ranked list of skills and one of runs.

Namespaces share no skill and no run, so reciprocal rank fusion takes turns: the best of each in the order in which they
were asked, then the second of each, and so on. One namespace alone stays as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hgmem_core.skill_graph import SkillGraph
from hgmem_core.skill_recipes import SkillRecipe
from hgmem_core.skill_search import Retrieved, kept_places

Place = tuple[int, int]
"""Which of the namespaces, and the place in its own list, both from 0."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found for a task in the graph of one namespace."""

    graph: SkillGraph
    found: Retrieved


@dataclass(frozen=True, slots=True)
class Joined:
    """What was found for a task.

    Attributes:
        findings: One for each namespace, in the order in which they were asked.
        skills: Best first: places in `Retrieved.skills`.
        trajectories: Nearest first: places in `Retrieved.trajectories`.
        subtasks: Nearest first: places in `Retrieved.subtasks`.
    """

    findings: Sequence[Finding]
    skills: Sequence[Place]
    trajectories: Sequence[Place]
    subtasks: Sequence[Place]


def join_findings(findings: Sequence[Finding], recipe: SkillRecipe) -> Joined:
    """Join what a recipe found in each namespace; it keeps as many skills of all as it does of one."""
    every = [finding.found for finding in findings]
    skills = take_turns([len(found.skills) for found in every])
    negative = np.zeros(len(skills), bool)
    if recipe.fill == "actions":
        negative[:] = [findings[own].graph.negative[every[own].skills[place]] for own, place in skills]
    return Joined(
        findings,
        [skills[place] for place in kept_places(negative, recipe.skills).tolist()],
        take_turns([len(found.trajectories) for found in every]),
        take_turns([len(found.subtasks) for found in every]),
    )


def take_turns(sizes: Sequence[int]) -> list[Place]:
    """Return the places of several lists, given by their sizes, by turns.

    >>> take_turns([1, 0, 3])
    [(0, 0), (2, 0), (2, 1), (2, 2)]
    """
    places = [(own, place) for own, size in enumerate(sizes) for place in range(size)]
    return sorted(places, key=lambda place: (place[1], place[0]))
