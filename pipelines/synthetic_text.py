"""What the people of a synthetic log say: sentences of a small grammar, the same for the same numbers.

Every word is decided by hashes of numbers that name the namespace, the theme and the sentence, so that texts can be
made in any order and portion, many at once. The things that are spoken of follow Zipf's law over real nouns and a long
tail of invented ones; each namespace has its themes, its circle of people and its places. Questions are answered about
the thing that they ask for, and what a speaker says of themselves comes again word for word.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes: TypeAlias = npt.NDArray[np.uint64]
Ints: TypeAlias = npt.NDArray[np.int64]

VOCABULARY = 20_000
"""Things that can be spoken of."""

THEMES = 8
"""Themes of a namespace."""

THEME_THINGS = 24
THEME_SHARE = 0.6
"""Of the things in a sentence, how many are its theme's; the others are anything."""

CIRCLE = 8
"""People that a namespace speaks of, beside the two who speak."""

PLACES = 5
"""Places of a namespace."""

FIRST_NAMES = (
    "Ada Amir Anna Ben Bianca Boris Carla Chen Clara Daan Dalia David Elena Emil Eva Farid Felix Fiona Goran Greta"
    " Hana Hugo Ida Igor Ines Ivan Jana Jonas Julia Kai Karim Kira Lara Leon Lina Luca Maja Marek Mila Milan Mona Nadia"
    " Nico Nina Noah Olga Omar Oscar Paula Pavel Petra Quentin Rafael Rana Rosa Ruben Samir Sara Selma Simon Sofia Sven"
    " Tara Theo Tomas Uma Valentin Vera Viktor Wanda Willem Xenia Yara Yusuf Zoe"
).split()
_CITIES = (
    "Accra Amsterdam Athens Barcelona Basel Belgrade Bergen Berlin Bilbao Bologna Boston Bristol Brno Brussels Budapest"
    " Cairo Chicago Copenhagen Cork Denver Dresden Dublin Florence Geneva Ghent Glasgow Graz Hamburg Helsinki Istanbul"
    " Kyoto Lagos Leipzig Lille Lima Lisbon Lyon Madrid Malaga Marseille Milan Montreal Nairobi Naples Nice Osaka Oslo"
    " Oxford Porto Prague Quebec Riga Rome Rotterdam Seoul Seville Sofia Split Tallinn Toronto Turin Utrecht Valencia"
    " Venice Vienna Vilnius Warsaw York Zagreb Zurich"
).split()
_NOUNS = (
    "garden book dinner film concert bicycle flat kitchen project report meeting train guitar piano recipe soup cake"
    " dog cat horse camera painting pottery river lake mountain hike tent beach boat museum library bakery market"
    " school course lesson teacher doctor hospital knee tooth marathon race swim gym yoga team match goal song band"
    " violin choir festival wedding birthday party gift ring dress coat shoes lamp sofa table chair window roof"
    " balcony tree rose tomato pumpkin lemon coffee tea bread cheese wine noodle curry salad chocolate budget contract"
    " client server laptop phone battery screen printer bug release database backup password ticket passport flight"
    " hotel suitcase map visa tour castle bridge tower harbour desert forest storm snow telescope rocket robot puzzle"
    " chess novel poem diary letter parcel neighbour landlord tenant nephew cousin baby twins puppy kitten parrot"
    " shelter charity protest vote lawsuit mortgage loan tax pension salary promotion startup podcast blog newsletter"
    " workshop sculpture quilt sweater loom kiln canvas drum trumpet karate judo climbing sailing kayak surfboard ski"
    " snowboard skateboard helmet scooter van garage tyre brake fence shed well greenhouse compost beehive"
).split()
_ADJECTIVES = (
    "new green red blue small huge wooden cheap broken quiet noisy strange famous local handmade rusty heavy light"
    " bright dusty spicy sour fresh frozen borrowed stolen lost missing spare second-hand colourful"
).split()
_SYLLABLES = tuple(
    first + vowel for first in ("b d f g k l m n p r s t v z br dr gl kr pl st tr".split()) for vowel in "aeiou"
)

