"""Named retrieval configurations: which ranked lists are made of a query, and how they are joined."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from hgmem_core.units import Unit

RRF_K = 60
"""Constant of reciprocal rank fusion: a list adds weight / (60 + rank), ranks counting from 1."""

DEPTH = 1_000
"""Rows of a list that take part in fusion."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One ranked list of a query.

    Attributes:
        kind: `bm25` over the unit's text, ending where the score is 0, or `dense`, by cosine.
        unit: What is ranked. A window or prior stands for the turn it was made for, a session for all its turns.
        weight: Factor of the list in the fusion.
    """

    kind: Literal["bm25", "dense"]
    unit: Unit
    weight: float = 1.0

    @property
    def name(self) -> str:
        """The leg's name in explanations, such as `bm25/window`."""
        return f"{self.kind}/{self.unit}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A frozen way to rank turns. One leg keeps its own scores, several are joined by reciprocal rank fusion.

    Attributes:
        name: What users call it.
        legs: The lists.
        other_speaker: Factor on turns of somebody else when the query names exactly one speaker of the namespace.
    """

    name: str
    legs: tuple[Leg, ...]
    other_speaker: float = 1.0


class RecipeError(ValueError):
    """No such recipe; the message lists those there are."""


_TURN_LEGS = (Leg("bm25", "turn"), Leg("dense", "turn"))
_WINDOW_LEGS = (*_TURN_LEGS, Leg("bm25", "window"), Leg("dense", "window"))

RECIPES = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            Recipe("bm25", _TURN_LEGS[:1]),
            Recipe("dense", _TURN_LEGS[1:]),
            Recipe("hybrid", _TURN_LEGS),
            Recipe("hybrid-window", _WINDOW_LEGS),
            Recipe(
                "untrained",
                (
                    Leg("bm25", "dated"),
                    *_WINDOW_LEGS[1:],
                    Leg("bm25", "prior"),
                    Leg("dense", "prior"),
                    Leg("bm25", "session", 0.5),
                ),
                other_speaker=0.85,
            ),
        )
    }
)

DEFAULT_RECIPE = "untrained"
"""What `default` stands for; a version records it, so that a later default does not change its answers."""


def find_recipe(name: str, default: str = DEFAULT_RECIPE) -> Recipe:
    """Return the recipe called `name`; `default` is the name of the one behind the alias.

    Raises:
        RecipeError: There is none of that name.
    """
    recipe = RECIPES.get(default if name == "default" else name)
    if recipe is None:
        raise RecipeError(f"no recipe {name!r}; there are default, {', '.join(RECIPES)}")
    return recipe
