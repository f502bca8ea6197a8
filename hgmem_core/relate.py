"""Turns and facts to their event graphs: who is related to whom, and how.

The graph `turn` is that of HAGE (`hgmem_core.relate_turns`); the graph `fact` has other relations and says more of
each (`hgmem_core.relate_facts`, `hgmem_core.relation_features`). Each namespace is treated by itself. A node has only
so many relations, so the work grows with the number of nodes, but for the nearest by vector: up to 8,192 nodes of a
namespace all are compared with all, and beyond that in cells (`hgmem_core.nearest`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import rows_of
from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_graph import Lists
from hgmem_core.relate_facts import fact_links
from hgmem_core.relate_turns import turn_links
from hgmem_core.relation_features import feature_columns
from hgmem_core.relations import LAYOUTS, PAPER, RICH, GraphName
from hgmem_core.said_facts import Known, Pairs, SaidFacts
from hgmem_core.schemas import OUTCOME, STRING, conform, relation_schema
from hgmem_core.shared_terms import Occurrences, listed_terms
from hgmem_core.stage_config import RelateConfig
from hgmem_core.talk import Talk
from hgmem_core.tokens import tokenizer
from hgmem_core.vector_rows import aligned_vectors

RELATE_REVISION = 1
"""Raised when equal turns and facts get other relations, also where the meaning of a question changes."""


@dataclass(frozen=True, slots=True)
class RelateTables:
    """What is related, of one bucket.

    Attributes:
        turns: TURN.
        turn_vectors: EMBEDDING of level `turn`; a turn without one is like no other.
        facts: FACT, consolidated.
        fact_vectors: EMBEDDING of level `fact`, of more facts perhaps.
        incidences: INCIDENCE of kinds `episode` and `topic`.
        causes: CAUSE.
    """

    turns: pa.Table
    turn_vectors: pa.Table
    facts: pa.Table
    fact_vectors: pa.Table
    incidences: pa.Table
    causes: pa.Table


def relate(tables: RelateTables, config: RelateConfig, language: str) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Relate turns to turns and facts to facts.

    Args:
        tables: Those of one bucket.
        config: How many relations of a kind.
        language: Of the stems by which names and keywords are one.

    Returns:
        RELATION of graph `turn`; RELATION of graph `fact`; OUTCOME of stage `relate` with a row for each turn and each
        fact, `empty` for one that is related to no other.
    """
    talk = Talk.of(tables.turns)
    said = SaidFacts.of(tables.facts, tables.turns, talk)
    of_turns = _relations("turn", tables.turns, *_of_turns(tables, talk, said, language))
    of_facts = _relations("fact", tables.facts, *_of_facts(tables, talk, said, config, language))
    outcomes = [_outcomes("turn", tables.turns, of_turns), _outcomes("fact", tables.facts, of_facts)]
    return of_turns, of_facts, conform(pa.concat_tables(outcomes), OUTCOME)


def _of_turns(tables: RelateTables, talk: Talk, said: SaidFacts, language: str) -> tuple[Ints, Ints, Floats]:
    """Return the relations between turns: rows of TURN, and features."""
    row, term = _listed(["entities"], tables, talk, said, language)
    place = talk.place[said.sources.of_all(row)]
    names = Occurrences.of(np.repeat(term, said.sources.sizes(row)), place, np.sort(talk.namespace))
    vectors, has_vector = aligned_vectors(tables.turns.column("turn_id"), tables.turn_vectors)
    links = turn_links(talk, names, vectors, has_vector)
    return links.sources, links.targets, np.stack([links.strengths[name] for name in PAPER], axis=1)


def _of_facts(
    tables: RelateTables, talk: Talk, said: SaidFacts, config: RelateConfig, language: str
) -> tuple[Ints, Ints, Floats]:
    """Return the relations between facts, both ways: rows of FACT, and features."""
    known = _known(tables, talk, said, language)
    links = fact_links(said, talk, known, config)
    one, other = said.row[links.sources], said.row[links.targets]
    features = np.empty((2, len(one), len(RICH)), np.float32)
    for name, ways in feature_columns(links, said, talk, known).items():
        features[:, :, RICH.index(name)] = ways
    return np.concatenate([one, other]), np.concatenate([other, one]), features.reshape(-1, len(RICH))


