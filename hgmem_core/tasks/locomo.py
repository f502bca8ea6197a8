"""LoCoMo: questions over long two-person conversations, with the turns that hold the evidence.

Maharana et al., ACL 2024. Categories: 1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop, 5 adversarial.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hgmem_core.config import InputConfig
from hgmem_core.ids import turn_id
from hgmem_core.tasks.task import RETRIEVAL_METRICS, Gold, Questions, Task, TaskError, TaskFiles, right_answers

GROUPS: MappingProxyType[str, frozenset[str]] = MappingProxyType(
    {"all": frozenset("12345"), "1-4": frozenset("1234"), **{category: frozenset(category) for category in "12345"}}
)
"""Groups of an evaluation and the categories they hold."""

COUNTED = ("questions", "questions_left_out", "evidence", "evidence_repaired", "evidence_dropped")
"""What `read_questions` counts: all questions and those without evidence, all evidence strings, repaired, dropped."""

_WELL_FORMED = re.compile(r"D\d+:[1-9]\d*")
_DIALOGUE_ID = re.compile(r"D:?\s*(\d+)\s*:\s*(\d+)")


def namespace_of(sample_id: str) -> str:
    """Return the namespace that the importer gives a conversation."""
    return f"locomo/{sample_id}"


def session_of(number: int) -> str:
    """Return the session id that the importer gives session `number`; string order is number order."""
    return f"session_{number:03d}"


def read_task(files: TaskFiles) -> Task:
    """Read a LoCoMo file; its conversations are what is imported.

    Raises:
        TaskError: Names the file, and see `read_questions`.
    """
    path = files.data.path
    try:
        questions = read_questions(files.data.rows)
    except TaskError as error:
        raise TaskError(f"{path}: {error}") from error
    inputs = (InputConfig(format="locomo", paths=[path]),)
    return Task(
        "locomo", files, inputs, questions, GROUPS, RETRIEVAL_METRICS, "1-4",
        unanswerable=GROUPS["5"], golds=read_golds(files.data.rows),
    )  # fmt: skip


def read_golds(samples: Sequence[Mapping[str, Any]]) -> tuple[Gold, ...]:
    """Return every question of samples that `read_questions` takes, with its answer; one of category 5 has none."""
    return tuple(
        Gold(
            namespace=namespace_of(_sample_id(sample)),
            query_id=f"{_sample_id(sample)}:{number:04d}",
            text=question["question"],
            group=str(question["category"]),
            answers=() if str(question["category"]) == "5" else right_answers(question.get("answer")),
        )
        for sample in samples
        for number, question in enumerate(sample["qa"])
    )


def read_questions(samples: Sequence[Mapping[str, Any]]) -> Questions:
    """Read the questions of the samples and resolve their evidence to turns.

    Evidence is a list of dialogue ids such as `D3:11`. Strings that hold several, leading zeros or a stray colon are
    repaired; ids of no turn of the conversation are dropped; a question that is left without evidence is left out.
    All three are counted.

    Raises:
        TaskError: Names the sample, and the question or turn, that is not as LoCoMo's are; or no question has evidence.
    """
    counts = Counter(dict.fromkeys(COUNTED, 0))
    queries: list[tuple[str, str, str, str]] = []
    qrels: list[tuple[str, str, str, int]] = []
    seen: set[str] = set()
    for sample in samples:
        sample_id = _sample_id(sample)
        if sample_id in seen:
            raise TaskError(f"sample {sample_id!r} occurs twice")
        seen.add(sample_id)
        namespace = namespace_of(sample_id)
        turns = _turns(sample["conversation"], namespace, sample_id)
        if not isinstance(sample["qa"], list) or not sample["qa"]:
            raise TaskError(f"sample {sample_id!r} has no list of questions under qa")
        for number, question in enumerate(sample["qa"]):
            text, category, evidence = _question(question, f"sample {sample_id!r}, question {number}")
            counts["questions"] += 1
            found = _evidence(evidence, turns, counts)
            if not found:
                counts["questions_left_out"] += 1
                continue
            query_id = f"{sample_id}:{number:04d}"
            queries.append((namespace, query_id, text, category))
            qrels += [(namespace, query_id, turn, 1) for turn in found]
    if not queries:
        raise TaskError("no question has evidence among the turns of its conversation")
    return Questions.of(queries, qrels, dict(counts))


def _sample_id(sample: object) -> str:
    if not isinstance(sample, Mapping) or not {"sample_id", "conversation", "qa"} <= set(sample):
        raise TaskError("each LoCoMo sample is an object with sample_id, conversation and qa")
    sample_id = sample["sample_id"]
    if isinstance(sample_id, bool) or not isinstance(sample_id, str | int):
        raise TaskError(f"the sample_id {sample_id!r} is neither text nor a whole number")
    return str(sample_id)


def _question(question: object, where: str) -> tuple[str, str, list[Any]]:
    """Return a question's text, category and evidence."""
    match question:
        case {"question": str(text), "category": str() | int() as category, **rest}:
            evidence = rest.get("evidence") or []
        case _:
            raise TaskError(f"{where}: not an object with question, category and evidence")
    if not isinstance(evidence, list):
        raise TaskError(f"{where}: its evidence is no list")
    return text, str(category), evidence


def _turns(conversation: object, namespace: str, sample_id: str) -> dict[tuple[int, int], str]:
    """Map each dialogue id, as (session, turn) numbers, to its turn id."""
    if not isinstance(conversation, Mapping):
        raise TaskError(f"sample {sample_id!r}: its conversation is no object")
    turns = {}
    for key, session in conversation.items():
        name = re.fullmatch(r"session_(\d+)", key)
        if name and isinstance(session, list):
            for place, turn in enumerate(session):
                if not isinstance(turn, Mapping):
                    raise TaskError(f"sample {sample_id!r}, {key}[{place}]: not an object with a turn")
                dialogue = _DIALOGUE_ID.fullmatch(str(turn.get("dia_id", "")))
                if dialogue:
                    source_id = turn["dia_id"]
                    where = (int(dialogue[1]), int(dialogue[2]))
                    turns[where] = turn_id(namespace, session_of(int(name[1])), source_id)
    return turns


def _evidence(strings: Iterable[Any], turns: Mapping[tuple[int, int], str], counts: Counter[str]) -> list[str]:
    found: dict[str, None] = {}
    for string in map(str, strings):
        counts["evidence"] += 1
        ids = [(int(session), int(turn)) for session, turn in _DIALOGUE_ID.findall(string)]
        known = [turns[where] for where in ids if where in turns]
        if not known:
            counts["evidence_dropped"] += 1
        elif not _WELL_FORMED.fullmatch(string):
            counts["evidence_repaired"] += 1
        found.update(dict.fromkeys(known))
    return list(found)