_TEMPLATES = {
    "statement": """
I bought a {quality} {thing} {past}.
I finally finished the {thing} for {name} {past}.
We talked about the {thing} and the {other} for hours.
The {quality} {thing} is better than the {other} ever was.
{name} showed me a {thing} in {place}.
{name} and I are going to {place} {future}.
My {thing} broke, so I have to look for a {quality} one.
It took {number} hours to repair the {quality} {thing}.
They want {number} euros for that {thing}.
I read a long article about the {thing} and how people use it with a {other}.
There was a {thing} next to the {quality} {other} on our street.
I met {name} at the {thing} {past}.
{name} moved to {place} because of the {thing}.
I signed up for a {thing} course that starts {future}.
The {thing} was cancelled, and nobody told {name} about it.
We planted {number} trees behind the {thing}.
I have been thinking about the {quality} {thing} a lot lately.
The doctor said that the {thing} will be better {future}.
I lost my {thing} somewhere between {place} and the {other}.
{name} gave me a {quality} {thing} for my birthday.
Our {thing} has {number} members now, and the {other} is getting crowded.
I would never sell the {thing}, it belonged to my grandmother.
The new {thing} works well, but the {other} still fails sometimes.
My parents visited {place} and brought back a {thing}.
""",
    "opener": """
Hey {name}!
Good morning!
Wow, that is great.
I was hoping to catch you today.
Sorry, I was busy with the {thing}.
Yes, I think so too.
Haha, that sounds like {name}.
You will not believe what happened to the {thing} {past}.
""",
    "question": """
What happened to the {thing}?
Have you seen the {thing} lately?
Did {name} like the {thing}?
When are you going to show me the {thing}?
How much did you pay for the {thing}?
Where did you find a {quality} {thing}?
Who told you about the {thing}?
Do you still have the {thing} from {place}?
""",
    "answer": """
The {thing} is with {name} in {place}.
Yes, I got the {thing} {past}.
It was {number} euros for the {thing}.
No, the {thing} is gone since we left {place}.
{name} found the {thing} {past}.
I will bring the {thing} {future}.
I sold the {thing} to {name}.
Not yet, the {thing} comes {future}.
""",
    # What is true of a speaker, said again and again.
    "stock": """
I live in {place}.
I like {thing}.
I don't like {thing}.
My sister {name} works in {place}.
I have {number} cousins in {place}.
I am allergic to {thing}.
My favourite colour is {quality}.
I grew up in {place}.
""",
    # What they say when it is true no more: line for line the end of the above, where it can end.
    "ended": """
I no longer live in {place}.
I don't like {thing} anymore.
I like {thing} now.
My sister {name} works in {place}.
I have {number} cousins in {place}.
I am allergic to {thing}.
My favourite colour is {quality}.
I grew up in {place}.
""",
    "query": """
What did {speaker} say about the {thing}?
Where did I lose the {thing} near {place}?
When did {speaker} go to {place}?
Who gave me the {quality} {thing}?
How much is the {thing}?
What happened to the {thing} and the {other}?
Does {speaker} like the {quality} {thing}?
What broke besides the {thing} in {place}?
""",
}  # fmt: skip
_SLOT = re.compile(r"\{(\w+)\}")
_SLOTS = ("thing", "other", "quality", "number", "past", "future", "name", "speaker", "place")
_BLANK = -1
"""The piece before each sentence of a turn but its first."""


@dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences to be written, in their order; element i of each array belongs to sentence i.

    Attributes:
        turn: The number of its turn, never falling.
        template: Its row among the templates of all kinds; see `choose`.
        key: Decides what is put into its slots.
        theme: Decides which things it speaks of.
        namespace: Decides whom and where it speaks of.
    """

    turn: Ints
    template: Ints
    key: Hashes
    theme: Hashes
    namespace: Hashes


def mix(values: Hashes | int, salt: int = 0) -> Hashes:
    """Return hashes of whole numbers: the finaliser of splitmix64."""
    with np.errstate(over="ignore"):  # the wrapping is meant
        mixed = np.asarray(values, np.uint64) + np.uint64((0x9E3779B97F4A7C15 * (salt + 1)) % 2**64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes: Hashes = mixed ^ (mixed >> np.uint64(31))
    return hashes


def pick(hashes: Hashes, count: int) -> Ints:
    """Return a whole number below `count` for each hash."""
    return (hashes % np.uint64(count)).astype(np.int64)


def chance(hashes: Hashes, share: float) -> npt.NDArray[np.bool_]:
    """Say of each hash whether it is among the given share of all."""
    return _unit(hashes) < share


def choose(kind: str, hashes: Hashes) -> Ints:
    """Return a template of a kind for each hash."""
    first, count = _grammar().kinds[kind]
    return first + pick(hashes, count)


def person(namespace: Hashes, number: Ints | int) -> Ints:
    """Return the first name, as a row of `FIRST_NAMES`, of somebody of each namespace: 0 and 1 speak, others do not."""
    rows: Ints = (pick(mix(namespace, 3), len(FIRST_NAMES)) + 7 * np.asarray(number)) % len(FIRST_NAMES)
    return rows


def theme(namespace: Hashes, number: Ints | int) -> Hashes:
    """Return what tells one of the `THEMES` of each namespace from all other themes."""
    return mix(mix(namespace, 4) + np.asarray(number, np.uint64))


def write_texts(sentences: Sentences, turns: int) -> pa.Array:
    """Return the text of each of `turns` turns, its sentences joined by blanks."""
    grammar = _grammar()
    sizes = grammar.sizes[sentences.template]
    of = np.repeat(np.arange(len(sizes)), sizes)  # the sentence of each piece
    place = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    pieces = grammar.pieces[grammar.starts[sentences.template][of] + place]
    is_first = np.diff(sentences.turn, prepend=-1) != 0
    pieces[pieces == _BLANK] = np.where(is_first, grammar.nothing, grammar.blank)
    for number, slot in enumerate(_SLOTS):
        where = np.flatnonzero(pieces == _BLANK - 1 - number)
        at = of[where]
        pieces[where] = grammar.first_of[slot] + _fill(slot, sentences, at)
    ends = np.cumsum(np.bincount(sentences.turn[of], minlength=turns))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, grammar.strings.take(pa.array(pieces))), "")


def write_queries(namespace: Hashes, keys: Hashes) -> list[str]:
    """Return a question about a namespace's memory for each key."""
    numbers = np.arange(len(keys))
    themes = theme(namespace, pick(keys, THEMES))
    sentences = Sentences(numbers, choose("query", mix(keys, 1)), keys, themes, np.broadcast_to(namespace, keys.shape))
    texts: list[str] = write_texts(sentences, len(keys)).to_pylist()
    return texts


def _fill(slot: str, sentences: Sentences, at: Ints) -> Ints:
    """Return what is put into the slots of some sentences: a row among the strings of its kind for each."""
    keys = mix(sentences.key[at], 10 + _SLOTS.index(slot))
    if slot in ("thing", "other"):
        own = mix(sentences.theme[at] + pick(mix(keys, 1), THEME_THINGS).astype(np.uint64), 2)
        return _zipf(np.where(chance(keys, THEME_SHARE), own, mix(keys, 3)))
    if slot in ("name", "speaker"):
        number = pick(keys, 2) if slot == "speaker" else 2 + pick(keys, CIRCLE)
        return person(sentences.namespace[at], number)
    if slot == "place":
        return pick(mix(sentences.namespace[at] + pick(keys, PLACES).astype(np.uint64), 5), len(_CITIES))
    return pick(keys, _grammar().counts[slot])


def _zipf(hashes: Hashes) -> Ints:
    """Return ranks below `VOCABULARY` by Zipf's law: rank r as often as 1 / (r + 1)."""
    return np.searchsorted(_grammar().cumulative, _unit(hashes), side="right")


def _unit(hashes: Hashes) -> npt.NDArray[np.float64]:
    return (hashes >> np.uint64(11)).astype(np.float64) / 2**53


