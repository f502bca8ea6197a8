"""Ordering the best of a ranking anew, by a model that reads the query together with each candidate's text.

What is not read stays behind what is, in the order it had; equal scores go by id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from hgmem_core.embeddings import dated_texts
from hgmem_core.graph import DENSE_FIELDS, dense_text
from hgmem_core.lexical import Floats
from hgmem_core.namespace_index import NamespaceIndex, TieOrder
from hgmem_core.ranking import NodeLevel, Query, Reranker, Rows
from hgmem_core.text import beginning

INSTRUCTION = (
    "Decide whether the passage, taken from past conversations, states what the question asks for, exactly and in so "
    "many words; one that is merely about the same subject does not"
)
"""What makes a candidate relevant, for models that are told so, if nothing else was said."""

_JUDGE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_ANSWER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


class RerankError(RuntimeError):
    """The reranker gave no scores: says which, what is wrong, and what to do."""


class Scorer(Protocol):
    """A model that scores candidates for a query; threads may share it."""

    def scores(self, query: str, documents: Sequence[str]) -> Floats:
        """Return how well each document answers the query, the higher the better: float32 `[len(documents)]`.

        Raises:
            RerankError: It could not.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reranking:
    """A model, and how much it reads.

    Attributes:
        scorer: The model.
        candidates: Of a ranking, or of a stage of `hypermem`, how many of the best.
        max_bytes: Of a candidate's text in UTF-8.
    """

    scorer: Scorer
    candidates: int
    max_bytes: int

    def of(self, index: NamespaceIndex) -> Reranker:
        """Return what scores the candidates of a namespace."""

        def scores(query: Query, level: NodeLevel, rows: Rows) -> Floats:
            texts = [_cut(text, self.max_bytes) for text in candidate_texts(index, level, rows)]
            found = self.scorer.scores(query.text, texts)
            if found.shape != (len(texts),) or not np.isfinite(found).all():
                raise RerankError(f"the reranker gave something else than a number for each of {len(texts)} candidates")
            return found

        return Reranker(scores, self.candidates)


def candidate_texts(index: NamespaceIndex, level: NodeLevel, rows: Rows) -> list[str]:
    """Return what a reranker reads of turns or nodes: of a turn its dated text, of a node what the encoder sees."""
    if level == "turn":
        return dated_texts(index.nodes.take(pa.array(rows)))
    # In the index, a topic's or an episode's summary is its text.
    columns = {name: "text" if name == "summary" else name for name in DENSE_FIELDS[level]}
    found = {name: index.graph.column(level, own).take(pa.array(rows)).to_pylist() for name, own in columns.items()}
    return [dense_text(level, dict(zip(found, values, strict=True))) for values in zip(*found.values(), strict=True)]


def _cut(text: str, max_bytes: int) -> str:
    if len(text) * 4 <= max_bytes:
        return text
    return beginning(text, len(text.encode()[:max_bytes].decode(errors="ignore")))


def order_anew(best: Rows, scores: Floats, ties: TieOrder) -> Rows:
    """Return rows in a new order.

    Args:
        best: Best first.
        scores: New ones of the first so many, float32.
        ties: The order among equal scores.
    """
    head = best[: len(scores)]
    order = np.lexsort((ties.rank[head], -scores))
    return np.concatenate([head[order], best[len(scores) :]])


def qwen3_query(instruction: str, query: str) -> str:
    r"""Return what Qwen3-Reranker reads before a document; its odds of `yes` against `no` are the score.

    >>> qwen3_query("Find answers", "Who?").endswith("user\n<Instruct>: Find answers\n<Query>: Who?\n")
    True
    """
    return f"{_JUDGE}<Instruct>: {instruction}\n<Query>: {_plain(query)}\n"


def qwen3_document(document: str) -> str:
    r"""Return a document as Qwen3-Reranker reads it behind the query, with what leads to its answer.

    >>> qwen3_document("I live in Lisbon.")
    '<Document>: I live in Lisbon.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n'
    """
    return f"<Document>: {_plain(document)}{_ANSWER}"


def _plain(text: str) -> str:
    """Return a text in which nothing is one of the model's marks, so that it cannot speak for somebody else."""
    return text.replace("<|", "< |")
