"""A talk as utterances: which sentences of a turn state something, and which question they answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pyarrow as pa

from hgmem_core.config import ExtractConfig
from hgmem_core.own_words import own_words
from hgmem_core.statements import Lexicon, Names, Sentence, answers, read, speaker_names
from hgmem_core.text import split_text
from hgmem_core.turns import turn_texts

INSTRUCTIONS = frozenset({"system", "developer"})
"""Roles that tell a model what to do."""

_ANSWER_SENTENCES = 2
"""How much of an answer stands with its question: the rest states something else."""


@dataclass(frozen=True, slots=True)
class Said:
    """A turn.

    Attributes:
        turn_id: Its id.
        who: Its speaker, else its role, else empty.
        text: All of it.
        captions: What stands for its attachments.
        said_at, zone: When it was said, and in which zone that is shown.
        instructs: Whether it tells a model what to do and be, which says nothing of anybody.
    """

    turn_id: str
    who: str
    text: str
    captions: str
    said_at: datetime | None
    zone: ZoneInfo
    instructs: bool = False

    def own(self) -> "Said":
        """Return what is said here by the one who speaks: no code, no quotations, and of instructions nothing."""
        return replace(self, text="", captions="") if self.instructs else replace(self, text=own_words(self.text))


def said_turns(turns: pa.Table) -> list[Said]:
    """Return the turns of TURN rows, in order."""
    names = ("turn_id", "speaker", "role", "text", "said_at", "time_zone")
    columns = (turns.column(name).to_pylist() for name in names)
    said = []
    for full, turn, speaker, role, text, at, zone in zip(turn_texts(turns), *columns, strict=True):
        who = speaker or role or ""
        captions = full[len(line(who, text)) :].strip()
        instructs = (role or who).casefold() in INSTRUCTIONS
        said.append(Said(turn, who, text, captions, at, ZoneInfo(zone or "UTC"), instructs))
    return said


def line(who: str, text: str) -> str:
    """Return what somebody said, after their name if they have one."""
    return f"{who}: {text}" if who else text


@dataclass(frozen=True, slots=True)
class Question:
    """The questions of one turn that have content; `place` is the turn's in the episode."""

    said: Said
    place: int
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        """What is asked."""
        return " ".join(sentence.text for sentence in self.sentences)


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one fact is made of.

    Attributes:
        said: The turn.
        place: Its place in the episode.
        sentences: What it states, in order.
        terms: The terms of their content, and of the question's.
        question: What they answer.
        is_question: Whether they are a question without an answer.
        is_caption: Whether they describe an attachment and nothing else.
    """

    said: Said
    place: int
    sentences: tuple[str, ...]
    terms: frozenset[str]
    question: Question | None = None
    is_question: bool = False
    is_caption: bool = False


def conversation(turns: Sequence[Said], words: Lexicon, names: Names, config: ExtractConfig) -> Iterator[Utterance]:
    """Yield the utterances of an episode in the order of its turns, each in its speaker's own words.

    A question is answered by the next turn of somebody else that is more than a courtesy, within
    `config.answer_turns` turns and before another question with content. An answer counts even where it is a mere
    `Yes`, which would state nothing alone.
    """
    found: list[Utterance] = []
    waiting: Question | None = None
    for place, said in enumerate(turn.own() for turn in turns):
        sentences = read(said.text, words, names)
        captions = [Sentence(said.captions, _terms(said.captions, words), "statement")] if said.captions else []
        if waiting and place - waiting.place > config.answer_turns:
            found.append(_unanswered(waiting))
            waiting = None
        answered = waiting if waiting and waiting.said.who != said.who else None
        stated = _stated(sentences, captions, answered is not None, words)
        if stated:
            found += _utterances(said, place, stated, captions, answered, words, config)
            waiting = None if answered else waiting
        asked = tuple(sentence for sentence in sentences if sentence.kind == "question" and sentence.terms)
        if asked:
            if waiting:
                found.append(_unanswered(waiting))
            waiting = Question(said, place, _shortened(asked, words, config.max_sentence_chars))
    if waiting:
        found.append(_unanswered(waiting))
    yield from sorted(found, key=lambda utterance: utterance.place)


def names_in(turns: Sequence[Said]) -> Names:
    """Return the names of all who speak."""
    return speaker_names({said.who for said in turns})


def _terms(text: str, words: Lexicon) -> tuple[str, ...]:
    return tuple(term for term in words.tokenize(text) if term not in words.empty)


def _stated(
    sentences: Sequence[Sentence], captions: Sequence[Sentence], is_asked: bool, words: Lexicon
) -> list[Sentence]:
    """Return the sentences of a turn that make its facts."""
    if is_asked and answers(sentences, words):
        kept = [sentence for sentence in sentences if sentence.kind in ("statement", "assent")]
        kept = kept or [sentence for sentence in sentences if sentence.kind == "courtesy"]
    else:
        kept = [sentence for sentence in sentences if sentence.kind == "statement"]
    return [*kept, *captions]


def _utterances(
    said: Said,
    place: int,
    stated: Sequence[Sentence],
    captions: Sequence[Sentence],
    answered: Question | None,
    words: Lexicon,
    config: ExtractConfig,
) -> Iterator[Utterance]:
    """Yield what a turn states, and once more its beginning with the question that it answers."""
    is_caption = not any(sentence not in captions for sentence in stated)
    for part in _parts([sentence for sentence in stated if sentence.kind == "statement"], words, config):
        yield _utterance(said, place, part, is_caption)
    if answered:
        joined = _utterance(said, place, list(stated[:_ANSWER_SENTENCES]), is_caption)
        asked = {term for sentence in answered.sentences for term in sentence.terms}
        yield replace(joined, terms=joined.terms | asked, question=answered)


def _utterance(said: Said, place: int, part: Sequence[Sentence], is_caption: bool) -> Utterance:
    terms = frozenset(term for sentence in part for term in sentence.terms)
    return Utterance(said, place, tuple(sentence.text for sentence in part), terms, is_caption=is_caption)


def _unanswered(question: Question) -> Utterance:
    texts = tuple(sentence.text for sentence in question.sentences)
    terms = frozenset(term for sentence in question.sentences for term in sentence.terms)
    return Utterance(question.said, question.place, texts, terms, is_question=True)


def _shortened(asked: tuple[Sentence, ...], words: Lexicon, max_chars: int) -> tuple[Sentence, ...]:
    """Return the last questions that together have at most `max_chars`, or the end of the last one."""
    last = asked[-1]
    if len(last.text) > max_chars:
        tail = split_text(last.text, max_chars)[-1].strip()
        return (Sentence(tail, _terms(tail, words), "question"),)
    kept: list[Sentence] = []
    size = 0
    for sentence in reversed(asked):
        size += len(sentence.text) + 1
        if size > max_chars + 1:
            break
        kept.insert(0, sentence)
    return tuple(kept)


def _parts(stated: Sequence[Sentence], words: Lexicon, config: ExtractConfig) -> list[list[Sentence]]:
    """Divide the sentences of a turn, in order, among as few facts as their sizes allow."""
    pieces = [piece for sentence in stated for piece in _cut(sentence, words, config.max_sentence_chars)]
    limit = config.max_fact_chars
    while len(parts := _divided(pieces, limit)) > config.max_turn_facts:
        limit *= 2
    return parts


def _divided(pieces: Sequence[Sentence], limit: int) -> list[list[Sentence]]:
    parts: list[list[Sentence]] = []
    room = 0
    for piece in pieces:
        if not parts or len(piece.text) >= room:
            parts.append([])
            room = limit + 1
        parts[-1].append(piece)
        room -= len(piece.text) + 1
    return parts


def _cut(sentence: Sentence, words: Lexicon, limit: int) -> list[Sentence]:
    if len(sentence.text) <= limit:
        return [sentence]
    texts = [text for piece in split_text(sentence.text, limit) if (text := piece.strip())]
    return [Sentence(text, _terms(text, words), sentence.kind) for text in texts]
