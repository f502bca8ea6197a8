"""What was found for a task, as a text for a prompt: past experience, skills, mistakes, under a token budget.

Two ways to fill it. `turns` takes skills and lessons by turns, best first. `actions` looks at the templates between
backticks (`hgmem_core.action_templates`). It begins with the best mistake. Then comes again and again the line that
adds most for a token: each template that the text does not have yet counts as often as there are retrieved runs that
teach it as a way to success, κ of a template. When no line adds any, the rest comes by turns.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from hgmem_core.action_templates import templates_within
from hgmem_core.skill_join import Finding, Joined
from hgmem_core.skill_recipes import Fill
from hgmem_core.skill_utility import FAILURE, SUCCESS, UNKNOWN

EXPERIENCE, SKILLS, MISTAKES = "Past Experience", "Relevant Skills", "Mistakes to Avoid"
_SECTIONS = (EXPERIENCE, SKILLS, MISTAKES)
_TAGS = {SUCCESS: "success", FAILURE: "failure", UNKNOWN: "unknown"}

Node = tuple[int, int]
"""Which of the namespaces, and the number of a skill or of a run in its graph."""


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a context: its section, what it says, and the skill, or the run that taught it."""

    section: str
    text: str
    node: Node


@dataclass(frozen=True, slots=True)
class SkillContext:
    """What goes into a prompt.

    Attributes:
        text: The sections that have something, each under its title; empty where nothing was found.
        skills: The skills that are in it.
        trajectories: The runs whose lessons are in it.
        tokens: Of `text`, titles and separators included.
        left_out: Lines that the budget had no room for.
    """

    text: str
    skills: tuple[Node, ...]
    trajectories: tuple[Node, ...]
    tokens: int
    left_out: int


def skill_context(joined: Joined, fill: Fill, budget: int, count_tokens: Callable[[str], int]) -> SkillContext:
    """Take skills and lessons while they fit; see the module's docstring.

    A line that does not fit is passed over, and shorter ones after it may still fit. A line that says the same as one
    before it in its section is left out.

    Args:
        joined: Of one task.
        fill: In which order.
        budget: The most tokens of the text.
        count_tokens: Of a text.
    """
    every = list(_items(joined))
    draft = _Draft(budget, count_tokens)
    if fill == "actions":
        _take_by_actions(draft, every, _supports(joined.findings))
    for item in every:
        if item not in draft.items:
            draft.take(item)
    text = _text(draft.items)
    return SkillContext(
        text,
        tuple(item.node for item in draft.items if item.section != EXPERIENCE),
        tuple(item.node for item in draft.items if item.section == EXPERIENCE),
        count_tokens(text) if text else 0,
        len(every) - len(draft.items),
    )


@dataclass(slots=True)
class _Draft:
    """A context that is being written."""

    budget: int
    count_tokens: Callable[[str], int]
    items: list[Item] = field(default_factory=list)

    def take(self, item: Item) -> bool:
        """Add a line, if it fits; return whether it did."""
        fits = self.count_tokens(_text([*self.items, item])) <= self.budget
        if fits:
            self.items.append(item)
        return fits


def _take_by_actions(draft: _Draft, every: Sequence[Item], supports: Counter[str]) -> None:
    named = {item: templates_within(item.text) for item in every}
    tokens = {item: max(draft.count_tokens(item.text), 1) for item in every}
    next((item for item in every if item.section == MISTAKES and draft.take(item)), None)
    left = [item for item in every if item.section != MISTAKES]
    while left:
        known = frozenset[str]().union(*(named[item] for item in draft.items if item.section != MISTAKES))
        gains = [sum(supports[one] for one in named[item] - known) / tokens[item] for item in left]
        if max(gains) == 0:
            break
        draft.take(left.pop(gains.index(max(gains))))


def _supports(findings: Sequence[Finding]) -> Counter[str]:
    """Count for each template the retrieved runs that teach it: by the lesson of a success, or by a skill."""
    supports: Counter[str] = Counter()
    for finding in findings:
        graph = finding.graph
        texts = graph.tables.skills.column("text")
        for run in finding.found.trajectories.tolist():
            said = [graph.lessons[run]] if graph.outcomes[run] == SUCCESS else []
            skills = graph.hypergraph.skills.of(run).tolist()
            said += [texts[skill].as_py() for skill in skills if not graph.negative[skill]]
            supports.update(frozenset[str]().union(*map(templates_within, said)))
    return supports


def _items(joined: Joined) -> Iterator[Item]:
    """Yield the lines of what was found by turns, best first, each once."""
    skills: dict[tuple[str, str], Item] = {}
    for own, place in joined.skills:
        graph, skill = joined.findings[own].graph, int(joined.findings[own].found.skills[place])
        name, text = (graph.tables.skills.column(column)[skill].as_py() for column in ("name", "text"))
        section, line = MISTAKES if graph.negative[skill] else SKILLS, _line(f"{name}: {text}")
        skills.setdefault((section, line), Item(section, line, (own, skill)))
    lessons: dict[str, Item] = {}
    for own, place in joined.trajectories:
        graph, run = joined.findings[own].graph, int(joined.findings[own].found.trajectories[place])
        if graph.lessons[run]:
            line = _line(f"[{_TAGS[int(graph.outcomes[run])]}] {graph.lessons[run]}")
            lessons.setdefault(line, Item(EXPERIENCE, line, (own, run)))
    for skill_item, lesson in zip_longest(skills.values(), lessons.values()):
        yield from (item for item in (skill_item, lesson) if item is not None)


def _line(text: str) -> str:
    return " ".join(text.split())  # a line break would begin what looks like another item


def _text(items: Sequence[Item]) -> str:
    sections = []
    for section in _SECTIONS:
        lines = [f"- {item.text}" for item in items if item.section == section]
        if lines:
            sections.append("\n".join([f"## {section}", *lines]))
    return "\n\n".join(sections)
