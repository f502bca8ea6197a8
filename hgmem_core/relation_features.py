"""The features of relations between facts, as the layout `RICH` of `hgmem_core.relations` names them.

| feature | of a relation from one fact, the source, to another, the target |
|---|---|
| temporal | how near they were said, or hold, in time, where that relates them (`hgmem_core.relate_facts`) |
| semantic | their cosine where one is among the nearest of the other; 1 where one superseded the other |
| causal | 1 where the log names one as the cause of the other, 0.8 for question and answer, 0.5 by words as `because` |
| entity | how rare the rarest name or keyword is that they share |
| later, earlier | 1 if the target was said after, before the source; none of both within a turn or without an order |
| log_gap | L(days between the times at which they hold), see below |
| no_time | 1 if one of these times is unknown |
| same_session | 1 if they were said in one session |
| next_session | 1 if they were said in two sessions that follow each other |
| log_distance | L(turns from one to the other); 1 without an order |
| same_speaker | 1 if the same one said both |
| no_speaker | 1 if it is not known who said one of them |
| cosine | of their vectors, whatever relates them; 0 without vectors |
| nearest, nearest_back | 1 / rank of the target among the nearest of the source, and the other way round |
| shared_terms | s / (1 + s), where s sums how rare the names and keywords are that they share |
| causes, caused_by | 1 if the log names the source as cause of the target, 0.5 if words do; and the other way round |
| asks, answers | 1 if the source is of a turn that asked what the target answers; and the other way round |
| same_episode | 1 if an episode holds both |
| same_topic | 1 if a topic holds both, through their episodes |
| succession | 1 if one superseded the other |
| target_superseded | 1 if the target does not stand any more |
| target_size | L(characters of the target) |
| target_hub | L(facts that have the target among their nearest): a statement that says little is near to many |
| target_rarest | how rare the rarest name or keyword of the target is |

L(x) = ln(1 + x) / 10, which is 1 for 22,000.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hgmem_core.links import Links
from hgmem_core.nearest import Mask, pair_cosines
from hgmem_core.said_facts import Known, SaidFacts
from hgmem_core.talk import Talk, days_between
from hgmem_core.turns import UNKNOWN_TIME

_ANSWER = np.float32(0.8)

Column = npt.NDArray[np.float32]


def feature_columns(links: Links, said: SaidFacts, talk: Talk, known: Known) -> Mapping[str, tuple[Column, Column]]:
    """Return for each feature its values from the fact said first to the other, and back; float32 `[links]` each.

    Args:
        links: From `hgmem_core.relate_facts.fact_links`.
        said: The facts.
        talk: Their turns.
        known: What else is known of them.
    """
    one, other, kinds = links.sources, links.targets, links.strengths
    turn, next_turn = said.turn[one], said.turn[other]
    total, rarest = known.terms.shared(one, other)
    cosine = np.clip(pair_cosines(known.vectors, one, other), -1, 1)
    is_alike = (kinds["near"] > 0) | (kinds["later_near"] > 0)
    no_time = (said.time_us[one] == UNKNOWN_TIME) | (said.time_us[other] == UNKNOWN_TIME)
    no_speaker = (talk.speaker[turn] < 0) | (talk.speaker[next_turn] < 0)
    sessions = talk.session[next_turn] - talk.session[turn]
    in_order = said.thread[one] == said.thread[other]
    distance = np.abs(talk.place[next_turn] - talk.place[turn])
    size = _log(np.array([len(text) for text in said.texts], np.int64))
    nearest_of = np.concatenate([other[kinds["near"] > 0], one[kinds["later_near"] > 0]])
    hub = _log(np.bincount(nearest_of, minlength=len(size)))
    own = known.terms.rarest(len(size))
    superseded = np.isin(np.arange(len(size)), known.successors[0])
    causal = np.maximum.reduce([kinds["causes"], kinds["later_causes"], _ANSWER * kinds["asks"]])
    nothing = np.zeros(len(one), np.float32)
    later = _flag(in_order & (distance > 0))

    def alike(values: npt.NDArray[np.generic]) -> tuple[Column, Column]:
        both = values.astype(np.float32)
        return both, both

    return {
        "temporal": alike(kinds["temporal"]),
        "semantic": alike(np.maximum(np.where(is_alike, cosine, 0), kinds["supersedes"])),
        "causal": alike(causal),
        "entity": alike(rarest),
        "later": (later, nothing),
        "earlier": (nothing, later),
        "log_gap": alike(_log(days_between(said.time_us[one], said.time_us[other]))),
        "no_time": alike(no_time),
        "same_session": alike(sessions == 0),
        "next_session": alike(in_order & (sessions == 1)),
        "log_distance": alike(np.where(in_order, _log(distance), 1)),
        "same_speaker": alike(~no_speaker & (talk.speaker[turn] == talk.speaker[next_turn])),
        "no_speaker": alike(no_speaker),
        "cosine": alike(cosine),
        "nearest": (kinds["near"], kinds["later_near"]),
        "nearest_back": (kinds["later_near"], kinds["near"]),
        "shared_terms": alike(total / (1 + total)),
        "causes": (kinds["causes"], kinds["later_causes"]),
        "caused_by": (kinds["later_causes"], kinds["causes"]),
        "asks": (kinds["asks"], nothing),
        "answers": (nothing, kinds["asks"]),
        "same_episode": alike(known.episodes.shared(one, other)[0] > 0),
        "same_topic": alike(known.topics.shared(one, other)[0] > 0),
        "succession": alike(kinds["supersedes"]),
        "target_superseded": (_flag(superseded[other]), _flag(superseded[one])),
        "target_size": (size[other], size[one]),
        "target_hub": (hub[other], hub[one]),
        "target_rarest": (own[other], own[one]),
    }


def _log(values: npt.NDArray[np.generic]) -> Column:
    logs: Column = (np.log1p(values) / 10).astype(np.float32)
    return logs


def _flag(values: Mask) -> Column:
    return values.astype(np.float32)
