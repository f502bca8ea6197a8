r"""JSON as language models write it: cut off, with slips, among other text.

Sound JSON is read as `json.loads(strict=False)` reads it, control characters in strings included. Beyond that:

- commas may be missing or too many; `True`, `False` and `None` are read as in Python;
- the lists of a repeated key are joined; of other values the last counts;
- escapes that JSON does not know stay as they are written (`C:\dir`), those of other languages are understood (`\x41`,
  `\u{1F600}`, `\'`); half a surrogate pair becomes U+FFFD, so that all that is read can be written;
- what is no value of JSON, such as NaN or a string that lost a character, is an `Unreadable` in its place, and so is an
  integer beyond 64 bits;
- an object in a list that is not well formed is an `Unreadable` too, if the next brace ends it.

Nothing recurses, and no part of a text is gone over more than a few times.
"""

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["whole", "cut", "broken"]

_CHARACTERS = r'(?:[^"\\]++|\\.?)*+'
# These match anywhere, be it nothing; a match that ends with the text was cut off.
_KEY = re.compile(rf'[\s,]*+(?:(\}})|"({_CHARACTERS})(?:"\s*+(:)?)?)?', re.DOTALL)
_VALUE = re.compile(rf'[\s,]*+(?:([\[{{])|(\])|"({_CHARACTERS})(")?|([^\s\[\]{{}},:"]++))?', re.DOTALL)
_TO_NEXT_CLOSING = re.compile(r"[^{}]*+\}")

BEGINNING = rf'\{{\s*+(?:"{_CHARACTERS}(?:"\s*+(?::|\Z)|\Z)|\}}|\Z)'
"""A pattern, for `re.DOTALL`, of where an object begins: unlike other braces, its brace is followed by a key."""

_NUMBER = re.compile(r"[+-]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d++)?+", re.ASCII)
_LONGEST_NUMBER = 400
_LARGEST_INTEGER = 2**63 - 1

