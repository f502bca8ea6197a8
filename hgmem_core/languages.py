"""Stop words and stems of languages, and which language a text is in.

Most scripts say it. Latin letters do not: there, stop words do, if the text has more of another language's than of the
one that is expected. What says nothing, such as a name, is taken to be in that.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import MappingProxyType

import Stemmer

from hgmem_core.folding import fold

STEMMER_OF_SCRIPT = MappingProxyType(
    {
        "CYRILLIC": "russian",
        "GREEK": "greek",
        "ARABIC": "arabic",
        "ARMENIAN": "armenian",
        "DEVANAGARI": "hindi",
        "TAMIL": "tamil",
    }
)
"""By the first word of a letter's Unicode name."""

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

# The lists have few of the words that questions begin with, and none with an apostrophe.
_QUESTION_WORDS = MappingProxyType(
    {
        "english": "what when where which who whom whose why how did does",
        "german": "wer wo wann warum wieso woher wohin wem wen wessen womit wofür wieviel",
        "dutch": "waar wanneer waarom welke hoeveel wiens waarmee",
        "french": "où quand comment pourquoi quel quelle quels quelles combien quoi lequel laquelle j'ai c'est n'est"
        " n'a qu'il qu'elle qu'on d'un d'une s'est j'avais c'était",
        "spanish": "cuándo dónde quién quiénes cómo cuál cuáles cuánto cuánta cuántos cuántas",
        "portuguese": "onde quem quais quanto quanta quantos quantas porquê",
        "italian": "quando perché cosa dov'è cos'è quali quant'è com'è",
        "swedish": "vem vilken varför hurdan vems",
        "danish": "hvad hvem hvor hvornår hvorfor hvordan hvis",
        "norwegian": "hva hvem hvor når hvorfor hvordan hvilken",
        "turkish": "kim nerede nasıl neden hangi kaç niçin",
    }
)

# Words of English, names and abbreviations that are stop words elsewhere: one alone tells nothing.
_AMBIGUOUS = frozenset(
    "alla alle allen aller allo ally als also alt ander ante antes are aura aus aux bare been bei ben beri bile bin"
    " bis biz bli bon can ces che chi col com come como con cosa dal damit dan dans dat deg dei del dell della dem den"
    " dere des die dies dig din dina dir dit dog door dos dove due ella elle end era eras eres eri esa esse esses est"
    " este estes even far for fora fosse fra fur fus fut haar hab had hala ham han hans har has hat have haver hay"
    " haya hei hem hen her here hier hin his hoe hon hub hun hur hut ind inn ins ist kan kann ken kim kom kun las lei"
    " les los lui mais man mange mas med meg mein men mes met mia mich mie mig min mina mine mio mir mis mit mod moi"
    " mon mot nada nas ned nei nel nell nem noi non nos nossa note notre num numa nun ona onde ont opp over par para"
    " pas pek per plus poco pour qui sea sean seas sedan sei sem sen ser sera ses sia sie sig sin sina sine sit sitta"
    " siz sole solo som some somme son sono sou soy sta stare stay sto sue sui suis sum sur sus tan tanto tes til till"
    " todo toi ton tot tous tra tua tue tus tutti tutto uit uma under une uno upp vad van var vara ved vent vere"
    " via vid vil vile ville voi vom von vor vos want war was wat weg wen were wie wil will with yani zou".split()
)
_SHORT = 2
"""Letters; what has no more occurs everywhere, in names and abbreviations, and is ambiguous, too."""
_FEWEST_AMBIGUOUS = 2
"""Different ones, written small, that tell something together."""

# Articles and prepositions are written with the word that follows, endings with the name before.
_ELIDING = frozenset({"french", "italian", "turkish"})


@lru_cache(maxsize=32)
def stop_words(language: str) -> frozenset[str]:
    """Return the words of a language that are not worth a term, folded; none where there is no list."""
    # Imported here because it brings in numba where there is one, beside which vLLM's engines on CPUs do not start.
    from bm25s import stopwords

    return frozenset(fold(word) for word in getattr(stopwords, _STOP_WORDS.get(language, ""), ()))


@lru_cache(maxsize=32)
def stemmer(language: str) -> Callable[[str], str]:
    """Return what brings a folded word of a language to its stem."""
    stem: Callable[[str], str] = Stemmer.Stemmer(language).stemWord
    return stem


def elides(language: str) -> bool:
    """Say whether an apostrophe parts words in a language, as in `l'amore`."""
    return language in _ELIDING


class LatinLanguages:
    """Tells the language of texts in Latin letters, one being expected."""

    def __init__(self, expected: str) -> None:
        """Collect the words that speak for another language than `expected`."""
        self._expected = expected
        asked = {language: frozenset(map(fold, words.split())) for language, words in _QUESTION_WORDS.items()}
        self._words = {language: stop_words(language) | words for language, words in asked.items()}
        self._words["english"] |= _more_english()
        self._own = self._words.get(expected, frozenset())
        others = frozenset[str]().union(*self._words.values()) - self._own
        short = {word for word in others if len(word) <= _SHORT and word.isascii()}
        self._ambiguous = (_AMBIGUOUS | short) - frozenset[str]().union(*asked.values())
        self.hints = others | {word.capitalize() for word in others - self._ambiguous}
        """Words without one of which a text is in the expected language."""

    def language_of(self, words: Sequence[str]) -> str:
        """Return the language of a text, given its words: one whose stop words outnumber the expected one's."""
        told = {fold(word) for word in self.hints.intersection(words)}
        if len(told) < _FEWEST_AMBIGUOUS and told <= self._ambiguous:
            return self._expected
        folded = [fold(word) for word in words]
        best, most = self._expected, sum(word in self._own for word in folded)
        for language, own in self._words.items():
            telling = told & own
            if len(telling) >= _FEWEST_AMBIGUOUS or not telling <= self._ambiguous:
                count = sum(word in own for word in folded)
                if count > most:
                    best, most = language, count
        return best


def _more_english() -> frozenset[str]:
    """Return more function words of English than are dropped from texts."""
    from bm25s import stopwords

    return frozenset(fold(word) for word in stopwords.STOPWORDS_EN_PLUS)
