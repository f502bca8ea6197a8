import bm25s
import numpy as np

from hgmem_core.skill_words import SkillWords
from hgmem_core.tokens import tokenizer
from tests.core.skill_graphs import graph

SKILLS = {
    "s1": {"name": "open, take from", "text": "When the task is about a mug: open the cabinet, then take the mug."},
    "s2": {"name": "count rows", "text": "When the task asks how many: SELECT COUNT, with the right table."},
    "s3": {"name": "look again", "text": "Avoid the very same look again and again; the mug is elsewhere."},
}


def test_scores_are_those_of_bm25s_over_name_and_text():
    skills = graph({}, skills=SKILLS).tables.skills
    tokenize = tokenizer("english")
    documents = [tokenize(f"{own['name']} {own['text']}") for own in SKILLS.values()]
    retriever = bm25s.BM25(method="lucene", k1=1.2, b=0.6)
    retriever.index(documents, show_progress=False)
    words = SkillWords(skills, tokenize, 1.2, 0.6)
    for task in ("Where is the mug?", "count the tables", "look look look"):
        assert np.allclose(words.scores(task), retriever.get_scores(tokenize(task)), atol=1e-5)


def test_words_that_no_skill_has_score_nothing():
    words = SkillWords(graph({}, skills=SKILLS).tables.skills, tokenizer("english"), 1.5, 0.75)
    assert words.scores("violin").tolist() == words.scores("").tolist() == [0, 0, 0]
    assert SkillWords(graph({}).tables.skills, tokenizer("english"), 1.5, 0.75).scores("mug").tolist() == []
