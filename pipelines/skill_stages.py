"""The stages of one bucket's runs of agents: what they teach, its vectors, distinct skills, utilities, an index."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from hgmem_core import skills_llm
from hgmem_core.action_templates import TEMPLATES_REVISION
from hgmem_core.config import Config
from hgmem_core.dense import open_faiss, to_faiss
from hgmem_core.embeddings import EMBEDDINGS_REVISION
from hgmem_core.encoding import EncoderIdentity
from hgmem_core.model_config import LlmStage
from hgmem_core.passes import Terms
from hgmem_core.prompts import Prompt
from hgmem_core.schemas import (
    INCIDENCE,
    LESSON,
    MENTION,
    OUTCOME,
    SKILL,
    STRING,
    SUBTASK,
    TRAJECTORY,
    UTILITY,
    conform,
    embedding_schema,
    ok_outcomes,
)
from hgmem_core.skill_dedup import SKILL_DEDUP_REVISION, dedup_skills
from hgmem_core.skill_graph import SkillTables
from hgmem_core.skill_index import (
    SKILL_INDEX_REVISION,
    SKILL_TABLES,
    BucketSkills,
    build_skill_index,
    splice_skill_indexes,
)
from hgmem_core.skill_utility import MEMBERS, UTILITY_REVISION, nodes_of, utility_of_members
from hgmem_core.skills import SKILLS_REVISION
from hgmem_core.subtasks import SUBTASKS_REVISION
from hgmem_core.taught import dedup_outcomes, distinct_mentions, plan, teach
from hgmem_core.taught_llm import plan_llm, teach_llm
from hgmem_core.tokens import TOKENS_REVISION
from hgmem_core.trajectories import TRAJECTORIES_REVISION, merge_runs
from hgmem_core.vector_rows import aligned_vectors
from pipelines.chat_model import identity, terms_of
from pipelines.files import open_arrow
from pipelines.imports import ImportedPart, kept_rows
from pipelines.runner import Produced, Runner, Stage
from pipelines.skill_memory import run_text, skill_text
from pipelines.steps import Asking, StageSteps, Steps, Tables, Texts, produced
from pipelines.store import Output, Payload
from pipelines.versions import SKILL_VECTORS_FILE

SKILL_TEXTS_REVISION = 1
"""Raised when the encoder sees other texts of equal skills, plans, tasks or runs."""

SKILL_STAGES = (
    "merge_runs", "decompose", "skills", "encode_subtasks", "encode_skills", "encode_plans", "encode_tasks",
    "encode_runs", "dedup", "utility", "index_skills",
)  # fmt: skip
"""In order."""


_ASKED_WITH = ("plan", "task")
"""Levels that are not searched: evolution searches with them."""


class SkillBuild:
    """The stages of one bucket's runs, in order; each is a pure function of the tables before it."""

    def __init__(self, runner: Runner, config: Config, encoder: EncoderIdentity) -> None:
        """Describe the stages: what in the configuration decides the output of each."""
        self._runner = runner
        self._config = config
        language = {"language": config.index.language, "tokens": TOKENS_REVISION}
        encode = {"model": encoder.as_dict(), "batch_size": config.encoder.batch_size, "texts": SKILL_TEXTS_REVISION}
        slices: dict[str, tuple[int, dict[str, Any]]] = {
            "merge_runs": (TRAJECTORIES_REVISION, {}),
            "decompose": (SUBTASKS_REVISION, {}),
            "skills": (SKILLS_REVISION, {**language, "templates": TEMPLATES_REVISION}),
            **{stage: (EMBEDDINGS_REVISION, encode) for stage in SKILL_STAGES if stage.startswith("encode_")},
            "dedup": (SKILL_DEDUP_REVISION, {"same_from": config.skills.same_from}),
            "utility": (UTILITY_REVISION, asdict(MEMBERS)),
            "index_skills": (SKILL_INDEX_REVISION, {"dimension": encoder.dimension}),
        }
        if encoder.prefix != encoder.document_prefix:  # else they are what they are as documents
            for level in _ASKED_WITH:
                slices[f"encode_{level}s"] = EMBEDDINGS_REVISION, {**encode, "as_queries": True}
        llm = config.llm
        asked: dict[LlmStage, Prompt] = {"decompose": skills_llm.DECOMPOSE, "skills": skills_llm.DISTIL}
        for stage, prompt in asked.items():
            if llm.decides(stage):
                about = {"prompt": prompt.fingerprint, "revision": skills_llm.SKILLS_LLM_REVISION}
                slices[stage][1]["llm"] = {**identity(llm), **about}
        self._stages = {name: Stage(name, *slices[name]) for name in SKILL_STAGES}
        self._steps = StageSteps(runner, self._stages, embedding_schema(encoder.dimension))

    def steps(self, parts: Sequence[ImportedPart]) -> Steps[Output]:
        """Run every stage on the runs of the bucket's imports and return the index of its skills.

        Raises:
            DamagedOutput: Something made earlier is not as it was written.
        """
        runs = self._runner.make(self._stages["merge_runs"], parts, lambda fresh: _merge(parts, fresh))
        plans = yield from self._steps.after("decompose", [runs], self._plan)
        taught = yield from self._steps.after("skills", [runs], self._teach)
        nodes = {
            "subtask": [plans], "skill": [taught], "plan": [plans], "task": [runs], "run": [runs, taught],
        }  # fmt: skip
        encoded = yield from self._steps.encode(nodes, _texts)
        vectors = {f"encode_{level}s": output for level, output in zip(nodes, encoded, strict=True)}
        skills = yield from self._steps.after("dedup", [taught, vectors["encode_skills"]], self._dedup)
        utilities = yield from self._steps.after("utility", [runs, plans, skills], _utility)
        made = {
            "merge_runs": runs,
            "decompose": plans,
            "skills": taught,
            **vectors,
            "dedup": skills,
            "utility": utilities,
        }
        return self._runner.sound(self._index(made))

    def digests(self) -> dict[str, str]:
        """Return what tells each stage from one with other settings, by name."""
        return {name: stage.digest for name, stage in self._stages.items()}

    def _plan(self, runs: Tables) -> Asking[Produced]:
        trajectories, is_asked = runs["trajectories"], self._config.llm.decides("decompose")
        made = (yield from plan_llm(trajectories, self._terms)) if is_asked else plan(trajectories)
        tables = {"subtasks": (made.subtasks, SUBTASK), "incidences": (made.incidences, INCIDENCE)}
        return produced(tables, made.outcomes, made.rejects if is_asked else None)

    def _teach(self, runs: Tables) -> Asking[Produced]:
        given, is_asked = (runs["trajectories"], self._config.index.language), self._config.llm.decides("skills")
        made = (yield from teach_llm(*given, self._terms)) if is_asked else teach(*given)
        tables = {"mentions": (made.mentions, MENTION), "lessons": (made.lessons, LESSON)}
        return produced(tables, made.outcomes, made.rejects if is_asked else None)

    @property
    def _terms(self) -> Terms:
        return terms_of(self._config.llm)

    def _dedup(self, taught: Tables, vectors: Tables) -> Asking[Produced]:
        yield from ()
        mentions = taught["mentions"]
        own, _ = aligned_vectors(mentions.column("skill_id"), vectors["embeddings"])
        found = dedup_skills(mentions, own, self._config.skills.same_from)
        tables = {"skills": (found.skills, SKILL), "incidences": (found.incidences, INCIDENCE)}
        return produced(tables, dedup_outcomes(mentions, found))

    def _index(self, made: Mapping[str, Output]) -> Output:
        """Index a bucket; the manifest tells which outputs the index was made from, for the build after this one."""
        # Nothing is found by plans and tasks alone; evolution reads them.
        inputs = [output for stage, output in made.items() if stage not in ("encode_plans", "encode_tasks")]
        task = self._runner.begin(self._stages["index_skills"], inputs)
        if isinstance(task, Output):
            return task
        tables = {stage: Tables(self._runner, output, task.fresh) for stage, output in made.items()}
        runs = tables["merge_runs"]["trajectories"]
        every = SkillTables(
            trajectories=runs,
            lessons=tables["skills"]["lessons"],
            subtasks=tables["decompose"]["subtasks"],
            skills=tables["dedup"]["skills"],
            incidences=_memberships(tables["decompose"], tables["dedup"]),
            utilities=tables["utility"]["utilities"],
        )
        levels = {"subtasks": "encode_subtasks", "skills": "encode_skills", "trajectories": "encode_runs"}
        index = build_skill_index(every, {name: tables[stage]["embeddings"] for name, stage in levels.items()})
        outcomes = ok_outcomes("index_skills", runs.column("namespace"), runs.column("trajectory_id"))
        about = {"made_from": {stage: output.identity for stage, output in made.items()}}

        def join(parent: Output, kept: Set[str], made: Produced) -> Produced:
            both = splice_skill_indexes(_read_index(self._runner.sound(parent)), index, kept)
            return index_files(both, made.outcomes, about)

        return self._runner.finish(task, index_files(index, outcomes, about), join)


