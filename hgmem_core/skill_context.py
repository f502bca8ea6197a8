"""What was found for a task, as a text for a prompt: past experience, skills, mistakes, under a token budget."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from hgmem_core.skill_graph import SkillGraph
from hgmem_core.skill_search import Retrieved
from hgmem_core.skill_utility import FAILURE, SUCCESS, UNKNOWN

EXPERIENCE, SKILLS, MISTAKES = "Past Experience", "Relevant Skills", "Mistakes to Avoid"
_SECTIONS = (EXPERIENCE, SKILLS, MISTAKES)
_TAGS = {SUCCESS: "success", FAILURE: "failure", UNKNOWN: "unknown"}


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a context: its section, what it says, and the number of the skill, or of the run that taught it."""

    section: str
    text: str
    node: int


@dataclass(frozen=True, slots=True)
class SkillContext:
    """What goes into a prompt.

    Attributes:
        text: The sections that have something, each under its title; empty where nothing was found.
        skills: Numbers of the skills that are in it, best first.
        trajectories: Numbers of the runs whose lessons are in it, nearest first.
        tokens: Of `text`, titles and separators included.
        left_out: Lines that the budget had no room for.
    """

    text: str
    skills: tuple[int, ...]
    trajectories: tuple[int, ...]
    tokens: int
    left_out: int


def skill_context(graph: SkillGraph, found: Retrieved, budget: int, count_tokens: Callable[[str], int]) -> SkillContext:
    """Take skills and lessons by turns, best first, while they fit.

    A line that does not fit is passed over, and shorter ones after it may still fit. A lesson that says the same of the
    same outcome as one before it is left out.

    Args:
        graph: What `found` is numbered by.
        found: Of one task.
        budget: The most tokens of the text.
        count_tokens: Of a text.
    """
    every = list(_items(graph, found))
    chosen: list[Item] = []
    for item in every:
        if count_tokens(_text([*chosen, item])) <= budget:
            chosen.append(item)
    text = _text(chosen)
    return SkillContext(
        text,
        tuple(item.node for item in chosen if item.section != EXPERIENCE),
        tuple(item.node for item in chosen if item.section == EXPERIENCE),
        count_tokens(text) if text else 0,
        len(every) - len(chosen),
    )


def _items(graph: SkillGraph, found: Retrieved) -> Iterator[Item]:
    names, texts = (graph.tables.skills.column(name) for name in ("name", "text"))
    skills = [
        Item(
            MISTAKES if graph.negative[skill] else SKILLS,
            _line(f"{names[skill].as_py()}: {texts[skill].as_py()}"),
            skill,
        )
        for skill in found.skills.tolist()
    ]
    lessons: dict[str, Item] = {}
    for run in found.trajectories.tolist():
        if graph.lessons[run]:
            text = _line(f"[{_TAGS[int(graph.outcomes[run])]}] {graph.lessons[run]}")
            lessons.setdefault(text, Item(EXPERIENCE, text, run))
    for skill_item, lesson in zip_longest(skills, lessons.values()):
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
