"""What a frontier learns, that workers and a training that goes on change nothing of it, and when it ends."""

import copy
import io
import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from hgmem_core.data_parallel import DataParallel
from hgmem_core.encoding import encode_texts
from hgmem_core.frontier import FrontierWeights, grow
from hgmem_core.frontier_policy import FrontierGraph, FrontierQuestion, FrontierTraining
from hgmem_core.frontier_training import FrontierTrainer, HeldOutField, RoutedTraining
from hgmem_core.learned_flat import find_candidates, learned_odds
from hgmem_core.query_analysis import analyse_query
from hgmem_core.ranking import Query
from hgmem_core.recipes import RECIPES
from hgmem_core.routed import field_of as field_in
from hgmem_core.run_config import TrainConfig
from hgmem_core.search import Filters, rank_turns
from hgmem_core.tokens import tokenizer
from tests.core.event_graphs import one_thread as one_thread  # a fixture
from tests.core.fixtures import HashEncoder, message, reader_of, turns_of
from tests.core.frontier_fields import QUICK, field_of, held_out, question_of, teaching, weights_of
from tests.core.toy_models import model_of

ROUTED = RECIPES["routed"]
FEW = replace(QUICK, warm_epochs=2)


def trained(questions, settings, epochs, seed=0):
    """A trainer after some epochs, and what each told."""
    trainer = FrontierTrainer(questions, settings, seed)
    return trainer, [trainer.epoch() for _ in range(epochs)]


def same(weights, others):
    return all(np.array_equal(array, others.as_dict()[name]) for name, array in weights.as_dict().items())


def ranks(questions, weights):
    places = []
    for question in questions:
        scores = question.odds + grow(question.field, weights, 4).bonus
        places.append(int((scores > scores[question.evidence[0]]).sum()))
    return np.array(places)


