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
    """Ranked lists of turns. One leg keeps its own scores, several are joined by reciprocal rank fusion.

    Attributes:
        name: What users call it.
        legs: The lists.
        other_speaker: Factor on turns of somebody else when the query names exactly one speaker of the namespace.
    """

    name: str
    legs: tuple[Leg, ...]
    other_speaker: float = 1.0


@dataclass(frozen=True, slots=True)
class Blend:
    """A weighted sum over words and the levels of the hypergraph, each scaled to [0, 1] within the query.

    score(turn) = words / 3 · (S(bm25 dated) + S(bm25 window) + S(bm25 prior)) + fact · S(f) + episode · S(bm25 of its
    episode) + topic · S(t), where f is the best cosine of the facts that the turn is the best source of, and t the best
    f in a topic of its episode.

    Attributes:
        propagation: λ of the fact vectors.
        other_speaker: See `Recipe`.
    """

    name: str
    words: float = 0.4
    fact: float = 0.6
    episode: float = 0.1
    topic: float = 0.2
    propagation: float = 0.5
    other_speaker: float = 0.8


@dataclass(frozen=True, slots=True)
class CoarseToFine:
    """HyperMem's retrieval: topics, then their episodes, then their facts; at each stage BM25 and cosine by RRF.

    Attributes:
        topics: k_T, topics kept; 0 leaves the stage out, so that all episodes are candidates.
        episodes: k_E, episodes kept; 0 leaves the stage out, so that all facts are candidates.
        facts: k_F, facts kept.
        candidates: Of each list, how many take part in the fusion of a stage.
        propagation: λ of the vectors.
        episode_context: Whether a context shows the episodes.
        fact_context: Whether a context shows the facts.
    """

    name: str
    topics: int = 10
    episodes: int = 10
    facts: int = 30
    candidates: int = 100
    propagation: float = 0.5
    episode_context: bool = True
    fact_context: bool = True


@dataclass(frozen=True, slots=True)
class Hage:
    """HAGE's retrieval: walks over the event graph from the best turns of flat search; see `hgmem_core.hage`.

    Attributes:
        scores: What S_ij is: `fixed`, cos(q, v_j) times a weight of the relation's kind; `intent`, the same with the
            weights that the query gives to kinds; `router`, a share of the cosine and one of a learned weight.
        trained: What was learned for it, if anything: the router, the features of relations, or both.
        width: Paths kept from each start; 1 is a greedy walk.
        starts: Anchors that walks begin at.
        hops: The most steps of a walk.
    """

    name: str
    scores: Literal["fixed", "intent", "router"]
    trained: Literal["both", "router", "features"] | None = None
    width: int = 1
    starts: int = 5
    hops: int = 5


@dataclass(frozen=True, slots=True)
class Magma:
    """MAGMA's retrieval over the same graph: breadth first from the best turns of flat search, nothing learned.

    Attributes:
        kind: The share in a step's score of how much the kind of question follows the kind of relation.
        cosine: The share of cos(q, v_j).
        width: New turns that each level goes on from.
        budget: The most turns visited.
        starts: Anchors to begin at.
        hops: Levels.
    """

    name: str
    kind: float = 0.6
    cosine: float = 0.4
    width: int = 10
    budget: int = 50
    starts: int = 5
    hops: int = 5


@dataclass(frozen=True, slots=True)
class PageRank:
    """Personalised PageRank over words, facts and turns, with HippoRAG 2's constants; see `hgmem_core.pagerank`.

    Attributes:
        damping: The probability that a walk goes on from where it is.
        facts: How many of the facts nearest to the question a walk may start at.
        passages: The factor on the turns' cosines where it starts.
        alike: The least cosine of facts that are joined.
    """

    name: str
    damping: float = 0.5
    facts: int = 5
    passages: float = 0.05
    alike: float = 0.8


@dataclass(frozen=True, slots=True)
class LearnedFlat:
    """Boosted trees that order the best turns of flat search; see `hgmem_core.learned_flat`.

    Attributes:
        layout: What they are told of a turn: `flat`, `deep` with the levels of the hypergraph, or `tuned` with tuned
            vectors, too; see `hgmem_core.turn_features`.
        candidates: How many turns they order.
    """

    name: str
    layout: Literal["flat", "deep", "tuned"] = "flat"
    candidates: int = 150


@dataclass(frozen=True, slots=True)
class Routed:
    """Flat search ordered by trees, and a frontier of facts that grows from it; see `hgmem_core.routed`.

    Attributes:
        flat: What the trees order, and what they are told.
        budget: How many facts may be expanded.
    """

    name: str
    flat: LearnedFlat
    budget: int = 24


