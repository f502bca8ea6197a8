"""Of the report of an evaluation: which evidence was missed, and why."""

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.report_charts import Charts
from pipelines.report_page import Missed, Question, Questions, Section, Table

_BANDS = {"1-10": "1 to 10", "11-30": "11 to 30", "31-100": "31 to 100", "101-": "from 101", "never": "in no place"}
_NEAR = 10
"""A rank in one list that the joined ranking is measured against."""


def missed_sections(
    worst: Mapping[str, Any], charts: Charts, best: str, group_name: Callable[[str], str]
) -> list[Section]:
    """Return the sections on evidence that recipes missed.

    Args:
        worst: Of a result document; see `pipelines.worst_questions`.
        charts: That draw.
        best: The recipe whose questions come first.
        group_name: Names a group of questions for people.
    """
    parts = {row["recipe"]: {told: row[band] for band, told in _BANDS.items()} for row in worst["evidence_by_rank"]}
    drawn = [charts.bars("Where evidence is ranked", parts, "pieces of evidence")]
    rows = [(name, *(f"{count:,}" for count in own.values())) for name, own in parts.items()]
    missed = Section(
        "Why evidence is missed",
        f"Every piece of evidence of {group_name(worst['group'])} by its rank. What lies below {worst['k']} is "
        "cut by k: a better order would bring it back. What is in no place of a ranking of at most "
        f"{worst['ranked']:,} turns was never found.",
        drawn,
        [Table("Pieces of evidence by rank", ("recipe", *_BANDS.values()), rows)],
    )
    names = sorted({one["recipe"] for one in worst["questions"]}, key=lambda name: (name != best, name))
    asked = [
        Questions(
            f"{name}: {len(own)} {'question' if len(own) == 1 else 'questions'}",
            [_question(one, group_name) for one in own],
            is_folded=name != names[0],
        )
        for name in names
        if (own := [one for one in worst["questions"] if one["recipe"] == name])
    ]
    lead = "Those with the least evidence found. Below each piece that was missed: its rank in each list of the recipe."
    return [missed, Section("Worst questions", lead, asked=asked)]


def _question(one: Mapping[str, Any], group_name: Callable[[str], str]) -> Question:
    absent = f" · {one['not_in_version']} not in this version" if one["not_in_version"] else ""
    found = one["evidence"] - len(one["missed"]) - one["not_in_version"]
    where = f"{group_name(one['group'])} · {one['namespace']} · {one['query_id']}"
    missed = [
        Missed(
            row.get("speaker") or "",
            row["text"],
            _why(row),
            [(name, "none" if rank is None else f"{rank:,}") for name, rank in row["legs"].items()],
        )
        for row in one["missed"]
    ]
    first = [(row.get("speaker") or "", row["text"], row["is_evidence"]) for row in one["first"]]
    return Question(one["question"], f"{where} · found {found} of {one['evidence']}{absent}", missed, first)


def _why(row: Mapping[str, Any]) -> str:
    """Say why a piece of evidence was missed.

    >>> _why({"rank": 427, "why": "cut", "legs": {"bm25/turn": 5, "dense/turn": 900}})
    'cut by k at rank 427, though bm25/turn has it at 5'
    """
    if row["why"] != "cut":
        return {
            "topic_missed": "topic missed: no topic of its episode was chosen",
            "episode_missed": "episode missed: its topic was chosen, its episode was not",
            "never_found": "never found: the ranking does not hold it",
        }[row["why"]]
    known = {name: rank for name, rank in row["legs"].items() if rank is not None}
    nearest = min(known, key=lambda name: known[name], default=None)
    own = f", though {nearest} has it at {known[nearest]}" if nearest and known[nearest] <= _NEAR else ""
    return f"cut by k at rank {row['rank']:,}{own}"
