"""The way to a turn, for explanations: what a recipe of a graph passed before it came there, and by which relations."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

from hgmem_core.frontier import Frontier
from hgmem_core.hage import Score, walks
from hgmem_core.hypermem import Chosen
from hgmem_core.lexical import Ints
from hgmem_core.namespace_graph import Lists, NamespaceGraph
from hgmem_core.ranking import RelationKind, Rows, Step
from hgmem_core.recipes import Hage
from hgmem_core.relations import PAPER, Relations

Paths = Mapping[int, tuple[Step, ...]]
"""For a turn by its row the steps that lead to it, the first one first; none for one that no relation led to."""

_KINDS: tuple[RelationKind, ...] = ("temporal", "semantic", "causal", "entity")
assert _KINDS == PAPER


def walked_paths(relations: Relations, score: Score, anchors: Rows, recipe: Hage, ties: Ints) -> Paths:
    """Return the most probable path to each turn that walks visit; for the arguments see `hgmem_core.hage.walk`."""
    best: dict[int, tuple[float, list[int]]] = {}
    for paths, total in walks(relations, score, anchors[: recipe.starts], recipe.hops, recipe.width, ties):
        for path, value in zip(paths.tolist(), total.tolist(), strict=True):
            if path[-1] not in best or value > best[path[-1]][0]:
                best[path[-1]] = value, path
    return {row: _turn_steps(relations, path) for row, (_, path) in best.items()}


def visited_paths(relations: Relations, before: Ints, rows: Rows) -> Paths:
    """Return the path to each of some turns by the turn before it, -1 for none, int64 `[turns]`."""
    found = {}
    for row in rows.tolist():
        path = [row]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        found[row] = _turn_steps(relations, path[::-1])
    return found


def _turn_steps(relations: Relations, path: list[int]) -> tuple[Step, ...]:
    return tuple(Step("turn", source, _kind_to(relations, source, [target])) for source, target in pairwise(path))


def _kind_to(relations: Relations, source: int, targets: Iterable[int]) -> RelationKind:
    """Return the strongest kind of the relations from a node to some of its neighbours."""
    wanted = set(targets)
    first, end = relations.offsets[source : source + 2].tolist()
    edges = [edge for edge in range(first, end) if int(relations.targets[edge]) in wanted]
    return _KINDS[int(relations.features[edges, : len(_KINDS)].max(axis=0).argmax())]


def frontier_paths(
    relations: Relations, graph: NamespaceGraph, as_of_us: int | None, frontier: Frontier, rows: Rows
) -> Paths:
    """Return for each of some turns the facts through which it came forward.

    Args:
        relations: Of the facts.
        graph: Of the namespace.
        as_of_us: When the facts must stand, in microseconds since 1970; None for now.
        frontier: What grew.
        rows: The turns.
    """
    facts, turns = graph.best_turn_of_fact(as_of_us)
    found = {}
    for row in rows.tolist():
        steps: list[Step] = []
        turn = row
        # A fact's own turn may have come forward later than the fact spoke, by what it brought forward itself.
        while (fact := int(frontier.spoken_by[turn])) >= 0 and all(step.number != fact for step in steps):
            steps.append(Step("fact", fact, _kind_to(relations, fact, facts[turns == turn].tolist())))
            turn = int(turns[facts.searchsorted(fact)])
        found[row] = tuple(steps[::-1])
    return found


def chosen_paths(graph: NamespaceGraph, chosen: Chosen) -> Paths:
    """Return for each turn that was chosen coarse to fine the best topic, episode and fact that led to it."""
    topic_of = _first_holder(chosen.topics, graph.episodes_of_topic)
    episode_of = _first_holder(chosen.episodes, graph.facts_of_episode)
    fact_of = _first_holder(chosen.facts, graph.turns_of_fact)
    found: dict[int, tuple[Step, ...]] = {}
    for turn, fact in fact_of.items():
        episode = episode_of.get(fact)
        found[turn] = (*_above(episode, topic_of), Step("fact", fact, "holds"))
    for turn, episode in _first_holder(chosen.episodes, graph.turns_of_episode).items():
        found.setdefault(turn, _above(episode, topic_of))
    return found


def _above(episode: int | None, topic_of: Mapping[int, int]) -> tuple[Step, ...]:
    if episode is None:
        return ()
    held = Step("episode", episode, "holds")
    return (Step("topic", topic_of[episode], "holds"), held) if episode in topic_of else (held,)


def _first_holder(nodes: Rows, lists: Lists) -> dict[int, int]:
    """Return for each number that lists of `nodes` hold the first of these nodes that does."""
    found: dict[int, int] = {}
    for node in nodes.tolist():
        for number in lists.of(node).tolist():
            found.setdefault(number, node)
    return found
