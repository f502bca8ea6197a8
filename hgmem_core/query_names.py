"""The names in a question, and which of them are the namespace's speakers."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import regex

from hgmem_core.english_words import MONTHS
from hgmem_core.entities import QUOTED, entities, inner_capitals
from hgmem_core.statements import Names, is_empty_word, speaker_names, split_sentences
from hgmem_core.tokens import fold

_SIGNS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_SPACELESS = regex.compile(rf"[{_SIGNS}ー·・]{{2,}}")
_WORD = regex.compile(rf"(?![{_SIGNS}])[\p{{L}}\p{{N}}](?:(?![{_SIGNS}])[\p{{L}}\p{{M}}\p{{N}}])*")
_POSSESSIVE = regex.compile(r"(?<=\w)['’]s\b|(?<=s)['’](?=\s)")
# With a capital at the beginning of a question they are no part of the name that follows.
_OPENER = regex.compile(
    r"(?:according|based|besides|between|compare|describe|during|explain|find|for|from|give|in|list|name|on|show|since"
    r"|summari[sz]e|tell|until|while|within)\b",
    regex.IGNORECASE,
)
_SHORTEST_BEGINNING = 3
_NOBODY = Names(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class NameMention:
    """A name in a question.

    Attributes:
        start: Where it begins in the question.
        end: Where it is over, without the sign of a possessive.
        name: As the namespace writes a speaker, else as the question writes it.
        speaker: The speaker's number; None for other names.
    """

    start: int
    end: int
    name: str
    speaker: int | None


@dataclass(frozen=True, slots=True)
class _Word:
    start: int
    end: int
    folded: str
    is_capital: bool
    is_lower: bool

    @property
    def is_common(self) -> bool:
        """Whether it is a word of the language or of the calendar, such as `will` and `may`."""
        return is_empty_word(self.folded) or self.folded in MONTHS


@dataclass(frozen=True, slots=True)
class _Directory:
    """Speakers by their names. A part or a beginning that several share stands for none of them.

    Attributes:
        whole: By the first word: all words, the number, whether the log writes the name small; the longest first.
        parts: By a word of a name of several.
        beginnings: By the first letters of a word, three or more.
        spaceless: Names in scripts without spaces between words, the longest first.
    """

    whole: Mapping[str, Sequence[tuple[tuple[str, ...], int, bool]]]
    parts: Mapping[str, int | None]
    beginnings: Mapping[str, int | None]
    spaceless: Sequence[tuple[str, int]]


def find_names(text: str, speakers: Sequence[str], taken: Sequence[tuple[int, int]] = ()) -> list[NameMention]:
    """Return the names in a question in their order, without overlaps.

    A speaker is named by the whole name; if written with a capital, also by a word of it that is nobody else's (Ana
    for Ana Lee) and by its first letters, three or more (Mel for Melanie). A whole name has a capital too, unless the
    question has none or the log writes the name small: Mark is not meant in `to mark the day`.

    Args:
        text: The question, with single blanks.
        speakers: Of the namespace.
        taken: Places of words that are no names, such as the month May.

    >>> [(found.name, found.speaker) for found in find_names("Did Ana's sister see Bo in Lyon?", ["Ana Lee", "Bo"])]
    [('Ana Lee', 0), ('Bo', 1), ('Lyon', None)]
    """
    directory = _directory(tuple(speakers))
    found = [
        NameMention(start, end, speakers[number], number)
        for start, end, number in _speakers(text, directory)
        if not any(first < end and start < last for first, last in taken)
    ]
    return sorted([*found, *_others(text, found)], key=lambda mention: mention.start)


@lru_cache(maxsize=256)
def _directory(speakers: tuple[str, ...]) -> _Directory:
    whole: defaultdict[str, list[tuple[tuple[str, ...], int, bool]]] = defaultdict(list)
    parts: dict[str, int | None] = {}
    beginnings: dict[str, int | None] = {}
    spaceless = []
    people = speaker_names(speakers).whole
    for number, speaker in enumerate(speakers):
        if _SPACELESS.fullmatch(speaker.strip()):
            spaceless.append((speaker.strip(), number))
            continue
        words = tuple(fold(word) for word in _WORD.findall(speaker))
        if not words:
            continue
        whole[words[0]].append((words, number, speaker.islower()))
        if people.isdisjoint(words):
            continue  # a role
        for word in words:
            _add(parts, word, number)
            for size in range(_SHORTEST_BEGINNING, len(word)):
                _add(beginnings, word[:size], number)
    for entries in whole.values():
        entries.sort(key=lambda entry: -len(entry[0]))
    spaceless.sort(key=lambda entry: -len(entry[0]))
    return _Directory(whole, parts, beginnings, spaceless)


def _add(numbers: dict[str, int | None], key: str, number: int) -> None:
    numbers[key] = number if numbers.get(key, number) == number else None


def _speakers(text: str, directory: _Directory) -> Iterator[tuple[int, int, int]]:
    """Return where a speaker is named, and the number."""
    words = [
        _Word(
            match.start(),
            match.end(),
            word.casefold() if word.isascii() else fold(word),
            word[0].isupper(),
            word.islower(),
        )
        for match in _WORD.finditer(text)
        for word in (match[0],)
    ]
    has_capitals = any(word.is_capital for word in words[1:])
    at = 0
    while at < len(words):
        size, number = _speaker_at(words, at, directory, has_capitals)
        if number is not None:
            yield words[at].start, words[at + size - 1].end, number
        at += size
    reached: list[tuple[int, int]] = []
    for name, number in directory.spaceless:
        start = text.find(name)
        if start >= 0 and not any(first < start + len(name) and start < last for first, last in reached):
            reached.append((start, start + len(name)))
            yield start, start + len(name), number


def _speaker_at(words: Sequence[_Word], at: int, directory: _Directory, has_capitals: bool) -> tuple[int, int | None]:
    """Return how many words are one name or none, and whose."""
    word = words[at]
    for parts, number, is_small in directory.whole.get(word.folded, ()):
        if len(parts) > 1 and tuple(other.folded for other in words[at : at + len(parts)]) == parts:
            return len(parts), number
        is_common = word.is_common and (word.is_lower or at == 0)
        if len(parts) == 1 and (is_small or not (is_common or (word.is_lower and has_capitals))):
            return 1, number
    if word.is_lower or word.is_common:
        return 1, None
    if word.folded in directory.parts:
        return 1, directory.parts[word.folded]
    beside = [*words[max(0, at - 1) : at], *words[at + 1 : at + 2]]
    if any(other.is_capital and not other.is_common for other in beside):
        return 1, None  # a part of another name
    return 1, directory.beginnings.get(word.folded)


def _others(text: str, people: Iterable[NameMention]) -> Iterator[NameMention]:
    """Return the names that are no speaker's, and titles in quotes."""
    masked = text
    for mention in people:  # as long as the name, so that places stay
        masked = masked[: mention.start] + "," * (mention.end - mention.start) + masked[mention.end :]
    for match in QUOTED.finditer(masked):
        start, end = next(match.span(group) for group in range(1, 5) if match[group])
        yield NameMention(start, end, text[start:end].strip(" ,.!?"), None)
        masked = masked[: match.start()] + "," * len(match[0]) + masked[match.end() :]
    masked = _POSSESSIVE.sub(lambda match: "," * len(match[0]), masked)
    if _OPENER.match(masked):
        masked = masked[0].lower() + masked[1:]
    sentences = split_sentences(masked)
    for name in entities(sentences, inner_capitals(sentences), _NOBODY):
        start = masked.find(name)
        yield NameMention(start, start + len(name), name, None)
