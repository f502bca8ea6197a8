"""The stages of one bucket: those of its turns, from imports to an index, and all of them in order."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import pyarrow as pa

from hgmem_core import consolidate_llm, extract_llm, group_llm, relate_llm, segment_llm, skill_merge_llm, skills_llm
from hgmem_core.config import Config
from hgmem_core.consolidate import CONSOLIDATE_REVISION, consolidate
from hgmem_core.dense import open_faiss, to_faiss
from hgmem_core.embeddings import (
    EMBEDDINGS_REVISION,
    context_texts,
    embedding_rows,
    texts_of_turns,
    tuned_by_heads,
)
from hgmem_core.encoding import EncoderIdentity
from hgmem_core.extract import EXTRACT_REVISION, extract
from hgmem_core.graph import DENSE_FIELDS, LEVELS, GraphTables, dense_text
from hgmem_core.group import GROUP_REVISION, group, words_of_episodes
from hgmem_core.index import INDEX_REVISION, BucketIndex, LargeLevel, build_index, level_rows, splice_indexes
from hgmem_core.ivf import large_levels
from hgmem_core.model_config import LlmStage
from hgmem_core.passes import Terms
from hgmem_core.prompts import Prompt
from hgmem_core.propagate import PROPAGATE_REVISION, propagate
from hgmem_core.relate import RELATE_REVISION, RelateTables, relate
from hgmem_core.schemas import (
    CAUSE,
    EPISODE,
    FACT,
    INCIDENCE,
    OUTCOME,
    TOPIC,
    TURN,
    TableSchema,
    conform,
    embedding_schema,
    layout_of,
    ok_outcomes,
    relation_schema,
)
from hgmem_core.segment import SEGMENT_REVISION, segment
from hgmem_core.sharded import Ivf
from hgmem_core.tokens import TOKENS_REVISION
from hgmem_core.turns import MERGE_REVISION, merge_imports
from pipelines.chat_model import identity, terms_of
from pipelines.files import open_arrow
from pipelines.imports import ImportedPart, kept_rows
from pipelines.runner import Produced, Runner, Stage
from pipelines.skill_stages import SKILL_STAGES, SkillBuild
from pipelines.spill import RowKind
from pipelines.steps import Answers, Asking, Encoding, Made, StageSteps, Steps, Tables, Texts, answered, produced
from pipelines.store import DamagedOutput, Output, Payload
from pipelines.tuned_vectors import Tuned

PROMPTS: Mapping[LlmStage, Prompt] = MappingProxyType(
    {
        "segment": segment_llm.PROMPT,
        "extract": extract_llm.PROMPT,
        "consolidate": consolidate_llm.PROMPT,
        "group": group_llm.PROMPT,
        "relate": relate_llm.PROMPT,
        "decompose": skills_llm.DECOMPOSE,
        "skills": skills_llm.DISTIL,
        "evolve": skill_merge_llm.MERGE,
    }
)
"""Of the stages that a language model takes part in."""

STAGES = (
    "merge", "encode_turns", "segment", "extract", "encode_facts", "encode_episodes", "consolidate", "group",
    "encode_topics", "propagate", "relate", "encode_tuned", "index",
)  # fmt: skip
"""Of turns, in order."""

TUNED_STAGE = "encode_tuned"
"""Left out where nobody asked for tuned vectors."""


def stages_of(tuned: Tuned | None) -> tuple[str, ...]:
    """Return the stages of turns of a build that makes such tuned vectors, or none."""
    return tuple(stage for stage in STAGES if tuned is not None or stage != TUNED_STAGE)


def stage_count(parts: Sequence[ImportedPart], tuned: Tuned | None) -> int:
    """Count the stages of a bucket that has such parts."""
    kinds = {part.kind for part in parts}
    return len(stages_of(tuned)) * ("messages" in kinds) + len(SKILL_STAGES) * ("runs" in kinds)


class BucketBuild:
    """The stages of one bucket's turns, in order; each is a pure function of the tables before it."""

    def __init__(self, runner: Runner, config: Config, encoder: EncoderIdentity, tuned: Tuned | None) -> None:
        """Describe the stages: what in the configuration decides the output of each."""
        self._runner = runner
        self._config = config
        self._tuned = tuned
        self._embedding = embedding_schema(encoder.dimension)
        language = {"language": config.index.language, "tokens": TOKENS_REVISION}
        encode = {"model": encoder.as_dict(), "batch_size": config.encoder.batch_size}
        index = {**config.index.model_dump(), **language, **config.propagate.model_dump()}
        slices: dict[str, tuple[int, dict[str, Any]]] = {
            "merge": (MERGE_REVISION, {}),
            "encode_turns": (EMBEDDINGS_REVISION, encode),
            "segment": (SEGMENT_REVISION, {**config.segment.model_dump(), **language}),
            "extract": (EXTRACT_REVISION, {**config.extract.model_dump(), **language}),
            "encode_facts": (EMBEDDINGS_REVISION, encode),
            "encode_episodes": (EMBEDDINGS_REVISION, encode),
            "consolidate": (CONSOLIDATE_REVISION, config.consolidate.model_dump()),
            "group": (GROUP_REVISION, config.group.model_dump()),
            "encode_topics": (EMBEDDINGS_REVISION, encode),
            "propagate": (PROPAGATE_REVISION, config.propagate.model_dump()),
            "relate": (RELATE_REVISION, {**config.relate.model_dump(), **language}),
            "index": (INDEX_REVISION, {**index, "dimension": encoder.dimension}),
        }
        for stage, about in self._of_the_model().items():
            slices[stage][1]["llm"] = about
        if tuned is not None:
            slices[TUNED_STAGE] = (EMBEDDINGS_REVISION, {**encode, "model": tuned.identity})
            slices["index"][1]["tuned_dimension"] = tuned.dimension
        self._stages = {name: Stage(name, *slices[name]) for name in stages_of(tuned)}
        self._steps = StageSteps(runner, self._stages, self._embedding)

    def digests(self) -> dict[str, str]:
        """Return what tells each stage from one with other settings, by name."""
        return {name: stage.digest for name, stage in self._stages.items()}

    @property
    def _terms(self) -> Terms:
        return terms_of(self._config.llm)

    def _of_the_model(self) -> dict[str, dict[str, Any]]:
        """Return what a language model adds to the identity of the stages that it takes part in."""
        llm = self._config.llm
        own: dict[LlmStage, dict[str, Any]] = {
            "segment": {
                "revision": segment_llm.SEGMENT_LLM_REVISION,
                "window_turns": llm.window_turns,
                "window_overlap": llm.window_overlap,
            },
            "extract": {"revision": extract_llm.EXTRACT_LLM_REVISION},
            "consolidate": {"revision": consolidate_llm.CONSOLIDATE_LLM_REVISION, "pair_cosine": llm.pair_cosine},
            "group": {"revision": group_llm.GROUP_LLM_REVISION},
            "relate": {"revision": relate_llm.RELATE_LLM_REVISION, "max_relations": llm.max_relations},
        }
        return {
            stage: {**identity(llm), "prompt": PROMPTS[stage].fingerprint, **about}
            for stage, about in own.items()
            if llm.decides(stage)
        }

    def steps(self, parts: Sequence[ImportedPart]) -> Steps[Output]:
        """Run every stage on the messages of the bucket's imports and return its index.

        Raises:
            DamagedOutput: Something made earlier is not as it was written.
        """
        turns = self._runner.make(self._stages["merge"], parts, lambda fresh: _merge(parts, fresh))
        [turn_vectors] = yield from self._steps.encode({"turn": [turns]}, self._texts)
        episodes = yield from self._steps.after("segment", [turns, turn_vectors], self._segment)
        drafts = yield from self._steps.after("extract", [turns, episodes, turn_vectors], self._extract)
        fact_vectors, episode_vectors = yield from self._steps.encode(
            {"fact": [drafts], "episode": [episodes]}, self._texts
        )
        facts = yield from self._steps.after("consolidate", [drafts, fact_vectors, turns], self._consolidate)
        topics = yield from self._steps.after("group", [episodes, episode_vectors, drafts], self._group)
        [topic_vectors] = yield from self._steps.encode({"topic": [topics]}, self._texts)
        vectors = [fact_vectors, episode_vectors, topic_vectors]
        propagated = yield from self._steps.after("propagate", [facts, topics, *vectors], self._propagate)
        said = [turns, turn_vectors, facts, fact_vectors, topics]
        relations = yield from self._steps.after("relate", said, self._relate)
        tables = {
            "merge": turns, "encode_turns": turn_vectors, "segment": episodes, "extract": drafts,
            "encode_facts": fact_vectors, "encode_episodes": episode_vectors, "consolidate": facts, "group": topics,
            "encode_topics": topic_vectors, "propagate": propagated, "relate": relations,
        }  # fmt: skip
        if self._tuned is not None:
            tables[TUNED_STAGE] = yield from self._encode_tuned(self._tuned, turns, turn_vectors)
        return self._runner.sound(self._index(tables))

    def _encode_tuned(self, tuned: Tuned, turns: Output, turn_vectors: Output) -> Encoding[Output]:
        """Make the tuned vectors of turns: of their texts with context, or by heads of the vectors that there are."""
        task = self._runner.begin(self._stages[TUNED_STAGE], [turns] if tuned.heads is None else [turns, turn_vectors])
        if isinstance(task, Output):
            return task
        table = Tables(self._runner, turns, task.fresh)["turns"]
        nodes = table.select(["namespace", "turn_id"])
        if tuned.heads is None:
            [vectors] = yield [Texts(TUNED_STAGE, nodes, texts_of_turns(table, context_texts))]
        else:
            embeddings = Tables(self._runner, turn_vectors, task.fresh)["embeddings"]
            vectors = tuned_by_heads(table, embeddings, tuned.heads)
        made, outcomes = embedding_rows("turn", nodes, vectors, "tuned")
        return self._runner.finish(task, produced({"embeddings": (made, embedding_schema(tuned.dimension))}, outcomes))

    def _texts(self, level: str, nodes: Sequence[Tables]) -> Texts:
        table = nodes[0][f"{level}s"]
        if level == "turn":
            texts = texts_of_turns(table)
        else:
            [known] = (one for one in LEVELS if one == level)
            texts = [dense_text(known, row) for row in table.select(DENSE_FIELDS[known]).to_pylist()]
        return Texts(f"encode_{level}s", table.select(["namespace", f"{level}_id"]), texts)

    def _segment(self, turns: Tables, vectors: Tables) -> Asking[Produced]:
        language, llm = self._config.index.language, self._config.llm
        tables = turns["turns"], vectors["embeddings"]
        if not llm.decides("segment"):
            episodes, outcomes = segment(*tables, self._config.segment, language)
            return produced({"episodes": (episodes, EPISODE)}, outcomes)
        window = llm.window_turns, llm.window_overlap
        made = yield from segment_llm.segment_llm(*tables, self._config.segment, language, window, self._terms)
        return produced({"episodes": (made.episodes, EPISODE)}, made.outcomes, made.rejects)

    def _extract(self, turns: Tables, episodes: Tables, vectors: Tables) -> Asking[Produced]:
        tables = turns["turns"], episodes["episodes"], vectors["embeddings"]
        settings = self._config.extract, self._config.index.language
        if not self._config.llm.decides("extract"):
            facts, incidences, outcomes = extract(*tables, *settings)
            return produced(_facts(facts, incidences, CAUSE.empty()), outcomes)
        made = yield from extract_llm.extract_llm(*tables, *settings, self._terms)
        return produced(_facts(made.facts, made.incidences, made.causes), made.outcomes, made.rejects)

    def _consolidate(self, drafts: Tables, vectors: Tables, turns: Tables) -> Asking[Produced]:
        llm = self._config.llm
        tables = drafts["facts"], vectors["embeddings"], drafts["incidences"], turns["turns"]
        if not llm.decides("consolidate"):
            facts, incidences, outcomes = consolidate(*tables, self._config.consolidate)
            causes = consolidate_llm.moved_causes(drafts["causes"], outcomes)
            return produced(_facts(facts, incidences, causes), outcomes)
        settings = self._config.consolidate, llm.pair_cosine, self._terms
        made = yield from consolidate_llm.consolidate_llm(*tables, drafts["causes"], *settings)
        return produced(_facts(made.facts, made.incidences, made.causes), made.outcomes, made.rejects)

    def _group(self, episodes: Tables, vectors: Tables, drafts: Tables) -> Asking[Produced]:
        facts, members = drafts["facts"], drafts["incidences"]
        names = {episode: set(found) for episode, found in words_of_episodes(facts, members, "entities").items()}
        keywords = words_of_episodes(facts, members, "keywords")
        tables = episodes["episodes"], vectors["embeddings"], names, keywords, self._config.group
        if not self._config.llm.decides("group"):
            topics, incidences, outcomes = group(*tables)
            return produced({"topics": (topics, TOPIC), "incidences": (incidences, INCIDENCE)}, outcomes)
        made = yield from group_llm.group_llm(*tables, self._terms)
        named = {"topics": (made.topics, TOPIC), "incidences": (made.incidences, INCIDENCE)}
        return produced(named, made.outcomes, made.rejects)

    def _propagate(self, facts: Tables, topics: Tables, *vectors: Tables) -> Asking[Produced]:
        yield from ()
        base = pa.concat_tables([tables["embeddings"] for tables in vectors])
        incidences = pa.concat_tables([tables["incidences"] for tables in (facts, topics)])
        settings = self._config.propagate
        moved = propagate(base, incidences, settings.weight, settings.aggregation)
        outcomes = ok_outcomes("propagate", base.column("namespace"), base.column("node_id"))
        return produced({"embeddings": (moved, self._embedding)}, outcomes)

    def _relate(
        self, turns: Tables, turn_vectors: Tables, facts: Tables, fact_vectors: Tables, topics: Tables
    ) -> Asking[Produced]:
        tables = RelateTables(
            turns=turns["turns"],
            turn_vectors=turn_vectors["embeddings"],
            facts=facts["facts"],
            fact_vectors=fact_vectors["embeddings"],
            incidences=pa.concat_tables([made["incidences"] for made in (facts, topics)]),
            causes=facts["causes"],
        )
        settings, llm = (self._config.relate, self._config.index.language), self._config.llm
        if not llm.decides("relate"):
            *relations, outcomes = relate(tables, *settings)
            return produced(_relations(*relations), outcomes)
        made = yield from relate_llm.relate_llm(tables, *settings, llm.max_relations, self._terms)
        return produced(_relations(made.turn_relations, made.fact_relations), made.outcomes, made.rejects)

    def _index(self, made: Mapping[str, Output]) -> Output:
        """Index a bucket; the manifest tells which outputs the index was made from, for the build after this one."""
        task = self._runner.begin(self._stages["index"], [made[name] for name in made if name != "extract"])
        if isinstance(task, Output):
            return task
        tables = {name: Tables(self._runner, output, task.fresh) for name, output in made.items()}
        vectors = [tables[f"encode_{level}s"]["embeddings"] for level in ("fact", "episode", "topic")]
        graph = GraphTables(
            topics=tables["group"]["topics"],
            episodes=tables["segment"]["episodes"],
            facts=tables["consolidate"]["facts"],
            incidences=pa.concat_tables([tables[stage]["incidences"] for stage in ("consolidate", "group")]),
            base=pa.concat_tables(vectors),
            propagated=tables["propagate"]["embeddings"],
            turn_relations=tables["relate"]["turn_relations"],
            fact_relations=tables["relate"]["fact_relations"],
        )
        turns, embeddings = tables["merge"]["turns"], tables["encode_turns"]["embeddings"]
        tuned = tables[TUNED_STAGE]["embeddings"] if TUNED_STAGE in tables else None
        index = build_index(turns, embeddings, graph, self._config.index, self._config.propagate.weight, tuned)
        index = replace(index, large=large_levels(index, self._config.index.ivf_from))
        outcomes = ok_outcomes("index", turns.column("namespace"), turns.column("turn_id"))
        about = {"made_from": {stage: output.identity for stage, output in made.items()}}

        def join(parent: Output, kept: Set[str], made: Produced) -> Produced:
            both = splice_indexes(_read_index(self._runner.sound(parent)), index, kept)
            return index_files(both, made.outcomes, about)

        return self._runner.finish(task, index_files(index, outcomes, about), join)


