"""Named ways to retrieve skills: HyperSkill's as published, its ablations, deviations, our own, and flat baselines."""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from hgmem_core.recipes import RecipeError

Fill = Literal["turns", "actions"]
"""How a context is filled: see `hgmem_core.skill_context`."""


@dataclass(frozen=True, slots=True)
class DualPath:
    """HyperSkill's retrieval: runs by their subtasks and by their own text, then skills by how many of them hold each.

    The three numbers are one budget in the paper: 5 with the smaller of its models, 2 with the larger.

    Attributes:
        name: What users call it.
        subtasks: k_u, subtasks nearest to the plan; 0 leaves the subtask path out.
        trajectories: k_e, runs nearest to the task; 0 leaves the trajectory path out.
        skills: k_s, skills that are kept, those to use and mistakes to avoid together.
        weight: What a skill is ranked by. `count` is κ, the number of retrieved runs that hold it; `utility` is κ · γ
            and `degree` κ over the number of all runs that hold it, so that what is everywhere does not win everywhere
            (both not in the paper).
        edges: `hyper` as published. `pairs` keeps the pipeline and puts in the place of a run one edge for each two of
            its nodes of which one is a skill (not in the paper). A subtask then leads to its own pairs alone; the k_e
            nearest edges are pairs, as near as their run, those of one run with its subtasks first and then by id;
            κ counts pairs, two runs with the same pair counting once.
        fill: `turns` as published. With `actions` (not in the paper) a context says as much of what the retrieved runs
            did as it has tokens for, and the best mistake is always among the skills that are kept.
    """

    name: str
    subtasks: int = 5
    trajectories: int = 5
    skills: int = 5
    weight: Literal["count", "utility", "degree"] = "count"
    edges: Literal["hyper", "pairs"] = "hyper"
    fill: Fill = "turns"


@dataclass(frozen=True, slots=True)
class FlatSkills:
    """Skills by themselves, nearest to the task first.

    Attributes:
        name: What users call it.
        kind: By `dense` cosine with the task, or by `bm25` scores, where a skill of score 0 is not found.
        skills: How many are kept.
        trajectories: Of how many runs, by the cosine of their text with the task, the lessons come along.
        fill: As for `DualPath`.
    """

    name: str
    kind: Literal["dense", "bm25"]
    skills: int = 5
    trajectories: int = 0
    fill: Fill = "turns"


SkillRecipe = DualPath | FlatSkills

SKILL_RECIPES: MappingProxyType[str, SkillRecipe] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            DualPath("skills/full"),
            DualPath("skills/full:utility", weight="utility"),
            DualPath("skills/full:degree", weight="degree"),
            DualPath("skills/full:wide", trajectories=25),
            # More runs than fit: the context takes of them what adds most for a token.
            DualPath("skills/covering", trajectories=25, fill="actions"),
            # The paper's ablation drops plan, both paths and κ together; lessons stay.
            FlatSkills("skills/no-hypergraph", "dense", trajectories=5),
            DualPath("skills/no-subtask", subtasks=0),
            DualPath("skills/no-trajectory", trajectories=0),
            DualPath("skills/pairwise", edges="pairs"),
            FlatSkills("skills/dense", "dense"),
            FlatSkills("skills/bm25", "bm25"),
        )
    }
)


def find_skill_recipe(name: str) -> SkillRecipe:
    """Return the recipe called `name`.

    Raises:
        RecipeError: There is none of that name.
    """
    recipe = SKILL_RECIPES.get(name)
    if recipe is None:
        raise RecipeError(f"no skill recipe {name!r}; there are {', '.join(SKILL_RECIPES)}")
    return recipe


def with_counts(recipe: SkillRecipe, subtasks: int, trajectories: int, skills: int) -> SkillRecipe:
    """Return a recipe that takes as many of each; 0 leaves what it says, and what it leaves out stays out.

    >>> with_counts(SKILL_RECIPES["skills/no-hypergraph"], 3, 3, 0)
    FlatSkills(name='skills/no-hypergraph', kind='dense', skills=5, trajectories=3, fill='turns')
    """
    runs, kept = recipe.trajectories and (trajectories or recipe.trajectories), skills or recipe.skills
    if isinstance(recipe, FlatSkills):
        return replace(recipe, trajectories=runs, skills=kept)
    return replace(recipe, subtasks=recipe.subtasks and (subtasks or recipe.subtasks), trajectories=runs, skills=kept)
