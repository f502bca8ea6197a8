"""An answer's text while a model still writes it: nothing of it is shown before what it cites is known to be given."""

import re
from collections.abc import Collection

from pydantic_core import from_json

from hgmem_core.answer import text_so_far
from hgmem_core.chat import Request

_NUMBERED = re.compile(r"^\[(\d+)\] ", re.MULTILINE)
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|$)", re.DOTALL | re.IGNORECASE)


def given_numbers(request: Request) -> frozenset[int]:
    """Return the numbers of the statements that a request for an answer shows: nothing quoted begins a line."""
    return frozenset(map(int, _NUMBERED.findall(request.user)))


def shown_so_far(reply: str, given: Collection[int]) -> str:
    """Return what can be shown of the beginning of a reply; "" as long as nothing can.

    Only a text that stands behind its citations is shown, and only if one of them is among the numbers that the model
    was given. What is returned for a longer beginning begins with what was returned for a shorter one.

    >>> shown_so_far('{"citations": [2], "answer": "In Lis', {1, 2})
    'In Lis'
    >>> shown_so_far('{"citations": [9], "answer": "In Lis', {1, 2})
    ''
    """
    written = _THINKING.sub("", reply)
    start = written.find("{")
    if start < 0:
        return ""
    try:
        value = from_json(written[start:], allow_partial="trailing-strings")
    except ValueError:
        return ""
    names = list(value)
    if "answer" not in names or "citations" not in names[: names.index("answer")]:
        return ""
    text, cited = value["answer"], value["citations"]
    is_cited = isinstance(cited, list) and any(number in given for number in cited if isinstance(number, int))
    return text_so_far(text) if is_cited and isinstance(text, str) else ""
