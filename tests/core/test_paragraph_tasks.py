"""HotpotQA and MuSiQue as tasks: what their questions need is what their importers make of the same files."""

import copy
import json
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hgmem_core.importers import IMPORTERS
from hgmem_core.messages import LogRow
from hgmem_core.tasks import BENCHMARKS
from hgmem_core.tasks.task import TaskError, TaskFile, TaskFiles
from hgmem_core.turns import merge_imports, messages_table

DATA = Path(__file__).parents[1] / "data"
HOTPOTQA, WIKI, MUSIQUE, CORPUS = (
    json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("hotpotqa", "2wiki", "musique", "musique_corpus")
)


def hotpotqa(*questions):
    return BENCHMARKS["hotpotqa"].read(TaskFiles(TaskFile("hot.json", questions), None))


def wiki(*questions):
    return BENCHMARKS["2wiki"].read(TaskFiles(TaskFile("wiki.json", questions), None))


def musique(*questions, corpus=None):
    held = None if corpus is None else TaskFile("corpus.json", corpus)
    return BENCHMARKS["musique"].read(TaskFiles(TaskFile("mu.json", questions), held))


def turns_of(task, rows):
    """The turns that the importer makes of the file that the task names."""
    (config,) = task.inputs
    messages = IMPORTERS[config.format]([LogRow(f"file:{number}", row) for number, row in enumerate(rows, 1)], config)
    turns, _ = merge_imports([messages_table(list(messages), 0, datetime(2026, 1, 1, tzinfo=UTC), 10_000)])
    return turns.to_pylist()


def titles_needed(task, rows):
    """The titles of the turns that each question needs."""
    turns = {(turn["namespace"], turn["turn_id"]): turn["text"].partition("\n")[0] for turn in turns_of(task, rows)}
    needed = defaultdict(set)
    for row in task.questions.qrels.to_pylist():
        needed[row["query_id"]].add(turns[row["namespace"], row["turn_id"]])
    return dict(needed)


def test_hotpotqas_questions_need_turns_of_the_pool():
    task = hotpotqa(*HOTPOTQA)
    assert titles_needed(task, HOTPOTQA) == {
        "q-light": {"Ormel Light", "Edda Quill"},
        "q-ferry": {"Breve Ferry", "Luin Ferry"},
        "q-hats": {"Edda Quill", "Tarnbeck"},
    }
    assert task.questions.counts == {"questions": 3, "evidence": 6, "paragraphs": 7}
    assert len(turns_of(task, HOTPOTQA)) == 7
    asked = task.questions.queries.to_pylist()
    assert {row["query_id"]: row["group"] for row in asked} == {
        "q-light": "bridge",
        "q-ferry": "comparison",
        "q-hats": "bridge",
    }
    assert task.groups == {
        "all": {"bridge", "comparison"},
        "bridge": {"bridge"},
        "comparison": {"comparison"},
    }


def test_2wikis_questions_need_turns_of_the_pool_by_their_own_types():
    task = wiki(*WIKI)
    assert titles_needed(task, WIKI) == {
        "w-comp": {"The Tin Orchard", "Oda Venn"},
        "w-both": {"The Tin Orchard", "Kite Weather", "Oda Venn", "Sol Adeyo"},
        "w-older": {"The Tin Orchard", "Kite Weather"},
        "w-kin": {"Pia Venn", "Oda Venn's mother"},
    }
    assert set(task.groups) == {"all", "bridge_comparison", "comparison", "compositional", "inference"}
    assert task.inputs[0].format == "2wiki"
    assert task.questions.queries.column("namespace").unique().to_pylist() == ["2wiki/paragraphs"]
    with pytest.raises(TaskError, match="question 1: the type is 'compositional', not one of bridge, comparison"):
        hotpotqa(WIKI[0])


def test_right_answers_are_kept_apart_from_the_questions():
    golds = {gold.query_id: gold.answers for gold in (*wiki(*WIKI).golds, *musique(MUSIQUE[0]).golds)}
    assert golds["w-older"] == ("SECRET The Tin Orchard",)
    assert golds["2hop__1_2"] == (MUSIQUE[0]["answer"], "SECRET too")


@pytest.mark.parametrize("corpus", [None, CORPUS])
def test_musiques_questions_need_turns_of_the_corpus_or_of_the_pool(corpus):
    task = musique(*MUSIQUE, corpus=corpus)
    imported = MUSIQUE if corpus is None else corpus
    assert titles_needed(task, imported) == {
        "2hop__1_2": {"Port Ansel", "Wray"},
        "3hop1__1_2_3": {"Port Ansel", "Wray", "Holm"},
        "4hop2__1_2_3_4": {"Port Ansel", "Wray", "Holm", "Teel"},
    }
    assert task.inputs[0].paths == ["mu.json" if corpus is None else "corpus.json"]
    assert task.questions.counts == {"questions": 3, "evidence": 9, "paragraphs": len(turns_of(task, imported))}
    groups = {row["query_id"]: row["group"] for row in task.questions.queries.to_pylist()}
    assert [groups[question["id"]] for question in MUSIQUE] == ["2hop", "3hop", "4hop"]


