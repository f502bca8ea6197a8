"""From imports to a published version: every stage on every bucket, then publish."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from hgmem_core.config import Config
from hgmem_core.consolidate import CONSOLIDATE_REVISION, consolidate
from hgmem_core.dense import to_faiss
from hgmem_core.embeddings import EMBEDDINGS_REVISION, embed_nodes, embed_turns
from hgmem_core.encoding import Encoder
from hgmem_core.extract import EXTRACT_REVISION, extract
from hgmem_core.graph import DENSE_FIELDS, GraphTables, Level, dense_text
from hgmem_core.group import GROUP_REVISION, group, words_of_episodes
from hgmem_core.ids import table_digest
from hgmem_core.index import INDEX_REVISION, build_index
from hgmem_core.propagate import PROPAGATE_REVISION, propagate
from hgmem_core.schemas import (
    EPISODE,
    FACT,
    INCIDENCE,
    TOPIC,
    TURN,
    TableSchema,
    embedding_schema,
    ok_outcomes,
)
from hgmem_core.segment import SEGMENT_REVISION, segment
from hgmem_core.tokens import TOKENS_REVISION
from hgmem_core.turns import MERGE_REVISION, merge_imports
from pipelines.imports import ImportedPart, imported_parts, read_imports
from pipelines.progress import Progress
from pipelines.publish import publish
from pipelines.runner import Produced, Report, Runner, Stage, for_each
from pipelines.store import Output, Store


@dataclass(frozen=True, slots=True)
class Built:
    """A built version, whether it became the current one, and what was done for it.

    Attributes:
        version: Its id.
        is_new: Whether the pointer moved to it.
        number: The number of the pointer, moved or not.
        turns: Turns in the version.
        namespaces: Namespaces in the version.
        report: What the stages did.
        kept: Why another version stays the current one; None if this one is it.
    """

    version: str
    is_new: bool
    number: int
    turns: int
    namespaces: int
    report: Report
    kept: str | None = None


def build(store: Store, config: Config, encoder: Encoder, progress: Progress) -> Built:
    """Bring every bucket up to date with the imports and publish the result; do nothing twice.

    Raises:
        StoreError: Nothing was imported yet, or an import is damaged.
    """
    store.sweep()
    imports = read_imports(store)
    parts = imported_parts(store, imports)
    runner = Runner(store)
    progress.start("build", sum(part.rows for bucket in parts.values() for part in bucket))

    def work(bucket: list[ImportedPart]) -> Output:
        output = BucketBuild(runner, config, encoder).run(bucket)
        progress.advance("build", sum(part.rows for part in bucket))
        return output

    numbers = sorted(parts)
    indexed = for_each(work, [parts[number] for number in numbers], config.run.workers)
    outcomes = {stage: dict(counts) for stage, counts in runner.report.outcomes.items()}
    buckets = dict(zip(numbers, indexed, strict=True))
    published = publish(store, buckets, config, encoder.identity, outcomes, imports[-1].number)
    return Built(
        version=published.version,
        is_new=published.moved,
        number=published.number,
        turns=sum(output.manifest["turns"] for output in indexed),
        namespaces=sum(output.manifest["namespaces"] for output in indexed),
        report=runner.report,
        kept=published.kept,
    )


class BucketBuild:
    """The stages of one bucket, in order; each is a pure function of the tables before it."""

    def __init__(self, runner: Runner, config: Config, encoder: Encoder) -> None:
        """Describe the stages: what in the configuration decides the output of each."""
        self._runner = runner
        self._config = config
        self._encoder = encoder
        self._embedding = embedding_schema(encoder.identity.dimension)
        language = {"language": config.index.language, "tokens": TOKENS_REVISION}
        encode = {"model": encoder.identity.as_dict(), "batch_size": config.encoder.batch_size}
        index = {**config.index.model_dump(), **language, **config.propagate.model_dump()}
        self._stages = {
            stage.name: stage
            for stage in (
                Stage("merge", MERGE_REVISION, {}),
                Stage("encode_turns", EMBEDDINGS_REVISION, encode),
                Stage("segment", SEGMENT_REVISION, {**config.segment.model_dump(), **language}),
                Stage("extract", EXTRACT_REVISION, {**config.extract.model_dump(), **language}),
                Stage("encode_facts", EMBEDDINGS_REVISION, encode),
                Stage("encode_episodes", EMBEDDINGS_REVISION, encode),
                Stage("consolidate", CONSOLIDATE_REVISION, config.consolidate.model_dump()),
                Stage("group", GROUP_REVISION, config.group.model_dump()),
                Stage("encode_topics", EMBEDDINGS_REVISION, encode),
                Stage("propagate", PROPAGATE_REVISION, config.propagate.model_dump()),
                Stage("index", INDEX_REVISION, {**index, "dimension": encoder.identity.dimension}),
            )
        }

    def run(self, parts: list[ImportedPart]) -> Output:
        """Run every stage on the bucket's imports and return its index."""
        digests = [part.digest for part in parts]
        turns = self._runner.run(self._stages["merge"], digests, lambda: _merge(parts))
        turn_vectors = self._after("encode_turns", [turns], self._encode_turns)
        episodes = self._after("segment", [turns, turn_vectors], self._segment)
        drafts = self._after("extract", [turns, episodes, turn_vectors], self._extract)
        fact_vectors = self._after("encode_facts", [drafts], partial(self._encode, "fact"))
        episode_vectors = self._after("encode_episodes", [episodes], partial(self._encode, "episode"))
        facts = self._after("consolidate", [drafts, fact_vectors, turns], self._consolidate)
        topics = self._after("group", [episodes, episode_vectors, drafts], self._group)
        topic_vectors = self._after("encode_topics", [topics], partial(self._encode, "topic"))
        vectors = [fact_vectors, episode_vectors, topic_vectors]
        propagated = self._after("propagate", [facts, topics, *vectors], self._propagate)
        tables = [turns, turn_vectors, episodes, facts, topics, propagated, *vectors]
        return self._runner.sound(self._after("index", tables, self._index))

    def _after(self, stage: str, inputs: Sequence[Output], work: Callable[..., Produced]) -> Output:
        digests = [str(output.manifest["digest"]) for output in inputs]
        return self._runner.run(self._stages[stage], digests, lambda: work(*map(self._runner.sound, inputs)))

    def _encode_turns(self, turns: Output) -> Produced:
        batch_size = self._config.encoder.batch_size
        embeddings, outcomes = embed_turns(turns.table("turns.parquet"), self._encoder, batch_size)
        return _produced({"embeddings": (embeddings, self._embedding)}, outcomes)

    def _segment(self, turns: Output, vectors: Output) -> Produced:
        tables = turns.table("turns.parquet"), vectors.table("embeddings.parquet")
        episodes, outcomes = segment(*tables, self._config.segment, self._config.index.language)
        return _produced({"episodes": (episodes, EPISODE)}, outcomes)

    def _extract(self, turns: Output, episodes: Output, vectors: Output) -> Produced:
        tables = (
            turns.table("turns.parquet"),
            episodes.table("episodes.parquet"),
            vectors.table("embeddings.parquet"),
        )
        facts, incidences, outcomes = extract(*tables, self._config.extract, self._config.index.language)
        return _produced({"facts": (facts, FACT), "incidences": (incidences, INCIDENCE)}, outcomes)

    def _encode(self, level: Level, nodes: Output) -> Produced:
        table = nodes.table(f"{level}s.parquet")
        texts = [dense_text(level, row) for row in table.select(DENSE_FIELDS[level]).to_pylist()]
        ids = table.select(["namespace", f"{level}_id"])
        embeddings, outcomes = embed_nodes(level, ids, texts, self._encoder, self._config.encoder.batch_size)
        return _produced({"embeddings": (embeddings, self._embedding)}, outcomes)

    def _consolidate(self, drafts: Output, vectors: Output, turns: Output) -> Produced:
        facts, incidences, outcomes = consolidate(
            drafts.table("facts.parquet"),
            vectors.table("embeddings.parquet"),
            drafts.table("incidences.parquet"),
            turns.table("turns.parquet"),
            self._config.consolidate,
        )
        return _produced({"facts": (facts, FACT), "incidences": (incidences, INCIDENCE)}, outcomes)

    def _group(self, episodes: Output, vectors: Output, drafts: Output) -> Produced:
        facts, members = drafts.table("facts.parquet"), drafts.table("incidences.parquet")
        names = {episode: set(found) for episode, found in words_of_episodes(facts, members, "entities").items()}
        keywords = words_of_episodes(facts, members, "keywords")
        tables = episodes.table("episodes.parquet"), vectors.table("embeddings.parquet")
        topics, incidences, outcomes = group(*tables, names, keywords, self._config.group)
        return _produced({"topics": (topics, TOPIC), "incidences": (incidences, INCIDENCE)}, outcomes)

    def _propagate(self, facts: Output, topics: Output, *vectors: Output) -> Produced:
        base = pa.concat_tables([output.table("embeddings.parquet") for output in vectors])
        incidences = pa.concat_tables([output.table("incidences.parquet") for output in (facts, topics)])
        settings = self._config.propagate
        moved = propagate(base, incidences, settings.weight, settings.aggregation)
        outcomes = ok_outcomes("propagate", base.column("namespace"), base.column("node_id"))
        return _produced({"embeddings": (moved, self._embedding)}, outcomes)

    def _index(self, turns: Output, turn_vectors: Output, *graph: Output) -> Produced:
        episodes, facts, topics, propagated, *vectors = graph
        tables = GraphTables(
            topics=topics.table("topics.parquet"),
            episodes=episodes.table("episodes.parquet"),
            facts=facts.table("facts.parquet"),
            incidences=pa.concat_tables([output.table("incidences.parquet") for output in (facts, topics)]),
            base=pa.concat_tables([output.table("embeddings.parquet") for output in vectors]),
            propagated=propagated.table("embeddings.parquet"),
        )
        rows = turns.table("turns.parquet")
        embeddings = turn_vectors.table("embeddings.parquet")
        index = build_index(rows, embeddings, tables, self._config.index, self._config.propagate.weight)
        files = {
            "namespaces.arrow": index.namespaces,
            "nodes.arrow": index.nodes,
            "graph_nodes.arrow": index.graph_nodes,
            "postings.arrow": index.postings,
            "turn.faiss": to_faiss(index.vectors),
            "graph.faiss": to_faiss(index.graph_vectors),
            "graph_propagated.faiss": to_faiss(index.propagated_vectors),
        }
        about = {"turns": index.nodes.num_rows, "namespaces": index.namespaces.num_rows}
        about |= {name: table.num_rows for name, table in (("facts", tables.facts), ("episodes", tables.episodes))}
        about["topics"] = tables.topics.num_rows
        return Produced(files, ok_outcomes("index", rows.column("namespace"), rows.column("turn_id")), about)


def _merge(parts: list[ImportedPart]) -> Produced:
    turns, outcomes = merge_imports([part.read() for part in parts])
    return _produced({"turns": (turns, TURN)}, outcomes)


def _produced(tables: Mapping[str, tuple[pa.Table, TableSchema]], outcomes: pa.Table) -> Produced:
    """Return tables as Parquet files, and one digest over all of them for the stages after."""
    files = {f"{name}.parquet": table for name, (table, _) in tables.items()}
    digest = "-".join(table_digest(table, schema) for table, schema in tables.values())
    return Produced(files, outcomes, {"digest": digest})
