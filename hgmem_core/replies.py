"""From a model's reply to a checked answer, whatever shape the reply is in.

An answer type is an object; its lists of objects hold the items. These rules hold:

- The answer is looked for in the content. If it holds none, in the reasoning: where that begins with JSON, or where the
  content is blank and the reasoning came to its end.
- Thinking is what stands before the last `</think>`, and what follows a `<think>` that has no end. In strings of JSON
  the two are text like any other.
- Of several objects one with items goes before one without, one that can be used before one that cannot, one without
  fault before one with; then the first, but of reasoning, where drafts come first, the last. A schema is no answer.
- A list of objects by itself is the answer's list, where it has but one; an empty list only if it is all there is.
- An answer is None if nothing is left of it, all its items being bad or cut off.
- A reading's fault is the gravest that it has, in the order of `Fault`.

Nothing that a reply holds is an error: whatever is wrong with it is part of the reading.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from hgmem_core.chat import Reply
from hgmem_core.loose_json import BEGINNING, Found, Unreadable, read_value
from hgmem_core.prompts import quoted
from hgmem_core.text import beginning

Answer = TypeVar("Answer", bound=BaseModel)

Fault = Literal[
    "refused", "truncated_in_thinking", "no_json", "bad_json", "truncated", "blanks", "bad_field", "bad_item"
]  # fmt: skip

Source = Literal["content", "reasoning"]

_CLOSING = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_MARK = re.compile(
    rf"(?P<closing>{_CLOSING.pattern})|(?P<opening><think(?:ing)?>)|(?:\[\s*+)?(?P<object>{BEGINNING})",
    re.DOTALL | re.IGNORECASE,
)
_FENCE = r"\s*+(?:```\w*+\s*+)?+"
_EMPTY_LIST = re.compile(rf"{_FENCE}\[\s*+(?:\]{_FENCE})?+")
_BEGINS_WITH_JSON = re.compile(rf"{_FENCE}[\[{{]")
_FIRST_KEY = re.compile(r'\{\s*+"(\w++)"')

# More than any indentation of an answer that goes on.
_ENDLESS_BLANKS = 32
_MOST_FAULTS = 10
_LONGEST_FAULT = 200
# What a model wrote may come from a log: the sentences give little room to it.
_LONGEST_QUOTE = 40
_STILL_THINKING = "the answer ended before the thinking did"


@dataclass(frozen=True, slots=True)
class Reading(Generic[Answer]):
    """What could be read of a reply.

    Attributes:
        answer: With every item that is whole and valid; None if there is no object, or a field beside the lists is bad.
        fault: What was wrong, the gravest thing first; None if nothing was.
        faults: What the model is told of it on the next pass, one sentence each.
        is_cut: Whether items may be missing because the reply ends too early.
        source: Where the object was found.
        ignored: Characters of further objects that were not used.
    """

    answer: Answer | None
    fault: Fault | None
    faults: Sequence[str]
    is_cut: bool
    source: Source | None
    ignored: int


def read_reply(reply: Reply, answer_type: type[Answer]) -> Reading[Answer]:
    """Read a reply as an answer of some type, by the rules above.

    The type's own validators raise nothing but ValueError and AssertionError, whatever they are given.
    """
    if reply.refusal is not None:
        return _nothing("refused", reply.refusal, is_cut=False)
    was_stopped = reply.finish_reason == "length"
    content, reasoning = reply.text or "", reply.reasoning or ""
    reading = _read_text(content, "content", answer_type, was_stopped)
    if reading.answer is not None:
        return reading
    if not _BEGINS_WITH_JSON.match(reasoning):
        if content.strip() or not reasoning.strip():
            return reading
        if was_stopped:
            return _nothing("truncated_in_thinking", _STILL_THINKING, is_cut=True)
    other = _read_text(reasoning, "reasoning", answer_type, was_stopped)
    return other if other.answer is not None or reading.source is None else reading


def _nothing(fault: Fault, sentence: str, is_cut: bool) -> Reading[Answer]:
    return Reading(None, fault, (sentence,), is_cut, None, 0)


def _read_text(text: str, source: Source, answer_type: type[Answer], was_stopped: bool) -> Reading[Answer]:
    """Read one of a reply's two texts; `was_stopped` says whether the reply was as long as it may be."""
    objects, is_thinking = _objects(text, answer_type)
    if source == "reasoning":
        objects.reverse()
    fields = answer_type.model_fields
    likely = [found for found in objects if isinstance(found.value, list) or found.value.keys() & fields]
    candidates = likely or objects[:1]
    readings = [(_read_object(found, text, source, answer_type, was_stopped), found) for found in candidates]
    answers = ((reading, found) for reading, found in readings if reading is not None)
    best, used = max(answers, key=lambda answer: _worth(answer[0]), default=(None, None))
    if is_thinking and (best is None or best.answer is None):
        return _nothing("truncated_in_thinking", _STILL_THINKING, is_cut=True)
    if best is None:
        repeats = "the answer repeats the schema instead of filling it in"
        return _nothing("no_json", repeats if objects else "the answer holds no JSON object", was_stopped)
    others = [found for found in objects if found is not used]
    best = replace(best, ignored=sum(found.end - found.start for found in others))
    if best.fault is None and used is not None and any(_is_item(found, used, answer_type) for found in others):
        return replace(best, fault="bad_json", faults=("items stand behind the end of the answer",))
    return best


