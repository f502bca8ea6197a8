"""What runs do, as patterns of action templates: which come with success, and which with failure.

A pattern is one to four templates that follow each other in a run, equal neighbours counting once and words to users
left out; or one that says how an action went: `again`, the very same action three times in a row, and `refused`, an
action that was answered with an error. Its lift is how much more often runs that succeeded have it than runs that
failed, each share smoothed by half a run, so that what was seen once proves little.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from hgmem_core.action_templates import run_templates

Pattern = tuple[str, ...]
"""Templates in their order; one of `AGAIN` or `REFUSED` first says how the template after it went."""

AGAIN, REFUSED = "<again>", "<refused>"

MOST_TEMPLATES = 4
_MOST_OF_RUN = 200
"""Templates of a run that are looked at, the last ones: how it ended is decided there."""
_OFTEN = 3
"""As often an action has to come in a row to be done again and again."""
_ERROR = re.compile(
    r"\s*(?:\W{0,3}(?:error|exception|traceback|invalid|unknown|failed|failure|fatal|denied|nothing happens)\b"
    r"|[^\n]{0,80}\b(?:not found|no such|command not found|does not exist|doesn't exist|not valid|not permitted"
    r"|permission denied|syntax error|cannot be|can't be|could not)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RunActions:
    """What a run did.

    Attributes:
        sequence: Its templates, equal neighbours once.
        patterns: All its patterns.
    """

    sequence: Pattern
    patterns: frozenset[Pattern]

    @classmethod
    def of(cls, steps: Sequence[Mapping[str, str | None]]) -> "RunActions":
        """Read the `steps` of a TRAJECTORY row."""
        last = steps[-_MOST_OF_RUN:]
        actions = [str(step["action"]) for step in last]
        templates = run_templates(actions)
        sequence = tuple(template for template, _ in groupby(t for t in templates if t is not None))
        found = set(_consecutive(sequence))
        for template, step in zip(templates, last, strict=True):
            if template is not None and is_error(step["observation"]):
                found.add((REFUSED, template))
        for (_, template), same in groupby(zip(actions, templates, strict=True)):
            if template is not None and sum(1 for _ in same) >= _OFTEN:
                found.add((AGAIN, template))
        return cls(sequence, frozenset(found))


def is_error(observation: str | None) -> bool:
    """Tell whether what an agent saw begins like an error."""
    return observation is not None and _ERROR.match(observation[:200]) is not None


def templates_of(pattern: Pattern) -> Pattern:
    """Return the templates of a pattern, without what says how it went."""
    return pattern[1:] if pattern[0] in (AGAIN, REFUSED) else pattern


def _consecutive(sequence: Pattern) -> Iterator[Pattern]:
    for size in range(1, MOST_TEMPLATES + 1):
        for start in range(len(sequence) - size + 1):
            yield sequence[start : start + size]


class PatternCounts:
    """In how many runs that succeeded, and that failed, each pattern is."""

    def __init__(self) -> None:
        """Begin with no run."""
        self.succeeded, self.failed = 0, 0
        self._of_succeeded: Counter[Pattern] = Counter()
        self._of_failed: Counter[Pattern] = Counter()

    def add(self, run: RunActions, outcome: str) -> None:
        """Count a run; one of unknown outcome says nothing."""
        if outcome == "success":
            self.succeeded += 1
            self._of_succeeded.update(run.patterns)
        elif outcome == "failure":
            self.failed += 1
            self._of_failed.update(run.patterns)

    def among_succeeded(self, pattern: Pattern) -> int:
        """Return how many runs that succeeded have a pattern."""
        return self._of_succeeded[pattern]

    def among_failed(self, pattern: Pattern) -> int:
        """Return how many runs that failed have a pattern."""
        return self._of_failed[pattern]

    def lift(self, pattern: Pattern) -> float:
        """Return the smoothed share of a pattern among runs that succeeded over that among runs that failed.

        >>> counts = PatternCounts()
        >>> counts.lift(("open <object>",))
        1.0
        """
        good = (self._of_succeeded[pattern] + 0.5) / (self.succeeded + 1)
        bad = (self._of_failed[pattern] + 0.5) / (self.failed + 1)
        return good / bad

    def rarity(self, template: str) -> float:
        """Return how much a template tells a run from others: the logarithm of the share of all runs without it."""
        have = self._of_succeeded[(template,)] + self._of_failed[(template,)]
        return math.log1p((self.succeeded + self.failed - have) / (1 + have))
