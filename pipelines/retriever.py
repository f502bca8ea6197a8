"""Queries against one opened version: analyse, rank, and return hits with their sources."""

import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.abstention import ABSTENTION, Abstainer, AbstainerError, Abstention, nothing_found
from hgmem_core.config import SkillsConfig
from hgmem_core.context import MOST_STATEMENTS, Context, assemble, statements_of
from hgmem_core.encoding import Encoder, encode_queries
from hgmem_core.evidence import find_evidence
from hgmem_core.ids import check_namespace
from hgmem_core.intent_llm import Analyst, IntentError
from hgmem_core.lexical import Floats
from hgmem_core.namespace_index import IndexReader, NamespaceIndex
from hgmem_core.ranking import EmptyReason, Query, Ranking
from hgmem_core.recipes import RECIPES, AnyRecipe, find_recipe, model_name, needs_analysis, needs_tuned, needs_vector
from hgmem_core.rerank import Reranking, Scorer
from hgmem_core.search import Filters, Hit, hits_of, passing, rank_turns
from hgmem_core.skill_graph import SkillGraph
from hgmem_core.skill_utility import NodeKind
from hgmem_core.tokens import tokenizer
from hgmem_core.trained import Trained, TrainedModelError
from pipelines.encoders import token_counter
from pipelines.open_namespaces import OpenNamespaces
from pipelines.skill_response import SkillResponse
from pipelines.skill_retriever import SkillRetriever
from pipelines.tombstone_files import TombstoneWatch
from pipelines.tuned_vectors import Tuned
from pipelines.versions import Version, VersionError, check_encoder, check_tuned

OPEN_NAMESPACES = 1_024
"""Namespaces kept open; each holds views of mapped files and a few small arrays."""


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to one query.

    Attributes:
        version: The version that answered.
        recipe: The recipe's own name, also where `default` was asked.
        hits: Best first; empty with a `reason`.
        reason: Why there are no hits, else None.
        context: A text for a prompt with its citations, if one was asked for.
        timings_ms: Milliseconds spent on encoding the query, on asking a model for its intent, on the search, on a
            reranker, and on `abstention`.
        reranked: Whether a reranker had a say in the order.
        rerank_failure: Why it had none although there is one, else None; the order is the recipe's own then.
        abstention: How likely the memory holds the answer, and what speaks against it; None without a model that tells.
        intent_failure: Why a model that was asked told nothing of the question, or a part only, else None; the rest is
            the rules' own analysis then.
    """

    version: str
    recipe: str
    hits: list[Hit]
    reason: EmptyReason | None
    timings_ms: dict[str, float]
    context: Context | None = None
    reranked: bool = False
    rerank_failure: str | None = None
    abstention: Abstention | None = None
    intent_failure: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the response as JSON-ready values, times in ISO 8601."""
        content = asdict(self)
        for hit in content["hits"]:
            hit["said_at"] = hit["said_at"].isoformat() if hit["said_at"] else None
        if self.context is not None:
            statements = [
                {"text": one.text, "day": one.date, "turn_ids": one.turn_ids} for one in self.context.statements
            ]
            content["context"]["statements"] = statements
        return content


