"""Names, keywords and places in what was said, without a model: capitals, quotes and counts."""

from collections import Counter
from collections.abc import Iterable, Sequence

import regex

from hgmem_core.english_words import MONTHS
from hgmem_core.statements import Lexicon, Names, is_empty_word, is_name
from hgmem_core.tokens import fold

_NAME = r"\p{Lu}[\p{L}\p{M}\p{N}]*(?:[&'’.-][\p{L}\p{N}]+)*"
_RUN = regex.compile(rf"(?<![\p{{Latin}}\p{{N}}'’]){_NAME}(?: (?:of |de |da |del |la |van |von |the )?{_NAME})*")
QUOTED = regex.compile(r"[\"“]([^\"“”]{2,60})[\"”]|《([^》]{1,60})》|「([^」]{1,40})」|『([^』]{1,40})』")
_WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{M}\p{N}]*(?:[-'’.][\p{L}\p{M}\p{N}]+)*(?:\+\+|#)?")
_CALENDAR = frozenset(MONTHS) | frozenset(
    "monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun".split()
)
_PLACE = regex.compile(
    r"(?:\b(?:liv(?:e[sd]?|ing)|moved?|moving|relocated|travel\w*|fl(?:y|ew|ying)|trip|visit(?:ed|ing|s)?|vacation|holiday"
    r"|based|born|been|went|stay(?:ed|ing)?)(?: \p{Ll}+){0,2}?(?: (?:in|to|at|near|from))?"
    r"|\b(?:was|were|am|are|['’]m|['’]re)(?: back)? in)"
    rf" (?P<place>{_NAME}(?: {_NAME})*)"
)
# Written by hgmem in front of a caption, or by captioners in every one.
_MARKERS = frozenset({"image", "photo"})
_LONGEST_SPACELESS = 4
_SPACELESS = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")


def inner_capitals(sentences: Iterable[str]) -> frozenset[str]:
    """Return, folded, the words with a capital inside a sentence: one that begins a sentence is a name there too."""
    found: set[str] = set()
    for sentence in sentences:
        for match in _RUN.finditer(sentence, 1):
            found.update(fold(word) for word in match[0].split())
    return frozenset(found)


def entities(sentences: Sequence[str], known: frozenset[str], names: Names) -> list[str]:
    """Return the names in `sentences` in their order: capitalised words, neighbours together, and quoted titles.

    Speakers' names, calendar words and numbers are none. A single capitalised word that begins a sentence is one only
    if it is `known` as a name (see `inner_capitals`) or an abbreviation in capitals.
    """
    found: dict[str, str] = {}
    for sentence in sentences:
        if sentence.isupper() and " " in sentence:
            continue  # shouting
        for match in QUOTED.finditer(sentence):
            title = next(group for group in match.groups() if group).strip(" ,.!?")
            if title and not title[0].islower():
                found.setdefault(fold(title), title)
        for match in _RUN.finditer(sentence):
            name = _name(match[0], match.start() == 0, known, names)
            if name:
                found.setdefault(fold(name), name)
    # A title in quotes is found whole; its words alone would say less.
    return [name for key, name in found.items() if not any(key != other and key in other for other in found)]


def _name(run: str, is_first: bool, known: frozenset[str], names: Names) -> str:
    words = [word.removesuffix("'s").removesuffix("’s") for word in run.split()]
    while words and _is_common(words[0], names):
        words.pop(0)
        is_first = False if not words else is_first and not words[0][0].isupper()
    while words and _is_common(words[-1], names):
        words.pop()
    if not words or (len(words) == 1 and len(words[0]) < 2):
        return ""
    word = words[0]
    if len(words) == 1 and is_first and fold(word) not in known and not word.isupper():
        return ""
    return " ".join(words)


def _is_common(word: str, names: Names) -> bool:
    folded = fold(word)
    return is_empty_word(folded) or folded in _CALENDAR or word.islower() or is_name(folded, word, names)


def keywords(texts: Sequence[str], first: Sequence[str], counts: Counter[str], words: Lexicon, limit: int) -> list[str]:
    """Return at most `limit` surface words of `texts`: the names `first`, then those whose terms occur most.

    Args:
        texts: What was said.
        first: Words or names to begin with.
        counts: How often a term occurs in the episode.
        words: The empty words.
        limit: The most that are returned.
    """
    chosen = {fold(name): name for name in first}
    inside = {part for name in chosen for part in name.split()}
    surfaces: dict[str, str] = {}
    for text in texts:
        language = words.language_of(text)
        for word in _WORD.findall(text):
            term = words.content_term(word, language)
            if (
                word not in _MARKERS
                and term in counts
                and term not in surfaces
                and not (inside and fold(word) in inside)
            ):
                surfaces[term] = word
    ranked = sorted((term for term in surfaces if not _is_run(surfaces[term])), key=lambda term: -counts[term])
    return [*chosen.values(), *(surfaces[term] for term in ranked)][:limit]


def _is_run(word: str) -> bool:
    """Say whether signs of a script without spaces are too many for one word."""
    return not word.isascii() and len(word) > _LONGEST_SPACELESS and _SPACELESS.match(word) is not None


def place(text: str, found: Iterable[str]) -> str | None:
    """Return the entity that a verb of living, moving, travelling or visiting leads to, if one does."""
    match = _PLACE.search(text)
    if match is None:
        return None
    words = match["place"].removesuffix("'s")
    return next((name for name in found if name.startswith(words) or words.startswith(name)), None)