def _merge(parts: Sequence[ImportedPart], fresh: Set[str] | None) -> Produced:
    imports, forgotten = kept_rows(parts, fresh)
    turns, outcomes = merge_imports(imports)
    return produced({"turns": (turns, TURN)}, conform(pa.concat_tables([outcomes, forgotten]), OUTCOME))


def _facts(facts: pa.Table, incidences: pa.Table, causes: pa.Table) -> dict[str, tuple[pa.Table, TableSchema]]:
    return {"facts": (facts, FACT), "incidences": (incidences, INCIDENCE), "causes": (causes, CAUSE)}


def _relations(of_turns: pa.Table, of_facts: pa.Table) -> dict[str, tuple[pa.Table, TableSchema]]:
    return {
        f"{graph}_relations": (table, relation_schema(layout_of(table.schema)))
        for graph, table in (("turn", of_turns), ("fact", of_facts))
    }


_INDEX_TABLES = ("namespaces", "nodes", "graph_nodes", "postings", "turn_relations", "fact_relations")
_INDEX_VECTORS = {
    "vectors": "turn", "graph_vectors": "graph", "propagated_vectors": "graph_propagated",
    "tuned_vectors": "turn_tuned",
}  # fmt: skip


def index_files(index: BucketIndex, outcomes: pa.Table, about: Mapping[str, object]) -> Produced:
    """Return the files of a bucket's index, and its manifest's `about` with the counts of what is in it."""
    files: dict[str, Payload] = {f"{name}.arrow": getattr(index, name) for name in _INDEX_TABLES}
    for name, file in _INDEX_VECTORS.items():
        vectors = getattr(index, name)
        if vectors is not None:
            files[f"{file}.faiss"] = to_faiss(vectors)
    counts = {"turns": index.nodes.num_rows, "namespaces": index.namespaces.num_rows}
    counts |= {f"{level}s": sum(index.namespaces.column(f"{level}s").to_pylist()) for level in LEVELS}
    large, listed = _large_files(index)
    if listed:
        about = {**about, "large": listed}
    return Produced({**files, **large}, outcomes, about={**about, **counts})


