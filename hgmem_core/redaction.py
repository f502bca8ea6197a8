"""Redaction: what is taken out of texts before anything of a log is kept.

A hook takes a text and returns it without what must not be kept. Those here are for e-mail addresses and phone numbers;
both leave a text alone in doubt. An address that is spelt out (`anna at example dot com`), a number without a prefix,
or names are for hooks of one's own.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from hgmem_core.importers.fields import RAW_CHARS
from hgmem_core.messages import Dropped, Message
from hgmem_core.trajectories import Run, Step, anonymous_trajectory_id

Hook: TypeAlias = Callable[[str], str]
"""It may have an attribute `revision`, to be changed whenever it takes out other things."""

EMAIL, PHONE = "[email]", "[phone]"
"""What stands in the place of what was taken out."""

_LETTER = "A-Za-zÀ-ÖØ-öø-ɏ"
_ESCAPE = r"(?<=\\[nrt])"
"""Before it is a line break or a tab of JSON, as in arguments of tools: its letter belongs to nothing."""
# Letters of other scripts may stand right beside an address, as in Chinese.
_ADDRESS = re.compile(
    rf"(?:{_ESCAPE}|(?<![{_LETTER}0-9._%+-])(?!(?<=\\)[nrt]))[{_LETTER}0-9._%+-]{{1,64}}[@＠]"
    rf"(?:[{_LETTER}0-9][{_LETTER}0-9-]{{0,62}}\.)+[{_LETTER}]{{2,24}}(?![{_LETTER}0-9@])"
)


def emails(text: str) -> str:
    """Return a text with `[email]` in the place of addresses.

    >>> emails("write to anna.b@mail.example.org, or call")
    'write to [email], or call'
    """
    return _ADDRESS.sub(EMAIL, text)


_PLAIN = str.maketrans(
    "０１２３４５６７８９＋－（）\u2010\u2011\u2012\u2013\u00a0\u2007\u2009\u202f\u3000",
    "0123456789+-()----     ",
)
"""How signs are read of which a number may be made; one for one."""
# Groups of four digits before it are those of a card or an account.
_ALONE = rf"(?<![{_LETTER}0-9_#=$€£¥%&@./+-])(?<![0-9][:,])(?<![^0-9-][0-9]{{4}} )(?<!^[0-9]{{4}} )"
_BEFORE = rf"(?:{_ESCAPE}|(?<=\[phone\]/)|{_ALONE})"
_AFTER = rf"(?![{_LETTER}0-9_@%€$£¥])(?![.,:-][0-9])"
_GROUPS = r"(?:(?: ?\([0-9]{1,5}\) ?|[./-]| )[0-9]{1,14})"

_PLUS = re.compile(rf"{_BEFORE}(?:\+[1-9][0-9]{{0,14}}|\(\+[1-9][0-9]{{0,2}}\) ?[0-9]{{1,14}}){_GROUPS}{{0,7}}")
_ZEROS = re.compile(rf"{_BEFORE}00[1-9][0-9]{{0,2}}{_GROUPS}{{1,7}}")
_TRUNK = re.compile(
    rf"{_BEFORE}(?:\(0[1-9][0-9]{{1,4}}\) ?|0[1-9][0-9]{{1,4}}(?: ?[/-] ?| ))"
    rf"[0-9]{{2,9}}(?:(?: |-)[0-9]{{2,5}}){{0,4}}{_AFTER}"
)
_AMERICAN = re.compile(
    rf"{_BEFORE}(?:1[ .-])?(?:\([2-9][0-9]{{2}}\) ?[2-9][0-9]{{2}}[ .-]"
    rf"|[2-9][0-9]{{2}}(?P<mark>[.-])[2-9][0-9]{{2}}(?P=mark))[0-9]{{4}}{_AFTER}"
)
_CHINESE = re.compile(rf"{_BEFORE}1[3-9][0-9](?:[0-9]{{8}}|(?P<mark>[ -])[0-9]{{4}}(?P=mark)[0-9]{{4}}){_AFTER}")

_FEWEST_DIGITS, _MOST_DIGITS = 9, 15
"""Of a number with a country's prefix; no number has more than 15."""
_FEWEST_OWN, _MOST_OWN = 5, 9
"""After an area's prefix. With four, a span of time such as 0800-1700 would be one."""


