"""What a rule for temporal expressions is; each language has its own, see `docs/time.md`."""

import re
from collections.abc import Callable
from datetime import date, datetime
from typing import NamedTuple

from hgmem_core.spans import Span, last_of, nearest, next_of

Resolver = Callable[[re.Match[str], datetime], Span | None]
"""From a match and the local time at which it was said to the span it means; None where that is not known."""


def _always(match: re.Match[str]) -> bool:
    return True


class TimeRule(NamedTuple):
    """A rule.

    Attributes:
        triggers: The pattern is tried only where one of these, in lower case, occurs: most turns name no time at all.
        pattern: What is said. The words in its group `lead` lead to the time and say how it is meant.
        resolve: What it means.
        fits: Whether a match names a time at all, by the words before it.
    """

    triggers: tuple[str, ...]
    pattern: re.Pattern[str]
    resolve: Resolver
    fits: Callable[[re.Match[str]], bool] = _always


def choose(today: date, named: list[Span], step: int | None) -> Span:
    """Return the last one over (-1), the one of this year in the middle (0), the next one (1), or the nearest (None).

    Args:
        today: The day of saying.
        named: The spans of one name in five years, today's in the middle.
        step: Which one.
    """
    if step is None:
        return nearest(today, named)
    return named[2] if step == 0 else next_of(today, named) if step > 0 else last_of(today, named)
