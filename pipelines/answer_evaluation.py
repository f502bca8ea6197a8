"""Evaluations of answers: a benchmark's questions, answered by a model from what was found, and marked."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from hgmem_core import answer as answering
from hgmem_core import judging
from hgmem_core.answer import Answer, Asked, answer_llm, extractive_answer, without_evidence
from hgmem_core.config import AnswerStyle, Config
from hgmem_core.context import Context
from hgmem_core.encoding import Encoder
from hgmem_core.ids import digest_of_parts
from hgmem_core.intervals import ci95
from hgmem_core.judging import mark_llm
from hgmem_core.prompts import Prompt
from hgmem_core.protocols import Protocol
from hgmem_core.recipes import find_recipe
from hgmem_core.rerank import Reranking
from hgmem_core.search import Filters
from hgmem_core.tasks.task import Gold, Task, TaskError
from pipelines.answer_models import Model, Models
from pipelines.calls import Spent
from pipelines.chat_model import identity, terms_of
from pipelines.encoders import tuned_vectors
from pipelines.evaluation import RANKED
from pipelines.model_store import StoredModel
from pipelines.progress import Progress
from pipelines.retriever import Retriever
from pipelines.versions import Version


@dataclass(slots=True)
class _Row:
    """A question with what became of it under one recipe."""

    gold: Gold
    context: Context
    search_seconds: float
    is_whole: bool
    answer: Answer
    judgements: list[float | None]
    spent: Spent = field(default_factory=Spent)
    judged: Spent = field(default_factory=Spent)


def evaluate_answers(
    task: Task,
    version: Version,
    config: Config,
    encoder: Encoder,
    recipes: Sequence[str],
    protocol: Protocol,
    models: Models,
    progress: Progress,
    style: AnswerStyle | None = None,
    context_tokens: int | None = None,
    reranking: Reranking | None = None,
    trained: Mapping[str, StoredModel] = MappingProxyType({}),
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Answer every question of a protocol under every recipe, and mark the answers.

    Every question counts: one that the model failed to answer, and one that the judge failed to mark, is wrong.

    Args:
        task: What to ask.
        version: Of the memory.
        config: How the models' tokens are spent.
        encoder: Of the version.
        recipes: That find what is answered from.
        protocol: How.
        models: See `pipelines.answer_models.opened_models`.
        progress: Told of answers and marks.
        style: Of the answers; None for the protocol's.
        context_tokens: Of what is answered from; None for the protocol's.
        reranking: Orders what every recipe found anew; None for none.
        trained: Models of recipes that are trained.

    Returns:
        What a result document says of it: `answers`, `prompts_sha256`, and `warnings`; and a row for each recipe and
        question.

    Raises:
        TaskError: The task has no answers, or one is missing, or the version holds other data.
        ModelError: A model is of no use any more.
    """
    golds = _asked(task, protocol)
    style, budget = style or protocol.style, context_tokens or protocol.context_tokens
    tuned = tuned_vectors(config.encoder, encoder.identity)
    kept = {name: model.trained for name, model in trained.items()}
    retriever = Retriever(version, encoder, reranking, kept, tuned)
    results: list[dict[str, Any]] = []
    every: list[dict[str, Any]] = []
    warnings: list[str] = []
    for name in dict.fromkeys(recipes):
        rows = _found(retriever, golds, name, budget, style)
        _answer(rows, retriever, models.answers, style, progress)
        _mark(rows, protocol, task, models.judges, progress)
        scores = [protocol.score(row.gold, row.answer, row.judgements, task.unanswerable) for row in rows]
        results += _summaries(name, rows, scores, task, protocol)
        every += [_told(name, row, own) for row, own in zip(rows, scores, strict=True)]
        warnings += _warnings(name, rows, budget)
    prompts = _prompts(protocol, style, models)
    document = {
        "protocol": protocol.name,
        "style": style,
        "context_tokens": budget,
        "model": None if models.answers is None else identity(models.answers.llm),
        "judge": None if models.judges is None else identity(models.judges.llm),
        "judgements": protocol.judgements,
        "prompts": {prompt.name: prompt.fingerprint for prompt in prompts},
        "results": results,
    }
    digest = digest_of_parts(prompt.fingerprint for prompt in prompts) if prompts else None
    return {"answers": document, "prompts_sha256": digest, "warnings": warnings}, every