class Retriever:
    """Answers queries from one version; threads may share it."""

    def __init__(
        self,
        version: Version,
        encoder: Encoder,
        reranking: Reranking | None = None,
        models: Mapping[str, Trained] = MappingProxyType({}),
        tuned: Tuned | None = None,
        abstain_below: float = 0.0,
        analyst: Analyst | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            version: That answers.
            encoder: That made its vectors.
            reranking: Orders what a recipe found anew, whichever recipe it is; None for none.
            models: Of the recipes that are trained, by `hgmem_core.recipes.model_name`, and the abstainer by its own.
            tuned: That made its tuned vectors; None for none, and then recipes that need it are refused.
            abstain_below: The probability that the memory holds the answer below which none should be given; 0 for
                never.
            analyst: Tells what a question asks for, to recipes that read it; None leaves that to the rules.

        Raises:
            TrainedModelError: None should be given sometimes, and there is no abstainer to tell when.
            VersionError: `encoder` did not make the version's vectors, or `tuned` its tuned ones.
            StoreError: A file of the store's tombstones is missing or damaged.
        """
        check_encoder(version, encoder.identity)
        check_tuned(version, None if tuned is None else tuned.identity)
        self.version = version
        self._encoder = encoder
        self._reranking = reranking
        self._models = models
        self._abstain_below = abstain_below
        if abstain_below > 0 and self._abstainer is None:
            raise TrainedModelError(
                f"retrieve.abstain_below is {abstain_below}, and there is no model {ABSTENTION!r}: train it with "
                f"python -m jobs.train --recipe {ABSTENTION}, and name its folder as retrieve.models"
            )
        self._tuned = tuned
        self._analyst = analyst
        self._count_tokens = token_counter(encoder)
        self._tokenize = tokenizer(version.index.language)
        self._watch = TombstoneWatch(version.store)
        self._skills = SkillRetriever(version, encoder, self._count_tokens, self._watch)
        self._open = OpenNamespaces(version, version.open_bucket, self._open_in, OPEN_NAMESPACES)

    def with_models(self, models: Mapping[str, Trained]) -> "Retriever":
        """Return a retriever of the same version that has other models; what is open is shared."""
        other = copy(self)
        other._models = models
        return other

    def refresh_tombstones(self) -> None:
        """Hide what was forgotten since the retriever was made, and show what was restored.

        Cheap while there is nothing new: who serves may call it every second. Queries that are under way end as they
        began.

        Raises:
            StoreError: A file of the store's tombstones is missing or damaged; what was hidden before stays so.
        """
        changed = self._watch.refresh()
        self._open.close(changed)
        self._skills.close(changed)

    def namespace(self, namespace: str) -> NamespaceIndex | None:
        """Return the opened index of a namespace, or None if the version has nothing of it that is not forgotten."""
        return self._open.get(namespace)

    def _open_in(self, reader: IndexReader, namespace: str) -> NamespaceIndex | None:
        return reader.open(namespace, self._watch.tombstones)

    def today(self, namespaces: Sequence[str], as_of: datetime | None) -> date | None:
        """Return the day in UTC from which relative times of a question count: that of `as_of`, else the logs' last."""
        spans = [index.log_span for name in namespaces if (index := self.namespace(name)) is not None]
        now = as_of or max((span[1] for span in spans if span is not None), default=None)
        return None if now is None else now.astimezone(UTC).date()

    def namespaces(self) -> list[str]:
        """Every namespace of the version, in order; opens every bucket."""
        buckets = [self.version.open_bucket(int(bucket)) for bucket in self.version.manifest["buckets"]]
        every = sorted(name for reader in buckets if reader for name in reader.namespaces())
        some_hidden = self._watch.tombstones.namespaces
        return [name for name in every if name not in some_hidden or self.namespace(name) is not None]

    @property
    def encoder(self) -> Encoder:
        """What made the version's vectors."""
        return self._encoder

    def count_tokens(self, text: str) -> int:
        """Return the length of a text as budgets of contexts count it; see `pipelines.encoders.token_counter`."""
        return self._count_tokens(text)

    def recent(self, count: int) -> list[str]:
        """Return the namespaces that were asked last, the last one first."""
        return self._open.recent(count)

    def wants_vector(self, recipe: str) -> bool:
        """Tell whether a search by that recipe encodes the query.

        Raises:
            RecipeError: No such recipe.
        """
        return self._abstainer is not None or needs_vector(find_recipe(recipe, self.version.default_recipe))

    def recipes(self) -> list[str]:
        """Return the names of the recipes that can be asked: a model or tuned vectors may be missing to others."""
        return [
            name
            for name, recipe in RECIPES.items()
            if model_name(recipe) in (None, *self._models) and (self.asks_tuned or not needs_tuned(recipe))
        ]

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the unit vectors of queries, float32 `[n, dimension]`; a query without a token gives zeros."""
        return encode_queries(self._encoder, texts)

    def analyse(self, text: str, recipe: AnyRecipe, vector: Floats | None = None) -> Query:
        """Return what the recipe needs of a query; a vector given is used as it is.

        Raises:
            VersionError: The recipe needs tuned vectors, and the version has none or the retriever nothing to ask with.
        """
        if vector is None and needs_vector(recipe):
            vector = self.encode([text])[0]
        tuned = None
        if needs_tuned(recipe) and vector is not None:
            tuned = self._tuned_for(recipe).query(text, vector)
        return Query(text, tuple(self._tokenize(text)), vector, tuned)

    @property
    def asks_tuned(self) -> bool:
        """Whether the version has tuned vectors, and the retriever what made them."""
        return self._tuned is not None and self.version.tuned_encoder is not None

    def _tuned_for(self, recipe: AnyRecipe) -> Tuned:
        """Return what made the tuned vectors."""
        if self.version.tuned_encoder is None:
            raise VersionError(
                f"version {self.version.id} has no tuned vectors, which recipe {recipe.name!r} reads: name the folder "
                "of a tuned encoder or of heads as encoder.tuned, and rebuild"
            )
        if self._tuned is None:
            raise VersionError(
                f"recipe {recipe.name!r} asks for tuned vectors: name the folder that version {self.version.id} was "
                "built with as encoder.tuned"
            )
        return self._tuned

    def rank(self, namespace: str, query: Query, recipe: AnyRecipe, k: int, filters: Filters) -> Ranking | None:
        """Rank the turns of a namespace; None if the version has nothing of it."""
        index = self.namespace(namespace)
        if index is None:
            return None
        reranker = None if self._reranking is None else self._reranking.of(index)
        return rank_turns(index, query, recipe, filters, k, reranker, trained=self._model_of(recipe))

    def _model_of(self, recipe: AnyRecipe) -> Trained | None:
        name = model_name(recipe)
        return None if name is None else self._models.get(name)

    @property
    def _abstainer(self) -> Abstainer | None:
        model = self._models.get(ABSTENTION)
        return model if isinstance(model, Abstainer) else None

    def _judged(self, index: NamespaceIndex, query: Query, filters: Filters, ranking: Ranking) -> Abstention | None:
        """Tell how likely the turns that pass the filters hold the answer, whatever recipe ranked them."""
        abstainer = self._abstainer
        if abstainer is None:
            return None
        if ranking.reason is not None:
            return nothing_found(ranking.reason, self._abstain_below)
        evidence = find_evidence(index, query, passing(index, filters), filters.as_of)
        try:
            return abstainer.judge(evidence, self._abstain_below)
        except AbstainerError as error:
            raise TrainedModelError(f"{ABSTENTION}: {error}") from error

    def context(self, index: NamespaceIndex, ranking: Ranking, recipe: AnyRecipe, tokens: int) -> Context:
        """Assemble what a ranking has to say under a budget; see `pipelines.encoders.token_counter`."""
        statements = statements_of(index, ranking, recipe)
        return assemble(statements, tokens, self._count_tokens)

    def search(
        self,
        namespace: str,
        text: str,
        recipe: str = "default",
        k: int = 10,
        filters: Filters | None = None,
        explain: bool = False,
        context_tokens: int | None = None,
        vector: Floats | None = None,
    ) -> Response:
        """Answer one query within one namespace.

        Args:
            namespace: Whose memory is asked; exactly this one, no part of a path.
            text: The question.
            recipe: A recipe's name.
            k: The most hits, at least 1.
            filters: Conditions that hold before ranking.
            explain: Whether each hit tells its rank and score in every list.
            context_tokens: The budget of a context made of what was found, whatever `k`; None for none.
            vector: Of `text`, if it was encoded already; see `wants_vector`.

        Raises:
            RecipeError: No such recipe.
            TrainedModelError: The recipe is trained, and the retriever was given no model of it.
            ValueError: `k` or the namespace is not usable.
            VersionError: A file of the namespace's bucket is damaged.
        """
        if k < 1:
            raise ValueError(f"k is {k}; at least 1 hit must be asked for")
        found = find_recipe(recipe, self.version.default_recipe)
        index = self.namespace(check_namespace(namespace))
        if index is None:
            unknown = None if self._abstainer is None else nothing_found("unknown_namespace", self._abstain_below)
            return Response(self.version.id, found.name, [], "unknown_namespace", {}, abstention=unknown)
        began = time.perf_counter()
        if vector is None and self._abstainer is not None:
            vector = self.encode([text])[0]
        query = self.analyse(text, found, vector)
        encoded = time.perf_counter()
        passed = filters or Filters()
        analyst = self._analyst if needs_analysis(found) and query.terms else None
        failure = None
        if analyst is not None:
            query, failure = _told(analyst, namespace, index, query, passed)
        told = time.perf_counter()
        wanted = k if context_tokens is None else max(k, MOST_STATEMENTS)
        watch = None if self._reranking is None else _Watched(self._reranking.scorer)
        reranker = replace(self._reranking, scorer=watch).of(index) if self._reranking and watch else None
        trained = self._model_of(found)
        ranking = rank_turns(index, query, found, passed, wanted, reranker, explain, trained)
        hits = hits_of(index, ranking)[:k]
        context = None if context_tokens is None else self.context(index, ranking, found, context_tokens)
        ended = time.perf_counter()
        spent = 0.0 if watch is None else watch.seconds
        timings = {"analyse": 1e3 * (encoded - began), "search": 1e3 * (ended - told - spent)}
        if analyst is not None:
            timings["intent"] = 1e3 * (told - encoded)
        if watch is not None:
            timings["rerank"] = 1e3 * spent
        judged = self._judged(index, query, passed, ranking)
        if judged is not None:
            timings["abstention"] = 1e3 * (time.perf_counter() - ended)
        said = ranking.reranked, ranking.rerank_failure, judged, failure
        return Response(self.version.id, found.name, hits, ranking.reason, timings, context, *said)

    def skills(
        self,
        namespaces: str | Sequence[str],
        task: str,
        settings: SkillsConfig | None = None,
        libraries: Sequence[str] = (),
    ) -> SkillResponse:
        """Find skills, mistakes and lessons for a task; see `pipelines.skill_retriever.SkillRetriever.search`."""
        return self._skills.search(namespaces, task, settings or SkillsConfig(), libraries)

    def skill_graph(self, namespace: str) -> SkillGraph | None:
        """Return the opened skill hypergraph of a namespace, or None if the version has no run of it."""
        return self._skills.graph(namespace)

    def has_skill_nodes(self, namespace: str, nodes: Sequence[tuple[NodeKind, str]]) -> bool:
        """Say whether a namespace has all of these skills, subtasks and runs, given as kind and id."""
        graph = self.skill_graph(namespace)
        if graph is None:
            return False
        ids = {
            "skill": graph.tables.skills.column("skill_id"),
            "subtask": graph.tables.subtasks.column("subtask_id"),
            "trajectory": graph.tables.trajectories.column("trajectory_id"),
        }
        return all(pc.index(ids[kind], pa.scalar(one, pa.large_string())).as_py() >= 0 for kind, one in nodes)


def _told(
    analyst: Analyst, namespace: str, index: NamespaceIndex, query: Query, filters: Filters
) -> tuple[Query, str | None]:
    """Return a query with what an analyst told of it, and why that is not all, if so."""
    now = filters.as_of or (index.log_span[1] if index.log_span else None)  # as for the rules
    try:
        told = analyst.intent(namespace, query.text, now.astimezone(UTC).date() if now else None)
    except IntentError as error:
        return query, str(error)
    return replace(query, told=told), None if told.reason is None else f"in part: {told.reason}"


class _Watched:
    """A scorer that tells how long it took."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.seconds = 0.0

    def scores(self, query: str, documents: Sequence[str]) -> Floats:
        """See `hgmem_core.rerank.Scorer`."""
        began = time.perf_counter()
        try:
            return self._scorer.scores(query, documents)
        finally:
            self.seconds += time.perf_counter() - began
