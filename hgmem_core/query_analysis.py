"""What a question asks for, by rules: whom and what it names, the time it speaks of, its intent, the questions in it.

English and Chinese are understood. In other languages names, dates in figures and the question itself remain. No model
has a say and nothing is learned; `hgmem_core.intent_llm` asks a model for the same.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from hgmem_core.query_names import NameMention, find_names
from hgmem_core.query_time import Log, QueryTime, Side, query_time
from hgmem_core.statements import speaker_names
from hgmem_core.sub_queries import sub_queries
from hgmem_core.text import beginning, clean
from hgmem_core.tokens import fold

Language = Literal["en", "zh", "other"]

READ_CHARS = 2_000
"""How much of a question is read; what is longer is no question but a text, and its rest says the same."""

_SMOOTHING = 0.25
"""What each relation has before any cue, so that none is left without weight."""
_UNTOLD = 1.0
"""What the semantic relation has beside that: most questions ask what was said of a subject."""

_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_LATIN = re.compile(r"[A-Za-z]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_ENGLISH = re.compile(
    r"\b(?:the|what|which|who|whose|whom|how|when|where|why|did|does|my|your|is|are|has|have|that|there|any|and|about|with|tell|should|would|could)\b",
    re.IGNORECASE,
)
_ASKS_WHEN = re.compile(
    r"^(?:and |so )?when\b|\bwhen\W*$|\b(?:and|or|,|know|remember|tell \w+) when\b"
    r"|\b(?:what|which) (?:exact )?(?:time|date|day|weekday|week|month|season|year|decade|century)\b"
    r"|\bhow (?:long ago|recently)\b|什么时候|什麼時候|何时|何時|几时|幾時|几点|幾點|哪[一]?[天日年月]|几月|几号",
    re.IGNORECASE,
)
# How much a cue adds to temporal, semantic, causal and entity: 3 where it says what is asked, 1 where it only hints.
_CUES: tuple[tuple[re.Pattern[str], tuple[float, float, float, float]], ...] = tuple(
    (re.compile(pattern), weights)
    for pattern, weights in (
        (r"\bhow (?:long|often)\b|多久|多长时间|多長時間", (3, 0, 0, 0)),
        (
            r"\bhow many (?:\w+ )?(?:minutes|hours|days|nights|weeks|weekends|months|years)\b|几[天年周]|几个[小月星]",
            (3, 0, 0, 0),
        ),
        (
            r"\b(?:first|last|latest|earliest|previous|next|order|sequence|later|earlier)\b|第一次|最后|最後|最近|顺序",
            (1, 0, 0, 0),
        ),
        (r"\bwhy\b|\bhow come\b|\bwhat for\b|\bfor what\b|为什么|為什麼|为何|為何|怎么会|怎麼會|干嘛", (0, 0, 3, 0)),
        (
            r"\b(?:because|reasons?|caus(?:e|es|ed|ing)|leads? to|led to|result(?:s|ed)?|consequences?|purpose|due to"
            r"|motivat\w+|inspir\w+|prompt(?:s|ed)|triggered|convinced|persuaded|what (?:made|makes))\b"
            r"|原因|因为|因為|导致|導致|造成|使得|促使",
            (0, 0, 3, 0),
        ),
        (r"\b(?:affect(?:s|ed)?|effects?|impact(?:s|ed)?|influenc\w+|so that|in order to)\b|影响|影響", (0, 1, 1, 0)),
        (r"\b(?:who|whom|whose)\b|谁|誰|哪[位个個家]|什么人", (0, 0, 0, 3)),
        (
            r"\b(?:which|names?)\b|\bwhere\b|\bwhat (?:city|country|state|place|town|company)\b|哪[里裡儿]|名字|叫什么",
            (0, 0, 0, 1),
        ),
        (r"\b(?:both|in common|same|each other|between)\b|共同|一样", (0, 0, 0, 1)),
        (r"^(?:what|how)\b|\b(?:describe|opinion|think|feel|say|said)\b|什么|怎么|怎样|觉得", (0, 1, 0, 0)),
    )
)


@dataclass(frozen=True, slots=True)
class QueryAnalysis:
    """What a question asks for.

    Attributes:
        language: `en` if English words occur in letters that are mostly Latin, `zh` if it is mostly in Chinese
            signs and has no kana, else `other`, such as a name alone.
        entities: The names in it and titles in quotes, in their order, without possessives; a speaker's as the
            namespace writes it, and no roles such as `user`.
        speakers: The numbers of the speakers that it names, rising.
        time_from: From when on it speaks, in UTC; None where open or unknown. See `hgmem_core.query_time`.
        time_until: When that is over, excluded.
        time_anchor: The event before, after or during which it asks, as written; None without one.
        time_side: On which side of the event.
        intent: How much it hangs on relations that are temporal, semantic, causal, by entity (the order of
            `relations.PAPER`); each above 0, their sum 1.
        sub_queries: The question itself, then at most four in it that are complete in themselves.
        asks_when: Whether it asks for a time.
    """

    language: Language
    entities: tuple[str, ...]
    speakers: tuple[int, ...]
    time_from: datetime | None
    time_until: datetime | None
    time_anchor: str | None
    time_side: Side | None
    intent: tuple[float, float, float, float]
    sub_queries: tuple[str, ...]
    asks_when: bool


def analyse_query(
    text: str, speakers: Sequence[str] = (), today: datetime | None = None, span: Log | None = None
) -> QueryAnalysis:
    """Return what a question asks for; any text has an analysis.

    Args:
        text: The question; the first `READ_CHARS` characters are read.
        speakers: Of the namespace.
        today: From when relative phrases such as `last summer` count; None stands for the end of the log.
        span: When the log begins and ends, which says in which year `in June` is; None where that is unknown.

    Raises:
        ValueError: A time has no zone.

    >>> found = analyse_query("Why did Ana and Bo sell the boat in May 2023?", ["Ana", "Bo"])
    >>> found.entities, found.speakers, found.time_from.date().isoformat()
    (('Ana', 'Bo'), (0, 1), '2023-05-01')
    >>> max(zip(found.intent, ("temporal", "semantic", "causal", "entity")))[1]
    'causal'
    >>> found.sub_queries[1:3]
    ('Why did Ana sell the boat in May 2023', 'Why did Bo sell the boat in May 2023')
    """
    for name, moment in (("today", today), *(("span", moment) for moment in span or ())):
        if moment is not None and moment.tzinfo is None:
            raise ValueError(f"{name}: {moment.isoformat()} has no time zone; give it one, such as UTC")
    read = " ".join(clean(beginning(text, READ_CHARS))[0].split())
    time = query_time(read, today, span)
    names = find_names(read, speakers, time.times)
    first_event = time.event_place if time.event_place and not time.event_place[0] else (0, 0)
    asks_when = _ASKS_WHEN.search(read, first_event[1]) is not None  # `When Ana was small, where did she live?`
    return QueryAnalysis(
        language=_language(read),
        entities=_entities(names),
        speakers=tuple(sorted({mention.speaker for mention in names if mention.speaker is not None})),
        time_from=time.bounds[0],
        time_until=time.bounds[1],
        time_anchor=time.event,
        time_side=time.side,
        intent=_intent(read, asks_when, time, len({mention.name for mention in names})),
        sub_queries=(text, *sub_queries(read, names, time)),
        asks_when=asks_when,
    )


def _language(text: str) -> Language:
    letters = sum(map(str.isalpha, text))
    if len(_HAN.findall(text)) * 2 > letters and not _KANA.search(text):
        return "zh"
    return "en" if len(_LATIN.findall(text)) * 2 > letters and _ENGLISH.search(text) else "other"


def _entities(names: Sequence[NameMention]) -> tuple[str, ...]:
    named = (mention.name for mention in names if mention.speaker is None or speaker_names([mention.name]).whole)
    return tuple({fold(name): name for name in named}.values())


def _intent(text: str, asks_when: bool, time: QueryTime, names: int) -> tuple[float, float, float, float]:
    scores = [_SMOOTHING, _SMOOTHING + _UNTOLD, _SMOOTHING, _SMOOTHING]
    lowered = text.lower()
    cues = [weights for pattern, weights in _CUES if pattern.search(lowered)]
    if asks_when:
        cues.append((3, 0, 0, 0))
    if time.times or time.event:
        cues.append((1, 0, 0, 0))
    if names > 1:
        cues.append((0, 0, 0, 1))
    for weights in cues:
        scores = [score + weight for score, weight in zip(scores, weights, strict=True)]
    temporal, semantic, causal, entity = (score / sum(scores) for score in scores)
    return temporal, semantic, causal, entity
