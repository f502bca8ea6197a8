import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core.lexical import add_scores, count_tokens, score_postings

VOCABULARY = 7
corpora = st.lists(st.lists(st.integers(0, VOCABULARY - 1), max_size=12), min_size=1, max_size=12).filter(any)


def scores_of(corpus, query, k1=1.5, b=0.75):
    postings = score_postings(count_tokens(corpus, VOCABULARY), k1, b)
    slices = [slice(postings.offsets[term], postings.offsets[term + 1]) for term in query]
    return add_scores([(postings.rows[part], postings.scores[part]) for part in slices], len(corpus))


@given(corpora, st.lists(st.integers(0, VOCABULARY - 1), max_size=6))
def test_scores_equal_those_of_bm25s(corpus, query):
    reference = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    vocabulary = {str(term): term for term in range(VOCABULARY)}
    reference.index((corpus, vocabulary), show_progress=False)
    known = [term for term in query if any(term in document for document in corpus)]
    expected = reference.get_scores([str(term) for term in known]) if known else np.zeros(len(corpus))
    np.testing.assert_allclose(scores_of(corpus, query), expected, rtol=2e-6, atol=1e-7)


@given(corpora, st.lists(st.integers(0, VOCABULARY - 1), max_size=40))
def test_scores_are_added_up_in_double_precision(corpus, query):
    postings = score_postings(count_tokens(corpus, VOCABULARY), 1.5, 0.75)
    total = [0.0] * len(corpus)
    for term in query:
        for at in range(postings.offsets[term], postings.offsets[term + 1]):
            total[postings.rows[at]] += float(postings.scores[at])
    assert scores_of(corpus, query).tolist() == np.float32(total).tolist()


def test_scores_equal_the_formula_written_out():
    corpus, query = [[0, 0, 1], [1, 2], [2, 2, 2, 3, 4]], [0, 2, 2]
    mean = np.mean([len(document) for document in corpus])
    for row, document in enumerate(corpus):
        expected = 0.0
        for term in query:
            frequency = sum(term in other for other in corpus)
            idf = np.log(1 + (len(corpus) - frequency + 0.5) / (frequency + 0.5))
            count = document.count(term)
            expected += idf * count / (count + 1.5 * (1 - 0.75 + 0.75 * len(document) / mean))
        assert scores_of(corpus, query)[row] == pytest.approx(expected, rel=1e-6)


def test_no_query_term_and_no_text_give_zeros():
    assert scores_of([[0], [1]], []).tolist() == [0, 0]
    assert scores_of([[], []], [3]).tolist() == [0, 0]
