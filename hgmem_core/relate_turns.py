"""The event graph of turns as HAGE builds it: which relations lead from a turn to others, and how strong each is.

| kind | from a turn to | strength |
|---|---|---|
| temporal | the one before it and the one after it | 1 |
| temporal | the next 9, if said within 24 hours | 1 / (1 + hours between) |
| semantic | the 3 on either side | 1 / (1 + distance / 2) |
| semantic | the 3 nearest by cosine, if above 0.5 | the cosine |
| causal | the next one, if somebody else said it | 0.8 |
| causal | the next one, if the turn asks something | 0.85 |
| entity | the next 4 that name the same | how rare the name is |

It differs from the released code in this. Of several relations from one turn to another, one is left, which has of each
kind the strongest. Names are those in the turn's facts; speakers are none, and a name counts by its rarity, not as 1. A
turn asks if a sentence of it is a question, not if it holds a word such as `is`. Times are those of the log, not hours
that were made up. Sessions without a time have no order, so only likeness and names lead from one to another.
"""

import numpy as np

from hgmem_core.lexical import Floats, Ints
from hgmem_core.links import Found, Links, constant, join, steps
from hgmem_core.nearest import Mask, nearest_in_namespaces, pair_cosines
from hgmem_core.shared_terms import Occurrences
from hgmem_core.talk import Talk
from hgmem_core.turns import UNKNOWN_TIME

_CLOSE = 9
_CLOSE_HOURS = 24.0
_CONTEXT = 3
_SIMILAR = 3
_LEAST_COSINE = 0.5
_RESPONSE = 0.8
_ANSWER = 0.85
_SAME_NAME = 4


def turn_links(talk: Talk, names: Occurrences, vectors: Floats, has_vector: Mask) -> Links:
    """Return the relations between turns, numbered by their rows.

    Args:
        talk: The turns.
        names: Which turns name what; its nodes are places of the talk.
        vectors: float32 `[turns, d]`, of unit length where there is one, else zero.
        has_vector: Which turns have one, bool `[turns]`.
    """
    row = np.argsort(talk.place)
    thread = talk.thread[row]
    found: dict[str, list[Found]] = {"temporal": [], "semantic": [], "causal": [], "entity": []}
    for distance in range(1, max(_CLOSE, _CONTEXT) + 1):
        at = steps(thread, distance)
        turn, later = row[at], row[at + distance]
        if distance == 1:
            found["temporal"] += constant(turn, later, 1.0), constant(later, turn, 1.0)
            changes, asks = talk.speaker[turn] != talk.speaker[later], talk.asks[turn]
            found["causal"] += [
                constant(turn[chosen], later[chosen], strength)
                for chosen, strength in ((changes, _RESPONSE), (asks, _ANSWER))
            ]
        if distance <= _CONTEXT:
            strength = 1 / (1 + distance / 2)
            found["semantic"] += constant(turn, later, strength), constant(later, turn, strength)
        found["temporal"].append(_close(talk, turn, later))
    found["semantic"].append(_similar(talk, vectors, has_vector))
    every = np.ones(len(names.nodes), bool)
    found["entity"] += [(row[one], row[next_one], rare) for one, next_one, rare in names.neighbours(_SAME_NAME, every)]
    return join(found, len(row))


def _close(talk: Talk, turn: Ints, later: Ints) -> Found:
    """Return those pairs of which both turns have a time and no more than a day lies between."""
    begins, ends = talk.said_at_us[turn], talk.said_at_us[later]
    known = (begins != UNKNOWN_TIME) & (ends != UNKNOWN_TIME)
    turn, later, hours = turn[known], later[known], np.abs(ends - begins)[known] / 3.6e9
    close = hours <= _CLOSE_HOURS
    return turn[close], later[close], (1 / (1 + hours[close])).astype(np.float32)


def _similar(talk: Talk, vectors: Floats, has_vector: Mask) -> Found:
    turn, other, _ = nearest_in_namespaces(vectors, has_vector, talk.namespace, _SIMILAR)
    cosines = pair_cosines(vectors, turn, other)
    alike = cosines > _LEAST_COSINE
    return turn[alike], other[alike], np.minimum(cosines[alike], 1)