def _merge(parts: Sequence[ImportedPart], fresh: Set[str] | None) -> Produced:
    imports, forgotten = kept_rows(parts, fresh)
    runs, outcomes = merge_runs(imports)
    every = conform(pa.concat_tables([outcomes, forgotten]), OUTCOME)
    return produced({"trajectories": (runs, TRAJECTORY)}, every)


def _texts(level: str, tables: Sequence[Tables]) -> Texts:
    """Return what the encoder sees of the nodes of a level; see `SkillBuild.steps` for the tables of each."""
    first = tables[0]
    if level == "subtask":
        subtasks = first["subtasks"]
        nodes, texts = subtasks.select(["namespace", "subtask_id"]), subtasks.column("text").to_pylist()
    elif level == "skill":
        skills = distinct_mentions(first["mentions"])
        said = zip(*(skills.column(name).to_pylist() for name in ("name", "text")), strict=True)
        nodes, texts = skills.select(["namespace", "skill_id"]), [skill_text(*parts) for parts in said]
    elif level == "plan":
        nodes, texts = _plans(first["subtasks"])
    else:
        runs = first["trajectories"]
        nodes, texts = runs.select(["namespace", "trajectory_id"]), runs.column("task").to_pylist()
    if level == "run":
        known = (tables[1]["lessons"].column(name).to_pylist() for name in ("trajectory_id", "text"))
        lessons = dict(zip(*known, strict=True))
        ids = nodes.column("trajectory_id").to_pylist()
        texts = [run_text(task, lessons.get(own, "")) for own, task in zip(ids, texts, strict=True)]
    return Texts(f"encode_{level}s", nodes, texts, as_queries=level in _ASKED_WITH)