def _large_files(index: BucketIndex) -> tuple[dict[str, Payload], list[dict[str, Any]]]:
    """Return the IVF files of large levels, and for the manifest what each is of; namespaces are told by their rows."""
    rows = {(namespace, vectors, level): rows for namespace, vectors, level, rows in level_rows(index.namespaces)}
    files: dict[str, Payload] = {}
    listed = []
    for number, one in enumerate(index.large):
        names = [f"ivf-{number:03d}-{shard:03d}.faiss" for shard in range(len(one.ivf.shards))]
        files |= dict(zip(names, one.ivf.shards, strict=True))
        first = rows[one.namespace, one.vectors, one.level].start
        about = {"vectors": one.vectors, "level": one.level, "first_row": first, "files": names}
        listed.append({**about, **one.ivf.about()})
    return files, listed


def _read_index(output: Output) -> BucketIndex:
    tables = {name: open_arrow(output.folder / f"{name}.arrow") for name in _INDEX_TABLES}
    vectors = {
        name: open_faiss(str(output.folder / f"{file}.faiss")).copy()
        for name, file in _INDEX_VECTORS.items()
        if f"{file}.faiss" in output.manifest["files"]
    }
    places = {(name, level, rows.start): namespace for namespace, name, level, rows in level_rows(tables["namespaces"])}
    large = tuple(
        LargeLevel(
            places[one["vectors"], one["level"], one["first_row"]],
            one["vectors"],
            one["level"],
            Ivf.of(one, [(output.folder / name).read_bytes() for name in one["files"]]),
        )
        for one in output.manifest.get("large", [])
    )
    return BucketIndex(**tables, **vectors, large=large)


