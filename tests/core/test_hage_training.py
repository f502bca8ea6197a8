"""Walks are validated as they will be searched with, by one worker as by several."""

import threading

import numpy as np
import pytest

from hgmem_core.data_parallel import DataParallel
from hgmem_core.encoding import encode_texts
from hgmem_core.hage_training import HeldOutQuestion, WalkTraining
from hgmem_core.query_analysis import analyse_query
from hgmem_core.ranking import Query
from hgmem_core.recipes import RECIPES
from hgmem_core.reinforce import HageTraining
from hgmem_core.run_config import TrainConfig
from hgmem_core.search import Filters, rank_turns
from hgmem_core.tokens import tokenizer
from hgmem_core.walks import TrainingGraph, TrainingQuestion
from tests.core.event_graphs import one_thread as one_thread  # a fixture
from tests.core.fixtures import HashEncoder, message, reader_of, turns_of
from tests.core.toy_models import random_weights

PLACES = ("Lisbon", "Porto", "Faro", "Braga", "Evora", "Sintra")
RECIPE = RECIPES["hage"]


def query(text):
    return Query(text, tuple(tokenizer("english")(text)), encode_texts(HashEncoder(), [text])[0])


@pytest.fixture(scope="module")
def ana():
    messages = [
        message(f"note {number} on {PLACES[number % 6]} and {PLACES[number % 5]}", 60 * 24 * number, "AB"[number % 2])
        for number in range(40)
    ]
    return reader_of(turns_of(*messages), HashEncoder()).open("acme/ana")


def held_out(index, text, evidence):
    asked = query(text)
    numbers = np.array(index.term_numbers(asked.terms), np.int64)
    analysis = analyse_query(text, index.speakers[0], None, index.log_span)
    return HeldOutQuestion.of(index, asked.vector, numbers, analysis, np.array(evidence))


@pytest.mark.parametrize("text", ["note on Faro", "what was noted on Porto in April 2024", "Braga or Evora"])
def test_validation_finds_what_a_search_finds(ana, text):
    weights = random_weights(16)
    ranked = rank_turns(ana, query(text), RECIPE, Filters(), 10, trained=weights).rows.tolist()
    last = [row for row in range(len(ana)) if row not in ranked][-3:]
    assert held_out(ana, text, ranked).recall(weights, RECIPE) == 100
    assert held_out(ana, text, last).recall(weights, RECIPE) == 0
    assert held_out(ana, text, [*ranked[-1:], *last]).recall(weights, RECIPE) == 25


def walks(index, held, **config):
    vectors = np.stack([index.turn_vector(row) for row in range(len(index))])
    asked = [
        TrainingQuestion(
            0,
            vectors[row],
            np.full(4, 0.25, np.float32),
            np.array([row]),
            np.array([(row + 7) % len(index), (row + 9) % len(index)]),
        )
        for row in range(0, len(index), 3)
    ]
    graph = TrainingGraph(index.relations("turn"), vectors)
    settings = HageTraining(batch=4, router_rate=1e-2)
    return WalkTraining([graph], asked, held, RECIPE, settings, TrainConfig(**config), 3)


def test_workers_agree_on_the_whole_validation_and_on_when_to_stop(ana):
    held = [held_out(ana, f"note on {place}", [number, 30 + number]) for number, place in enumerate(PLACES[:5])]
    training = walks(ana, held, epochs=6, validate_epochs=1, patience=2)
    barrier, given, runs = threading.Barrier(2), {}, {}

    def work(worker):
        def average(tensors):
            given[worker] = [tensor.clone() for tensor in tensors]
            barrier.wait(60)
            for place, tensor in enumerate(tensors):
                tensor.copy_((given[0][place] + given[1][place]) / 2)
            barrier.wait(60)

        run = training.start(DataParallel(worker, 2, average))
        while not run.is_over:
            run.next_epoch()
        runs[worker] = run

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = training.start()
    alone.next_epoch()
    assert runs[0].curve == runs[1].curve
    assert runs[0].curve[0] == pytest.approx(alone.curve[0])
    both = [run.weights() for run in runs.values()]
    assert all(np.array_equal(both[0][name], both[1][name]) for name in both[0])
    best = max(range(1, runs[0].epochs + 1), key=lambda epoch: runs[0].curve[epoch]["recall@10"])
    assert runs[0].epochs == min(6, best + 2)