_ESCAPE = re.compile(
    r"(?P<bytes>(?:\\x[0-9a-fA-F]{2})+)"
    r"|\\u(?P<u>[0-9a-fA-F]{4})|\\u\{(?P<braced>[0-9a-fA-F]{1,6})\}|\\U00(?P<U>[0-9a-fA-F]{6})"
    r"|(?P<part>\\[ux][0-9a-fA-F])"
    r"|\\(?P<single>[\"\\/bfnrt'])"
)
_SINGLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands where there is no value; says what there is instead."""

    why: str


_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None} | {
    word: Unreadable(f"{word} is no value of JSON")
    for word in ("NaN", "nan", "Infinity", "-Infinity", "+Infinity", "inf", "-inf", "undefined")
}


@dataclass(frozen=True, slots=True)
class Found:
    """An object or a list.

    Attributes:
        value: What is complete of it: if it does not end, without the value in which it stops; but if that is a list,
            with the list's complete elements.
        start: Where it begins.
        end: Where to read on.
        state: `cut` if the text ends within it, `broken` if it goes on with what is no JSON.
    """

    value: dict[str, Any] | list[Any]
    start: int
    end: int
    state: State


def read_value(text: str, start: int) -> Found:
    """Read the object or list that begins at a place of a text.

    >>> read_value('So: {"facts": [{"n": 1}, {"n": 2', 4).value
    {'facts': [{'n': 1}]}
    """
    return _Reader(text, start).read()


class _Reader:
    """Reads one value, with the lists and objects that are open in a stack, outermost first."""

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = self._at = start
        # After a slip: not behind the last string, since its quotes may be what went wrong, but within it.
        self._read_on = start + 1
        self._root: dict[str, Any] | list[Any] = []
        self._open: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str | None] = []  # of each that is open; None for lists and while the next key is awaited

    def read(self) -> Found:
        state = self._read_value()
        while self._open and (state == "whole" or (state == "broken" and self._leave_out_object())):
            awaits_key = isinstance(self._open[-1], dict) and self._keys[-1] is None
            state = self._read_key() if awaits_key else self._read_value()
        if len(self._open) > 1 and isinstance(self._open[1], list):
            del self._open[2:], self._keys[2:]
            self._close()
        end = {"whole": self._at, "cut": len(self._text), "broken": self._read_on}[state]
        return Found(self._root, self._start, end, state)

    def _read_key(self) -> State:
        token = _KEY.match(self._text, self._at)
        assert token is not None
        closing, key, colon = token.groups()
        if closing:
            self._close()
        elif colon:
            self._keys[-1] = _unescaped(key) or key
        elif token.end() == len(self._text):
            return "cut"
        else:
            return "broken"
        self._at = self._read_on = token.end()
        return "whole"

    def _read_value(self) -> State:
        token = _VALUE.match(self._text, self._at)
        assert token is not None
        opening, closing, characters, quote, word = token.groups()
        if opening:
            self._begin({} if opening == "{" else [])
        elif closing and isinstance(self._open[-1], list):
            self._close()
        elif quote:
            string = _unescaped(characters)
            self._add(Unreadable(r"a \u or \x escape is broken") if string is None else string)
        elif token.end() == len(self._text):
            return "cut"
        elif word and (word in _WORDS or _NUMBER.fullmatch(word)):
            self._add(_WORDS[word] if word in _WORDS else _number(word))
        else:
            return "broken"
        self._at = token.end()
        self._read_on = token.start(3) if quote else token.end()
        return "whole"

    def _begin(self, value: dict[str, Any] | list[Any]) -> None:
        if not self._open:
            self._root = value
        self._open.append(value)
        self._keys.append(None)

    def _close(self) -> None:
        value = self._open.pop()
        self._keys.pop()
        if self._open:
            self._add(value)

    def _add(self, value: object) -> None:
        target, key = self._open[-1], self._keys[-1]
        if isinstance(target, list):
            target.append(value)
        elif key is not None:
            before = target.get(key)
            if isinstance(before, list) and isinstance(value, list):
                before.extend(value)
            else:
                target[key] = value
            self._keys[-1] = None

    def _leave_out_object(self) -> bool:
        """Leave out the object in a list that broke, and say whether it could be seen where it ends."""
        at = len(self._open) - 1
        while at > 0 and not isinstance(self._open[at], dict):
            at -= 1
        if at == 0 or not isinstance(self._open[at - 1], list):
            return False
        rest = _TO_NEXT_CLOSING.match(self._text, self._read_on)
        if rest is None:
            return False
        del self._open[at:], self._keys[at:]
        self._at = self._read_on = rest.end()
        self._add(Unreadable("it is not well-formed JSON"))
        return True


def _number(word: str) -> int | float | Unreadable:
    if len(word) <= _LONGEST_NUMBER:
        number = int(word) if word.lstrip("+-").isdigit() else float(word)
        if abs(number) <= _LARGEST_INTEGER or (isinstance(number, float) and math.isfinite(number)):
            return number
    return Unreadable("the number is too large")


def _unescaped(characters: str) -> str | None:
    """Return a string as it is meant; None if an escape lost a part, so that no one can tell the character."""
    if "\\" not in characters:
        return characters
    try:
        string = _ESCAPE.sub(_character, characters)
        return string.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    except ValueError:
        return None


def _character(escape: re.Match[str]) -> str:
    written = escape[escape.lastgroup or 0]
    if escape.lastgroup == "single":
        return _SINGLE.get(written, written)
    if escape.lastgroup == "part":
        raise ValueError("digits are missing")
    if escape.lastgroup != "bytes":
        return chr(int(written, 16))
    octets = bytes.fromhex(written.replace("\\x", ""))
    try:
        return octets.decode()  # as Python shows the bytes of UTF-8
    except UnicodeDecodeError:
        return octets.decode("latin-1")  # as Python and JavaScript write characters