def _asked(task: Task, protocol: Protocol) -> list[Gold]:
    golds = [gold for gold in task.golds if protocol.asks(gold)]
    path = task.files.data.path
    if not golds:
        raise TaskError(f"{path}: no question has an answer; protocol {protocol.name} needs them")
    for gold in golds:
        if not gold.answers and gold.group not in task.unanswerable:
            raise TaskError(f"{path}: question {gold.query_id} ({gold.text!r}) has no answer, so none can be marked")
    return golds


def _found(retriever: Retriever, golds: Sequence[Gold], name: str, budget: int, style: AnswerStyle) -> list[_Row]:
    """Find what each question is answered from, and take the best of it as its answer for the time being."""
    recipe = find_recipe(name, retriever.version.default_recipe)
    vectors = retriever.encode([gold.text for gold in golds])
    rows = []
    for gold, vector in zip(golds, vectors, strict=True):
        began = time.perf_counter()
        query = retriever.analyse(gold.text, recipe, vector)
        ranking = retriever.rank(gold.namespace, query, recipe, RANKED, Filters())
        index = retriever.namespace(gold.namespace)
        if ranking is None or index is None:
            raise TaskError(f"version {retriever.version.id} has no namespace {gold.namespace!r}: it holds other data")
        context = retriever.context(index, ranking, recipe, budget)
        seconds = time.perf_counter() - began
        is_whole = len(context.turn_ids()) >= len(index)
        rows.append(_Row(gold, context, seconds, is_whole, extractive_answer(context, style, None), []))
    return rows


def _answer(
    rows: Sequence[_Row], retriever: Retriever, model: Model | None, style: AnswerStyle, progress: Progress
) -> None:
    if model is None:
        return
    asked = []
    for row in rows:
        silence = without_evidence(row.context, None, "llm")
        if silence is not None:
            row.answer = silence
        else:
            gold = row.gold
            today = gold.asked_on or retriever.today([gold.namespace], None)
            asked.append((row, Asked(gold.text, row.context, style, today, gold.namespace, gold.query_id)))
    progress.start("answer", len(asked))
    spent: dict[str, Spent] = {}
    steps = answer_llm([one for _, one in asked], terms_of(model.llm))
    answers = model.answered(steps, spent, lambda: progress.advance("answer", 1))
    progress.finish("answer")
    for (row, _), own in zip(asked, answers, strict=True):
        row.answer, row.spent = own, spent.get(row.gold.query_id, Spent())


def _mark(rows: Sequence[_Row], protocol: Protocol, task: Task, judge: Model | None, progress: Progress) -> None:
    if judge is None:
        return
    judged = [row for row in rows if protocol.needs_judge(row.gold, row.answer, task.unanswerable)]
    markings = [one for row in judged for one in protocol.markings(row.gold, row.answer)]
    progress.start("judge", len(judged))
    spent: dict[str, Spent] = {}
    marks = iter(judge.answered(mark_llm(markings, terms_of(judge.llm)), spent, lambda: progress.advance("judge", 1)))
    progress.finish("judge")
    for row in judged:
        row.judgements = [next(marks) for _ in range(protocol.judgements)]
        row.judged = spent[row.gold.query_id]


