"""What training leaves for a recipe: named arrays and the names of the features that they read."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy.typing as npt

from hgmem_core.abstention import ABSTENTION, Abstainer, abstainer_of
from hgmem_core.boosted import ForestError
from hgmem_core.hage import HageWeights
from hgmem_core.learned_flat import TurnRanker, ranker_of
from hgmem_core.recipes import AnyRecipe, Hage, LearnedFlat, Routed
from hgmem_core.relations import PAPER
from hgmem_core.routed import RoutedWeights, routed_of

Trained: TypeAlias = TurnRanker | HageWeights | Abstainer | RoutedWeights


class TrainedModelError(ValueError):
    """A recipe has no model, or not one of its own: says which, and what to do."""


def features_of(trained: Trained) -> tuple[str, ...]:
    """Return the names of the features that a model reads, in order."""
    return PAPER if isinstance(trained, HageWeights) else trained.features


def trained_of(recipe: AnyRecipe | None, arrays: Mapping[str, npt.NDArray[Any]], features: tuple[str, ...]) -> Trained:
    """Make a recipe's model of arrays that were kept; without a recipe it is the abstainer.

    Raises:
        TrainedModelError: They are no model of this recipe, or read other features than this software has.
    """
    name = ABSTENTION if recipe is None else recipe.name
    try:
        if recipe is None:
            return abstainer_of(arrays, features)
        if isinstance(recipe, LearnedFlat):
            return ranker_of(arrays, features)
        if isinstance(recipe, Routed):
            return routed_of(arrays, features)
        if isinstance(recipe, Hage):
            if features != PAPER:
                raise TrainedModelError(f"{recipe.name}: the model reads relations of {features}, here are {PAPER}")
            return HageWeights.from_dict(arrays)
    except (ForestError, ValueError) as error:
        raise TrainedModelError(f"{name}: {error}; train it again") from error
    raise TrainedModelError(f"recipe {name!r} is not trained")
