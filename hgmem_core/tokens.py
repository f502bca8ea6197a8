"""Text to search terms: one tokeniser for what is indexed and for what is asked.

NFKC and case folding make composed and decomposed letters, full-width digits and capitals equal. Words keep inner
apostrophes, combining marks and signs such as `c++`; numbers are kept, and a compound such as `2023-05-08` gives the
whole and its parts. Scripts written without spaces give single characters and pairs of neighbours, so that a word
inside a sentence is found. Stems go by script: the configured language for Latin letters, their own for the others.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

import regex
import Stemmer

TOKENS_REVISION = 1
"""Raised when the terms of some text change; part of the identity of an index."""

_SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}ー々〆\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_LETTER = rf"(?![{_SPACELESS}])[\p{{L}}\p{{M}}\p{{N}}]"
_RUN = regex.compile(rf"[{_SPACELESS}]+")
_NUMBER = regex.compile(r"\p{Nd}+(?:[.,:/-]\p{Nd}+)*")
_TERM = regex.compile(
    rf"{_RUN.pattern}"
    rf"|{_NUMBER.pattern}(?![\p{{L}}\p{{M}}\p{{N}}])"
    rf"|(?:{_LETTER})+(?:['’\u200c\u200d](?:{_LETTER})+)*(?:\+\+|\#)?"
)
# The same grammar on ASCII alone, for Python's own engine, which is faster.
_ASCII_TERM = re.compile(r"\d+(?:[.,:/-]\d+)*(?![a-z0-9])|[a-z0-9]+(?:'[a-z0-9]+)*(?:\+\+|#)?")
_GRAPHEME = regex.compile(r"\X")
_PARTS = re.compile(r"[:/-]")
_LONG = 48

_STEMMER_OF_SCRIPT = MappingProxyType(
    {
        "CYRILLIC": "russian",
        "GREEK": "greek",
        "ARABIC": "arabic",
        "ARMENIAN": "armenian",
        "DEVANAGARI": "hindi",
        "TAMIL": "tamil",
    }
)

_STOP_WORDS = MappingProxyType(
    {
        "english": "STOPWORDS_EN",
        "german": "STOPWORDS_GERMAN",
        "dutch": "STOPWORDS_DUTCH",
        "french": "STOPWORDS_FRENCH",
        "spanish": "STOPWORDS_SPANISH",
        "portuguese": "STOPWORDS_PORTUGUESE",
        "italian": "STOPWORDS_ITALIAN",
        "swedish": "STOPWORDS_SWEDISH",
        "danish": "STOPWORDS_DANISH",
        "norwegian": "STOPWORDS_NORWEGIAN",
        "turkish": "STOPWORDS_TURKISH",
        "russian": "STOPWORDS_RUSSIAN",
    }
)


def fold(text: str) -> str:
    """Return `text` with compatibility forms composed and case removed; equal words become equal strings.

    >>> fold("ＡＢＣ１２３ CAFE\u0301") == fold("abc123 café")
    True
    """
    # Folding can decompose (the dotted capital I), so compose once more; dotless i is written i, as in plain capitals.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.replace("i\u0307", "i").replace("ı", "i").replace("’", "'")


@lru_cache(maxsize=32)
def tokenizer(language: str) -> Callable[[str], list[str]]:
    """Return the tokeniser whose Latin-script stems and stop words are those of `language`.

    >>> tokenizer("english")("Don't the children's 3.5 C++ lessons start on 2023-05-08?")
    ["don't", 'children', '3.5', 'c++', 'lesson', 'start', '2023-05-08', '2023', '05', '08']
    """
    stop = _stop_words(language)
    stem = _stemmer(language)

    def expand(match: str) -> tuple[str, ...]:
        """Return the terms of one match of the grammar."""
        if _NUMBER.fullmatch(match):
            return _number_terms(match)
        if _RUN.fullmatch(match):
            return _run_terms(match)
        return () if match in stop else (stem(match),)

    # Texts repeat their words, so each is looked at once; what is longer than a word does not come again.
    terms_of = lru_cache(maxsize=262_144)(expand)

    def tokenize(text: str) -> list[str]:
        folded = text.casefold() if text.isascii() else fold(text)
        matches = (_ASCII_TERM if folded.isascii() else _TERM).findall(folded)
        return [term for match in matches for term in (terms_of if len(match) <= _LONG else expand)(match)]

    return tokenize


def _stop_words(language: str) -> frozenset[str]:
    # Imported here because it brings in numba where there is one, beside which vLLM's engines on CPUs do not start.
    from bm25s import stopwords

    return frozenset(fold(word) for word in getattr(stopwords, _STOP_WORDS.get(language, ""), ()))


def _stemmer(language: str) -> Callable[[str], str]:
    stemmers = {script: Stemmer.Stemmer(name).stemWord for script, name in _STEMMER_OF_SCRIPT.items()}
    latin = Stemmer.Stemmer(language).stemWord
    by_language = latin if language not in _STEMMER_OF_SCRIPT.values() else Stemmer.Stemmer("english").stemWord

    def stem(word: str) -> str:
        if word.isascii():
            return str(by_language(word))
        script = unicodedata.name(word[0], "").partition(" ")[0]
        return str(stemmers.get(script, by_language)(word))

    return stem


def _number_terms(number: str) -> tuple[str, ...]:
    """A date or time also gives its parts; a thousands separator is no part of a number."""
    if not _PARTS.search(number):
        plain = re.sub(r",(?=\d{3}(?!\d))", "", number)
        return (plain,)
    return (number, *(part for part in re.split(r"[.,:/-]", number) if part))


def _run_terms(run: str) -> tuple[str, ...]:
    signs: list[str] = _GRAPHEME.findall(run)
    return (*signs, *(first + second for first, second in pairwise(signs)))