def in_threads(work, workers):
    """Call `work` for each worker with an average over all, and return what each returns."""
    barrier, given, results = threading.Barrier(workers), {}, {}

    def one(worker):
        def average(tensors):
            given[worker] = [tensor.clone() for tensor in tensors]
            barrier.wait(60)
            for place, tensor in enumerate(tensors):
                tensor.copy_(sum(given[other][place] for other in range(workers)) / workers)
            barrier.wait(60)

        results[worker] = work(worker, average)

    threads = [threading.Thread(target=one, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[worker] for worker in range(workers)]


def finished(run):
    while not run.is_over:
        run.next_epoch()
    return run


def test_what_causes_evidence_is_learned_and_holds_for_other_questions():
    trainer, _ = trained(teaching(), QUICK, 17)
    assert (ranks(teaching(seed=9), weights_of(bias=-30.0)) == 11).all()
    assert np.median(ranks(teaching(seed=9), trainer.weights())) <= 2


def test_draws_learn_to_stop_where_expanding_costs_and_earns_nothing():
    settings = replace(QUICK, warm_epochs=0, listwise_share=0.0, ndcg_share=0.0, cost=0.2, rate=0.2)
    few = [question_of(field_of([(0, 1), (0, 2), (1, 3)], [1.0, 0.5, 0.2, -1.0]), 3)] * 8  # all are among ten
    trainer, told = trained(few, settings, 50)
    assert told[0]["earned"] == pytest.approx(1 - 4 * 0.2, abs=0.05)
    assert np.mean([row["earned"] for row in told[-10:]]) > 0.5
    assert trainer.weights().stop > FrontierTrainer(few, settings, 0).weights().stop + 4


def test_training_depends_on_the_seed_alone():
    (first, told), (again, told_again), (other, _) = (trained(teaching(), FEW, 4, seed) for seed in (0, 0, 1))
    assert told == told_again
    assert same(first.weights(), again.weights())
    assert (first.weights().first_weight != other.weights().first_weight).any()


def test_curves_tell_of_the_loss_and_of_what_draws_earn():
    _, told = trained(teaching(), QUICK, 17)
    assert told[14]["listwise loss"] < 0.5 * told[0]["listwise loss"]
    assert ["earned" in row for row in told] == [False] * 15 + [True] * 2
    assert 0.5 < told[-1]["earned"] < 1.5


def test_weights_are_those_of_their_time():
    trainer, _ = trained(teaching(), FEW, 1)
    early = trainer.weights()
    trainer.epoch()
    assert not same(early, trainer.weights())


@pytest.mark.parametrize("stopped_after", [0, 1, 2, 3])
def test_training_goes_on_from_a_state_as_if_it_had_not_ended(stopped_after):
    whole, _ = trained(teaching(), FEW, stopped_after)
    saved = io.BytesIO()
    torch.save(whole.state_dict(), saved)
    told = [whole.epoch() for _ in range(2)]
    saved.seek(0)
    resumed = FrontierTrainer(teaching(), FEW, 0)
    resumed.load_state_dict(torch.load(saved, weights_only=True))
    assert [resumed.epoch() for _ in range(2)] == told
    assert same(whole.weights(), resumed.weights())


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_stay_equal_and_learn_what_one_learns(workers):
    # Batches of two leave the third worker without a question.
    questions, settings = teaching(9), replace(FEW, batch=2)

    def work(worker, average):
        trainer = FrontierTrainer(questions, settings, 0, DataParallel(worker, workers, average))
        return [trainer.epoch() for _ in range(4)], copy.deepcopy(trainer.state_dict()), trainer.weights()

    (told, state, weights), *others = in_threads(work, workers)
    for told_elsewhere, other, _ in others:
        assert told_elsewhere == told
        assert all(torch.equal(values, other["network"][name]) for name, values in state["network"].items())
    alone, told_alone = trained(questions, settings, 4)
    assert told == [pytest.approx(row, rel=1e-3) for row in told_alone]
    for name, array in alone.weights().as_dict().items():
        np.testing.assert_allclose(weights.as_dict()[name], array, atol=1e-3, err_msg=name)


def test_questions_that_teach_nothing_change_nothing_and_alone_are_refused():
    odds = np.linspace(2, -2, 12)
    without_evidence = replace(teaching(1)[0], evidence=np.zeros(0, np.int64))
    without_relation = question_of(field_of([], odds), 1)
    without_fact = question_of(field_of([], odds, turns=[]), 1)
    useless = [without_evidence, without_relation, without_fact]
    (with_them, told), (without, told_without) = (
        trained(questions, FEW, 3) for questions in ([*useless, *teaching()], teaching())
    )
    assert told == told_without
    assert same(with_them.weights(), without.weights())
    for questions in (useless, []):
        said = f"none of the {len(questions)} questions has evidence and finds a fact that has a relation"
        with pytest.raises(ValueError, match=said):
            FrontierTrainer(questions, FEW, 0)


def test_one_relation_and_evidence_that_nothing_leads_to_leave_finite_weights():
    question = question_of(field_of([(1, 2)], np.linspace(2, -2, 12)), 11)
    trainer, told = trained([question], FEW, 4)
    assert all(np.isfinite(list(row.values())).all() for row in told)
    assert all(np.isfinite(array).all() for array in trainer.weights().as_dict().values())
    FrontierWeights.from_dict(trainer.weights().as_dict())


def test_nothing_is_learned_where_all_draws_of_a_question_earn_the_same():
    settings = replace(QUICK, warm_epochs=0, ndcg_share=0.0, cost=0.0, listwise_share=0.0, decay=0.0)
    few = [question_of(field_of([(0, 1), (0, 2), (1, 3)], [1.0, 0.5, 0.2, -1.0]), 3)]  # all are among ten
    trainer, told = trained(few, settings, 2)
    assert [row["earned"] for row in told] == [1.0, 1.0]
    assert same(trainer.weights(), FrontierTrainer(few, settings, 0).weights())


def test_settings_that_cannot_be_are_refused():
    for settings, said in (
        ({"draws": 1}, "draws is 1"),
        ({"batch": 0}, "batch is 0; it must be at least 1"),
        ({"budget": 0}, "budget is 0; it must be at least 1"),
    ):
        with pytest.raises(ValueError, match=said):
            FrontierTraining(**settings)


def training(held, settings=FEW, **config):
    return RoutedTraining(teaching(16), held, ROUTED, settings, TrainConfig(**config), 0)


def test_the_best_epoch_is_kept_and_epochs_without_gain_end_the_training():
    held = held_out(teaching(10, seed=9))
    run = finished(training(held, QUICK, epochs=40, validate_epochs=1, patience=14).start())
    recalls = [row["recall@10"] for row in run.curve]
    best = int(np.argmax(recalls[1:])) + 1
    assert recalls[0] == 0 < 50 < recalls[best]
    assert run.epochs == best + 14 < 40
    until_best = finished(training([], QUICK, epochs=best).start())
    assert all(np.array_equal(run.weights()[name], array) for name, array in until_best.weights().items())


def test_without_questions_held_back_training_goes_to_its_end():
    run = finished(training([], epochs=5, validate_epochs=1, patience=1).start())
    assert [sorted(row) for row in run.curve] == [["epoch", "listwise loss"]] * 2 + [
        ["earned", "epoch", "listwise loss"]
    ] * 3
    assert same(FrontierWeights.from_dict(run.weights()), trained(teaching(16), FEW, 5)[0].weights())


def test_workers_agree_on_the_whole_validation_and_on_when_to_stop():
    job = training(held_out(teaching(5, seed=9)), QUICK, epochs=40, validate_epochs=1, patience=14)
    first, second = in_threads(lambda worker, average: finished(job.start(DataParallel(worker, 2, average))), 2)
    alone = finished(job.start())
    assert first.curve == second.curve
    assert first.epochs < 40
    assert 0 < max(row["recall@10"] for row in first.curve) <= 100
    assert [row["recall@10"] for row in first.curve] == [pytest.approx(row["recall@10"]) for row in alone.curve]
    assert all(np.array_equal(array, second.weights()[name]) for name, array in first.weights().items())


def test_a_training_travels_with_one_graph_for_all_questions_of_a_namespace():
    one = teaching(1)[0]
    wide = replace(one.graph, vectors=np.random.default_rng(0).normal(size=(12, 4096)).astype(np.float32))
    one = replace(one, graph=wide, question=np.zeros(4096, np.float32))
    questions = [replace(one, evidence=np.array([row])) for row in range(4, 12)]
    job = RoutedTraining(questions, held_out(questions), ROUTED, FEW, TrainConfig(epochs=2, validate_epochs=1), 0)
    data = pickle.dumps(job)
    assert len(data) < 2 * wide.vectors.nbytes
    there, here = finished(pickle.loads(data).start()), finished(job.start())
    assert there.curve == here.curve
    assert all(np.array_equal(there.weights()[name], array) for name, array in here.weights().items())


THINGS = (
    "violin", "kitten", "boat", "garden", "bicycle", "camera", "guitar", "telescope", "piano", "tent", "lamp", "kettle",
    "clock", "sofa",
)  # fmt: skip


@pytest.fixture(scope="module")
def ana():
    messages = [
        message(f"I bought a {thing} in {('Lisbon', 'Porto', 'Faro')[place % 3]}.", 60 * 24 * place, "AB"[place % 2])
        for place, thing in enumerate(THINGS)
    ]
    return reader_of(turns_of(*messages), HashEncoder()).open("acme/ana")


@pytest.mark.parametrize("text", ["violin in Lisbon", "Who bought a lamp?", "what was bought in Faro in April 2024"])
@pytest.mark.parametrize("grows", [True, False])
def test_validation_finds_what_a_search_finds(ana, text, grows):
    recipe, model = replace(ROUTED, flat=replace(ROUTED.flat, candidates=10)), model_of(ROUTED)
    # What is far from a fact in time is worth most, so that turns which flat search did not order come forward.
    stop = -50.0 if grows else 50.0
    far, none = weights_of(0.0, stop, "log_gap"), np.zeros((2, HashEncoder().identity.dimension), np.float32)
    frontier = replace(far, first_weight=40 * far.first_weight, source_residual=none, target_residual=none)
    model = replace(model, frontier=frontier)
    query = Query(text, tuple(tokenizer("english")(text)), encode_texts(HashEncoder(), [text])[0])
    analysis = analyse_query(text, ana.speakers[0], None, ana.log_span)
    numbers = np.array(ana.term_numbers(query.terms), np.int64)
    found = find_candidates(ana, query, analysis, numbers, recipe.flat)
    field = field_in(ana, query, analysis, found.rows, learned_odds(found, model.flat))
    ranked = rank_turns(ana, query, recipe, Filters(), 10, trained=model).rows.tolist()
    assert (set(ranked) != set(found.rows.tolist())) == grows

    def recall(*evidence):
        question = FrontierQuestion(
            FrontierGraph.of(field), field.odds, field.question, field.intent, np.array(evidence)
        )
        return HeldOutField(question, found.rows, ana.id_order).recall(model.frontier, recipe)

    last = [row for row in range(len(ana)) if row not in ranked][-3:]
    assert recall(*ranked) == 100
    assert recall(*last) == 0
    assert recall(ranked[-1], *last) == 25
