from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgmem_core import encoding
from hgmem_core.embeddings import encode_by_namespace
from hgmem_core.encoding import encode_texts
from pipelines import pieces
from pipelines.pieces import Pieces, units_of
from pipelines.static import StaticEncoder
from pipelines.steps import Texts
from pipelines.store import DamagedOutput, Store

ENCODER = StaticEncoder()


def texts_of(sizes, as_queries=False):
    names = [name for name, size in zip("abcdef", sizes, strict=False) for _ in range(size)]
    ids = [f"n{number}" for number in range(len(names))]
    nodes = pa.table({"namespace": pa.array(names, pa.large_string()), "id": pa.array(ids, pa.large_string())})
    return Texts(
        "encode_turns",
        nodes,
        [f"{name} went to {number} places " * (1 + number % 3) for number, name in enumerate(names)],
        as_queries,
    )


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(encoding, "WINDOW_TEXTS", 4)
    monkeypatch.setattr(pieces, "UNIT_TEXTS", 6)


@pytest.mark.usefixtures("small")
@given(sizes=st.lists(st.integers(0, 15), max_size=6))
def test_units_give_the_bits_of_texts_encoded_at_once(sizes):
    texts = texts_of(sizes)
    units = units_of(texts, ENCODER.identity.as_dict(), 3)
    assert [text for unit in units for text in unit.texts] == list(texts.texts)
    assert all(len(unit.texts) < 6 + 4 for unit in units)
    vectors = [np.zeros((0, 256), np.float32), *(unit.encode(ENCODER, 3) for unit in units)]
    assert np.array_equal(np.concatenate(vectors), encode_by_namespace(texts.nodes, texts.texts, ENCODER, 3))


class Instructed(StaticEncoder):
    """An encoder that sees something else before queries than before documents."""

    identity = replace(ENCODER.identity, prefix="find what is like ", document_prefix="of old: ")


@pytest.mark.parametrize(("as_queries", "prefix"), [(False, "of old: "), (True, "find what is like ")])
def test_what_is_searched_with_is_encoded_as_a_query(tmp_path, as_queries, prefix):
    texts, encoder, kept = texts_of([2], as_queries), Instructed(), Pieces(Store.make(tmp_path, 1))
    [unit] = units_of(texts, encoder.identity.as_dict(), 4)
    kept.ask(unit)
    vectors = kept.unit(unit.name).encode(encoder, 4)
    assert np.array_equal(vectors, encode_texts(encoder, texts.texts, 4, prefix))
    assert np.array_equal(vectors, encode_by_namespace(texts.nodes, texts.texts, encoder, 4, as_queries))
    assert not np.array_equal(vectors, encode_texts(encoder, texts.texts, 4))


def test_a_unit_is_named_by_everything_that_decides_its_vectors():
    instructed = Instructed.identity

    def names(sizes=(3, 2), identity=ENCODER.identity, batch_size=4, as_queries=False):
        return [unit.name for unit in units_of(texts_of(sizes, as_queries), identity.as_dict(), batch_size)]

    assert names() == names()
    others = [names(sizes=(2, 3)), names(batch_size=5), names(identity=replace(ENCODER.identity, weights_sha256="x"))]
    assert all(other != names() for other in others)
    assert names(identity=instructed) != names(identity=instructed, as_queries=True)


def test_a_piece_is_read_as_it_was_written_or_not_at_all(tmp_path):
    store = Store.make(tmp_path, 1)
    kept = Pieces(store)
    [unit] = units_of(texts_of([3, 4]), ENCODER.identity.as_dict(), 4)
    kept.ask(unit)
    assert kept.unit(unit.name) == unit
    assert not kept.has(unit.name)
    vectors = unit.encode(ENCODER, 4)
    kept.keep(unit.name, vectors)
    assert np.array_equal(kept.read([unit.name], 256), vectors)
    assert kept.read([], 256).shape == (0, 256)
    path = tmp_path / "pieces" / unit.name / "vectors" / "vectors.arrow"
    content = path.read_bytes()
    path.write_bytes(content[:50] + b"?" + content[51:])
    assert not kept.has(unit.name)
    with pytest.raises(DamagedOutput):
        kept.read([unit.name], 256)
    kept.keep(unit.name, vectors)
    assert kept.has(unit.name)
    kept.drop([unit.name])
    assert not kept.has(unit.name)
    with pytest.raises(DamagedOutput, match="missing"):
        kept.unit(unit.name)