def _known(tables: RelateTables, talk: Talk, said: SaidFacts, language: str) -> Known:
    ids = tables.facts.column("fact_id")
    vectors, has_vector = aligned_vectors(ids, tables.fact_vectors)
    row, term = _listed(["entities", "keywords"], tables, talk, said, language)
    terms = Occurrences.of(term, said.number[row], said.namespace)
    causes = rows_of(tables.causes.column("cause_id"), ids), rows_of(tables.causes.column("fact_id"), ids)
    successors = np.arange(len(said.row)), rows_of(tables.facts.column("superseded_by"), ids)
    pairs = (_numbers(said, *found) for found in (causes, successors))
    return Known(vectors[said.row], has_vector[said.row], terms, *_hyperedges(tables, said), *pairs)


def _numbers(said: SaidFacts, one: Ints, other: Ints) -> Pairs:
    """Return pairs of rows of FACT as numbers of facts; those of which one is not known are left out."""
    known = (one >= 0) & (other >= 0)
    return said.number[one[known]], said.number[other[known]]


def _listed(names: Sequence[str], tables: RelateTables, talk: Talk, said: SaidFacts, language: str) -> Pairs:
    """Return the terms that columns of FACT list: rows, and numbers of terms."""
    speakers = set(zip(talk.namespace.tolist(), tables.turns.column("speaker").to_pylist(), strict=True))
    named = [(namespace, speaker) for namespace, speaker in speakers if speaker is not None]
    columns = [tables.facts.column(name) for name in names]
    return listed_terms(columns, said.namespace[said.number], named, tokenizer(language))


def _hyperedges(tables: RelateTables, said: SaidFacts) -> tuple[Occurrences, Occurrences]:
    """Return which facts are in which episode, and through it in which topic."""
    held, grouped = (tables.incidences.filter(pc.field("kind") == kind) for kind in ("episode", "topic"))
    row = rows_of(held.column("node_id"), tables.facts.column("fact_id"))
    encoded = held.column("hyperedge_id").combine_chunks().dictionary_encode()
    fact, episode = said.number[row[row >= 0]], encoded.indices.to_numpy().astype(np.int64)[row >= 0]
    of_topic = rows_of(grouped.column("node_id"), pa.chunked_array([encoded.dictionary]))
    order = np.argsort(of_topic, kind="stable")
    topic = grouped.column("hyperedge_id").combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    bounds = np.searchsorted(of_topic[order], np.arange(len(encoded.dictionary) + 1))
    topics = Lists(bounds, topic[order])
    return (
        Occurrences.of(episode, fact, said.namespace),
        Occurrences.of(topics.of_all(episode), np.repeat(fact, topics.sizes(episode)), said.namespace),
    )


def _relations(graph: GraphName, nodes: pa.Table, sources: Ints, targets: Ints, features: Floats) -> pa.Table:
    schema = relation_schema(LAYOUTS[graph])
    ids, namespace = nodes.column(f"{graph}_id"), nodes.column("namespace")
    columns = [
        namespace.take(pa.array(sources)),
        pa.repeat(pa.scalar(graph, STRING), len(sources)),
        ids.take(pa.array(sources)),
        ids.take(pa.array(targets)),
        pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), type=schema.arrow.field("features").type),
    ]
    return conform(pa.Table.from_arrays(columns, schema=schema.arrow), schema)


def _outcomes(graph: GraphName, nodes: pa.Table, relations: pa.Table) -> pa.Table:
    ids = nodes.column(f"{graph}_id")
    ends = pa.chunked_array([*relations.column("source_id").chunks, *relations.column("target_id").chunks], STRING)
    related = pc.is_in(ids, value_set=ends.combine_chunks())
    return pa.table(
        {
            "namespace": nodes.column("namespace"),
            "stage": pa.repeat(pa.scalar("relate", STRING), len(ids)),
            "row_id": ids,
            "outcome": pc.if_else(related, "ok", "empty").cast(STRING),
            "passes": pa.array(np.ones(len(ids), np.int32)),
            "reason": pc.if_else(related, None, f"related to no other {graph} of its namespace"),
        },
        OUTCOME.arrow,
    )