def phones(text: str) -> str:
    """Return a text with `[phone]` in the place of phone numbers.

    They are known by the prefix of a country or an area, or by the groups of North American and the digits of Chinese
    ones: a date, a price, a version or a plain number is none.

    >>> phones("call +49 151 23456789 or (415) 555-2671 before 2024-03-01")
    'call [phone] or [phone] before 2024-03-01'
    """
    plain = text.translate(_PLAIN)
    kept, place = [], 0
    for piece in _without_numbers(plain).split(PHONE):  # what is left is given back as it was written
        place = plain.index(piece, place)
        kept.append(text[place : place + len(piece)])
        place += len(piece)
    return PHONE.join(kept)


def _without_numbers(text: str) -> str:
    while True:
        found = _PLUS.sub(_of_a_country, text)
        found = _CHINESE.sub(PHONE, _AMERICAN.sub(PHONE, found))
        found = _TRUNK.sub(_of_an_area, _ZEROS.sub(_of_a_country, found))
        if found == text:
            return text
        text = found  # once a number is gone, the one right behind it stands alone


def _of_a_country(found: re.Match[str]) -> str:
    prefix = 2 * found[0].startswith("00")
    return _first_number(found[0], prefix, _FEWEST_DIGITS, _MOST_DIGITS)


def _of_an_area(found: re.Match[str]) -> str:
    area = re.match(r"\(?0[0-9]+", found[0])
    return _first_number(found[0], 0 if area is None else area.end(), _FEWEST_OWN, _MOST_OWN)


def _first_number(text: str, start: int, fewest: int, most: int) -> str:
    """Replace the groups from the first on that make a number; the rest is something else, such as the next of a list.

    Args:
        text: Groups of digits.
        start: Where the digits begin that count.
        fewest: Digits of a number, at least.
        most: At most.
    """
    end = digits = 0
    for group in re.finditer("[0-9]+", text[start:]):
        digits += len(group[0])
        if digits > most:
            break
        if digits >= fewest:
            end = start + group.end()
    return PHONE + text[end:] if end else text


emails.revision = phones.revision = 2  # type: ignore[attr-defined]

_STRUCTURE = frozenset({"type", "id", "call_id"})
"""Of an attachment: what it is, and what refers to it."""

_CUT_FROM, _END_CHARS = RAW_CHARS * 3 // 4, 64
"""The raw text of a refused row may be cut, and cleaned since: at its end, half of an address could stand."""


def redact(item: Message | Run | Dropped, hook: Hook) -> Message | Run | Dropped:
    """Return what a log row gave, with what the hook makes of its texts.

    Texts are what was said, who said it, attachments, a run's task and steps, and of a refused row its raw text and the
    reason. Namespaces, sessions and ids are names that other rows refer to, and stay.
    """
    if isinstance(item, Message):
        return replace(
            item,
            text=hook(item.text),
            speaker=None if item.speaker is None else hook(item.speaker),
            attachments=tuple(_attachment(one, hook) for one in item.attachments),
            note=None if item.note is None else hook(item.note),
        )
    if isinstance(item, Run):
        return _redact_run(item, hook)
    raw = item.raw
    if raw is not None:
        raw = hook(raw[:-_END_CHARS] if len(raw) > _CUT_FROM else raw)
    return replace(item, reason=hook(item.reason), raw=raw)


def _attachment(attachment: dict[str, Any], hook: Hook) -> dict[str, Any]:
    return {name: value if name in _STRUCTURE else _value(value, hook) for name, value in attachment.items()}


def _value(value: Any, hook: Hook) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, str):
        return hook(value)
    if isinstance(value, dict):
        return {hook(name): _value(own, hook) for name, own in value.items()}
    if isinstance(value, list | tuple):
        return [_value(own, hook) for own in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        written = str(value)
        found = hook(written)
        return value if found == written else found
    return value


def _redact_run(run: Run, hook: Hook) -> Run:
    steps = tuple(
        Step(hook(step.action), None if step.observation is None else hook(step.observation)) for step in run.steps
    )
    task = hook(run.task)
    task_id = task if run.task_id == run.task else run.task_id
    name = run.trajectory_id
    if run.source_id is None:  # a name made of what was taken out could be guessed from
        name = anonymous_trajectory_id(run.namespace, task_id, task, steps, run.said_at)
    note = None if run.note is None else hook(run.note)
    return replace(run, trajectory_id=name, task_id=task_id, task=task, steps=steps, note=note)
