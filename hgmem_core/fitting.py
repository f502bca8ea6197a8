"""Input cut so that requests fit, and answers so that they can be stored."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from hgmem_core.passes import Terms
from hgmem_core.prompts import UNSEEN, Prompt
from hgmem_core.summarise import shorten
from hgmem_core.text import clean

Item = TypeVar("Item")


def batches(items: Sequence[Item], most: int, fits: Callable[[Sequence[Item]], bool]) -> list[Sequence[Item]]:
    """Return items as runs of at most `most`, in order; a run of more than one fits.

    Runs are filled from the front, so items that are added at the end leave all but the last as they were.

    >>> batches([1, 2, 3, 9], 3, lambda some: sum(some) < 6)
    [[1, 2], [3], [9]]
    """
    runs: list[Sequence[Item]] = []
    start = 0
    while start < len(items):
        run = _longest(items[start : start + most], fits)
        runs.append(run)
        start += len(run)
    return runs


def _longest(items: Sequence[Item], fits: Callable[[Sequence[Item]], bool]) -> Sequence[Item]:
    """Return the longest beginning that fits, at least one item."""
    if fits(items):
        return items
    sizes = range(1, len(items))
    return items[: max(1, bisect_left(sizes, True, key=lambda size: not fits(items[:size])))]


def first_that_fits(prompt: Prompt, users: Sequence[str], terms: Terms) -> str:
    """Return the first of some user parts with which the prompt fits; the last one if none does."""
    return next((user for user in users if terms.fits(prompt, user)), users[-1])


def day(at: datetime | None) -> str:
    """Return a moment's day as it stands in a prompt."""
    return f"{at:%Y-%m-%d}" if at else "undated"


def one_line(text: str, most_chars: int) -> str:
    r"""Return what a model wrote as one line that can be stored.

    >>> one_line(" A\n\x00title ", 80)
    'A title'
    """
    return shorten(" ".join(clean(UNSEEN.sub("", text))[0].split()), most_chars)
