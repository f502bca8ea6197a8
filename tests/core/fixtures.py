"""Small invented logs and a fake encoder for the core tests."""

import hashlib
from datetime import UTC, datetime, timedelta

import faiss
import numpy as np
import pyarrow as pa

from hgmem_core.config import Config, IndexConfig
from hgmem_core.consolidate import consolidate
from hgmem_core.dense import FlatVectors, to_faiss
from hgmem_core.embeddings import embed_nodes, embed_turns, embedding_rows, tuned_by_heads
from hgmem_core.encoding import EncoderIdentity, encode_queries
from hgmem_core.extract import extract
from hgmem_core.graph import GraphTables, dense_text
from hgmem_core.group import group, words_of_episodes
from hgmem_core.heads import first_heads
from hgmem_core.index import build_index
from hgmem_core.messages import Message
from hgmem_core.namespace_index import BucketFiles, IndexReader
from hgmem_core.propagate import propagate
from hgmem_core.ranking import Query
from hgmem_core.relate import RelateTables, relate
from hgmem_core.schemas import CAUSE
from hgmem_core.segment import segment
from hgmem_core.tokens import tokenizer
from hgmem_core.turns import merge_imports, messages_table, number_equals

BEGAN = datetime(2024, 3, 1, 18, 0, tzinfo=UTC)
IMPORTED = datetime(2026, 1, 1, tzinfo=UTC)


def message(text, at=0, speaker="Ana", session="s1", namespace="acme/ana", **fields):
    """A message said `at` minutes after the beginning; `at=None` for one without a time."""
    said_at = None if at is None else BEGAN + timedelta(minutes=at)
    return Message("log:1", namespace, session, text, speaker=speaker, said_at=said_at, **fields)


def imported(*messages, ingested_at=IMPORTED, max_chars=1_000):
    """The MESSAGE table of one file that holds these messages."""
    return number_equals(messages_table(messages, 0, ingested_at, max_chars))


def graph_of(turns, encoder, propagation=0.5):
    """The tables of the hypergraph that the embedded stages make of TURN."""
    config = Config()
    vectors = embed_turns(turns, encoder, 32)[0]
    episodes, _ = segment(turns, vectors, config.segment, "english")
    facts, incidences, _ = extract(turns, episodes, vectors, config.extract, "english")
    fact_vectors, episode_vectors = (
        _encoded(level, table, encoder) for level, table in (("fact", facts), ("episode", episodes))
    )
    names = {key: set(words) for key, words in words_of_episodes(facts, incidences, "entities").items()}
    keywords = words_of_episodes(facts, incidences, "keywords")
    facts, incidences, _ = consolidate(facts, fact_vectors, incidences, turns, config.consolidate)
    topics, memberships, _ = group(episodes, episode_vectors, names, keywords, config.group)
    base = pa.concat_tables([fact_vectors, episode_vectors, _encoded("topic", topics, encoder)])
    every = pa.concat_tables([incidences, memberships])
    tables = RelateTables(turns, vectors, facts, fact_vectors, every, CAUSE.empty())
    turn_relations, fact_relations, _ = relate(tables, config.relate, "english")
    moved = propagate(base, every, propagation, "sum")
    return GraphTables(topics, episodes, facts, every, base, moved, turn_relations, fact_relations)


def _encoded(level, table, encoder):
    texts = [dense_text(level, row) for row in table.to_pylist()]
    return embed_nodes(level, table.select(["namespace", f"{level}_id"]), texts, encoder, 32)[0]


def reader_of(turns, encoder, has_tuned=True):
    """The opened index of TURN, its vectors in FAISS as on disk."""
    graph = graph_of(turns, encoder)
    embeddings = embed_turns(turns, encoder, 32)[0]
    tuned = embedding_rows("turn", turns.select(["namespace", "turn_id"]), tuned_by(turns, embeddings), "tuned")[0]
    index = build_index(turns, embeddings, graph, IndexConfig(), 0.5, tuned)
    tables = (index.namespaces, index.nodes, index.graph_nodes, index.postings)
    tables += (index.turn_relations, index.fact_relations)
    vectors = (_flat(part) for part in (index.vectors, index.graph_vectors, index.propagated_vectors))
    tuned = _flat(index.tuned_vectors) if has_tuned else None
    return IndexReader(BucketFiles(*tables, *vectors, propagation=0.5, tuned_vectors=tuned))


def tuned_by(turns, embeddings):
    """Tuned vectors of turns, by heads that learned nothing: a query's own is its vector."""
    return tuned_by_heads(turns, embeddings, first_heads(16, 0.5))


def query_of(text, encoder):
    """A query as every recipe may read it."""
    vector = encode_queries(encoder, [text])[0]
    return Query(text, tuple(tokenizer("english")(text)), vector, vector)


def _flat(vectors):
    return FlatVectors(faiss.deserialize_index(np.frombuffer(to_faiss(vectors), np.uint8)))


def turns_of(*messages):
    """The TURN table of one import of one file."""
    return merge_imports([imported(*messages)])[0]


class HashEncoder:
    """Gives each word a fixed random direction: texts that share words are similar, and nothing needs loading."""

    identity = EncoderIdentity("static", "0" * 64, 16, 64, "", "mean", True, "fp32")
    makes_batches = False

    def tokenize(self, texts):
        digests = ([hashlib.blake2b(word.encode(), digest_size=4).digest() for word in text.split()] for text in texts)
        return [[int.from_bytes(digest, "big") for digest in text] for text in digests]

    def understands(self, tokens):
        return True

    def encode_batch(self, pieces):
        vectors = np.zeros((len(pieces), 16), np.float32)
        for place, piece in enumerate(pieces):
            for token in piece:
                vectors[place] += np.random.default_rng(token).standard_normal(16, np.float32)
        return vectors
