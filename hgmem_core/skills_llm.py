"""Tasks and past runs to subtasks, skills and lessons, with a language model.

What is learnt has to be of use elsewhere: what names a link, an address or a number as long as an id is refused.
"""

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from hgmem_core.chat import Reply, Request
from hgmem_core.fitting import batches, first_that_fits, one_line
from hgmem_core.passes import Settled, Terms, Trouble, ask, reject_rows, request_of
from hgmem_core.prompts import load_prompt, quoted
from hgmem_core.tokens import fold
from hgmem_core.trajectories import RunOutcome
from hgmem_core.transcript import ends

SKILLS_LLM_REVISION = 1
"""Raised when equal tasks, runs and answers give other subtasks, skills or lessons."""

DECOMPOSE = load_prompt("decompose")
DISTIL = load_prompt("skills")

MOST_SUBTASKS = 4
MOST_SKILLS = 3
"""Of one window of a run."""
NAME_CHARS = 80
TEXT_CHARS = 600

_TASK_CHARS = (4_000, 1_000, 250)
_STEP_CHARS = (600, 300, 150)
"""How much of a step is shown: the most with which a run takes few windows."""
_FEW_WINDOWS = 4
_MOST_STEPS = 80
"""Of one window."""
_SUBTASK_TOKENS, SKILL_TOKENS, LESSON_TOKENS = 40, 110, 50
"""Of an answer, each."""

_PRIVATE = re.compile(r"https?://|\bwww\.|\S@\w+\.\w|\d{6}|#\w*\d{3}")

Polarity = Literal["positive", "negative"]


class Subtask(BaseModel):
    """A step of a plan."""

    name: str
    description: str

    @property
    def text(self) -> str:
        """The subtask in one line."""
        return f"{self.name}: {self.description}"


class Decomposition(BaseModel):
    """The answer for a task."""

    subtasks: list[Subtask]


class Skill(BaseModel):
    """What to do, or a mistake to avoid."""

    name: str
    text: str
    polarity: Polarity


class Distillation(BaseModel):
    """The answer for a run, or a window of one."""

    skills: list[Skill] = []
    lesson: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A task to be planned."""

    namespace: str
    task_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A past run: its task, what was done and seen at each step, and how it ended."""

    namespace: str
    trajectory_id: str
    task: str
    steps: Sequence[str]
    outcome: RunOutcome


