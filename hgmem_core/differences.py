"""What keeps two statements apart however alike they are: numbers, names, negations and dislikes.

A number is one in figures, a counting word or an ordinal; signs of currency and per cent belong to it. A name is a word
with a capital, or a name that was found before: `Polish` is one, so is `May`. Names are looked for by their words, so
that `Ana Lee` and `Ana` differ. The rules err on the side of keeping apart.
"""

import unicodedata
from collections.abc import Iterable
from types import MappingProxyType
from typing import Literal

import regex

from hgmem_core.statements import is_empty_word
from hgmem_core.tokens import fold

Difference = Literal["numbers", "names", "negation", "dislike"]

_NUMBER = regex.compile(r"\p{Nd}+(?:[.,:/-]\p{Nd}+)*|[\p{Sc}%]")
_THOUSANDS = regex.compile(r",(?=\p{Nd}{3}(?!\p{Nd}))")
# `one` and 一 are left out: they are seldom counted with, as in `no one` and 一起.
_COUNTED = regex.compile(r"[二两三四五六七八九十百千万亿]+")
_NUMBER_WORDS = MappingProxyType(
    {
        word: str(number)
        for number, pair in enumerate(
            "two,second three,third four,fourth five,fifth six,sixth seven,seventh eight,eighth nine,ninth ten,tenth"
            " eleven,eleventh twelve,twelfth thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(),
            2,
        )
        for word in pair.split(",")
    }
    | {
        word: str(10 * tens)
        for tens, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
    }
    | {word: word for word in "first last half twice hundred thousand million billion dozen".split()}
)
_WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{M}\p{N}]*(?:[-'’.&][\p{L}\p{N}][\p{L}\p{M}\p{N}]*)*[+#]*")
_ENDS_SENTENCE = ".!?:…\n。！？："
_POSSESSIVE = regex.compile(r"['’]s?$")
_SPACELESS = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_SPEAKER = regex.compile(r"i(?:['’]\w+)?")
_NEGATION = regex.compile(
    r"\b(?:no|not|never|cannot|nobody|nothing|none|nowhere|neither|nor|without)\b|n['’]t\b|[不没無无未别莫]"
)
_DISLIKING = regex.compile(r"\b(?:dislik(?:e[sd]?|ing)|hat(?:e[sd]?|ing)|detest\w*|loath\w*|can['’]?t stand)\b|讨厌|恨")
_SIGNS: MappingProxyType[Difference, regex.Pattern[str]] = MappingProxyType(
    {"negation": _NEGATION, "dislike": _DISLIKING}
)


def difference(one: str, other: str, known: Iterable[str]) -> Difference | None:
    """Return what keeps two statements apart, None if nothing does.

    Args:
        one: A statement.
        other: Another one.
        known: Names found in either, such as the entities of their facts.

    >>> difference("Ana has two cats.", "Ana has 3 cats.", [])
    'numbers'
    >>> difference("Ana owns a car.", "Ana has got a car.", ["Ana"]) is None
    True
    """
    texts = [unicodedata.normalize("NFKC", text) for text in (one, other)]
    folded = [fold(text) for text in texts]
    if _numbers(folded[0]) != _numbers(folded[1]):
        return "numbers"
    words = [frozenset(_bare(word) for word in _WORD.findall(text)) for text in folded]
    pool = {name for text in texts for name in _capitalised(text)} | _words_of(known)
    if any(_holds(name, words[0], folded[0]) != _holds(name, words[1], folded[1]) for name in pool):
        return "names"
    for kind, sign in _SIGNS.items():
        found = [sign.search(text) is not None for text in folded]
        if found[0] != found[1]:
            return kind
    return None


def _numbers(folded: str) -> list[str]:
    found = [_THOUSANDS.sub("", number) for number in _NUMBER.findall(folded)]
    words = (part for word in _WORD.findall(folded) for part in word.split("-"))
    found += [_NUMBER_WORDS[word] for word in words if word in _NUMBER_WORDS]
    return sorted(found + _COUNTED.findall(folded))


def _capitalised(text: str) -> Iterable[str]:
    """Yield, folded, the words with a capital; of those that begin a sentence the ones that have a content."""
    for match in _WORD.finditer(text):
        word = _bare(fold(match[0]))
        if not match[0][0].isupper() or _SPEAKER.fullmatch(word):
            continue
        before = text[: match.start()].rstrip(' "“(')
        if (not before or before[-1] in _ENDS_SENTENCE) and is_empty_word(word):
            continue
        yield word


def _words_of(known: Iterable[str]) -> set[str]:
    """Return, folded, the words of names; those without a capital in a script that has them are no names."""
    words = (word for name in known for word in _WORD.findall(unicodedata.normalize("NFKC", name)))
    return {_bare(fold(word)) for word in words if word != word.lower() or word == word.upper()}


def _bare(word: str) -> str:
    return str(_POSSESSIVE.sub("", word))


def _holds(name: str, words: frozenset[str], folded: str) -> bool:
    return name in words or (_SPACELESS.search(name) is not None and name in folded)
