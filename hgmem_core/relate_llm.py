"""Relations of facts scored by a language model: for each candidate edge how temporal, semantic, causal, by entity.

First `hgmem_core.relate` relates the facts. Candidates are those pairs of which its rules suspect, but do not know,
that one is the cause of the other, and then those of two sessions that share a rare name or keyword, the rarest first.
A pair is asked about once, from what was said first to the other. The model's scores take the place of the first four
features, both ways; the other features stay.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel

from hgmem_core.chat import Reply, Request
from hgmem_core.fitting import batches, day
from hgmem_core.ids import rows_of
from hgmem_core.lexical import Ints
from hgmem_core.passes import Terms, Trouble, ask, reject_rows, reject_table, request_of
from hgmem_core.prompts import load_prompt, quoted
from hgmem_core.relate import RelateTables, relate
from hgmem_core.relation_rows import features_of, with_features
from hgmem_core.relations import PAPER, RICH
from hgmem_core.schemas import OUTCOME, conform
from hgmem_core.shared_terms import RARE
from hgmem_core.stage_config import RelateConfig
from hgmem_core.summarise import shorten

RELATE_LLM_REVISION = 1
"""Raised when equal edges and answers get other scores."""

PROMPT = load_prompt("relations")

RELATIONS = PAPER
"""In the order of the scores."""

MOST_EDGES = 20
"""In one request."""

_ASKED_BY = ("causal", "entity", "later", "earlier", "same_session")
_STATEMENT_CHARS = (300, 150, 75)
"""How much of a statement is shown: the most with which an edge fits."""
_SCORES_TOKENS = 32
"""Of an answer, for each edge."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A candidate: two statements, and when each was said."""

    source_id: str
    target_id: str
    source: str
    target: str
    source_said_at: datetime | None
    target_said_at: datetime | None

    @property
    def row_id(self) -> str:
        """What names it in OUTCOME and REJECT."""
        return f"{self.source_id}>{self.target_id}"


class EdgeScores(BaseModel):
    """What the model says of one edge."""

    edge: int
    temporal: float
    semantic: float
    causal: float
    entity: float

    @property
    def scores(self) -> tuple[float, float, float, float]:
        """In the order of `RELATIONS`."""
        return self.temporal, self.semantic, self.causal, self.entity


class ScoredEdges(BaseModel):
    """The answer."""

    edges: list[EdgeScores]


@dataclass(frozen=True, slots=True)
class Scored:
    """What is made of some edges.

    Attributes:
        scores: Float32 `[n, 4]` in [0, 1], in the order of `RELATIONS`; NaN for an edge that the model did not score.
        outcomes: OUTCOME of stage `relate`, `fallback` for an edge that has no scores.
        rejects: REJECT, a row for each pass that failed.
    """

    scores: npt.NDArray[np.float32]
    outcomes: pa.Table
    rejects: pa.Table


@dataclass(frozen=True, slots=True)
class Related:
    """What the stage makes.

    Attributes:
        turn_relations: RELATION of graph `turn`, as the rules give it.
        fact_relations: RELATION of graph `fact`.
        outcomes: OUTCOME, a row for each turn and each fact: as the rules give, and `fallback` for a fact of which a
            relation was left without scores.
        rejects: REJECT, a row for each pass that failed.
    """

    turn_relations: pa.Table
    fact_relations: pa.Table
    outcomes: pa.Table
    rejects: pa.Table


