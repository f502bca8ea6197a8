"""What the words before an English temporal expression, in its sentence, say of it: by patterns, without a grammar."""

import re

# A perfect tense and no other verb up to the duration: what was said goes on until then.
_PERFECT = re.compile(
    r"(?:(?:\b(?:have|has)(?:n['’]t)?|['’]ve|['’]s)(?: (?!been to)\w+){0,2}? |(?:^|[.!?] )(?=been ))"
    r"(?:been|\w{2,}ed|known|had|kept|taught|done|run|made|seen|felt|held|written|grown|gone|slept|met|spoken|read)\b"
    r"(?! to\b)(?:(?! (?:was|were|went|did|had|when|because|before|after|since|but)\b)[^.!?;\n])*$",
    re.IGNORECASE,
)
# What happened, by a plain past right after who did it; and what will.
_PAST = re.compile(
    r"\b(?:i|we|he|she|they|it|you|who|that|and|just|also|finally) (?:\w{3,}ed|was|were|did|had|got|made|won|lost|went"
    r"|came|saw|met|took|ran|built|wrote|found|left|gave|told|said|bought|felt|began)\b|\b(?:didn|wasn|weren)['’]t\b",
    re.IGNORECASE,
)
# What follows a past verb and may be still to come: tickets for a game, a wish to go.
_OPEN = re.compile(
    r" (?:for|about|that|until|till|before|after|to (?!(?:the|an?|my|our|his|her|their|this|(?-i:[A-Z])\w*)\b))",
    re.IGNORECASE,
)
_FUTURE = re.compile(
    r"\b(?:will|shall|going to|gonna|won['’]t)\b|['’]ll\b|\b(?:see|meet|join) (?:you|us)\b", re.IGNORECASE
)
_NOT_SINCE = re.compile(r"\b(?:haven|hasn)['’]t\b|\b(?:have|has) (?:not|never)\b|\bnot \w+ed\b", re.IGNORECASE)
_PLANS = re.compile(
    r"\b(?:plans?|planned|planning|ready|excited|waiting)(?: \w+)?$|\b(?:will|going|gonna)\b|['’]ll\b", re.IGNORECASE
)
_SEEMS = re.compile(r"\blike (?:it was |just |only |it was just |it was only )?$", re.IGNORECASE)
_CLAUSE = re.compile(r"[^.!?;:\n]*$")
_BEEN = re.compile(r"\bbeen (?:about |almost |nearly |over |only |just |quite )?$", re.IGNORECASE)
_SENTENCE = 160


def _clause(match: re.Match[str]) -> str:
    """Return what stands before a match in its sentence."""
    found = _CLAUSE.search(match.string, max(0, match.start() - _SENTENCE), match.start())
    return found[0] if found else ""


def is_no_comparison(match: re.Match[str]) -> bool:
    """Say whether a day is meant itself, not as in `it feels like yesterday`."""
    return _SEEMS.search(_clause(match)) is None


def is_ahead(match: re.Match[str]) -> bool:
    """Say whether `in two days` is when it will be, not how long it took, as in `I finished it in two days`."""
    return tense_of(match) >= 0


def is_not_since(match: re.Match[str]) -> bool:
    """Say whether nothing happened for so long, as in `I haven't slept in two days`."""
    return _NOT_SINCE.search(_clause(match)) is not None


def is_planned(match: re.Match[str]) -> bool:
    """Say whether there are plans for a time."""
    return _PLANS.search(_clause(match).rstrip()) is not None


def since_then(match: re.Match[str]) -> bool:
    """Say whether so much time has passed, as in `it has been two weeks since`."""
    return _BEEN.search(match.string, max(0, match.start() - _SENTENCE), match.start()) is not None


def goes_on(match: re.Match[str]) -> bool:
    """Say whether something has gone on for so long, up to the moment of saying."""
    start = match.start()
    return _PERFECT.search(match.string, max(0, start - _SENTENCE), start) is not None


def tense_of(match: re.Match[str]) -> int:
    """Return -1 where the sentence up to a match tells the past, 1 where the future, 0 where neither or both."""
    clause = _clause(match)
    past = _PAST.search(clause)
    is_past = past is not None and _OPEN.search(clause, past.end()) is None
    return (_FUTURE.search(clause) is not None) - is_past
