"""The event graph of facts: which of them are related. Every relation leads both ways.

Two facts are related if they are

- near in talk: at most `near` apart, in one session or over the end of one and the beginning of the next;
- near in time: one names a time, and the other is at most `near` apart from it by the times at which facts hold;
- alike: one is among the `similar` nearest of the other by cosine; but a fact that is among the nearest of more than
  twice as many keeps those whose nearest it is;
- about the same: they have a name or keyword that is rare, and are at most `same_term` apart among the facts that have
  it (in a namespace of N facts a rare one is that of about √N or fewer);
- cause and effect: the log says so (CAUSE); or one of two that follow each other says why the one before holds
  (`because`) or what follows from it (`that's why`); or one is of a turn that asked what the other answers;
- successors: one superseded the other.

So every fact has only so many relations, whatever it shares with others. A superseded one has them like any other.
"""

import re
from collections.abc import Iterator

import numpy as np

from hgmem_core.lexical import Ints
from hgmem_core.links import Found, Links, constant, join, steps
from hgmem_core.nearest import nearest_in_namespaces
from hgmem_core.said_facts import Known, Pairs, SaidFacts
from hgmem_core.shared_terms import RARE
from hgmem_core.stage_config import RelateConfig
from hgmem_core.talk import Talk, days_between
from hgmem_core.turns import UNKNOWN_TIME

_CUE_STRENGTH = 0.5

_REASON = r"\b(?:because|due to|thanks to|since (?:i|we|he|she|they|it)|the reason)\b|因为|由于|多亏"
_RESULT = (
    r"\b(?:so that|therefore|that's why|that is why|which is why|as a result|hence|for that reason)\b"
    r"|所以|因此|于是|因而"
)
_CUES = re.compile(rf"(?P<reason>{_REASON})|(?P<result>{_RESULT})", re.IGNORECASE)


def fact_links(said: SaidFacts, talk: Talk, known: Known, config: RelateConfig) -> Links:
    """Return the pairs of related facts, the one said first as source.

    Args:
        said: The facts.
        talk: Their turns.
        known: What else is known of them.
        config: How many.

    Returns:
        Links of the kinds `temporal`; `term`; `near`, 1 / rank of the later fact among the nearest of the earlier one;
        `later_near`, the other way round; `causes`, how sure the earlier one is cause of the later one; `later_causes`,
        the other way round; `asks`; `supersedes`.
    """
    rare = known.terms.neighbours(config.same_term, known.terms.rarity >= RARE)
    found: dict[str, list[Found]] = {
        "temporal": [*_near_in_talk(said, talk, config.near), _near_in_time(said, config.near)],
        "term": [constant(one, other, 1.0) for one, other, _ in rare],
        "asks": [constant(*_answers(said, talk), 1.0)],
        "supersedes": [constant(*_in_order(*known.successors), 1.0)],
    }
    found |= _alike(said, known, config.similar)
    return join(found | _causes(said, talk, known.causes), len(said.row))


def _near_in_talk(said: SaidFacts, talk: Talk, reach: int) -> Iterator[Found]:
    """Yield neighbours: 1 for the next fact, less for further ones and for each day between."""
    for distance in range(1, reach + 1):
        one = steps(said.thread, distance)
        other = one + distance
        days = days_between(talk.said_at_us[said.turn[one]], talk.said_at_us[said.turn[other]])
        yield one, other, (1 / (1 + (distance - 1) / 2) / (1 + days)).astype(np.float32)


def _near_in_time(said: SaidFacts, reach: int) -> Found:
    known = np.flatnonzero(said.time_us != UNKNOWN_TIME)
    order = known[np.lexsort((known, said.time_us[known], said.namespace[known]))]
    pairs = []
    for distance in range(1, reach + 1):
        one, other = order[:-distance], order[distance:]
        chosen = (said.namespace[one] == said.namespace[other]) & (said.names_time[one] | said.names_time[other])
        pairs.append((one[chosen], other[chosen]))
    first, later = _in_order(*(np.concatenate(parts) for parts in zip(*pairs, strict=True)))
    return first, later, (1 / (1 + days_between(said.time_us[first], said.time_us[later]))).astype(np.float32)


def _alike(said: SaidFacts, known: Known, count: int) -> dict[str, list[Found]]:
    one, other, rank = nearest_in_namespaces(known.vectors, known.has_vector, said.namespace, count)
    # A statement that says little is near to very many.
    order = np.lexsort((one, rank, other))
    place = np.arange(len(order)) - np.searchsorted(other[order], other[order])
    kept = order[place < 2 * count]
    one, other, nearness = one[kept], other[kept], (1 / rank[kept]).astype(np.float32)
    is_first = one < other
    return {
        "near": [(one[is_first], other[is_first], nearness[is_first])],
        "later_near": [(other[~is_first], one[~is_first], nearness[~is_first])],
    }


def _causes(said: SaidFacts, talk: Talk, causes: Pairs) -> dict[str, list[Found]]:
    cause, effect = causes
    is_first = cause < effect
    follows = steps(talk.session[said.turn], 1)
    cues = [(at, found.lastgroup) for at in follows.tolist() if (found := _CUES.search(said.texts[at + 1]))]
    result, reason = (np.array([at for at, cue in cues if cue == kind], np.int64) for kind in ("result", "reason"))
    return {
        "causes": [constant(cause[is_first], effect[is_first], 1), constant(result, result + 1, _CUE_STRENGTH)],
        "later_causes": [constant(effect[~is_first], cause[~is_first], 1), constant(reason, reason + 1, _CUE_STRENGTH)],
    }


def _answers(said: SaidFacts, talk: Talk) -> Pairs:
    """Return facts of turns that asked something, and those that answer it."""
    lists = said.sources
    further = np.setdiff1d(np.arange(len(lists.values)), lists.offsets[:-1])
    fact = said.number[np.searchsorted(lists.offsets, further, side="right") - 1]
    asking, answering = lists.values[further], said.turn[fact]
    asked = talk.asks[asking] & (talk.session[asking] == talk.session[answering])
    asked &= (talk.place[asking] < talk.place[answering]) & (talk.speaker[asking] != talk.speaker[answering])
    places, wanted = talk.place[said.turn], talk.place[asking[asked]]
    first, stop = (np.searchsorted(places, wanted, side) for side in ("left", "right"))
    of_asking = np.concatenate([np.zeros(0, np.int64), *map(np.arange, first, stop)])
    return of_asking, np.repeat(fact[asked], stop - first)


def _in_order(one: Ints, other: Ints) -> Pairs:
    return np.minimum(one, other), np.maximum(one, other)
