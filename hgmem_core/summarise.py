"""Titles and summaries by extraction: the statements that a group of texts has at its centre, in their own words."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hgmem_core.text import ASKING, WIDE_STOPS, split_text

TITLE_CHARS = 80
SUMMARY_CHARS = 400
SUMMARY_SENTENCES = 4

# A statement of fewer terms says too little to stand for others, however close to them it is.
_FULL_TERMS = 8
# What is asked of the other, or said to him, is seldom what was told about a thing; a caption is not said at all.
_QUESTION_FACTOR = _CAPTION_FACTOR = 0.5
_ADDRESS_FACTOR = 0.7
ADDRESS = re.compile(r"\b(?:you|your|yours|u)\b|[你您]", re.IGNORECASE)
"""Words for the one who is spoken to."""

QUESTION_MARKS = frozenset(ASKING)

_CLOSING = "」』”’）»"
_SENTENCE_END = re.compile(
    rf"(?<=[.!?…])\s+(?![.!?…\s])"
    rf"|(?:(?<=[{WIDE_STOPS}])|(?<=[{WIDE_STOPS}][{_CLOSING}]))(?![{WIDE_STOPS}{_CLOSING}])"
    r"|\s*\n\s*"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A text as its sentences.

    Attributes:
        speaker: Who said it, or None.
        sentences: Its sentences in order, their blanks single.
        terms: The search terms of each sentence.
    """

    speaker: str | None
    sentences: tuple[str, ...]
    terms: tuple[tuple[str, ...], ...]


def read_statement(speaker: str | None, text: str, tokenize: Callable[[str], list[str]]) -> Statement:
    """Cut a text into sentences and these into terms.

    >>> read_statement("Ana", "I moved.  To Lisbon!", str.split).sentences
    ('I moved.', 'To Lisbon!')
    """
    sentences = tuple(" ".join(part.split()) for part in _SENTENCE_END.split(text.strip()) if part.strip())
    return Statement(speaker, sentences, tuple(tuple(tokenize(sentence)) for sentence in sentences))


def summarise(statements: Sequence[Statement], vectors: npt.NDArray[np.float32]) -> tuple[str, str]:
    """Return the title and the summary of a group of texts, both taken from what they say.

    The title is its most central sentence, at most `TITLE_CHARS` long; the summary its most central sentences in their
    order, each run of one speaker after his name, at most `SUMMARY_CHARS` long. Central is what lies near the mean
    vector and uses the terms that many of the texts use. Longer sentences are cut after a word.

    Args:
        statements: The texts, in order.
        vectors: A unit vector each `[texts, dimension]`, zeros where there is none.
    """
    ranked = _central_sentences(statements, vectors)
    if not ranked:
        return "", ""
    chosen = [ranked[0]]
    for candidate in ranked[1:]:
        if len(chosen) == SUMMARY_SENTENCES:
            break
        if len(_told(statements, sorted([*chosen, candidate]))) <= SUMMARY_CHARS:
            chosen.append(candidate)
    text, sentence = ranked[0]
    title = shorten(statements[text].sentences[sentence], TITLE_CHARS)
    return title, shorten(_told(statements, sorted(chosen)), SUMMARY_CHARS)


def shorten(text: str, max_chars: int) -> str:
    """Return `text`, or what of it fits, cut after a word and ended with an ellipsis.

    >>> shorten("one two three", 9)
    'one two…'
    """
    if len(text) <= max_chars:
        return text
    # Its start is enough to cut from; the whole could be very long.
    return split_text(text[: 2 * max_chars], max_chars - 1)[0].rstrip(" .,;:…") + "…"


def _central_sentences(statements: Sequence[Statement], vectors: npt.NDArray[np.float32]) -> list[tuple[int, int]]:
    """Rank all sentences, as (text, sentence) numbers, the most central first; equal ones by their order."""
    counts = Counter(term for statement in statements for term in set().union(*statement.terms))
    centre = vectors.sum(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(centre)) or 1.0
    nearness = (vectors @ centre / length).tolist()
    seen: set[str] = set()
    scored = []
    for text, statement in enumerate(statements):
        for place, (sentence, terms) in enumerate(zip(statement.sentences, statement.terms, strict=True)):
            if sentence not in seen:  # what was said twice need not be told twice
                seen.add(sentence)
                weight = nearness[text] + _term_weight(terms, counts, len(statements))
                scored.append((-round(weight * _form_factor(sentence, terms), 9), text, place))
    return [(text, place) for _, text, place in sorted(scored)]


def _form_factor(sentence: str, terms: Sequence[str]) -> float:
    factor = min(1.0, len(set(terms)) / _FULL_TERMS)
    if sentence[-1] in QUESTION_MARKS:
        factor *= _QUESTION_FACTOR
    if sentence[0] == "[":
        factor *= _CAPTION_FACTOR
    return factor * _ADDRESS_FACTOR if ADDRESS.search(sentence) else factor


def _term_weight(terms: Iterable[str], counts: Counter[str], size: int) -> float:
    """Return how usual the terms are in the group: the mean share of its texts that hold one, rooted."""
    distinct = set(terms)
    return sum((counts[term] / size) ** 0.5 for term in distinct) / len(distinct) if distinct else 0.0


def _told(statements: Sequence[Statement], chosen: Sequence[tuple[int, int]]) -> str:
    """Write sentences one after another, with the speaker's name where he changes."""
    parts: list[str] = []
    speaker: str | None = None
    for text, sentence in chosen:
        own = statements[text].speaker
        name = f"{own}: " if own and own != speaker else ""
        parts.append(name + statements[text].sentences[sentence])
        speaker = own
    return " ".join(parts)