AnyRecipe = Recipe | Blend | CoarseToFine | Hage | Magma | PageRank | LearnedFlat | Routed


class RecipeError(ValueError):
    """No such recipe; the message lists those there are."""


_TURN_LEGS = (Leg("bm25", "turn"), Leg("dense", "turn"))
_WINDOW_LEGS = (*_TURN_LEGS, Leg("bm25", "window"), Leg("dense", "window"))
_UNTRAINED_LEGS = (
    Leg("bm25", "dated"),
    *_WINDOW_LEGS[1:],
    Leg("bm25", "prior"),
    Leg("dense", "prior"),
    Leg("bm25", "session", 0.5),
)

RECIPES: MappingProxyType[str, AnyRecipe] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            Recipe("bm25", _TURN_LEGS[:1]),
            Recipe("dense", _TURN_LEGS[1:]),
            Recipe("hybrid", _TURN_LEGS),
            Recipe("hybrid-window", _WINDOW_LEGS),
            Recipe("untrained", _UNTRAINED_LEGS, other_speaker=0.85),
            Blend("hypergraph"),
            CoarseToFine("hypermem"),
            CoarseToFine("hypermem:no-fact-context", fact_context=False),
            CoarseToFine("hypermem:no-episode-context", episode_context=False),
            CoarseToFine("hypermem:no-topic-stage", topics=0),
            CoarseToFine("hypermem:no-topic-no-episode-stage", topics=0, episodes=0),
            CoarseToFine("hypermem:lambda=0", propagation=0.0),
            CoarseToFine("hypermem:lambda=0.5", propagation=0.5),
            CoarseToFine("hypermem:lambda=1", propagation=1.0),
            LearnedFlat("learned-flat"),
            LearnedFlat("learned-flat:hypergraph", "deep"),
            LearnedFlat("learned-flat:tuned", "tuned"),
            Routed("routed", LearnedFlat("learned-flat:hypergraph", "deep")),
            Routed("routed:tuned", LearnedFlat("learned-flat:tuned", "tuned")),
            PageRank("ppr"),
            Magma("magma-static"),
            Hage("hage", "router", "both"),
            Hage("hage:beam", "router", "both", width=4),
            Hage("hage:anchors", "fixed", hops=0),
            Hage("hage:static", "fixed"),
            Hage("hage:scored-edges", "intent"),
            Hage("hage:trainable-edges", "router", "features"),
            Hage("hage:trainable-router", "router", "router"),
        )
    }
)


def model_name(recipe: AnyRecipe) -> str | None:
    """Return the name of the model that a recipe needs, under which it is trained and kept; None if it needs none."""
    if isinstance(recipe, LearnedFlat | Routed):
        return recipe.name
    if isinstance(recipe, Hage) and recipe.trained is not None:
        return {"both": "hage", "router": "hage:trainable-router", "features": "hage:trainable-edges"}[recipe.trained]
    return None


def begins_with(recipe: AnyRecipe) -> str | None:
    """Return the name of the recipe that finds what a recipe of a graph begins with; None for one without a graph."""
    if isinstance(recipe, Routed):
        return recipe.flat.name
    return "hage:anchors" if isinstance(recipe, Magma) or (isinstance(recipe, Hage) and recipe.hops) else None


MODEL_FREE = tuple(name for name, recipe in RECIPES.items() if model_name(recipe) is None)
"""The names of the recipes that need no trained model."""

DEFAULT_RECIPE = "hypergraph"
"""What `default` stands for; a version records it, so that a later default does not change its answers."""


def find_recipe(name: str, default: str = DEFAULT_RECIPE) -> AnyRecipe:
    """Return the recipe called `name`; `default` is the name of the one behind the alias.

    Raises:
        RecipeError: There is none of that name.
    """
    recipe = RECIPES.get(default if name == "default" else name)
    if recipe is None:
        raise RecipeError(f"no recipe {name!r}; there are default, {', '.join(RECIPES)}")
    return recipe


def needs_tuned(recipe: AnyRecipe) -> bool:
    """Tell whether a recipe reads tuned vectors, which a version has only if they were asked for."""
    flat = recipe.flat if isinstance(recipe, Routed) else recipe
    return isinstance(flat, LearnedFlat) and flat.layout == "tuned"


def needs_analysis(recipe: AnyRecipe) -> bool:
    """Tell whether a recipe reads what the question asks for; see `hgmem_core.query_analysis`."""
    return isinstance(recipe, LearnedFlat | Routed | Hage | Magma)


def needs_vector(recipe: AnyRecipe) -> bool:
    """Tell whether a query needs a vector under a recipe."""
    return not isinstance(recipe, Recipe) or any(leg.kind == "dense" for leg in recipe.legs)