def test_of_two_paragraphs_of_one_title_the_supporting_one_is_needed():
    task = musique(*MUSIQUE, corpus=CORPUS)
    texts = {turn["turn_id"]: turn["text"] for turn in turns_of(task, CORPUS)}
    needed = [texts[row["turn_id"]] for row in task.questions.qrels.to_pylist()]
    assert len([text for text in needed if "harbour in the county" in text]) == 3
    assert not [text for text in needed if "lifeboat" in text]


def test_a_paragraph_that_stands_twice_is_needed_once():
    question = copy.deepcopy(MUSIQUE[0])
    question["paragraphs"].append(question["paragraphs"][0])
    assert musique(question).questions.counts["evidence"] == 2


def test_answers_reach_no_query():
    for task in (hotpotqa(*HOTPOTQA), wiki(*WIKI), musique(*MUSIQUE, corpus=CORPUS)):
        assert "SECRET" not in str(task.questions.queries.to_pylist())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"_id": 5}, "question 2: not an object with _id or id, question, type"),
        ({"question": None}, "question 2: not an object with _id or id, question, type"),
        ({"supporting_facts": None}, "question 2: .*a list of supporting_facts"),
        ({"supporting_facts": []}, r"question 2 \('q-ferry'\): none of its paragraphs is marked as supporting"),
        ({"supporting_facts": ["Luin Ferry"]}, r"question 2: supporting_facts\[0\] is not a title and the number"),
        (
            {"supporting_facts": [["Breve Ferry", 1], ["Tarnbeck", 0]]},
            r"question 2: supporting_facts\[1\]: no paragraph of its context has the title 'Tarnbeck'",
        ),
        ({"type": "riddle"}, "question 2: the type is 'riddle', not one of bridge, comparison"),
        ({"context": None}, "row 2: the question is not an object with a list of paragraphs under 'context'"),
        ({"context": [["Mire", "A bog."]]}, r"row 2:context\[0\]: the paragraph is a value of type list; it must be"),
        ({"_id": "q-light"}, r"question 2 \('q-light'\): its id occurs twice"),
    ],
)
def test_a_fault_of_hotpotqas_is_named(change, reason):
    with pytest.raises(TaskError, match=f"^hot.json: {reason}"):
        hotpotqa(HOTPOTQA[0], {**HOTPOTQA[1], **change}, HOTPOTQA[2])


def without_support():
    return [{**paragraph, "is_supporting": False} for paragraph in MUSIQUE[1]["paragraphs"]]


def with_paragraph(**fields):
    return [{**MUSIQUE[1]["paragraphs"][0], **fields}, *MUSIQUE[1]["paragraphs"][1:]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": None}, "mu.json: question 2: not an object with id, question and a list of paragraphs"),
        ({"paragraphs": {}}, "mu.json: question 2: not an object with id, question and a list of paragraphs"),
        ({"id": "hop__1"}, "mu.json: question 2: the id 'hop__1' does not begin with one of 2hop, 3hop, 4hop"),
        ({"answerable": False}, "mu.json: question 2: it is not answerable, .* take MuSiQue-Ans"),
        ({"paragraphs": without_support()}, r"mu.json: question 2 \('3hop1__1_2_3'\): none of its paragraphs"),
        ({"paragraphs": ["Wray"]}, r"mu.json: question 2: paragraphs\[0\] is not an object with a truth value"),
        ({"paragraphs": with_paragraph(is_supporting=None)}, r"mu.json: question 2: paragraphs\[0\] is not an object"),
        (
            {"paragraphs": with_paragraph(is_supporting=True, title="Mire")},
            r"mu.json: question 2 \('3hop1__1_2_3'\): paragraphs\[0\] \('Mire'\) is not in corpus.json",
        ),
        (
            {"paragraphs": with_paragraph(is_supporting=True, title=5)},
            r"mu.json: question 2: paragraphs\[0\]: the title is 5",
        ),
        ({"id": "2hop__1_2"}, r"mu.json: question 2 \('2hop__1_2'\): its id occurs twice"),
    ],
)
def test_a_fault_of_musiques_is_named(change, reason):
    with pytest.raises(TaskError, match=f"^{reason}"):
        musique(MUSIQUE[0], {**MUSIQUE[1], **change}, corpus=CORPUS)


@pytest.mark.parametrize("bad", [5, {"title": "Wray"}, {"title": "Wray", "text": None}])
def test_a_fault_of_a_corpus_is_named(bad):
    with pytest.raises(TaskError, match=r"^corpus\.json: row 2: "):
        musique(*MUSIQUE, corpus=[CORPUS[0], bad])


def test_a_file_without_questions_is_refused():
    with pytest.raises(TaskError, match=r"^hot\.json: it holds no question"):
        hotpotqa()
    with pytest.raises(TaskError, match=r"^mu\.json: it holds no question"):
        musique(corpus=CORPUS)
