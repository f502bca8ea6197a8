"""What a turn says: its sentences, each a statement, a question, an assent or mere courtesy."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import regex

from hgmem_core.text import ASKING, WIDE_STOPS
from hgmem_core.tokens import fold, language_of, terms_of_words, tokenizer

Kind = Literal["statement", "question", "assent", "courtesy"]

# Words that say nothing of their own; what is left of a sentence without them is its content.
_FUNCTION = (
    "i me my mine myself you your yours yourself he him his she her hers it its itself we us our ours they them"
    " their this that these those there here who whom whose which what when where why how a an the and or but so"
    " if then than as at by for from in into of on off onto to up down out over with about after before just also"
    " too very really quite pretty much many more most some any all both each such own same only even still again"
    " ever be am is are was were been being do does did doing done have has had having will would shall should can"
    " could may might must not i'm i've i'd i'll you're you've you'd you'll he's she's it's we're we've we'll"
    " they're they've that's there's what's who's how's where's let's let isn't aren't wasn't weren't don't"
    " doesn't didn't haven't hasn't can't couldn't won't wouldn't shouldn't gonna wanna gotta get gets got getting"
    " go oh ah well like thing things something stuff lot lots way kinda sort kind one guys guy man dude always"
    " now know mean think guess sure"
)
_INTERJECTIONS = (
    "wow whoa woah aw aww awww haha hahaha hehe lol lmao rofl omg yay hi hello hey hiya heya yo thanks thank thx"
    " ty cheers bye goodbye ciao congrats congratulations welcome sorry please good-bye hmm hm ugh oops woohoo"
    " greetings gosh goodness kudos"
)
_ASSENTS = (
    "yes yeah yep yup yea aye no nope nah ok okay sure absolutely definitely exactly totally certainly indeed"
    " true right agree agreed course never maybe perhaps probably both neither"
)
_REACTIONS = (
    "good great nice cool awesome amazing fantastic wonderful lovely sweet brilliant perfect excellent incredible"
    " impressive inspiring glad happy hear heard hearing sound sounds look looks seem seems love see talk chat"
    " catch soon later luck best take care keep keeping up problem worry worries pleasure anytime wait appreciate"
    " fun interesting wish hope morning evening night afternoon day today tomorrow bet say said tell come enjoy"
    " better bad funny deserve forward"
)
_ROLES = frozenset({"user", "assistant", "system", "tool", "developer", "function"})
_OTHER_LANGUAGES = {
    "german": "hallo hi moin tschüss danke bitte ja nein doch genau klar gut super toll schön gern",
    "french": "bonjour bonsoir salut merci oui non bien super génial accord revoir",
    "spanish": "hola adiós gracias sí no vale claro bueno bien genial",
    "portuguese": "olá oi tchau obrigado obrigada sim não claro bom boa ótimo",
    "italian": "ciao grazie prego sì no bene bello certo ottimo",
}
_CHINESE_COURTESY = re.compile(
    r"(?:哈|嗯|哦|噢|啊|呵|嘿|嗨|哇|呀|呢|吧|啦|了|你|您|我也|早上好|早安|晚安|晚上好|下午好|早|好|的|真的?|太|棒|赞|谢谢|多谢|感谢|不客气"
    r"|没关系|再见|拜拜|加油|不错|厉害|恭喜|辛苦|对|是|行|可以|没问题|没有|不|会|[\W\d_])+"
)
_CHINESE_ASSENT = re.compile(r"是|对|没|不|好|可以|嗯|行|会")

_STOP = regex.compile(
    rf"[.!?…]+[\"'”’)\]]*(?=\s|$)|[{WIDE_STOPS}]+[」』”’）»]*|\n+|(?<=\S)\s+(?=[\p{{Extended_Pictographic}}])"
)
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|e\.g|i\.e|approx|[A-Z])\.$")
_ASKS = re.compile(
    rf"[{ASKING}][\"'”’)\]」』）»]*\W*$"
    r"|[吗嗎么呢][。！!~\s]*$"
    r"|^(?:what|where|who|why|how)(?:'s| is| are| do| does| did| was| were| about| can| could| should| would| have)\b"
    r"[^.!,]*$"
    r"|^(?:do|did|are|have|can|could|would|will) you\b[^.!,]*$",
    re.IGNORECASE,
)
_HAN = re.compile(r"[\u3400-\u9fff]")
_HEDGE = re.compile(
    r"\b(?:maybe|perhaps|probably|might|not sure|i think|i guess|i hope|hopefully|possibly|considering)\b"
    r"|也许|可能|大概|或许|好像",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, the terms that carry its content, and what it does in a talk."""

    text: str
    terms: tuple[str, ...]
    kind: Kind


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The words of a language that carry no content, as terms."""

    tokenize: Callable[[str], list[str]]
    language_of: Callable[[str], str]
    """From a text to the language of its words."""
    content_term: Callable[[str, str], str]
    """From a word and its language to its first term; empty where the word carries no content."""
    empty: frozenset[str]
    interjections: frozenset[str]
    assents: frozenset[str]


@lru_cache(maxsize=32)
def lexicon(language: str) -> Lexicon:
    """Return the empty words of English, which occurs in logs of every language, and of `language`."""
    tokenize = tokenizer(language)
    others = _OTHER_LANGUAGES.get(language, "")
    assents = frozenset([*tokenize(_ASSENTS), *terms_of_words(others, language)])
    interjections = frozenset(tokenize(_INTERJECTIONS))
    empty = frozenset(tokenize(f"{_FUNCTION} {_REACTIONS}")) | assents | interjections

    @lru_cache(maxsize=262_144)
    def content_term(word: str, own: str) -> str:
        term = next(iter(terms_of_words(word, own)), "")
        return "" if term in empty else term

    return Lexicon(tokenize, partial(language_of, expected=language), content_term, empty, interjections, assents)


def is_empty_word(word: str) -> bool:
    """Say whether an English word, in any case, carries no content."""
    return fold(word) in _EMPTY_WORDS


_EMPTY_WORDS = frozenset(f"{_FUNCTION} {_INTERJECTIONS} {_ASSENTS} {_REACTIONS}".split())


def split_sentences(text: str) -> list[str]:
    """Cut `text` after its sentences and lines, and before emoji; blanks within a sentence become one.

    >>> split_sentences("Dr. Li paid 3.5 euros. Really?  Yes!")
    ['Dr. Li paid 3.5 euros.', 'Really?', 'Yes!']
    """
    sentences = []
    start = 0
    for stop in _STOP.finditer(text):
        if stop[0][0] == "." and _ABBREVIATION.search(text, max(0, stop.start() - 8), stop.start() + 1):
            continue
        sentences.append(text[start : stop.end()])
        start = stop.end()
    sentences.append(text[start:])
    return [joined for sentence in sentences if (joined := " ".join(sentence.split()))]


@dataclass(frozen=True, slots=True)
class Names:
    """The folded parts of speakers' names, whole and as beginnings of three letters or more."""

    whole: frozenset[str]
    beginnings: frozenset[str]


