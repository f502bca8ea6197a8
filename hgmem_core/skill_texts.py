"""What skills say that were found without a language model, and what two skills say together.

A pattern of actions is written as one sentence: for which tasks, then what to do, or to avoid. Two such sentences are
joined part by part: the words of both, then the actions of both, each once. Texts that somebody else wrote are joined
by whole sentences. Nothing is said that neither of the two says.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hgmem_core.action_templates import template_words
from hgmem_core.statements import split_sentences
from hgmem_core.summarise import shorten
from hgmem_core.tokens import fold

TEXT_CHARS = 600
"""Of what two skills say together, unless one of them alone says more."""
MOST_WORDS = 8
"""For which tasks it is."""

_ABOUT, _ANY = "When the task is about ", "In tasks of this kind"
_DO, _AVOID = ": ", ", avoid "
_THEN, _ALSO = ", then ", "; also "
_BETTER, _WORSE = " Runs that did so failed less often.", " Runs that did so failed more often."
_SENTENCE = re.compile(
    rf"(?:{_ABOUT}([^:`]+?)|{_ANY})({_DO}|{_AVOID})((?:`[^`]*`[^`.]*)+)\.({_BETTER}|{_WORSE})?", re.DOTALL
)
_ACTIONS = re.compile(rf"`[^`]*`(?:{_THEN}`[^`]*`)*(?:, (?!then `)([^`;]+))?")
_TEMPLATE = re.compile(r"`([^`]*)`")


class _Actions(NamedTuple):
    """Actions in order, and how they are done where that is what makes them a mistake."""

    templates: tuple[str, ...]
    how: str


class _Sentence(NamedTuple):
    """The parts of a sentence on a pattern; `end` says how runs went that had it."""

    words: tuple[str, ...]
    sign: str
    actions: tuple[_Actions, ...]
    end: str

    @property
    def text(self) -> str:
        when = f"{_ABOUT}{', '.join(self.words)}" if self.words else _ANY
        parts = (
            _THEN.join(map(template_words, one.templates)) + (f", {one.how}" if one.how else "") for one in self.actions
        )
        return f"{when}{self.sign}{_ALSO.join(parts)}.{self.end}"


def sentence_of(words: Sequence[str], templates: Sequence[str], how: str, avoid: bool, compared: bool) -> str:
    """Return what a pattern teaches.

    Args:
        words: Of the tasks that it is for; none where it is for any.
        templates: Of its actions, in order.
        how: They are done, where that is what makes it a mistake; else empty.
        avoid: Whether it is a mistake.
        compared: Whether it is known how runs went that had it, beside others.

    >>> sentence_of(["heat"], ["open <object>"], "", avoid=True, compared=False)
    'When the task is about heat, avoid `open <object>`.'
    """
    end = (_WORSE if avoid else _BETTER) if compared else ""
    return _Sentence(tuple(words), _AVOID if avoid else _DO, (_Actions(tuple(templates), how),), end).text


def joined(first: str, second: str) -> str | None:
    """Return what two skills of one polarity say together; the first one's text where the second adds nothing.

    None where both are sentences on patterns, and all of it would be longer than `TEXT_CHARS`. Of texts that somebody
    else wrote, what does not fit of the second is left out, whole sentences at a time.

    >>> joined("In tasks of this kind: `go`, then `take`.", "When the task is about heat: `take`, then `heat`.")
    'When the task is about heat: `go`, then `take`; also `heat`.'
    >>> joined("Look first. Then act.", "look first. Ask if in doubt.")
    'Look first. Then act. Ask if in doubt.'
    """
    one, other = _read(first), _read(second)
    if one is None or other is None or one.sign != other.sign:
        return _joined_sentences(first, second)
    new = tuple(_new(one.actions, other.actions))
    words = tuple(dict.fromkeys((*one.words, *other.words)))[: max(MOST_WORDS, len(one.words))]
    text = _Sentence(words, one.sign, (*one.actions, *new), one.end if one.end == other.end else "").text
    return first if not new else text if len(text) <= TEXT_CHARS else None


def _read(text: str) -> _Sentence | None:
    """Return the parts of a sentence on a pattern, None of any other text."""
    found = _SENTENCE.fullmatch(text)
    if found is None:
        return None
    words, sign, said, end = found.groups()
    actions = tuple(_Actions(tuple(_TEMPLATE.findall(part[0])), part[1] or "") for part in _ACTIONS.finditer(said))
    read = _Sentence(tuple((words or "").split(", ")) if words else (), sign, actions, end or "")
    return read if read.text == text else None


def _new(known: Sequence[_Actions], more: Sequence[_Actions]) -> Iterator[_Actions]:
    """Yield what of some actions is not known yet, those that follow each other together."""
    said = {(template, one.how) for one in known for template in one.templates}
    for one in more:
        run: list[str] = []
        for template in one.templates:
            if (template, one.how) in said or (template, "") in said:
                if run:
                    yield _Actions(tuple(run), one.how)
                run = []
            else:
                run.append(template)
            said.add((template, one.how))
        if run:
            yield _Actions(tuple(run), one.how)


def _joined_sentences(first: str, second: str) -> str:
    text = shorten(first, TEXT_CHARS)
    said = {fold(sentence) for sentence in split_sentences(first)}
    for sentence in split_sentences(second):
        if fold(sentence) not in said and len(text) + 1 + len(sentence) <= TEXT_CHARS:
            said.add(fold(sentence))
            text = f"{text} {sentence}"
    return text
