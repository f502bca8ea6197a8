"""Skills that are to be merged to one text, with a language model; it may tell them apart."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from hgmem_core.chat import Reply, Request
from hgmem_core.fitting import first_that_fits, one_line
from hgmem_core.passes import Settled, Terms, Trouble, ask, reject_rows, request_of
from hgmem_core.prompts import load_prompt, quoted
from hgmem_core.skill_evolution import MOST_ALIASES, EvolutionPlan, MergePair, SkillText, joined_text
from hgmem_core.skills_llm import LESSON_TOKENS, NAME_CHARS, SKILL_TOKENS, TEXT_CHARS, Polarity, unfit
from hgmem_core.summarise import shorten
from hgmem_core.tokens import fold

SKILL_MERGE_LLM_REVISION = 1
"""Raised when equal skills and answers give other texts."""

MERGE = load_prompt("merge_skills")

_SKILL_CHARS = (600, 300, 150, 75)
"""How much of a text is shown: the most that fits."""


class MergedSkill(BaseModel):
    """The answer for a group of skills; name and text are empty where fewer than two belong together."""

    name: str = ""
    text: str = ""
    aliases: list[str] = []
    apart: list[int] = []


@dataclass(frozen=True, slots=True)
class SkillGroup:
    """Skills of one polarity, at least two, that may be one: the name and the text of each."""

    namespace: str
    group_id: str
    polarity: Polarity
    skills: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Merge:
    """A question: what some skills have in common."""

    group: SkillGroup
    user: str
    terms: Terms

    @property
    def answer_type(self) -> type[MergedSkill]:
        """See `passes.Question`."""
        return MergedSkill

    def request(self, attempt: int, found: MergedSkill | None, trouble: Trouble | None) -> Request:
        """Ask about the whole group."""
        return request_of(
            MERGE,
            self.user,
            MergedSkill,
            self.terms,
            namespace=self.group.namespace,
            stage="evolve",
            row_id=self.group.group_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=SKILL_TOKENS + LESSON_TOKENS,
        )

    def check(self, answer: MergedSkill) -> tuple[MergedSkill | None, list[str]]:
        """Keep a skill of at least two, or none if the model keeps them apart; a part of an answer is of no use."""
        numbers = range(1, len(self.group.skills) + 1)
        apart = sorted({number for number in answer.apart if number in numbers})
        complaints = [
            f"{number} is no skill: they are numbered 1 to {len(numbers)}"
            for number in set(answer.apart) - set(numbers)
        ]
        if len(numbers) - len(apart) < 2:
            return MergedSkill(apart=list(numbers)), complaints
        name, text = one_line(answer.name, NAME_CHARS), one_line(answer.text, TEXT_CHARS)
        wrong = unfit(f"{name} {text}") if name and text else "has no name or no text"
        if wrong:
            return None, [*complaints, f"the skill {wrong}"]
        aliases = (one_line(alias, NAME_CHARS) for alias in answer.aliases)
        joined = [own for number, (own, _) in enumerate(self.group.skills, 1) if number not in apart]
        names = {
            fold(alias): alias
            for alias in [*aliases, *joined]
            if alias and fold(alias) != fold(name) and not unfit(alias)
        }
        return MergedSkill(name=name, text=text, aliases=list(names.values()), apart=apart), complaints

    def merge(self, found: MergedSkill, more: MergedSkill) -> MergedSkill:
        """Take the later answer."""
        return more


def merge_skills_llm(
    groups: Sequence[SkillGroup], terms: Terms
) -> Generator[list[Request], list[Reply], list[Settled[MergedSkill]]]:
    """Join groups of similar skills; the names of the joined ones are among the aliases of the new one.

    The answer's `apart` numbers, from 1, the skills that stay as they are: all where nothing is joined.
    """
    questions = []
    for group in groups:
        kind = {"positive": "things to do", "negative": "mistakes to avoid"}[group.polarity]
        shown = ("\n".join(_skill_lines(group, chars)) for chars in _SKILL_CHARS)
        users = [MERGE.fill(kind=kind, skills=skills) for skills in shown]
        questions.append(_Merge(group, first_that_fits(MERGE, users, terms), terms))
    return (yield from ask(questions))


def _skill_lines(group: SkillGroup, most_chars: int) -> Iterator[str]:
    for number, (name, text) in enumerate(group.skills, 1):
        yield f"{number}. {quoted(shorten(name, NAME_CHARS))}: {quoted(shorten(text, most_chars))}"


@dataclass(frozen=True, slots=True)
class Joined:
    """What became of the texts of a pair.

    Attributes:
        text: What the merged skill says, or why the two stay apart.
        settled: What became of the question.
        rejects: Rows of REJECT, one for each pass that failed.
    """

    text: SkillText | str
    settled: Settled[MergedSkill]
    rejects: Sequence[dict[str, Any]]


def joined_texts_llm(
    plans: Sequence[EvolutionPlan], terms: Terms
) -> Generator[list[Request], list[Reply], list[list[Joined]]]:
    """Return for each pair of some plans what the merged skill says; without an answer, what `joined_text` says."""
    pairs = [(plan, pair) for plan in plans for pair in plan.pairs]
    groups = [_group(plan, pair) for plan, pair in pairs]
    settled = yield from merge_skills_llm(groups, terms)
    joined = (
        Joined(_text(plan, pair, one), one, reject_rows("evolve", group.namespace, group.group_id, one))
        for (plan, pair), group, one in zip(pairs, groups, settled, strict=True)
    )
    return [[next(joined) for _ in plan.pairs] for plan in plans]


def _group(plan: EvolutionPlan, pair: MergePair) -> SkillGroup:
    graph = plan.graph
    rows = graph.tables.skills.take([pair.one, pair.other]).to_pylist()
    polarity: Polarity = "negative" if graph.negative[pair.one] else "positive"
    said = [(row["name"], row["text"]) for row in rows]
    return SkillGroup(graph.namespace, rows[0]["skill_id"], polarity, said)


def _text(plan: EvolutionPlan, pair: MergePair, settled: Settled[MergedSkill]) -> SkillText | str:
    answer = settled.answer
    if answer is None:
        return joined_text(plan.graph, pair)
    if not answer.name:
        return "the language model told them apart"
    known = plan.graph.tables.skills.column("aliases").take([pair.one, pair.other]).to_pylist()
    names = {fold(name): name for name in [*answer.aliases, *known[0], *known[1]] if fold(name) != fold(answer.name)}
    return SkillText(answer.name, answer.text, tuple(names.values())[:MOST_ALIASES])
