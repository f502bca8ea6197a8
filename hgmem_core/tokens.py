"""Text to search terms: one tokeniser for what is indexed and for what is asked; docs/text.md has the rules.

NFKC and case folding make composed and decomposed letters, full-width digits and capitals equal. Words keep inner
apostrophes, combining marks and signs such as `c++`; numbers are kept; what is made of parts, such as `2023-05-08`,
`get_user` and `getUser`, gives the whole and its parts. Scripts written without spaces, and Hangul, whose words carry
their endings, give single characters and pairs of neighbours, so that a word inside a sentence is found. Stems go by
script, and for Latin letters by the language of the text; see `hgmem_core.languages`.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import chain, pairwise

import regex

from hgmem_core.folding import composed, fold
from hgmem_core.languages import STEMMER_OF_SCRIPT, LatinLanguages, elides, stemmer, stop_words

__all__ = ["TOKENS_REVISION", "fold", "language_of", "terms_of_words", "tokenizer"]

TOKENS_REVISION = 2
"""Raised when the terms of some text change; part of the identity of an index."""

_SPACELESS = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}ー々〆\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
)
_RUN = regex.compile(rf"[{_SPACELESS}][{_SPACELESS}\p{{M}}]*+")
_NUMBER = r"\p{Nd}++(?:[.,:/٫٬-]\p{Nd}++)*+"


def _grammar(letter: str, first: str, more: str, digit: str, number: str) -> str:
    """Return what a term is, from classes of signs: words, numbers with a time or a unit behind them, names of files.

    Words come first because most matches are. Possessive, so that nothing is tried twice.
    """
    tail = rf"(?:(?:['.@]|_++){first}{more}*+|\+\+)*+"
    clock = r"(?:(?<=-[0-9]{2})[Tt][0-9]{2}(?::[0-9]{2})++(?:\.[0-9]++)?)?"
    return (
        rf"{letter}(?:\#|{more}*+{tail})"
        rf"|{number}{clock}(?:{letter}{{1,4}}+)?(?!{more}|_)"
        rf"|{digit}{more}*+{tail}"
        rf"|(?<!\S)\.{letter}{more}*+{tail}"
    )


_TERM = regex.compile(
    rf"{_RUN.pattern}|"
    + _grammar(
        rf"[\p{{L}}--[{_SPACELESS}]]",
        rf"[[\p{{L}}\p{{N}}]--[{_SPACELESS}]]",
        rf"[[\p{{L}}\p{{M}}\p{{N}}]--[{_SPACELESS}]]",
        r"\p{N}",
        _NUMBER,
    ),
    regex.V1,
)
# The same on ASCII alone, for Python's own engine, which is faster.
_ASCII_TERM = re.compile(
    _grammar("[A-Za-z]", "[A-Za-z0-9]", "[A-Za-z0-9]", "[0-9]", "[0-9]++(?:[.,:/-][0-9]++)*+").replace(r"\#", "#")
)
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")
_OF_A_TERM = regex.compile(r"[\p{L}\p{M}\p{N}٫٬]")
_MEASURE = regex.compile(rf"v?({_NUMBER})(?:t({_NUMBER}))?(\p{{L}}*+)")
_GRAPHEME = regex.compile(r"\X")
_JOINT = re.compile(r"[._@]+")
_HUMP = regex.compile(r"(?<=\p{Ll})(?=\p{Lu})|(?<=\p{N})(?=\p{Lu}\p{Ll})|(?<=\p{Lu})(?=\p{Lu}\p{Ll}{2})", regex.V1)
_MOST_HUMPS = 8
_CONTRACTED = frozenset("s t d m ll re ve".split())
"""What stands behind the apostrophe of an English word that is one with it."""
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{2,3})*,[0-9]{3}(?:\.[0-9]+)?")
_DECIMAL_COMMA = re.compile(r"([0-9]+),([0-9]{1,2})")
_ONE_DOT = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SIGNS = re.compile(r"[.,:/-]")
_LONG = 48
_MOST_KEPT = 262_144


class _Terms(dict[str, tuple[str, ...]]):
    """The terms of each match of the grammar: texts repeat their words, so each is looked at once."""

    def __init__(self, expand: Callable[[str], tuple[str, ...]]) -> None:
        super().__init__()
        self._expand = expand

    def __missing__(self, match: str) -> tuple[str, ...]:
        terms = self._expand(match)
        if len(match) <= _LONG:  # what is longer than a word does not come again
            if len(self) >= _MOST_KEPT:
                self.clear()
            self[match] = terms
        return terms


@lru_cache(maxsize=32)
def tokenizer(language: str) -> Callable[[str], list[str]]:
    """Return the tokeniser of texts in Latin letters that are in `language`, unless their stop words say otherwise.

    >>> tokenizer("english")("Don't the children's 3.5 C++ lessons start on 2023-05-08?")
    ["don't", 'children', '3.5', 'c++', 'lesson', 'start', '2023-05-08', '2023', '05', '08']
    """
    languages = _languages(language)
    hints = languages.hints
    expected = _terms_in(language)

    def tokenize(text: str) -> list[str]:
        matches = _matches(text)
        terms = expected if hints.isdisjoint(matches) else _terms_in(languages.language_of(matches))
        return list(chain.from_iterable(map(terms.__getitem__, matches)))

    return tokenize


def language_of(text: str, expected: str) -> str:
    """Return the language whose stems and stop words the Latin letters of a text get."""
    return _languages(expected).language_of(_matches(text))


def terms_of_words(words: str, language: str) -> list[str]:
    """Return the terms of words that come from a text in `language`."""
    return list(chain.from_iterable(map(_terms_in(language).__getitem__, _matches(words))))


@lru_cache(maxsize=32)
def _languages(expected: str) -> LatinLanguages:
    return LatinLanguages(expected)


def _matches(text: str) -> list[str]:
    """Return the words, numbers and runs of a text."""
    known = composed(text)
    return (_ASCII_TERM if _has_ascii_terms(known) else _TERM).findall(known)


def _has_ascii_terms(text: str) -> bool:
    """Say whether every letter and digit of composed text is of ASCII; dashes, quotes and emoji do not matter."""
    return text.isascii() or not any(map(_is_of_a_term, _BEYOND_ASCII.findall(text)))


@lru_cache(maxsize=65_536)
def _is_of_a_term(sign: str) -> bool:
    return _OF_A_TERM.match(sign) is not None


@lru_cache(maxsize=32)
def _terms_in(language: str) -> _Terms:
    """Return the terms of matches in texts of a language."""
    latin = stemmer(language if language not in STEMMER_OF_SCRIPT.values() else "english")
    stop = stop_words(language) | stop_words("russian")
    is_eliding = elides(language)

    def word_terms(match: str) -> tuple[str, ...]:
        word = fold(match)
        if match.isalpha() and (match.islower() or match.istitle()):  # the usual case: it has no parts
            return () if word in stop else (_stem(word, latin),)
        parts = [part for part in _parts(match) if len(part) > 1]
        if not parts:
            word = word.replace(".", "")  # an acronym
        elif parts != [match]:
            whole = _stem(word.replace("_", ""), latin)
            return (whole, *chain.from_iterable(word_terms(part) for part in parts))
        before, mark, after = word.rpartition("'")
        if mark and after not in _CONTRACTED:
            parts = [part for part in [*before.split("'"), after] if len(part) > 1 and part not in stop]
            return (*(() if is_eliding else (_stem(word, latin),)), *(_stem(part, latin) for part in parts))
        return () if word in stop else (_stem(word, latin),)

    def expand(match: str) -> tuple[str, ...]:
        """Return the terms of one match of the grammar."""
        folded = fold(match)
        if _RUN.fullmatch(match):
            return _run_terms(folded)
        measure = _MEASURE.fullmatch(folded)
        if not measure:
            return word_terms(match)
        numbers = [*_number_terms(measure[1]), *(_number_terms(measure[2]) if measure[2] else ())]
        unit = measure[3] if len(measure[3]) > 1 else ""
        return tuple(term for term in (folded if folded != measure[1] else "", *numbers, unit) if term)

    return _Terms(expand)


def _stem(word: str, latin: Callable[[str], str]) -> str:
    if word.isascii():
        return latin(word)
    script = unicodedata.name(word[0], "").partition(" ")[0]
    return (stemmer(STEMMER_OF_SCRIPT[script]) if script in STEMMER_OF_SCRIPT else latin)(word)


def _parts(match: str) -> list[str]:
    """Return what a name of code, a file or an address is made of: between its signs, and between its humps.

    >>> _parts("getUserName"), _parts("snake_case.py"), _parts("McDonald's")
    (['get', 'User', 'Name'], ['snake', 'case', 'py'], ['Mc', "Donald's"])
    """
    parts = _JOINT.split(match)
    if match.islower() or match[1:].islower():
        return parts
    humps = [hump for part in parts for hump in _HUMP.split(part)]
    return humps if len(humps) <= _MOST_HUMPS else parts


def _number_terms(number: str) -> tuple[str, ...]:
    """A number has one spelling; what is made of several, such as a date, a time or a version, also gives its parts."""
    plain = "".join(str(unicodedata.decimal(sign, sign)) for sign in number).replace("٬", ",").replace("٫", ".")
    if _THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    plain = _DECIMAL_COMMA.sub(r"\1.\2", plain) if _DECIMAL_COMMA.fullmatch(plain) else plain
    if _ONE_DOT.fullmatch(plain):
        return (plain,)
    parts = _SIGNS.split(plain)
    beginning = (".".join(parts[:2]),) if set(_SIGNS.findall(plain)) == {"."} else ()
    return (plain, *beginning, *parts)


def _run_terms(run: str) -> tuple[str, ...]:
    signs: list[str] = _GRAPHEME.findall(run)
    return (*signs, *(first + second for first, second in pairwise(signs)))
