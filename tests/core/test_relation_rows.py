import numpy as np
import pytest

from hgmem_core.embeddings import embed_turns
from hgmem_core.index import build_index, splice_indexes
from hgmem_core.relate import relate
from hgmem_core.relation_rows import features_of
from hgmem_core.relations import LAYOUTS
from hgmem_core.stage_config import IndexConfig, RelateConfig
from tests.core.fixtures import HashEncoder, graph_of, message, reader_of, turns_of
from tests.core.test_relate import tables_of, talk

TALK = [*talk(23), message("Alone, and not asked.", namespace="acme/bea"), *talk(17, "acme/bo")]


@pytest.fixture(scope="module")
def made():
    """The relations of both graphs, and the opened index."""
    turns = turns_of(*TALK)
    of_turns, of_facts, _ = relate(tables_of(turns), RelateConfig(), "english")
    return {"turn": of_turns, "fact": of_facts}, reader_of(turns, HashEncoder())


def ids_of(index, graph):
    return (index.column("turn_id") if graph == "turn" else index.graph.column("fact", "node_id")).to_pylist()


@pytest.mark.parametrize("graph", LAYOUTS)
@pytest.mark.parametrize("namespace", ["acme/ana", "acme/bea", "acme/bo"])
def test_an_opened_index_has_the_relations_of_its_namespace_by_the_numbers_of_its_nodes(made, namespace, graph):
    table = made[0][graph]
    index = made[1].open(namespace)
    relations = index.relations(graph)
    ids = ids_of(index, graph)
    assert len(relations) == len(ids) and relations.layout == LAYOUTS[graph]
    pairs = [(ids[source], ids[target]) for source, target in zip(relations.sources, relations.targets, strict=True)]
    found = dict(zip(pairs, relations.features.tolist(), strict=True))
    columns = (table.column(name).to_pylist() for name in ("namespace", "source_id", "target_id"))
    rows = zip(*columns, features_of(table).tolist(), strict=True)
    assert found == {(source, target): features for own, source, target, features in rows if own == namespace}
    assert bool(found) == (namespace != "acme/bea")
    starts = relations.offsets[:-1]
    within = np.diff(relations.targets, prepend=-1) > 0
    assert within[np.setdiff1d(np.arange(len(pairs)), starts)].all()


def test_features_are_read_where_they_lie(made):
    features = made[1].open("acme/bo").relations("fact").features
    with pytest.raises(ValueError, match="read-only"):
        features[0, 0] = 1
    assert features.base is not None


def test_a_spliced_index_has_the_relations_of_a_full_one():
    def index_of(*messages):
        turns = turns_of(*messages)
        embeddings = embed_turns(turns, HashEncoder(), 32)[0]
        return build_index(turns, embeddings, graph_of(turns, HashEncoder()), IndexConfig(), 0.5)

    later = [*talk(25), *TALK[23:]]
    spliced = splice_indexes(index_of(*TALK), index_of(*talk(25)), {"acme/bea", "acme/bo"})
    whole = index_of(*later)
    for name in ("turn_relations", "fact_relations", "namespaces"):
        assert getattr(spliced, name).equals(getattr(whole, name), check_metadata=True)
