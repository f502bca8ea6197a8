"""A reranker at a server, or a language model there that says yes or no."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgmem_core.chat import ModelError
from hgmem_core.lexical import Floats
from hgmem_core.model_config import RerankConfig, ServerConfig
from hgmem_core.rerank import RerankError
from pipelines.http_client import HttpClient, Refused

_MISSING_LOGPROB = -10.0
"""Of `yes` or `no` where neither is among the likeliest tokens (as in HyperMem)."""
_MOST_LOGPROBS = 20
"""That servers tell, as a rule."""


@dataclass(frozen=True, slots=True)
class ServedScorer:
    """A model at a server, asked while somebody waits: three tries, and none of a failure before is held against it."""

    config: RerankConfig

    def scores(self, query: str, documents: Sequence[str]) -> Floats:
        """See `hgmem_core.rerank.Scorer`."""
        path, body, read = _EXCHANGES[self.config.protocol]
        http = self.config.http
        server = ServerConfig(url=http.url, key_variable=http.key_variable, timeout_seconds=http.timeout_seconds)
        try:
            with HttpClient(server, "rerank.http") as client:
                answer = client.try_out(path, body(self.config.model, query, documents), read)
                where = f"{client.address(path)}, model {self.config.model}"
        except ModelError as error:
            raise RerankError(str(error)) from error
        if isinstance(answer, Refused):
            raise RerankError(f"{where}: did not take the candidates ({answer.message})")
        if answer.keys() != set(range(len(documents))):
            raise RerankError(f"{where}: gave {len(answer)} scores for {len(documents)} candidates")
        return np.array([answer[place] for place in range(len(documents))], np.float32)


def _rerank_body(model: str, query: str, documents: Sequence[str]) -> dict[str, Any]:
    return {"model": model, "query": query, "documents": list(documents)}


def _tei_body(model: str, query: str, documents: Sequence[str]) -> dict[str, Any]:
    del model  # such a server has one
    return {"query": query, "texts": list(documents), "truncate": True}


def _yes_no_body(model: str, query: str, documents: Sequence[str]) -> dict[str, Any]:
    prompts = [query + document for document in documents]
    return {"model": model, "prompt": prompts, "max_tokens": 1, "temperature": 0, "logprobs": _MOST_LOGPROBS}


def read_scores(content: Any) -> dict[int, float]:  # noqa: ANN401 - whatever a server says
    """Return the score of each document by its place.

    Raises:
        ValueError: It is no such answer; says what it is instead.

    >>> read_scores({"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2}]})
    {1: 0.9, 0: 0.2}
    >>> read_scores([{"index": 0, "score": 0.7}])
    {0: 0.7}
    """
    try:
        rows, name = (content, "score") if isinstance(content, list) else (content["results"], "relevance_score")
        return {int(row["index"]): float(row[name]) for row in rows}
    except (KeyError, TypeError) as error:
        raise ValueError("no list of scores") from error


def read_odds(content: Any) -> dict[int, float]:  # noqa: ANN401
    """Return p(yes) / (p(yes) + p(no)) of each prompt by its place.

    Raises:
        ValueError: It is no such answer; says what it is instead.

    >>> read_odds({"choices": [{"index": 0, "logprobs": {"top_logprobs": [{"yes": -1.0, "no": -1.0}]}}]})
    {0: 0.5}
    """
    try:
        likeliest = {int(choice["index"]): choice["logprobs"]["top_logprobs"][0] for choice in content["choices"]}
        yes, no = (
            {place: float(said.get(word, _MISSING_LOGPROB)) for place, said in likeliest.items()}
            for word in ("yes", "no")
        )
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError("no list of the likeliest tokens' log probabilities") from error
    return {place: math.exp(yes[place] - float(np.logaddexp(yes[place], no[place]))) for place in likeliest}


_EXCHANGES = {
    "rerank": ("rerank", _rerank_body, read_scores),
    "tei": ("rerank", _tei_body, read_scores),
    "yes_no": ("completions", _yes_no_body, read_odds),
}
"""Of each protocol: the path, the body, and how the answer is read."""
