"""BM25 over the skills of one namespace, of its own statistics."""

from collections.abc import Callable, Sequence
from functools import cached_property

import pyarrow as pa

from hgmem_core.lexical import Floats, Postings, add_scores, count_tokens, score_postings


class SkillWords:
    """The terms of skills, a document being the name and the text of one."""

    def __init__(self, skills: pa.Table, tokenize: Callable[[str], Sequence[str]], k1: float, b: float) -> None:
        """Count the terms of SKILL rows when they are first asked for."""
        self._skills = skills
        self._tokenize = tokenize
        self._weights = k1, b

    def scores(self, text: str) -> Floats:
        """Return the score of each skill for a text, float32 `[skills]`."""
        numbers, postings = self._counted
        offsets = postings.offsets
        terms = [numbers[term] for term in self._tokenize(text) if term in numbers]
        slices = [slice(offsets[term], offsets[term + 1]) for term in terms]
        return add_scores([(postings.rows[own], postings.scores[own]) for own in slices], self._skills.num_rows)

    @cached_property
    def _counted(self) -> tuple[dict[str, int], Postings]:
        numbers: dict[str, int] = {}
        said = zip(*(self._skills.column(name).to_pylist() for name in ("name", "text")), strict=True)
        texts = [
            [numbers.setdefault(term, len(numbers)) for term in self._tokenize(f"{name} {text}")] for name, text in said
        ]
        return numbers, score_postings(count_tokens(texts, len(numbers)), *self._weights)