@dataclass(frozen=True, slots=True)
class _Grammar:
    """The templates cut into pieces: rows of `strings`, and negative numbers where a blank or a slot is.

    Attributes:
        strings: Every piece of text.
        first_of: By slot, the row of the first string that can be put into it.
        counts: By slot, how many such strings there are.
        kinds: By kind of template, the first of them and how many there are.
        pieces: Of all templates, one after the other.
        starts: Where in `pieces` each template begins.
        sizes: Pieces of each template.
        blank: The row of the string of one blank.
        nothing: The row of the empty string.
        cumulative: The share of the things up to each rank.
    """

    strings: pa.Array
    first_of: dict[str, int]
    counts: dict[str, int]
    kinds: dict[str, tuple[int, int]]
    pieces: Ints
    starts: Ints
    sizes: Ints
    blank: int
    nothing: int
    cumulative: npt.NDArray[np.float64]


@cache
def _grammar() -> _Grammar:
    things = [*_NOUNS, *(_invented(number) for number in range(VOCABULARY - len(_NOUNS)))]
    fillers = {"thing": things, "quality": _ADJECTIVES, "number": [str(number) for number in range(2, 200)]}
    fillers |= {"past": _past(), "future": _future(), "name": FIRST_NAMES, "place": _CITIES}
    strings = ["", " "]
    first_of, counts = {}, {}
    for slot, values in fillers.items():
        first_of[slot], counts[slot] = len(strings), len(values)
        strings += values
    first_of |= {"other": first_of["thing"], "speaker": first_of["name"]}
    kinds: dict[str, tuple[int, int]] = {}
    cut: list[list[int]] = []
    for kind, text in _TEMPLATES.items():
        lines = text.strip().splitlines()
        kinds[kind] = (len(cut), len(lines))
        for line in lines:
            cut.append([_BLANK])
            for place, part in enumerate(_SLOT.split(line)):
                if place % 2:
                    cut[-1].append(_BLANK - 1 - _SLOTS.index(part))
                elif part:
                    cut[-1].append(len(strings))
                    strings.append(part)
    sizes = np.array([len(pieces) for pieces in cut])
    weights = np.cumsum(1 / np.arange(1, VOCABULARY + 1))
    return _Grammar(
        strings=pa.array(strings),
        first_of=first_of,
        counts=counts,
        kinds=kinds,
        pieces=np.concatenate([np.array(pieces) for pieces in cut]),
        starts=np.cumsum(sizes) - sizes,
        sizes=sizes,
        blank=1,
        nothing=0,
        cumulative=weights / weights[-1],
    )


def _invented(number: int) -> str:
    """Return the `number`-th invented noun: a distinct pronounceable one of two or more syllables."""
    number, place = divmod(number, len(_SYLLABLES))
    syllables = [_SYLLABLES[place]]
    while number or len(syllables) < 2:
        number, place = divmod(number, len(_SYLLABLES))
        syllables.append(_SYLLABLES[place])
    return "".join(syllables) + "n"


_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = "January February March April May June July August September October November December".split()


def _past() -> list[str]:
    """Return phrases for days that have been."""
    phrases = ["yesterday", "last night", "this morning", "a few days ago"]
    phrases += [f"last {unit}" for unit in ("week", "month", "weekend", "year", *_WEEKDAYS)]
    phrases += [f"in {month}" for month in _MONTHS]
    phrases += [f"on {3 + 2 * place} {month}" for place, month in enumerate(_MONTHS)]
    return phrases + [
        f"{count} {unit} ago" for count in ("two", "three", "five") for unit in ("days", "weeks", "years")
    ]


def _future() -> list[str]:
    """Return phrases for days to come."""
    phrases = ["tomorrow", "tonight", "in two weeks", "in ten days", "in a month"]
    phrases += [f"next {unit}" for unit in ("week", "month", "weekend", "year", *_WEEKDAYS)]
    return phrases + [f"on {day}" for day in _WEEKDAYS]
