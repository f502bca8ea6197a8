"""Shorter questions within a question, each to search with on its own; without a model."""

import re
from collections.abc import Iterator, Sequence

from hgmem_core.query_names import NameMention
from hgmem_core.query_time import Place, QueryTime
from hgmem_core.statements import is_empty_word, split_sentences

MOST_SUB_QUERIES = 4
"""Beside the question itself."""

_MOST_NAMES = 3
_LONGEST = 300
_ASKING = r"(?:what|where|who|whom|whose|which|how|why|when)"
_CLAUSES = re.compile(rf",? (?:and|but|or) (?=(?:in |for |with |to )?{_ASKING} \w)|;\s*", re.IGNORECASE)
_CHINESE_CLAUSES = re.compile(r"[，,；;](?:还有|以及|并且|而且|又)?")
_CHINESE_ASKING = re.compile(r"什么|什麼|哪|谁|誰|怎|吗|嗎|多少|几|幾|为何|為何|何时|何時")
_COORDINATED = re.compile(
    r"(?:['’]s?)?(?:,? (?:and|or|&|vs\.?|versus) |, |\s?(?:和|与|與|跟|及|或|还是|、)\s?)", re.IGNORECASE
)
_TOGETHER = re.compile(r"\b(?:both|each|either|together)\b ?|都|分别", re.IGNORECASE)
_INSTRUCTS = re.compile(r"(?:please )?(?:answer|reply|respond|explain|be|thanks?|hi|hello|hey)\b", re.IGNORECASE)
_POSSESSIVE = re.compile(r"['’]s\b")
_PRONOUN = re.compile(
    r"\b(?:(?P<owner>his|her)(?= (?!(?:an?|the|to|in|on|at|for|with|and|that) )\w)|he|she|him|her)\b|[他她]",
    re.IGNORECASE,
)
_BLANK_BEFORE = re.compile(r" (?=[,.;:?!])")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_HAN = re.compile(r"[\u3400-\u9fff]")
_ENDS = " ,.;:?!，。？！；、"


def sub_queries(text: str, names: Sequence[NameMention], time: QueryTime) -> list[str]:
    """Return at most four questions within a question, the most useful first.

    They are: the parts of a coordinated question; for several names in a row, the question of each; the question
    without its times; its content words alone; the event that it names. Where a part has lost every name, the only
    speaker whom the whole names stands for a pronoun, or before the part.

    Args:
        text: The question, with single blanks.
        names: Found in it.
        time: What it says of time.

    >>> from hgmem_core.query_names import find_names
    >>> from hgmem_core.query_time import query_time
    >>> asked = "What did Ana sew, and where did she sell it?"
    >>> sub_queries(asked, find_names(asked, ["Ana"]), query_time(asked, None, None))
    ['What did Ana sew', 'where did Ana sell it', 'Ana sew sell']
    """
    found: dict[str, str] = {}
    asked = _words(text)
    for query in _all(text, names, time):
        query = query.strip(_ENDS)
        words = _words(query)
        if len(query) <= _LONGEST and _says_something(query) and words != asked:
            found.setdefault(words, query)
    return list(found.values())[:MOST_SUB_QUERIES]


def _all(text: str, names: Sequence[NameMention], time: QueryTime) -> Iterator[str]:
    for part in _parts(text):
        yield _named(part, text, names)
    yield from _of_each_name(text, names)
    timeless = _without(text, time.times)
    yield _named(timeless, text, names)
    yield _content(timeless, names)
    if time.event:
        yield _named(time.event, text, [mention for mention in names if mention.speaker is not None])


def _of_each_name(text: str, names: Sequence[NameMention]) -> Iterator[str]:
    """Return the question of each of the first names that stand in a row."""
    row: list[NameMention] = []
    for mention in names:
        if row and not _COORDINATED.fullmatch(text, row[-1].end, mention.start):
            if len(row) > 1:
                break
            row = []
        row.append(mention)
    if len(row) > 1 and text[row[-2].end : row[-1].start].strip() != ",":
        for mention in row[:_MOST_NAMES]:
            before, after = text[: row[0].start], text[row[-1].end :]
            yield before + mention.name + _TOGETHER.sub("", after)


def _parts(text: str) -> list[str]:
    """Return the sentences and coordinated questions of a text."""
    parts = []
    for sentence in split_sentences(text):
        for clause in _CLAUSES.split(sentence):
            chinese = _CHINESE_CLAUSES.split(clause)
            parts += chinese if len(chinese) > 1 and all(map(_CHINESE_ASKING.search, chinese)) else [clause]
    return [part for part in parts if _says_something(part, 3) and not _INSTRUCTS.match(part)]


def _named(part: str, text: str, names: Sequence[NameMention]) -> str:
    """Return a part of a text, if none of `names` is in it, with the only speaker among them."""
    speakers = {mention.name for mention in names if mention.speaker is not None}
    if len(speakers) != 1 or any(text[mention.start : mention.end] in part for mention in names):
        return part
    [name] = speakers
    named, count = _PRONOUN.subn(lambda match: f"{name}'s" if match["owner"] else name, part, count=1)
    return named if count else f"{name}{part}" if _HAN.match(part) else f"{name} {part}"


def _content(text: str, names: Sequence[NameMention]) -> str:
    """Return the words of a text that carry content; nothing where these are names alone."""
    kept = [word for word in _WORD.findall(_POSSESSIVE.sub("", text)) if not is_empty_word(word)]
    named = {word for mention in names for word in _WORD.findall(mention.name)}
    return "" if named.issuperset(kept) else " ".join(kept)


def _without(text: str, places: Sequence[Place]) -> str:
    """Return a text without some places, with single blanks."""
    left = []
    reached = 0
    for start, end in places:
        left.append(text[reached : max(start, reached)])
        reached = max(end, reached)
    return _BLANK_BEFORE.sub("", " ".join("".join([*left, text[reached:]]).split()))


def _says_something(query: str, least_words: int = 2) -> bool:
    """Say whether a text has some words, or three Chinese signs."""
    return len(_WORD.findall(query)) >= least_words or len(_HAN.findall(query)) > 2


def _words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
