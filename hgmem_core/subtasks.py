"""A task to a plan of a few subtasks, from its text alone and without a model; for past runs and for queries alike."""

import re
from collections.abc import Iterator

from hgmem_core.statements import is_empty_word, split_sentences
from hgmem_core.summarise import shorten
from hgmem_core.text import clean

SUBTASKS_REVISION = 1
"""Raised when equal tasks give other subtasks."""

MOST_SUBTASKS = 4
SUBTASK_CHARS = 240

_MOST_CHARS = 8_000
"""Of a task, as much is looked at."""
_LISTED = re.compile(r"(?:^|(?<=\s))(?:\(?\d{1,2}[.)](?=\s)|\d{1,2}、|[-*•](?=\s))")
_DOES = (
    "add arrange ask book bring buy calculate call cancel change check choose clean click close compare compute convert"
    " cool copy count create delete describe display download examine explain extract filter find fix get give go group"
    " heat include install list look make modify move open order pick place print put read remove rename replace report"
    " restart return run save search select send set show sort start stop store summarize take tell turn update upload"
    " use verify visit write"
).replace(" ", "|")
_ASKS = "what|where|who|whom|whose|which|how|why|when"
_CLAUSE = re.compile(
    rf"""\s*(?:
    [;；]
    |,?\s\b(?:and\s)?(?:then|after\sthat|afterwards|finally)\b,?\s
    |,?\s\b(?:and|but)\s(?=(?:also\s|please\s)?(?:{_DOES}|(?:in\s|for\s|with\s)?(?:{_ASKS}))\s)
    |[，,]?(?:然后|然後|接着|接著|最后|最後|之后再|之後再|并且|並且|再(?=[\u3400-\u9fff]))[，,]?
    |，
    )\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_ASKS_FOR_HELP = re.compile(
    r"(?:can|could|would|will) you (?:please )?(?:help|assist)(?: (?:me|us))?(?: (?:with|on) (?:that|this|it))?"
    r"\W*(?:please)?\W*",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_ENDS = " ,.;:，。；：、"


def subtasks(task: str) -> list[str]:
    """Return the one to four steps that a task's text names, in its order; none for a text with nothing in it.

    It is cut at the items of lists, at sentences, and where another thing to do or to ask begins within one; greetings,
    thanks and the mere question for help are left out. Where more than four are found, the shortest neighbours are
    joined.

    >>> subtasks("Hello! Find two mugs and put them in the sink, then wash them.")
    ['Find two mugs', 'put them in the sink', 'wash them']
    """
    text = clean(task[:_MOST_CHARS])[0]
    parts = list(_parts(text))
    if not parts:
        whole = " ".join(text.split()).strip(_ENDS)
        parts = [whole] if whole else []
    while len(parts) > MOST_SUBTASKS:
        place = min(range(len(parts) - 1), key=lambda place: len(parts[place]) + len(parts[place + 1]))
        parts[place : place + 2] = [f"{parts[place]}; {parts[place + 1]}"]
    return [shorten(part, SUBTASK_CHARS) for part in parts]


def _parts(text: str) -> Iterator[str]:
    items = _LISTED.split(text) if len(_LISTED.findall(text)) > 1 else [text]
    for item in items:
        for sentence in split_sentences(item):
            clauses = [clause.strip(_ENDS) for clause in _CLAUSE.split(sentence)]
            clauses = [clause for clause in clauses if clause]
            # A clause of a word or two belongs to the one beside it: the sentence stays whole.
            if not all(_says_something(clause) for clause in clauses):
                clauses = [sentence.strip(_ENDS)]
            yield from (clause for clause in clauses if _says_something(clause))


def _says_something(clause: str) -> bool:
    """Say whether a clause has two words and is no greeting, or has three signs of a script without blanks."""
    if len(_UNSPACED.findall(clause)) > 2:
        return True
    words = _WORD.findall(clause)
    if len(words) < 2 or _ASKS_FOR_HELP.fullmatch(clause):
        return False
    return len(words) > 3 or not all(is_empty_word(word) for word in words)