def speaker_names(speakers: Iterable[str]) -> Names:
    """Return the names of the people among `speakers`; roles are not names."""
    whole = {part for speaker in speakers for part in fold(speaker).split()} - _ROLES
    return Names(frozenset(whole), frozenset(name[:size] for name in whole for size in range(3, len(name) + 1)))


def read(text: str, words: Lexicon, names: Names) -> list[Sentence]:
    """Return the sentences of a turn.

    Args:
        text: What was said.
        words: The empty words.
        names: The speakers': who is addressed says nothing about the world.
    """
    return [_sentence(part, words, names) for part in split_sentences(text)]


def _sentence(text: str, words: Lexicon, names: Names) -> Sentence:
    every = words.tokenize(text)
    terms = tuple([term for term in every if term not in words.empty and not is_name(term, text, names)])
    if _HAN.search(text) and _CHINESE_COURTESY.fullmatch(text):
        return Sentence(text, (), "assent" if _CHINESE_ASSENT.search(text) else "courtesy")
    if _ASKS.search(text):
        return Sentence(text, terms, "question")
    if terms:
        return Sentence(text, terms, "statement")
    return Sentence(text, (), "assent" if any(term in words.assents for term in every) else "courtesy")


def is_name(term: str, text: str, names: Names) -> bool:
    """Say whether a term is a speaker's name, or its beginning: `Mel` is Melanie.

    It is one only where the text writes it with a capital and never without: the baker Tom Baker bakes, Art loves art.
    """
    is_whole = term in names.whole
    if not is_whole and term not in names.beginnings:
        return False
    if is_whole and term.isalpha() and term == term.upper():
        return True  # of a script without capitals
    is_capitalised = False
    for match in re.finditer(rf"\b{re.escape(term)}\w*", text, re.IGNORECASE):
        word = fold(match[0])
        if not match[0][0].isupper():
            if word in (term, f"{term}s", f"{term}es"):
                return False
        # A stem may have lost the end of a name, so the word may go on as the name does; `Car` is not Caroline.
        elif word in names.whole or word in names.beginnings:
            is_capitalised = True
    return is_capitalised


def answers(sentences: Iterable[Sentence], words: Lexicon) -> bool:
    """Say whether a turn can be the answer to a question: thanks, greetings, laughter and emoji are none."""
    for sentence in sentences:
        if sentence.kind in ("statement", "assent"):
            return True
        terms = words.tokenize(sentence.text)
        if sentence.kind == "courtesy" and terms and not any(term in words.interjections for term in terms):
            return True
    return False


def asks(text: str) -> bool:
    """Say whether a sentence of `text` is a question.

    >>> asks("I moved to Lisbon. Did you know?"), asks("That is what I do.")
    (True, False)
    """
    return any(_ASKS.search(sentence) for sentence in split_sentences(text))


def is_hedged(text: str) -> bool:
    """Say whether the speaker is not sure."""
    return _HEDGE.search(text) is not None
