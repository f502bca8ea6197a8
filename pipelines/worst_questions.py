"""The questions of an evaluation that a recipe answers worst: which evidence it missed, and why."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from hgmem_core.evaluation import Scores
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import Ranking
from hgmem_core.recipes import find_recipe
from hgmem_core.search import Filters
from hgmem_core.summarise import shorten
from hgmem_core.tasks.task import Questions, Task
from pipelines.progress import Progress
from pipelines.retriever import Retriever

K = 10
"""Evidence below this rank counts as missed: that of `recall@10`, by which questions are ordered."""

BANDS: Mapping[str, tuple[int, int]] = {"1-10": (1, 10), "11-30": (11, 30), "31-100": (31, 100), "101-": (101, 1 << 30)}
"""Ranks, first and last, that pieces of evidence are counted by."""

NEVER = "never"
"""The band of evidence that is not in a ranking."""

Why: TypeAlias = Literal["cut", "topic_missed", "episode_missed", "never_found"]
"""Of a missed piece of evidence: ranked, but below `K`; not ranked, since no topic of its episode was chosen, or a
topic but not the episode; not ranked by a recipe that chooses no topics, or for another reason."""

_TEXT_CHARS = 300
_FIRST = 3
"""Turns that a recipe ranks first, which a reader sees beside what it missed."""


def worst_questions(
    retriever: Retriever, task: Task, scores: Scores, run: pa.Table, count: int, ranked: int, progress: Progress
) -> dict[str, Any]:
    """Return what a result document says as `worst`, of the questions that train models.

    Args:
        retriever: That was asked.
        task: What was asked.
        scores: By question, in the order of the questions; with `recall@10` and `mrr`.
        run: RUN of all questions and recipes.
        count: How many questions of each recipe; those with the least `recall@10`, of equal ones the least `mrr`.
        ranked: How many turns were ranked.
        progress: Told of questions looked into.
    """
    group = task.groups[task.learned_from]
    members = np.flatnonzero(scores.members(group)).tolist()
    questions = task.questions.queries.to_pylist()
    relevant = _relevant(task.questions)
    ranks = _ranks(run, relevant)
    told, rows = [], []
    progress.start("worst", len(scores.values) * min(count, len(members)))
    for name in scores.values:
        recalls, firsts = scores.of(name, f"recall@{K}"), scores.of(name, "mrr")
        wanted = [(questions[place]["query_id"], turn) for place in members for turn in
                  relevant[questions[place]["query_id"]]]  # fmt: skip
        bands = Counter(_band(ranks.get((name, *one))) for one in wanted)
        rows.append({"recipe": name, **{band: bands[band] for band in (*BANDS, NEVER)}})
        order = sorted(members, key=lambda place: (recalls[place], firsts[place], questions[place]["query_id"]))
        for place in order[:count]:
            own = questions[place]
            if recalls[place] < 100:
                about = _about(retriever, own, relevant[own["query_id"]], name, ranked)
                told.append({**about, f"recall@{K}": round(float(recalls[place]), 2)})
            progress.advance("worst", 1)
    return {"k": K, "group": task.learned_from, "ranked": ranked, "evidence_by_rank": rows, "questions": told}


def _relevant(questions: Questions) -> Mapping[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in questions.qrels.to_pylist():
        found[row["query_id"]].append(row["turn_id"])
    return found


def _ranks(run: pa.Table, relevant: Mapping[str, list[str]]) -> Mapping[tuple[str, str, str], int]:
    """Return the rank of each piece of evidence that is in a ranking, by recipe, question and turn."""
    columns = (run.column(name).to_pylist() for name in ("recipe", "query_id", "id", "rank"))
    wanted = {query: set(turns) for query, turns in relevant.items()}
    return {(recipe, query, turn): rank for recipe, query, turn, rank in zip(*columns, strict=True)
            if turn in wanted.get(query, ())}  # fmt: skip


def _band(rank: int | None) -> str:
    if rank is None:
        return NEVER
    return next(name for name, (first, last) in BANDS.items() if first <= rank <= last)


def _about(
    retriever: Retriever, question: Mapping[str, Any], evidence: Sequence[str], name: str, ranked: int
) -> dict[str, Any]:
    """Return what was missed of the evidence of a question, and what was found instead."""
    recipe = find_recipe(name, retriever.version.default_recipe)
    query = retriever.analyse(question["text"], recipe)
    ranking = retriever.rank(question["namespace"], query, recipe, ranked, Filters(), explain=True)
    index = retriever.namespace(question["namespace"])
    assert ranking is not None and index is not None  # it was asked before
    row_of = {turn: row for row, turn in enumerate(index.column("turn_id").to_pylist())}
    place_of = {row: place for place, row in enumerate(ranking.rows.tolist(), 1)}
    missed = [row_of[turn] for turn in evidence if turn in row_of and place_of.get(row_of[turn], K + 1) > K]
    return {
        "recipe": name,
        "query_id": question["query_id"],
        "namespace": question["namespace"],
        "group": question["group"],
        "question": question["text"],
        "evidence": len(evidence),
        "not_in_version": sum(turn not in row_of for turn in evidence),
        "missed": [
            {
                **_turn(index, row),
                "rank": place_of.get(row),
                "why": _why(index, ranking, row, place_of.get(row)),
                "legs": {leg: int(own.ranks[row]) or None for leg, own in ranking.legs.items()},
            }
            for row in missed
        ],
        "first": [
            {**_turn(index, row), "is_evidence": index.column("turn_id")[row].as_py() in evidence}
            for row in ranking.rows[:_FIRST].tolist()
        ],
    }


def _turn(index: NamespaceIndex, row: int) -> dict[str, Any]:
    text = shorten(index.column("text")[row].as_py(), _TEXT_CHARS)
    turn_id, source_id = (index.column(name)[row].as_py() for name in ("turn_id", "source_id"))
    return {"turn_id": turn_id, "source_id": source_id, "speaker": index.speaker_of(row), "text": text}


def _why(index: NamespaceIndex, ranking: Ranking, row: int, rank: int | None) -> Why:
    if rank is not None:
        return "cut"
    episode = int(index.episode[row])
    if len(ranking.topics) and episode not in index.graph.episodes_of_topic.of_all(ranking.topics):
        return "topic_missed"
    if len(ranking.episodes) and episode not in ranking.episodes:
        return "episode_missed"
    return "never_found"