def _is_item(found: Found, answer: Found, answer_type: type[BaseModel]) -> bool:
    """Say whether an object behind the answer is an item of it: the answer was closed too early."""
    names = {name for item_type in _item_types(answer_type).values() for name in item_type.model_fields}
    return (
        found.start >= answer.end
        and isinstance(found.value, dict)
        and bool(found.value.keys() & names)
        and not found.value.keys() & answer_type.model_fields
    )


def _worth(reading: Reading[Answer]) -> tuple[bool, bool, bool]:
    """Return what one reading has before another."""
    answer = reading.answer
    has_items = answer is not None and any(getattr(answer, name) for name in _item_types(type(answer)))
    return has_items, answer is not None, reading.fault is None


def _objects(text: str, answer_type: type[BaseModel]) -> tuple[list[Found], bool]:
    """Return what stands after the thinking, objects and lists of objects, and whether the text ends in thinking."""
    found: list[Found] = []
    at = answer_start = 0
    while mark := _MARK.search(text, at):
        closing: re.Match[str] | None = None
        if mark["opening"]:
            closing = _CLOSING.search(text, mark.end())
            if closing is None:
                return found, True
        elif mark["closing"]:
            closing = mark
        else:
            found.append(read_value(text, _start(text, mark, answer_type)))
            at = found[-1].end
        if closing is not None:
            found.clear()
            at = answer_start = closing.end()
    if not found and _list_alone(answer_type) and _EMPTY_LIST.fullmatch(text, answer_start):
        found.append(read_value(text, text.index("[", answer_start)))
    return found, False


def _start(text: str, mark: re.Match[str], answer_type: type[BaseModel]) -> int:
    """Return where a value begins: at a list's bracket, unless that is a stray one before the answer's own object."""
    first_key = _FIRST_KEY.match(text, mark.start("object"))
    is_answer = first_key is not None and first_key[1] in answer_type.model_fields
    return mark.start("object") if is_answer or _list_alone(answer_type) is None else mark.start()


