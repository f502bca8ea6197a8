"""IVF indexes of large namespaces, their shards, and the flat rows beside them."""

import os
from functools import lru_cache

import faiss
import numpy as np
import pytest

from hgmem_core.dense import VectorError, load_ivf, open_faiss, open_ivf, to_faiss
from hgmem_core.ivf import RECALL, build_ivf
from hgmem_core.sharded import EXACT_ROWS, Shards

ROWS, DIMENSION = 16_000, 48


@lru_cache
def clustered(rows=ROWS):
    """Vectors of some topics, as those of texts are: near within a topic, and of few directions in all."""
    random = np.random.default_rng(5)
    shape = (np.arange(1, DIMENSION + 1) ** -0.5).astype(np.float32)
    topics = random.standard_normal((60, DIMENSION), np.float32) * shape
    vectors = topics[random.zipf(1.4, rows) % 60] + random.standard_normal((rows, DIMENSION), np.float32) * shape
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@lru_cache
def built(shard_rows=1 << 20):
    return build_ivf(clustered(), clustered(), shard_rows)


def opened(ivf, probed=None):
    return Shards([load_ivf(shard) for shard in ivf.shards], probed or ivf.probed)


def questions(count=60):
    """Vectors of the same topics that are no rows."""
    random = np.random.default_rng(9)
    mixed = clustered()[random.integers(ROWS, size=(count, 2))].sum(axis=1)
    mixed += 0.12 * random.standard_normal(mixed.shape, np.float32)
    return mixed / np.linalg.norm(mixed, axis=1, keepdims=True)


def exact(query, count, passes=None):
    products = clustered() @ query
    if passes is not None:
        products = np.where(passes, products, -2)
    return np.argsort(-products, kind="stable")[:count]


def recall(shards, count=10, passes=None):
    found = [len(np.intersect1d(shards.nearest(q, 100, passes), exact(q, count, passes))) / count for q in questions()]
    return np.mean(found)


def test_what_the_index_finds_of_the_nearest_rows_is_what_was_measured():
    assert built().flat_because is None
    assert built().recall >= RECALL
    assert built().probed < built().lists // 2
    assert recall(opened(built())) >= RECALL - 0.02


def test_equal_vectors_give_equal_bytes_whatever_the_number_of_threads():
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3 - min(threads, 2))
    try:
        assert build_ivf(clustered().copy(), clustered()) == built()
    finally:
        faiss.omp_set_num_threads(threads)


def test_shards_together_find_what_one_shard_finds():
    parts = built(3_000)
    assert len(parts.shards) == 6
    assert (parts.probed, parts.recall) == (built().probed, built().recall)
    one, several = opened(built()), opened(parts)
    passes = np.arange(ROWS) % 4 != 1
    for query in questions():
        for some in (None, passes):
            assert several.nearest(query, 50, some).tolist() == one.nearest(query, 50, some).tolist()


def test_exact_shards_are_equal_to_the_bit(tmp_path):
    (tmp_path / "flat").write_bytes(to_faiss(clustered()))
    flat = open_faiss(str(tmp_path / "flat"))
    for query in questions(5):
        parts = [flat.products(query, first, min(first + 3_000, ROWS)) for first in range(0, ROWS, 3_000)]
        assert np.concatenate(parts).tobytes() == flat.products(query, 0, ROWS).tobytes()


def test_rows_that_do_not_pass_are_never_found_and_those_that_do_are_not_lost():
    shards = opened(built())
    most = np.random.default_rng(3).random(ROWS) < 0.8
    assert np.count_nonzero(most) > EXACT_ROWS
    for query in questions(20):
        assert most[shards.nearest(query, 100, most)].all()
    assert recall(shards, passes=most) >= RECALL - 0.02
    few = np.zeros(ROWS, bool)
    few[[3, 77, 9_000]] = True
    assert shards.nearest(questions()[0], 100, few).tolist() == [3, 77, 9_000]


def test_the_fewer_rows_pass_the_more_lists_are_read(monkeypatch):
    monkeypatch.setattr("hgmem_core.sharded.EXACT_ROWS", 0)
    shards, passes = opened(built()), np.random.default_rng(4).random(ROWS) < 0.01
    found = [
        len(np.intersect1d(shards.nearest(query, 10, passes), exact(query, 10, passes))) / 10 for query in questions()
    ]
    assert np.mean(found) >= RECALL


def test_asking_for_more_rows_than_there_are_gives_all_of_them_once():
    present = clustered().copy()
    present[::7] = 0  # rows without a vector
    ivf = build_ivf(present, present)
    found = opened(ivf).nearest(questions()[0], 2 * ROWS, None)
    assert found.tolist() == np.flatnonzero(np.arange(ROWS) % 7 != 0).tolist()


def test_too_few_vectors_to_train_on_stay_flat():
    few = build_ivf(clustered()[:300], clustered()[:300])
    assert few.shards == ()
    assert "too few" in few.flat_because
    nothing = np.zeros((400, DIMENSION), np.float32)
    empty = build_ivf(nothing, nothing)
    assert empty.shards == ()
    assert empty.about()["flat_because"] == "0 vectors are too few to train on"


def test_vectors_without_any_neighbourhood_stay_flat():
    noise = np.random.default_rng(1).standard_normal((4_000, 256), np.float32)
    ivf = build_ivf(noise, noise)
    assert ivf.shards == ()
    assert ivf.recall < RECALL
    assert f"not {RECALL}" in ivf.flat_because


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_files_in_a_folder_that_cannot_be_written_are_mapped(tmp_path, kind):
    folder = tmp_path / "index"
    folder.mkdir()
    path = folder / f"{kind}.faiss"
    path.write_bytes(to_faiss(clustered()) if kind == "flat" else built().shards[0])
    path.chmod(0o400)
    folder.chmod(0o500)
    try:
        before = mapped(path)
        index = open_faiss(str(path)) if kind == "flat" else Shards([open_ivf(str(path))], built().probed)
        assert mapped(path) > before
        query = questions()[0]
        if kind == "flat":
            assert index.products(query, 0, ROWS).argmax() == exact(query, 1)[0]
        else:
            assert exact(query, 1)[0] in index.nearest(query, 10, None)
    finally:
        folder.chmod(0o700)


def mapped(path):
    """How many pieces of a file this process has mapped."""
    with open(f"/proc/{os.getpid()}/maps") as maps:
        return sum(line.rstrip().endswith(str(path)) for line in maps)


def test_a_file_of_the_other_kind_is_refused(tmp_path):
    (tmp_path / "flat").write_bytes(to_faiss(clustered()[:100]))
    (tmp_path / "ivf").write_bytes(built().shards[0])
    with pytest.raises(VectorError, match=r"flat holds a IndexFlat.*expected an IVF index"):
        open_ivf(str(tmp_path / "flat"))
    with pytest.raises(VectorError, match="IndexIVFScalarQuantizer; expected a flat index"):
        open_faiss(str(tmp_path / "ivf"))
    (tmp_path / "cut").write_bytes(built().shards[0][:1_000])
    with pytest.raises(VectorError, match="not a readable FAISS index"):
        open_ivf(str(tmp_path / "cut"))
