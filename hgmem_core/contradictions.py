"""Statements of a state that a later one can end: what somebody likes, and where somebody lives.

A liking is read from `I like …`, `I love …`, `I enjoy …`, and from `I don't like …`, `I no longer like …`, `I hate …`
and their kind (我喜欢…, 我不喜欢…, 我讨厌…); the other polarity about the same thing ends it. A residence is read from
`I live in X`, `I'm based in X`, `I moved to X` (我住在X, 我搬到X); another X ends it.

The subject is `I`, the speaker of the line, or a name that begins the sentence: `Ana likes tea`. Only a whole sentence
counts, in its plain form: `I would like …`, `I used to live in …`, `I like X when …` say something else.
"""

import re
from dataclasses import dataclass
from typing import Literal

from hgmem_core.statements import is_empty_word, split_sentences
from hgmem_core.tokens import fold

Attribute = Literal["liking", "residence"]

_MOST_THING_WORDS = 5
_ADVERB = r"(?:(?:really|still|now|currently|also|just|recently|absolutely|actually|do|does) )*"
_SUBJECT = r"(?P<subject>[^\W\d_][\w-]*)"
_END = r"(?: (?:anymore|any more|any longer|now|these days|nowadays|at all|so much|very much|a lot))*"
_LIKING = re.compile(
    rf"{_SUBJECT} {_ADVERB}(?:"
    rf"(?P<no>(?:do not|does not|don't|doesn't|no longer) {_ADVERB}(?:like|love|enjoy)s?"
    r"|(?:stopped|quit) (?:lik|lov|enjoy)ing|(?:dislike|hate|detest)s?|(?:can't|cannot) stand)"
    rf"|(?P<yes>(?:like|love|enjoy|adore)s?)) (?P<thing>.+?){_END}"
)
_RESIDENCE = re.compile(
    rf"(?:{_SUBJECT}(?:'m| am|'s| is) {_ADVERB}(?:based|living) in"
    rf"|(?P<other>[^\W\d_][\w-]*)(?:'ve|'s| have| has)? {_ADVERB}(?:lives? in|(?:moved|relocated) to))"
    rf" (?P<thing>[^\W\d_][\w'-]*(?: [^\W\d_][\w'-]*){{0,2}}?){_END}(?: (?:last|this|yesterday|in|on|two|three|a) .*)?"
)
_CHINESE_LIKING = re.compile(
    r"我(?:很|最|真的|特别|现在|也|已经)*(?:(?P<no>不再?(?:喜欢|爱)|讨厌)|喜欢|爱)(?P<thing>[^\s，。！!,.了]{1,12})了?"
)
_CHINESE_RESIDENCE = re.compile(
    r"我(?:现在|已经|刚|刚刚|上周|去年)*(?:住在|搬到了?|搬去了?)(?P<thing>[^\s，。！!,.了]{1,12})了?"
)
_ENDINGS = re.compile(r"(?:[.!。！\s]+|\s*\[[^\]]*\])+$")
# Within the thing, these make the sentence say more than the liking of something that can be named.
_MORE = re.compile(
    r"\b(?:when|if|that|because|but|and|or|to|how|your|it|this|those|these|them|him|her|you|what|who|not)\b|[,;:?，；？]"
)
_CUES = (
    "lik", "lov", "enjoy", "hate", "detest", "stand", "adore", "live", "living", "moved", "relocated",
    "based", "喜欢", "讨厌", "爱", "住在", "搬",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class State:
    """A state: facts about the same `subject`, `attribute` and `thing` contradict each other if the `value` differs."""

    subject: str
    attribute: Attribute
    thing: str
    value: str


def state_of(text: str) -> State | None:
    """Return the first state that a fact's last line declares.

    >>> state_of("Ana: I no longer like green tea.")
    State(subject='ana', attribute='liking', thing='green tea', value='no')
    >>> state_of("Ana: I'd like tea if you have some.") is None
    True
    """
    line = text[text.rfind("\n") + 1 :]
    if not _may_declare(line):
        return None
    speaker, colon, said = line.partition(": ")
    if not colon:
        speaker, said = "", line
    for sentence in split_sentences(said):
        if _may_declare(sentence):
            state = _state(_ENDINGS.sub("", sentence), fold(speaker))
            if state is not None:
                return state
    return None


def _may_declare(text: str) -> bool:
    """Say, at little cost, whether one of the verbs occurs."""
    lowered = text.lower()
    for cue in _CUES:  # a loop, as a generator costs more than the searches
        if cue in lowered:
            return True
    return False


def _state(sentence: str, speaker: str) -> State | None:
    folded = fold(sentence)
    if folded.startswith("我"):
        return _chinese(folded, speaker)
    if match := _RESIDENCE.fullmatch(folded):
        subject = _subject(match["subject"] or match["other"], sentence, speaker)
        is_name = re.search(rf"\b{re.escape(match['thing'].title())}\b", sentence) is not None
        return State(subject, "residence", "", match["thing"]) if subject and is_name else None
    if match := _LIKING.fullmatch(folded):
        subject, thing = _subject(match["subject"], sentence, speaker), match["thing"]
        verb = match["no"] or match["yes"]
        # After a name the verb agrees, which tells `Ana likes` from `true love is` and `feels like`.
        agrees = match["subject"] == "i" or verb.endswith("s") or verb.startswith("does")
        if subject and agrees and not _MORE.search(thing) and len(thing.split()) <= _MOST_THING_WORDS:
            return State(subject, "liking", thing, "no" if match["no"] else "yes")
    return None


def _chinese(folded: str, speaker: str) -> State | None:
    if not speaker:
        return None
    if match := _CHINESE_RESIDENCE.fullmatch(folded):
        return State(speaker, "residence", "", match["thing"])
    if match := _CHINESE_LIKING.fullmatch(folded):
        return State(speaker, "liking", match["thing"], "no" if match["no"] else "yes")
    return None


def _subject(word: str, sentence: str, speaker: str) -> str:
    """Return who is spoken of: the speaker for `I`, else a name that begins the sentence, else nobody."""
    if word == "i":
        return speaker
    return word if sentence[0].isupper() and not is_empty_word(word) else ""