def _summaries(
    recipe: str, rows: Sequence[_Row], scores: Sequence[Mapping[str, float]], task: Task, protocol: Protocol
) -> list[dict[str, Any]]:
    """Return what became of the questions, all that were asked together, and by those groups that were asked whole."""
    kinds = {row.gold.group for row in rows}
    whole = {name: held for name, held in task.groups.items() if not protocol.groups or held <= protocol.groups}
    summaries = []
    for group, held in {"asked": kinds, **whole}.items():
        places = [place for place, row in enumerate(rows) if row.gold.group in held]
        if not places:
            continue
        own, strata = [rows[place] for place in places], [rows[place].gold.namespace for place in places]
        outcomes = [row.answer.outcome for row in own]
        values = {name: np.array([scores[place][name] for place in places]) for name in protocol.metrics}
        summaries.append(
            {
                "recipe": recipe,
                "group": group,
                "asked": len(own),
                **{outcome: outcomes.count(outcome) for outcome in ("answered", "abstained", "failed")},
                "judge_failed": sum(None in row.judgements for row in own),
                **{name: round(float(value.mean()), 4) for name, value in values.items()},
                "ci95": {name: [round(end, 2) for end in ci95(value, strata)] for name, value in values.items()},
                "tokens": {
                    "prompt": _spread([row.spent.prompt_tokens for row in own]),
                    "completion": _spread([row.spent.completion_tokens for row in own]),
                    "context": _spread([row.context.tokens for row in own]),
                    "judge": _spread([row.judged.prompt_tokens + row.judged.completion_tokens for row in own]),
                },
                "seconds": {
                    "search": _spread([row.search_seconds for row in own]),
                    "answer": _spread([row.spent.seconds for row in own]),
                    "judge": _spread([row.judged.seconds for row in own]),
                },
            }
        )
    return summaries


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Return the mean, the median and the 95th percentile, of a question each."""
    p50, p95 = np.percentile(values, [50, 95])
    return {"mean": round(float(np.mean(values)), 4), "p50": round(float(p50), 4), "p95": round(float(p95), 4)}


def _told(recipe: str, row: _Row, scores: Mapping[str, float]) -> dict[str, Any]:
    gold, answer = row.gold, row.answer
    cited = dict.fromkeys(turn for number in answer.citations for turn in row.context.statements[number - 1].turn_ids)
    return {
        "recipe": recipe,
        "query_id": gold.query_id,
        "namespace": gold.namespace,
        "group": gold.group,
        "question": gold.text,
        "right": list(gold.answers),
        "outcome": answer.outcome,
        "engine": answer.engine,
        "answer": answer.text,
        "cited_turn_ids": list(cited),
        "reason": None if answer.reason is None else answer.reason.text,
        **scores,
        "judgements": row.judgements,
        "passes": answer.passes,
        "prompt_tokens": row.spent.prompt_tokens,
        "completion_tokens": row.spent.completion_tokens,
        "context_tokens": row.context.tokens,
        "judge_tokens": row.judged.prompt_tokens + row.judged.completion_tokens,
        "seconds": {"search": row.search_seconds, "answer": row.spent.seconds, "judge": row.judged.seconds},
    }


def _warnings(recipe: str, rows: Sequence[_Row], budget: int) -> list[str]:
    """Tell what makes the marks less telling than they look."""
    asked = len(rows)
    counts = {
        "have no answer of the model, and count as wrong": sum(row.answer.outcome == "failed" for row in rows),
        "were not marked every time, and each mark that is missing counts as wrong": sum(
            None in row.judgements for row in rows
        ),
        f"are answered from all that there is: {budget} tokens hold their whole namespace, whatever is found": sum(
            row.is_whole for row in rows
        ),
        "are answered with statements word for word, not by a model": sum(
            row.answer.engine == "extractive" for row in rows
        ),
    }
    return [f"{recipe}: {count} of {asked} questions {what}" for what, count in counts.items() if count]


def _prompts(protocol: Protocol, style: AnswerStyle, models: Models) -> list[Prompt]:
    """Return the prompts that took part."""
    answers = [] if models.answers is None else [answering.PROMPTS[style]]
    return answers if protocol.scale is None else [*answers, judging.PROMPTS[protocol.scale]]
