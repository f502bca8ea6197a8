"""Small event graphs made up for tests."""

import numpy as np
import pytest
import torch

from hgmem_core.relations import PAPER, Relations
from hgmem_core.walks import TrainingGraph, TrainingQuestion

EVEN = np.full(4, 0.25, np.float32)


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other make small steps of training many times slower on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def relations_of(nodes, edges):
    """The relations of a mapping (source, target) -> strengths, or of pairs that are all of full temporal strength."""
    edges = edges if isinstance(edges, dict) else dict.fromkeys(edges, (1, 0, 0, 0))
    pairs = sorted(edges)
    counts = np.bincount([source for source, _ in pairs], minlength=nodes)
    targets = np.array([target for _, target in pairs], np.int64)
    features = np.array([edges[pair] for pair in pairs], np.float32).reshape(-1, 4)
    return Relations(np.concatenate([[0], np.cumsum(counts)]), targets, features, PAPER)


def units(rng, *shape):
    vectors = rng.standard_normal(shape).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def random_graph(rng, nodes, dimension, share=0.4):
    """Each ordered pair is related with probability `share`; some nodes may lead nowhere."""
    pairs = {(i, j): rng.random(4) for i in range(nodes) for j in range(nodes) if i != j and rng.random() < share}
    return TrainingGraph(relations_of(nodes, pairs), units(rng, nodes, dimension))


def random_question(rng, number, graph):
    nodes, dimension = graph.vectors.shape
    intent = rng.dirichlet(np.ones(4)).astype(np.float32)
    targets = rng.choice(nodes, min(nodes, rng.integers(1, 4)), replace=False)
    return TrainingQuestion(number, units(rng, dimension), intent, rng.integers(nodes, size=1), targets)