_MOST_REMOVALS = 2


def _every_stage(
    runner: Runner, config: Config, encoder: EncoderIdentity, tuned: Tuned | None, parts: Sequence[ImportedPart]
) -> Steps[dict[str, Output]]:
    own: dict[RowKind, list[ImportedPart]] = {
        kind: [part for part in parts if part.kind == kind] for kind in get_args(RowKind)
    }
    indexes = {}
    if own["messages"]:
        indexes["index"] = yield from BucketBuild(runner, config, encoder, tuned).steps(own["messages"])
    if own["runs"]:
        indexes["index_skills"] = yield from SkillBuild(runner, config, encoder).steps(own["runs"])
    return indexes


def index_of_bucket(
    runner: Runner,
    config: Config,
    encoder: EncoderIdentity,
    tuned: Tuned | None,
    parts: Sequence[ImportedPart],
    answers: Answers,
) -> dict[str, Output]:
    """Build a bucket and return its indexes; see `made_of`.

    Args:
        runner: Of the bucket.
        config: How to build.
        encoder: Whose vectors `answers` returns.
        tuned: What makes tuned vectors; None for no such vectors.
        parts: What was imported of the bucket, the oldest import first.
        answers: Returns vectors of texts and replies to requests.

    Returns:
        By stage: `index` if the bucket has messages, `index_skills` if it has runs of agents.
    """
    return made_of(runner, lambda: _every_stage(runner, config, encoder, tuned, parts), answers)


def made_of(runner: Runner, begin: Callable[[], Steps[Made]], answers: Answers) -> Made:
    """Return what steps on a bucket make; what turns out damaged on the way is removed and made again.

    Args:
        runner: Of the bucket.
        begin: Begins the steps.
        answers: Returns vectors of texts and replies to requests.
    """
    removed: Counter[Path] = Counter()
    while True:
        steps = begin()
        try:
            waiting = next(steps)
            while True:
                waiting = steps.send(answered(answers, waiting))
        except StopIteration as done:
            made: Made = done.value
            return made
        except DamagedOutput as error:
            removed[error.folder] += 1
            if removed[error.folder] > _MOST_REMOVALS:  # a disk that does not keep what is written
                raise
            runner.remove(error.folder)
