"""What an encoder is tuned on: a question with a turn that is evidence for it, and turns that only look like one."""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from hgmem_core.ids import digest_of_parts
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.ranking import Query, best_rows

LOOKALIKES = 12
"""The best turns by words, of which those that are no evidence stand against it."""


@dataclass(frozen=True, slots=True)
class TuningExample:
    """A question and one of its evidence turns.

    Attributes:
        query: The question's text.
        document: The evidence turn's text with its context; see `hgmem_core.embeddings.context_texts`.
        question: A key that the examples of one question share and no others have.
        negatives: Texts of turns that are no evidence for it.
    """

    query: str
    document: str
    question: str
    negatives: tuple[str, ...]


def tuning_examples(
    index: NamespaceIndex, texts: Sequence[str], query: Query, question: str, evidence: Sequence[int]
) -> list[TuningExample]:
    """Return an example for each evidence turn of a question; its best turns by words are the negatives.

    Args:
        index: The namespace that the question is asked of.
        texts: `hgmem_core.embeddings.context_texts` of the namespace's turns.
        query: The question; it needs no vector.
        question: Its key.
        evidence: The rows of its evidence turns.
    """
    scores = index.bm25("dated", index.term_numbers(query.terms))
    best = best_rows(scores, np.arange(len(index)), LOOKALIKES, index.id_order)
    own = set(evidence)
    negatives = tuple(texts[row] for row in best.tolist() if row not in own)
    return [TuningExample(query.text, texts[row], question, negatives) for row in sorted(own)]


def examples_digest(examples: Sequence[TuningExample]) -> str:
    """Return the sha256 of what an encoder is tuned on."""
    return digest_of_parts([json.dumps(astuple(example)) for example in examples])