def _plans(subtasks: pa.Table) -> tuple[pa.Table, list[str]]:
    """Return the plan of each run that has one, all its subtasks in one text; see `skill_memory.plan_text`."""
    rows = subtasks.select(["namespace", "trajectory_id", "position", "text"])
    plans: dict[tuple[str, str], list[str]] = {}
    for row in rows.sort_by([(name, "ascending") for name in rows.column_names[:3]]).to_pylist():
        plans.setdefault((row["namespace"], row["trajectory_id"]), []).append(row["text"])
    columns = [pa.array([plan[place] for plan in plans], STRING) for place in range(2)]
    return pa.table(columns, ["namespace", "trajectory_id"]), ["\n".join(texts) for texts in plans.values()]


def _memberships(plans: Tables, skills: Tables) -> pa.Table:
    return conform(pa.concat_tables([plans["incidences"], skills["incidences"]]), INCIDENCE)


def _utility(runs: Tables, plans: Tables, skills: Tables) -> Asking[Produced]:
    yield from ()
    trajectories = runs["trajectories"]
    nodes = nodes_of(plans["subtasks"], skills["skills"], trajectories)
    found = utility_of_members(nodes, trajectories, _memberships(plans, skills), MEMBERS)
    outcomes = ok_outcomes("utility", nodes.column("namespace"), nodes.column("node_id"))
    return produced({"utilities": (found, UTILITY)}, outcomes)


def index_files(index: BucketSkills, outcomes: pa.Table, about: Mapping[str, object]) -> Produced:
    """Return the files of a bucket's skill index; `about` is for the manifest, beside how much there is."""
    tables = {name: getattr(index.tables, name) for name in SKILL_TABLES}
    files: dict[str, Payload] = {f"{name}.arrow": table for name, table in tables.items()}
    files[SKILL_VECTORS_FILE] = to_faiss(index.vectors)
    counts = {name: tables[name].num_rows for name in ("trajectories", "skills", "subtasks")}
    namespaces = len(tables["trajectories"].column("namespace").unique())
    return Produced(files, outcomes, about={**about, **counts, "namespaces": namespaces})


def _read_index(output: Output) -> BucketSkills:
    tables = {name: open_arrow(output.folder / f"{name}.arrow") for name in SKILL_TABLES}
    vectors = open_faiss(str(output.folder / SKILL_VECTORS_FILE)).copy()
    return BucketSkills(SkillTables(**tables), vectors)