def _read_object(
    found: Found, text: str, source: Source, answer_type: type[Answer], was_stopped: bool
) -> Reading[Answer] | None:
    """Read an object, or a list as the answer's only one; None for a schema."""
    is_whole = found.state == "whole"
    value = found.value if isinstance(found.value, dict) else {_list_alone(answer_type): found.value}
    fields = {name: value[name] for name in answer_type.model_fields if name in value}
    bad_items: list[str] = []
    for name, item_type in _item_types(answer_type).items():
        if isinstance(fields.get(name), list):
            fields[name] = _items(fields[name], item_type, name, bad_items)
        elif not is_whole:
            fields.setdefault(name, [])
    answer, bad_fields = _validated(answer_type, fields, is_whole)
    if all(field == [] for field in fields.values()) and (bad_items or not is_whole or not fields):
        if not value.keys().isdisjoint(("$defs", "properties")):
            return None
        answer = None
    ending = _ending(found, text, value, answer_type)
    fault: Fault | None = ending[0] if ending else "bad_field" if bad_fields else "bad_item" if bad_items else None
    faults = [ending[1]] if ending else []
    faults += bad_fields + bad_items
    if len(faults) > _MOST_FAULTS:
        faults[_MOST_FAULTS - 1 :] = [f"and {len(faults) - _MOST_FAULTS + 1} more"]
    is_cut = found.state == "cut" or (found.state == "broken" and was_stopped)
    return Reading(answer, fault, tuple(faults), is_cut, source, 0)


def _items(elements: list[Any], item_type: type[BaseModel], name: str, bad_items: list[str]) -> list[BaseModel]:
    """Return the elements of a list that are valid; adds a sentence for each that is not."""
    items = []
    for number, element in enumerate(elements, 1):
        try:
            items.append(item_type.model_validate(element))
        except ValidationError as error:
            bad_items.append(_sentence(error.errors(include_url=False)[0], f"item {number} of {name}"))
    return items


def _validated(answer_type: type[Answer], fields: dict[str, Any], is_whole: bool) -> tuple[Answer | None, list[str]]:
    """Return the answer, or a sentence for each bad field; a missing one is bad only in an object that is whole."""
    try:
        answer = answer_type.model_validate(fields)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        return None, [_sentence(wrong) for wrong in errors if is_whole or wrong["type"] != "missing"]
    return (answer, []) if fields or not is_whole else (None, ["none of the answer's fields is there"])


def _ending(
    found: Found, text: str, value: Mapping[Any, Any], answer_type: type[BaseModel]
) -> tuple[Fault, str] | None:
    """Return what is wrong with how an object ends, as fault and sentence; None for a whole one."""
    if found.state == "whole":
        return None
    begun = [name for name in value if name in _item_types(answer_type) and isinstance(value[name], list)]
    after = f", after item {len(value[begun[-1]])} of {begun[-1]}" if begun and value[begun[-1]] else ""
    if found.state == "broken":
        return "bad_json", f"the JSON is not well formed{after}, near {_quote(text[found.end :][:_LONGEST_QUOTE])}"
    if len(text) - len(text.rstrip()) >= _ENDLESS_BLANKS:
        return "blanks", f"the answer ran on in blanks{after}"
    return "truncated", f"the answer ended too early{after}"


def _sentence(error: ErrorDetails, place: str = "") -> str:
    """Return what is wrong with a value, and where."""
    path = " ".join(str(part + 1 if isinstance(part, int) else part)[:_LONGEST_QUOTE] for part in error["loc"])
    given = error["input"]
    if isinstance(given, Unreadable):
        wrong = given.why
    elif error["type"] == "missing":
        wrong = error["msg"]
    else:
        expected = "Input should be an object" if error["type"] == "model_type" else error["msg"]
        wrong = f"{expected} (got {_quote(given)})"
    return ": ".join(part for part in (place, path, wrong) if part)[:_LONGEST_FAULT]


def _quote(value: object) -> str:
    """Return what a model wrote, in short."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return quoted(value if len(value) <= _LONGEST_QUOTE else f"{beginning(value, _LONGEST_QUOTE - 1)}…")
    return json.dumps(value, default=str)


@cache
def _item_types(answer_type: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return the fields that are lists of objects, and of what."""
    lists = {
        name: get_args(field.annotation)
        for name, field in answer_type.model_fields.items()
        if get_origin(field.annotation) is list
    }
    return {name: of[0] for name, of in lists.items() if isinstance(of[0], type) and issubclass(of[0], BaseModel)}


def _list_alone(answer_type: type[BaseModel]) -> str | None:
    """Return the one field that is a list of objects; None if there are several or none."""
    names = list(_item_types(answer_type))
    return names[0] if len(names) == 1 else None
