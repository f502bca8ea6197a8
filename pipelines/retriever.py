"""Queries against one opened version: analyse, rank, and return hits with their sources."""

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hgmem_core.context import MOST_STATEMENTS, Context, assemble, statements_of
from hgmem_core.encoding import Encoder, encode_queries
from hgmem_core.ids import check_namespace
from hgmem_core.lexical import Floats
from hgmem_core.namespace_index import IndexReader, NamespaceIndex
from hgmem_core.ranking import EmptyReason, Query, Ranking
from hgmem_core.recipes import AnyRecipe, find_recipe, needs_vector
from hgmem_core.rerank import Reranking, Scorer
from hgmem_core.search import Filters, Hit, hits_of, rank_turns
from hgmem_core.tokens import tokenizer
from pipelines.encoders import token_counter
from pipelines.versions import Version, check_encoder

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
        timings_ms: Milliseconds spent on encoding the query, on the search, and on a reranker.
        reranked: Whether a reranker had a say in the order.
        rerank_failure: Why it had none although there is one, else None; the order is the recipe's own then.
    """

    version: str
    recipe: str
    hits: list[Hit]
    reason: EmptyReason | None
    timings_ms: dict[str, float]
    context: Context | None = None
    reranked: bool = False
    rerank_failure: str | None = None

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

    def __init__(self, version: Version, encoder: Encoder, reranking: Reranking | None = None) -> None:
        """Open nothing yet.

        Args:
            version: That answers.
            encoder: That made its vectors.
            reranking: Orders what a recipe found anew, whichever recipe it is; None for none.

        Raises:
            VersionError: `encoder` did not make the version's vectors.
        """
        check_encoder(version, encoder.identity)
        self.version = version
        self._encoder = encoder
        self._reranking = reranking
        self._count_tokens = token_counter(encoder)
        self._tokenize = tokenizer(version.index.language)
        self._buckets: dict[int, IndexReader | None] = {}
        self._open: OrderedDict[str, NamespaceIndex] = OrderedDict()
        self._lock = threading.Lock()

    def namespace(self, namespace: str) -> NamespaceIndex | None:
        """Return the opened index of a namespace, or None if the version has nothing of it."""
        with self._lock:
            found = self._open.get(namespace)
            if found is not None:
                self._open.move_to_end(namespace)
                return found
            bucket = self.version.bucket_of(namespace)
            if bucket not in self._buckets:
                self._buckets[bucket] = self.version.open_bucket(bucket)
            reader = self._buckets[bucket]
            found = reader.open(namespace) if reader else None
            if found is not None:
                self._open[namespace] = found
                if len(self._open) > OPEN_NAMESPACES:
                    self._open.popitem(last=False)
            return found

    def namespaces(self) -> list[str]:
        """Every namespace of the version, in order; opens every bucket."""
        buckets = [self.version.open_bucket(int(bucket)) for bucket in self.version.manifest["buckets"]]
        return sorted(name for reader in buckets if reader for name in reader.namespaces())

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the unit vectors of queries, float32 `[n, dimension]`; a query without a token gives zeros."""
        return encode_queries(self._encoder, texts)

    def analyse(self, text: str, recipe: AnyRecipe, vector: Floats | None = None) -> Query:
        """Return what the recipe needs of a query; a vector given is used as it is."""
        if vector is None and needs_vector(recipe):
            vector = self.encode([text])[0]
        return Query(text, tuple(self._tokenize(text)), vector)

    def rank(self, namespace: str, query: Query, recipe: AnyRecipe, k: int, filters: Filters) -> Ranking | None:
        """Rank the turns of a namespace; None if the version has nothing of it."""
        index = self.namespace(namespace)
        if index is None:
            return None
        reranker = None if self._reranking is None else self._reranking.of(index)
        return rank_turns(index, query, recipe, filters, k, reranker)

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

        Raises:
            RecipeError: No such recipe.
            ValueError: `k` or the namespace is not usable.
            VersionError: A file of the namespace's bucket is damaged.
        """
        if k < 1:
            raise ValueError(f"k is {k}; at least 1 hit must be asked for")
        found = find_recipe(recipe, self.version.default_recipe)
        index = self.namespace(check_namespace(namespace))
        if index is None:
            return Response(self.version.id, found.name, [], "unknown_namespace", {})
        began = time.perf_counter()
        query = self.analyse(text, found)
        encoded = time.perf_counter()
        wanted = k if context_tokens is None else max(k, MOST_STATEMENTS)
        watch = None if self._reranking is None else _Watched(self._reranking.scorer)
        reranker = replace(self._reranking, scorer=watch).of(index) if self._reranking and watch else None
        ranking = rank_turns(index, query, found, filters or Filters(), wanted, reranker, explain)
        hits = hits_of(index, ranking)[:k]
        context = None if context_tokens is None else self.context(index, ranking, found, context_tokens)
        ended = time.perf_counter()
        spent = 0.0 if watch is None else watch.seconds
        timings = {"analyse": 1e3 * (encoded - began), "search": 1e3 * (ended - encoded - spent)}
        if watch is not None:
            timings["rerank"] = 1e3 * spent
        told = ranking.reranked, ranking.rerank_failure
        return Response(self.version.id, found.name, hits, ranking.reason, timings, context, *told)


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
