"""How many words an answer shares with the right one, as the benchmarks count it; in percent.

LoCoMo (Maharana et al., 2024) stems words and drops `and` beside articles; the benchmarks of paragraphs (Rajpurkar et
al., 2016, and those after them) do neither.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import Stemmer

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_ARTICLES_AND = re.compile(r"\b(?:a|an|the|and)\b")


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation and articles.

    >>> plain_words("The Tin-Orchard, a film")
    ['tinorchard', 'film']
    """
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def locomo_words(text: str) -> list[str]:
    """Return the stems of the words of a text, without punctuation, articles and `and`.

    >>> locomo_words("Painting and the lakes")
    ['paint', 'lake']
    """
    words = _ARTICLES_AND.sub(" ", text.lower().translate(_PUNCTUATION)).split()
    return [str(stem) for stem in _stemmer().stemWords(words)]


@cache
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("porter")


def token_f1(answer: Sequence[str], right: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of an answer's words, each counted as often as it stands.

    >>> token_f1(["a", "film"], ["film"])
    66.66666666666667
    """
    shared = sum((Counter(answer) & Counter(right)).values())
    return 200.0 * shared / (len(answer) + len(right)) if shared else 0.0


def best_f1(answer: str, rights: Sequence[str], words: Callable[[str], list[str]] = plain_words) -> float:
    """Return the F1 against the right answer that is met best."""
    return max(token_f1(words(answer), words(right)) for right in rights)


def exact_match(answer: str, rights: Sequence[str]) -> float:
    """Return 100 where the words are those of a right answer, else 0."""
    return 100.0 * any(plain_words(answer) == plain_words(right) for right in rights)


def locomo_list_f1(answer: str, right: str) -> float:
    """Return the F1 of an answer that is a list with commas: for each right item that of its best, averaged.

    >>> locomo_list_f1("a guitar, the lake", "lakes, guitars, Paris")
    66.66666666666667
    """
    given = [locomo_words(part) for part in answer.split(",")]
    wanted = [locomo_words(part) for part in right.split(",")]
    return sum(max(token_f1(part, one) for part in given) for one in wanted) / len(wanted)