@dataclass(slots=True)
class _Edges:
    """A question: some edges, numbered from 1; asked again about those without scores."""

    namespace: str
    edges: Sequence[Edge]
    lines: Sequence[str]
    terms: Terms
    asked: Sequence[int] = field(default=(), init=False)

    @property
    def answer_type(self) -> type[ScoredEdges]:
        """See `passes.Question`."""
        return ScoredEdges

    def request(self, attempt: int, found: ScoredEdges | None, trouble: Trouble | None) -> Request:
        """Ask about the edges that have no scores yet; about all where only the answer's form was wrong."""
        known = {item.edge for item in found.edges} if found else set()
        every = range(1, len(self.edges) + 1)
        self.asked = [number for number in every if number not in known] or every
        return request_of(
            PROMPT,
            PROMPT.fill(edges="\n".join(self.lines[number - 1] for number in self.asked)),
            ScoredEdges,
            self.terms,
            namespace=self.namespace,
            stage="relate",
            row_id=self.edges[0].row_id,
            attempt=attempt,
            trouble=trouble,
            expected_tokens=_SCORES_TOKENS * len(self.asked),
        )

    def check(self, answer: ScoredEdges) -> tuple[ScoredEdges | None, list[str]]:
        """Keep the first scores of each edge that was asked about, if they are between 0 and 1."""
        sound: dict[int, EdgeScores] = {}
        complaints = []
        for item in answer.edges:
            if item.edge not in self.asked:
                continue
            if all(0.0 <= score <= 1.0 for score in item.scores):
                sound.setdefault(item.edge, item)
            else:
                complaints.append(f"a score of edge {item.edge} is not between 0 and 1")
        if missing := [number for number in self.asked if number not in sound]:
            complaints.append(f"no scores for edges {', '.join(map(str, missing))}")
        return (ScoredEdges(edges=list(sound.values())) if sound else None), complaints

    def merge(self, found: ScoredEdges, more: ScoredEdges) -> ScoredEdges:
        """Add the scores that are new."""
        known = {item.edge for item in found.edges}
        return ScoredEdges(edges=[*found.edges, *(item for item in more.edges if item.edge not in known)])


def relate_llm(
    tables: RelateTables, config: RelateConfig, language: str, most: int, terms: Terms
) -> Generator[list[Request], list[Reply], Related]:
    """Relate turns and facts, and let a model score the doubtful relations between facts.

    Args:
        tables: Those of one bucket.
        config: See `relate`.
        language: See `relate`.
        most: Pairs that are scored of a namespace.
        terms: Of requests.
    """
    turn_relations, fact_relations, outcomes = relate(tables, config, language)
    rows, back = _doubtful(fact_relations, tables.facts, most)
    edges = _edges(fact_relations.take(pa.array(rows)), tables)
    made = yield from score_edges(edges, terms)
    features = features_of(fact_relations).copy()
    given = ~np.isnan(made.scores).any(axis=1)
    for both in (rows, back):
        features[both[given], : len(RELATIONS)] = made.scores[given]
    return Related(
        turn_relations,
        with_features(fact_relations, features),
        _outcomes(outcomes, made.outcomes),
        made.rejects,
    )


def _doubtful(relations: pa.Table, facts: pa.Table, most: int) -> tuple[Ints, Ints]:
    """Return the rows of RELATION that are asked about, and for each the row of the relation back."""
    source, target = (rows_of(relations.column(name), facts.column("fact_id")) for name in ("source_id", "target_id"))
    features = features_of(relations)
    causal, entity, later, earlier, same_session = (features[:, RICH.index(name)] for name in _ASKED_BY)
    forward = (later > earlier) | ((later == earlier) & (source < target))
    suspected = (causal > 0) & (causal < 1)
    chosen = np.flatnonzero(forward & (suspected | ((entity >= RARE) & (same_session == 0))))
    namespace = relations.column("namespace").combine_chunks().dictionary_encode().indices.to_numpy()
    chosen = chosen[np.lexsort((chosen, -entity[chosen], ~suspected[chosen], namespace[chosen]))]
    place = np.arange(len(chosen)) - np.searchsorted(namespace[chosen], namespace[chosen])
    rows = np.sort(chosen[place < most])
    back = np.searchsorted(source * facts.num_rows + target, target[rows] * facts.num_rows + source[rows])
    return rows, back


