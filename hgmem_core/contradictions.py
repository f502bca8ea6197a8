"""Statements of a state that a later one can end: what somebody likes, and where somebody lives.

A liking is read from `I like …`, `I love …`, `I enjoy …`, and from `I don't like …`, `I no longer like …`, `I hate …`
and their kind (我喜欢…, 我不喜欢…, 我讨厌…); the other polarity about the same thing ends it. What only points, as `the
first one` or 这个, is no thing.

A residence is read from `I live in X`, `I'm based in X` or `I'm living in X` (我住在X), X in capitals and nothing after
it. It is ended only by a statement that says so:

- `I now live in Y`, `I live in Y now` (我现在住在Y) ends every other residence;
- `I moved from X to Y` (我从X搬到Y), `I no longer live in X`, `I don't live in X anymore` (我不再住在X) ends X alone.

`I moved to Y` ends nothing, as Y may be a company or a floor, and the move long ago; neither does `I live in Y`, as Y
may be the country of X.

The subject is `I`, the speaker of the line, or a name that begins the sentence: `Ana likes tea`. What one speaker says
ends nothing that another one said. Only a whole sentence counts, in its plain form: `I would like …`, `I used to live
in …`, `I like X when …` say something else.
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
_STILL = r"(?:(?:still|now|currently) )*"
_PLACE = r"[^\W\d_][\w'-]*(?: [^\W\d_][\w'-]*){0,2}?"
_LIVES = re.compile(
    rf"(?:{_SUBJECT}(?:'m| am|'s| is) {_STILL}(?:based|living) in"
    rf"|(?P<other>[^\W\d_][\w-]*) (?P<before>{_STILL})(?P<verb>lives?) in)"
    rf" (?P<thing>{_PLACE})(?P<after>(?: (?:now|these days|nowadays))*)"
)
_LATELY = (
    r"now|today|yesterday|recently"
    r"|(?:last|this) (?:\w+day|week|weekend|month|year|spring|summer|autumn|fall|winter)"
)
_LEFT = re.compile(
    rf"{_SUBJECT}(?: (?:no longer|do not|don't|does not|doesn't) lives? in (?P<thing>{_PLACE})"
    r"(?P<after>(?: (?:anymore|any more|any longer))?)"
    rf"|(?:'ve|'s| have| has)? {_ADVERB}moved from (?P<from>{_PLACE}) to (?P<to>{_PLACE})(?: (?:{_LATELY}))?)"
)
_CHINESE_LIKING = re.compile(
    r"我(?:很|最|真的|特别|现在|也|已经)*(?:(?P<no>不再?(?:喜欢|爱)|讨厌)|喜欢|爱)(?P<thing>[^\s，。！!,.了]{1,12})了?"
)
_CHINESE_PLACE = r"[^\W\d的和]{2,8}?"
_CHINESE_LIVES = re.compile(rf"我(?:(?P<now>现在)|目前|还)*住在(?P<thing>{_CHINESE_PLACE})了?")
_CHINESE_LEFT = re.compile(
    rf"我(?:现在|已经)*不再住在(?P<thing>{_CHINESE_PLACE})了?"
    r"|我(?:现在|已经|刚刚|刚|最近|今天|昨天|上周|上个月|今年|去年)*"
    rf"从(?P<from>{_CHINESE_PLACE})搬[到去]了?(?P<to>{_CHINESE_PLACE})了?"
)
# Within a city, or around it: rooms, streets, districts and lands.
_CHINESE_NO_CITY = re.compile(r".*(?:[楼层室号房家里间栋院区路街边旁上下外方近校店司寓舍心儿村镇县省处国]|酒店|地方)")
_ENDINGS = re.compile(r"(?:[.!。！\s]+|\s*\[[^\]]*\])+$")
# Within the thing, these make the sentence say more than the liking of something that can be named.
_MORE = re.compile(
    r"\b(?:when|if|that|because|but|and|or|to|how|your|it|this|those|these|them|him|her|you|what|who|not)\b|[,;:?，；？]"
)
# What only points to something said or seen.
_DEICTIC = re.compile(
    r"\b(?:ones?|first|second|third|last|next|previous|former|latter|others?|another|same|each|either|neither|both|such"
    r"|here|there)\b"
    r"|^(?:这|那|它|他|她|你|第|哪|前者|后者|前一|后一|上一|下一|另|其他|其它)"
)
_CUES = (
    "lik", "lov", "enjoy", "hate", "detest", "stand", "adore", "live", "living", "moved", "based",
    "喜欢", "讨厌", "爱", "住在", "搬",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class State:
    """A state that a speaker declares of a subject.

    Attributes:
        speaker: Who says it, folded.
        subject: Of whom.
        attribute: Of which kind the state is.
        thing: What is liked; empty for a residence.
        value: What is said: `yes` or `no`, or the place; empty where a state ends and none begins.
        ended: The value that this ends; empty where it is every other one.
        is_ending: Whether this ends anything.
    """

    speaker: str
    subject: str
    attribute: Attribute
    thing: str
    value: str
    ended: str = ""
    is_ending: bool = True

    def ends(self, value: str) -> bool:
        """Say whether an older state of the same key that says `value` is over."""
        return self.is_ending and (value == self.ended if self.ended else value != self.value)


def state_of(text: str) -> State | None:
    """Return the first state that a fact's last line declares; None too where nobody is named who says it.

    >>> state_of("Ana: I no longer like green tea.")
    State(speaker='ana', subject='ana', attribute='liking', thing='green tea', value='no', ended='', is_ending=True)
    >>> state_of("Ana: I'd like tea if you have some.") is None
    True
    """
    line = text[text.rfind("\n") + 1 :]
    if not _may_declare(line):
        return None
    speaker, colon, said = line.partition(": ")
    if not colon or not speaker:
        return None
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
    return _residence(folded, sentence, speaker) or _liking(folded, sentence, speaker)


def _residence(folded: str, sentence: str, speaker: str) -> State | None:
    if match := _LEFT.fullmatch(folded):
        left, subject = match["thing"] or match["from"], _subject(match["subject"], sentence, speaker)
        says_so = match["from"] or match["after"] or " no longer " in folded
        # A suburb of the same city, as `Porto` to `North Porto`, ends nothing.
        is_near = match["to"] is not None and (left in match["to"] or match["to"] in left)
        are_places = all(_is_capitalised(place, sentence) for place in (left, match["to"] or left))
        if subject and says_so and not is_near and are_places:
            return State(speaker, subject, "residence", "", "", ended=left)
    elif match := _LIVES.fullmatch(folded):
        word = match["subject"] or match["other"]
        subject = _subject(word, sentence, speaker)
        agrees = match["verb"] is None or (word == "i") == (match["verb"] == "live")
        if subject and agrees and _is_capitalised(match["thing"], sentence):
            around = f"{match['before']}{match['after']}".split() if match["verb"] else []
            is_new = "now" in around and "still" not in around
            return State(speaker, subject, "residence", "", match["thing"], is_ending=is_new)
    return None


def _is_capitalised(place: str, sentence: str) -> bool:
    return re.search(rf"\b{re.escape(place.title())}\b", sentence) is not None


def _liking(folded: str, sentence: str, speaker: str) -> State | None:
    if match := _LIKING.fullmatch(folded):
        subject, thing = _subject(match["subject"], sentence, speaker), match["thing"]
        verb = match["no"] or match["yes"]
        # After a name the verb agrees, which tells `Ana likes` from `true love is` and `feels like`.
        agrees = match["subject"] == "i" or verb.endswith("s") or verb.startswith("does")
        is_thing = not _MORE.search(thing) and not _DEICTIC.search(thing) and len(thing.split()) <= _MOST_THING_WORDS
        if subject and agrees and is_thing:
            return State(speaker, subject, "liking", thing, "no" if match["no"] else "yes")
    return None


def _chinese(folded: str, speaker: str) -> State | None:
    if match := _CHINESE_LEFT.fullmatch(folded):
        left = _city(match["thing"] or match["from"])
        if left and left not in (match["to"] or ""):
            return State(speaker, speaker, "residence", "", "", ended=left)
    elif match := _CHINESE_LIVES.fullmatch(folded):
        if city := _city(match["thing"]):
            return State(
                speaker, speaker, "residence", "", city, is_ending=match["now"] is not None and "还" not in folded
            )
    elif (match := _CHINESE_LIKING.fullmatch(folded)) and not _DEICTIC.search(match["thing"]):
        return State(speaker, speaker, "liking", match["thing"], "no" if match["no"] else "yes")
    return None


def _city(place: str) -> str:
    """Return a Chinese name of a city; empty for what may lie in one, or around it."""
    return "" if _CHINESE_NO_CITY.fullmatch(place) or _DEICTIC.search(place) else place.removesuffix("市")


def _subject(word: str, sentence: str, speaker: str) -> str:
    """Return who is spoken of: the speaker for `I`, else a name that begins the sentence, else nobody."""
    if word == "i":
        return speaker
    return word if sentence[0].isupper() and not is_empty_word(word) else ""
