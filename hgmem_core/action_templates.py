"""Actions of agents to templates: what was done, with the things that it was done to left open.

    go to shelf 8                                       go to <object>
    SELECT name FROM pets JOIN cats ON a = b LIMIT 1    SELECT <column> FROM <table> JOIN <table> ON … LIMIT
    find /tmp -name '*.log' | wc -l                     find <path> -name <path> | wc -l
    get_order({"order_id": "W1"})                       get_order(order_id)

Which of the four an action is, is told by its shape alone, never by where it comes from. What an agent says to a user
is none of them and has no template. A template has neither line breaks nor backticks.
"""

import json
import re
from collections.abc import Iterable, Iterator

from hgmem_core.shell_skeleton import shell_skeleton
from hgmem_core.sql_skeleton import sql_skeleton
from hgmem_core.tokens import fold

TEMPLATES_REVISION = 1
"""Raised when an action gets another template: measures that count templates cannot be compared across it."""

_MOST_CHARS = 8_000
_MOST_CALL_CHARS = 100_000
"""As much of an action is looked at, if it may be the call of a tool; a longer call keeps only its name."""
_MOST_TEMPLATE_CHARS = 400

_FENCE = re.compile(r"```[\w+-]*\n(.*?)\n?```", re.DOTALL)


def action_template(action: str) -> str | None:
    """Return the template of an action, or None where it has none, as words to a user have.

    >>> action_template("take keychain 1 from sidetable 1")
    'take <object> from <object>'
    >>> action_template("DESCRIBE pets;")
    'DESCRIBE <table>'
    >>> action_template("Could you tell me your user id?") is None
    True
    """
    text = action[:_MOST_CALL_CHARS].strip()
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1].strip()
    start = text[:_MOST_CHARS]
    is_cut = len(action) > _MOST_CALL_CHARS
    template = _of_call(text, is_cut) or sql_skeleton(start) or shell_skeleton(start) or _of_command(start)
    if template is None:
        return None
    shown = " ".join(template.replace("`", "").split())
    return (shown if len(shown) <= _MOST_TEMPLATE_CHARS else shown[: _MOST_TEMPLATE_CHARS - 1].rstrip() + "…") or None


def run_templates(actions: Iterable[str]) -> list[str | None]:
    """Return the templates of a run's actions, one for each, in their order; see `action_template`."""
    return [action_template(action) for action in actions]


def template_words(template: str) -> str:
    """Return how a template is written in the text of a skill: between backticks.

    So `go to <object>` is not found within another template that begins alike.
    """
    return f"`{template}`"


def templates_within(text: str) -> frozenset[str]:
    """Return what a text has between backticks: a template is in the text if and only if it is among them.

    >>> sorted(templates_within("First `go to <object>`, then `open <object>`."))
    ['go to <object>', 'open <object>']
    """
    return frozenset(text.split("`")[1:-1:2])


# Calls of tools: `name({...})`, `name(key=value)`, `name[...]`, {"name": ..., "arguments": {...}}.

_CALL = re.compile(r"([A-Za-z_][\w.-]{0,79})(?:\((.*)\)|\[(.*)\])", re.DOTALL)
_KEYWORD = re.compile(
    r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|([A-Za-z_]\w{0,63})\s*=(?!=)|[(\[{]|[)\]}]""", re.DOTALL
)
_MOST_NAMES = 16
_NAME = re.compile(r"[\w.$-]{1,64}")


def _of_call(text: str, is_cut: bool) -> str | None:
    if text.startswith("{"):
        return _of_json_call(text)
    if is_cut and (opened := re.match(r"([A-Za-z_][\w.-]{0,79})\(\s*\{", text)):
        return f"{opened[1]}(…)"
    found = _CALL.fullmatch(text)
    if not found:
        return None
    name, arguments, bracketed = found.groups()
    if bracketed is not None:
        return f"{name}[<object>]"
    if not arguments.strip():
        return f"{name}()"
    if arguments.lstrip().startswith("{"):
        return _with_names(name, _object(arguments))
    names = list(_keywords(arguments))
    return _with_names(name, names) if names else f"{name}(<object>)"


def _of_json_call(text: str) -> str | None:
    value = _object(text)
    if value is None:
        return None
    inner = value.get("function")
    value = inner if isinstance(inner, dict) else value
    name = value.get("name")
    given = next((value[key] for key in ("arguments", "kwargs", "input", "args") if key in value), {})
    arguments: object = _object(given or "{}") if isinstance(given, str) else given
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][\w.-]{0,79}", name):
        return None
    if not arguments and arguments is not None:
        return f"{name}()"
    return _with_names(name, arguments if isinstance(arguments, dict) else None)


def _object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text, strict=False)
    except (RecursionError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _with_names(name: str, names: Iterable[str] | None) -> str:
    """Return a call with the sorted names of its arguments; they stay open where they could not be read."""
    if names is None:
        return f"{name}(…)"
    kept = sorted({each for each in names if _NAME.fullmatch(each)})
    return f"{name}({', '.join(kept[:_MOST_NAMES])}{', …' if len(kept) > _MOST_NAMES else ''})"


def _keywords(arguments: str) -> Iterator[str]:
    """Yield the names of arguments that are written `name=value`, but for those inside of values."""
    depth = 0
    for token in _KEYWORD.finditer(arguments[:_MOST_CHARS]):
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            depth -= 1
        elif token[1] and depth == 0:
            yield token[1]


# Commands in words, as of a game: things with a number are left open.

_MOST_COMMAND_CHARS = 120
_MOST_COMMAND_WORDS = 12
_SENTENCE = re.compile(r"[\n。？！，：；、…“”]|[.?!,:;](?:\s|$)")
_QUOTED = re.compile(r"""(?<!\w)'[^']+'(?!\w)|"[^"]+"|https?://\S+|\S+@\S+\.\w+""")
_LETTER = r"[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_NUMBERED = re.compile(
    rf"(?!\b(?:at|by|down|for|from|in|into|of|on|onto|than|to|up|with)\s?\(?\d)\b{_LETTER}+(?:[-']{_LETTER}+)*\s?\(?\d+\b\)?"
)
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")


def _of_command(text: str) -> str | None:
    """Return the template of a short line that is no sentence: it has no mark of one and no capital at its start.

    A capital is allowed where the line names a thing by its number.
    """
    if len(text) > _MOST_COMMAND_CHARS or len(text.split()) > _MOST_COMMAND_WORDS or _SENTENCE.search(text):
        return None
    if not text[:1].isalpha() or (text[0].isupper() and not any(sign.isdigit() for sign in text)):
        return None
    # The first word is what is done, and no thing, even if a number stands behind it.
    verb, blank, rest = _QUOTED.sub("<object>", fold(text)).partition(" ")
    if verb == "<object>":
        return None
    return _DIGITS.sub("<number>", verb + blank + _NUMBERED.sub("<object>", rest))