def _edges(relations: pa.Table, tables: RelateTables) -> dict[str, list[Edge]]:
    """Return the edges of each namespace, whose RELATION rows these are."""
    said = dict(zip(*(tables.turns.column(name).to_pylist() for name in ("turn_id", "said_at")), strict=True))
    columns = (tables.facts.column(name).to_pylist() for name in ("fact_id", "text", "turn_ids"))
    facts = {fact: (text, said[turn_ids[0]]) for fact, text, turn_ids in zip(*columns, strict=True)}
    edges: dict[str, list[Edge]] = {}
    for namespace, source, target in zip(
        *(relations.column(name).to_pylist() for name in ("namespace", "source_id", "target_id")), strict=True
    ):
        (text, at), (other_text, other_at) = facts[source], facts[target]
        edges.setdefault(namespace, []).append(Edge(source, target, text, other_text, at, other_at))
    return edges


def _outcomes(outcomes: pa.Table, of_edges: pa.Table) -> pa.Table:
    """Return the outcomes of nodes, with what became of the edges that some facts are the ends of."""
    passes: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for edge in of_edges.to_pylist():
        ends = edge["row_id"].split(">")
        for one, other in (ends, ends[::-1]):
            passes[one] = max(passes.get(one, 1), edge["passes"])
            if edge["outcome"] == "fallback":
                reasons[one] = f"no scores for its relation to {other}: {edge['reason']}"
    rows = outcomes.to_pylist()
    for row in rows:
        row["passes"] = passes.get(row["row_id"], row["passes"])
        if row["row_id"] in reasons:
            row |= {"outcome": "fallback", "reason": reasons[row["row_id"]]}
    return conform(pa.Table.from_pylist(rows, OUTCOME.arrow), OUTCOME)


def score_edges(edges: Mapping[str, Sequence[Edge]], terms: Terms) -> Generator[list[Request], list[Reply], Scored]:
    """Score candidate edges between facts.

    Args:
        edges: Those of each namespace, each pair of ids once.
        terms: Of requests.
    """
    questions = [question for namespace, own in edges.items() for question in _questions(namespace, own, terms)]
    settled = yield from ask(questions)
    scores: list[tuple[float, ...]] = []
    outcomes: list[dict[str, Any]] = []
    rejects = []
    for question, result in zip(questions, settled, strict=True):
        rejects += reject_rows("relate", question.namespace, question.edges[0].row_id, result)
        given = {item.edge: item.scores for item in result.answer.edges} if result.answer else {}
        for number, edge in enumerate(question.edges, 1):
            scores.append(given.get(number, (np.nan,) * len(RELATIONS)))
            outcomes.append(
                {"namespace": question.namespace, "stage": "relate", "row_id": edge.row_id, "passes": result.passes}
                | {"outcome": "ok" if number in given else "fallback"}
                | {"reason": None if number in given else result.reason}
            )
    return Scored(
        np.array(scores, np.float32).reshape(-1, len(RELATIONS)),
        conform(pa.Table.from_pylist(outcomes, OUTCOME.arrow), OUTCOME),
        reject_table(rejects),
    )


def _questions(namespace: str, edges: Sequence[Edge], terms: Terms) -> Iterator[_Edges]:
    def fits(some: Sequence[Edge], most_chars: int = _STATEMENT_CHARS[0]) -> bool:
        return terms.fits(PROMPT, PROMPT.fill(edges="\n".join(_lines(some, most_chars))))

    for batch in batches(edges, MOST_EDGES, fits):
        most_chars = next((chars for chars in _STATEMENT_CHARS if fits(batch, chars)), _STATEMENT_CHARS[-1])
        yield _Edges(namespace, batch, _lines(batch, most_chars), terms)


def _lines(edges: Sequence[Edge], most_chars: int) -> list[str]:
    return [
        f"{number}. {_statement(edge.source, edge.source_said_at, most_chars)}"
        f" | {_statement(edge.target, edge.target_said_at, most_chars)}"
        for number, edge in enumerate(edges, 1)
    ]


def _statement(text: str, said_at: datetime | None, most_chars: int) -> str:
    return f"{day(said_at)} {quoted(shorten(text, most_chars))}"