@dataclass(frozen=True, slots=True)
class Distilled:
    """What was learnt from a run.

    Attributes:
        skills: Each name of a polarity once.
        lesson: Empty where there is none.
        outcome: `ok`, `partial` where a window has no full answer, `fallback` where none has any.
        passes: The most that a window took.
        reason: Why it is not `ok`.
        rejects: Rows of REJECT, one for each pass that failed.
    """

    skills: Sequence[Skill]
    lesson: str
    outcome: Literal["ok", "partial", "fallback"]
    passes: int
    reason: str | None
    rejects: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A question: how to cut a task into steps."""

    task: Task
    user: str
    terms: Terms

    @property
    def answer_type(self) -> type[Decomposition]:
        """See `passes.Question`."""
        return Decomposition

    def request(self, attempt: int, found: Decomposition | None, trouble: Trouble | None) -> Request:
        """Ask for the whole plan."""
        return request_of(
            DECOMPOSE,
            self.user,
            Decomposition,
            self.terms,
            namespace=self.task.namespace,
            stage="decompose",
            row_id=self.task.task_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=_SUBTASK_TOKENS * MOST_SUBTASKS,
        )

    def check(self, answer: Decomposition) -> tuple[Decomposition | None, list[str]]:
        """Keep the first steps that say something."""
        complaints = []
        sound: dict[str, Subtask] = {}
        for item in answer.subtasks:
            name, description = one_line(item.name, NAME_CHARS), one_line(item.description, TEXT_CHARS)
            if name and description:
                sound.setdefault(fold(name), Subtask(name=name, description=description))
            else:
                complaints.append("a subtask has no name or no description")
        if not sound and not complaints:
            complaints.append("there are no subtasks; the simplest task is one")
        if len(sound) > MOST_SUBTASKS:
            complaints.append(f"{len(sound)} subtasks are too many: 1 to {MOST_SUBTASKS}")
        kept = list(sound.values())[:MOST_SUBTASKS]
        return (Decomposition(subtasks=kept) if kept else None), complaints

    def merge(self, found: Decomposition, more: Decomposition) -> Decomposition:
        """Take the later plan: two halves of different plans are none."""
        return more


@dataclass(frozen=True, slots=True)
class _Window:
    """A question: what some steps of a run teach."""

    trajectory: Trajectory
    row_id: str
    user: str
    terms: Terms

    @property
    def answer_type(self) -> type[Distillation]:
        """See `passes.Question`."""
        return Distillation

    def request(self, attempt: int, found: Distillation | None, trouble: Trouble | None) -> Request:
        """Ask about the whole window: what was good of an earlier answer is kept all the same."""
        return request_of(
            DISTIL,
            self.user,
            Distillation,
            self.terms,
            namespace=self.trajectory.namespace,
            stage="skills",
            row_id=self.row_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=SKILL_TOKENS * MOST_SKILLS + LESSON_TOKENS,
        )

    def check(self, answer: Distillation) -> tuple[Distillation | None, list[str]]:
        """Keep the skills and the lesson that say something of use elsewhere."""
        skills, complaints = [], []
        for item in answer.skills[:MOST_SKILLS]:
            name, text = one_line(item.name, NAME_CHARS), one_line(item.text, TEXT_CHARS)
            wrong = unfit(f"{name} {text}") if name and text else "has no name or no text"
            if wrong:
                complaints.append(f"skill {quoted(name)} {wrong}")
            else:
                skills.append(Skill(name=name, text=text, polarity=item.polarity))
        lesson = one_line(answer.lesson, TEXT_CHARS)
        wrong = unfit(lesson) if lesson else "is empty"
        if wrong:
            complaints.append(f"lesson {wrong}")
            lesson = ""
        return (Distillation(skills=skills, lesson=lesson) if skills or lesson else None), complaints

    def merge(self, found: Distillation, more: Distillation) -> Distillation:
        """Take from the later answer what the earlier one lacks."""
        return Distillation(
            skills=_distinct([*found.skills, *more.skills])[:MOST_SKILLS], lesson=found.lesson or more.lesson
        )


def decompose_llm(
    tasks: Sequence[Task], terms: Terms
) -> Generator[list[Request], list[Reply], list[Settled[Decomposition]]]:
    """Cut tasks into 1 to 4 subtasks each, from their text alone; a task without an answer is `fallback`."""
    questions = []
    for task in tasks:
        users = [DECOMPOSE.fill(task=quoted(ends(task.text, chars))) for chars in _TASK_CHARS]
        questions.append(_Plan(task, first_that_fits(DECOMPOSE, users, terms), terms))
    return (yield from ask(questions))


def distil_llm(
    trajectories: Sequence[Trajectory], terms: Terms
) -> Generator[list[Request], list[Reply], list[Distilled]]:
    """Learn skills and a lesson from past runs.

    A run that is too long for a prompt is shown in windows; its lesson is that of the last one that has one.
    """
    questions = [list(_windows(trajectory, terms)) for trajectory in trajectories]
    settled = iter((yield from ask([window for own in questions for window in own])))
    return [_distilled([(window, next(settled)) for window in own]) for own in questions]


def _windows(trajectory: Trajectory, terms: Terms) -> Iterator[_Window]:
    """Yield a run as windows of consecutive steps, few if shorter steps make it so."""
    count = len(trajectory.steps)
    task = quoted(ends(trajectory.task, _TASK_CHARS[1]))

    def user(steps: Sequence[int], chars: int) -> str:
        lines = [f"{step}. {quoted(ends(trajectory.steps[step - 1], chars))}" for step in steps]
        first, last = (steps[0], steps[-1]) if steps else (0, 0)
        return DISTIL.fill(
            task=task,
            outcome=trajectory.outcome,
            first=str(first),
            last=str(last),
            count=str(count),
            steps="\n".join(lines),
        )

    def cut(chars: int) -> list[Sequence[int]]:
        steps = range(1, count + 1)
        return batches(steps, _MOST_STEPS, lambda some: terms.fits(DISTIL, user(some, chars))) or [[]]

    chars = next((chars for chars in _STEP_CHARS if len(cut(chars)) <= _FEW_WINDOWS), _STEP_CHARS[-1])
    for number, window in enumerate(cut(chars)):
        row_id = f"{trajectory.trajectory_id}#{number}" if number else trajectory.trajectory_id
        yield _Window(trajectory, row_id, user(window, chars), terms)


def _distilled(answered: Sequence[tuple[_Window, Settled[Distillation]]]) -> Distilled:
    answers = [result.answer for _, result in answered if result.answer]
    outcomes = {result.outcome for _, result in answered}
    outcome: Literal["ok", "partial", "fallback"] = "partial"
    if outcomes == {"ok"}:
        outcome = "ok"
    elif not answers:
        outcome = "fallback"
    return Distilled(
        skills=_distinct([skill for answer in answers for skill in answer.skills]),
        lesson=next((answer.lesson for answer in reversed(answers) if answer.lesson), ""),
        outcome=outcome,
        passes=max(result.passes for _, result in answered),
        reason=next((result.reason for _, result in answered if result.reason), None),
        rejects=[
            row
            for window, result in answered
            for row in reject_rows("skills", window.trajectory.namespace, window.row_id, result)
        ],
    )


def _distinct(skills: Sequence[Skill]) -> list[Skill]:
    found: dict[tuple[str, str], Skill] = {}
    for skill in skills:
        found.setdefault((skill.polarity, fold(skill.name)), skill)
    return list(found.values())


def unfit(text: str) -> str | None:
    """Return why a text is of no use elsewhere, None if it may be."""
    return "names a link, an address or an id" if _PRIVATE.search(text) else None
