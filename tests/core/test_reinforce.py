import copy
import io
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from hgmem_core.data_parallel import DataParallel
from hgmem_core.reinforce import HageTrainer, HageTraining, discounted, in_deviations, leave_one_out
from hgmem_core.walks import TrainingGraph, TrainingQuestion, WalkRules, greedily
from tests.core.event_graphs import EVEN, random_graph, random_question, relations_of, units
from tests.core.event_graphs import one_thread as one_thread  # a fixture

DIMENSION = 6


def crossroads(seed, places=6):
    """Junctions that lead one way in time and another way by cause; a question of causes has its evidence there.

    Vectors say nothing: only the relation's kind tells which way is right.
    """
    rng = np.random.default_rng(seed)
    edges = {}
    for place in range(places):
        for number, kind in enumerate(rng.permutation(4)):
            edges[place, places + 4 * place + number] = np.eye(4)[kind]
    relations = relations_of(5 * places, edges)
    graph = TrainingGraph(relations, units(rng, 5 * places, DIMENSION))
    questions = []
    for edge, (source, target) in enumerate(zip(relations.sources, relations.targets, strict=True)):
        intent = np.full(4, 0.1, np.float32) + 0.6 * relations.features[edge]
        questions.append(TrainingQuestion(0, units(rng, DIMENSION), intent, np.array([source]), np.array([target])))
    return graph, questions


def some(seed=0, graphs=2, questions=7):
    rng = np.random.default_rng(seed)
    made = [random_graph(rng, 8, DIMENSION) for _ in range(graphs)]
    return made, [random_question(rng, number % graphs, made[number % graphs]) for number in range(questions)]


def trained(graphs, questions, settings, seed, epochs):
    """A trainer after some epochs, and what each told."""
    trainer = HageTrainer(graphs, questions, settings, seed)
    return trainer, [trainer.epoch() for _ in range(epochs)]


def arrays(trainer):
    return [values.detach().clone() for values in (*trainer.router.parameters(), trainer.features)]


def same(some_arrays, others):
    return [torch.equal(one, other) for one, other in zip(some_arrays, others, strict=True)]


def test_returns_are_discounted_sums_of_what_is_to_come():
    rewards = torch.tensor([[1.0, -2.0, 4.0], [0.0, 0.0, 0.0]])
    assert discounted(rewards, 0.5).tolist() == [[1.0, 0.0, 4.0], [0.0, 0.0, 0.0]]


def test_a_walk_is_compared_with_the_others_of_its_question():
    returns = torch.tensor([[1.0, 2.0, 6.0], [5.0, 5.0, 5.0]])
    assert leave_one_out(returns).tolist() == [[1 - 4, 2 - 3.5, 6 - 1.5], [0, 0, 0]]
    deviation = np.std([1, 2, 6])
    np.testing.assert_allclose(in_deviations(returns)[0], (np.array([1, 2, 6]) - 3) / deviation, rtol=1e-5)
    assert in_deviations(returns)[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("baseline", ["ema", "rloo", "grpo"])
def test_which_relation_matters_for_which_question_is_learned_and_holds_for_another_graph(baseline):
    graph, questions = crossroads(0)
    walks = 1 if baseline == "ema" else 4
    rules = WalkRules(hops=1)
    settings = HageTraining("router", baseline, walks, batch=24, router_rate=1e-2, rules=rules)
    learner, reports = trained([graph], questions, settings, 0, 60)
    other, asked = crossroads(1)
    trainer = HageTrainer([other], asked, settings, 5)
    numbers = torch.arange(len(asked))
    starts = torch.tensor([question.starts[0] for question in asked])
    untrained = trainer.walk(numbers, starts, greedily).succeeded.float().mean()
    learned = {name: torch.from_numpy(values) for name, values in learner.weights().as_dict().items()}
    trainer.router.load_state_dict({name: learned[name] for name in trainer.router.state_dict()})
    assert untrained < 0.5 < 0.9 < trainer.walk(numbers, starts, greedily).succeeded.float().mean()
    assert reports[0]["success"] < 0.5 < reports[-1]["success"]
    assert reports[0]["return"] < reports[-1]["return"]


def test_what_is_not_trained_stays_as_it_was():
    graphs, questions = some()
    for trains, router_stays, features_stay in (
        ("both", False, False),
        ("router", False, True),
        ("features", True, False),
    ):
        trainer = HageTrainer(graphs, questions, HageTraining(trains, anchor=0.0), 0)
        before = arrays(trainer)
        trainer.step()
        *router, features = same(before, arrays(trainer))
        assert (all(router), features) == (router_stays, features_stay)


def recorder():
    """A list, and an all_reduce that keeps in it what workers would average: the gradients, and what walks earned."""
    seen = []
    return seen, lambda tensors: seen.append([tensor.clone() for tensor in tensors])


def test_the_anchor_pulls_every_relation_back_to_what_it_was():
    graph = TrainingGraph(relations_of(4, [(0, 1), (1, 2), (3, 0)]), units(np.random.default_rng(0), 4, DIMENSION))
    question = TrainingQuestion(0, graph.vectors[0], EVEN, np.array([0]), np.array([2]))
    seen, record = recorder()
    trainer = HageTrainer([graph], [question], HageTraining("features", anchor=3.0), 0, DataParallel(all_reduce=record))
    moved = torch.tensor([[0.1], [-0.2], [0.3]]) * torch.ones(3, 4)
    trainer.features.data += moved
    trainer.step()  # where there is one way alone, no choice has a gradient
    np.testing.assert_allclose(seen[0][0], 2 * 3.0 * moved, atol=1e-6)


def test_the_moving_average_counts_every_walk_that_moved():
    graphs, questions = some()
    at_its_target = replace(questions[0], targets=questions[0].starts)
    trainer = HageTrainer(graphs, [*questions, at_its_target], HageTraining(batch=100), 0)
    asked = torch.arange(8)
    starts = torch.tensor([int(question.starts[0]) + 8 * question.graph for question in [*questions, at_its_target]])
    walks = trainer.walk(asked, starts, greedily)
    returns = discounted(walks.rewards, 0.99)[:, 0]
    moved = int(walks.live[:, 0].sum())
    assert 0 < moved < 8
    trainer.learn(walks, 8)
    assert float(trainer.average) == pytest.approx((1 - 0.99**moved) * float(returns.sum()) / moved, rel=1e-5)


@pytest.mark.parametrize("baseline", ["rloo", "grpo"])
def test_nothing_is_learned_where_all_walks_of_a_question_earn_the_same(baseline):
    graph = TrainingGraph(relations_of(5, [(0, 1), (0, 2), (0, 3)]), units(np.random.default_rng(0), 5, DIMENSION))
    question = TrainingQuestion(0, graph.vectors[0], EVEN, np.array([0]), np.array([4]))
    trainer = HageTrainer([graph], [question], HageTraining("both", baseline, walks=8), 0)
    before = arrays(trainer)
    assert np.isfinite(list(trainer.step().values())).all()
    assert all(same(before, arrays(trainer)))


def test_questions_without_a_target_change_nothing_and_alone_are_refused():
    graphs, questions = some()
    empty = replace(questions[0], targets=np.zeros(0, np.int64))
    settings = HageTraining(batch=3)
    (with_them, _), (without, _) = (
        trained(graphs, asked, settings, 0, 2) for asked in ([empty, *questions, empty], questions)
    )
    assert all(same(arrays(with_them), arrays(without)))
    with pytest.raises(ValueError, match="none of the 2 questions has a target"):
        HageTrainer(graphs, [empty, empty], settings, 0)


def test_a_graph_without_relations_is_trained_on():
    graph = TrainingGraph(relations_of(2, []), units(np.random.default_rng(0), 2, DIMENSION))
    question = TrainingQuestion(0, graph.vectors[0], EVEN, np.array([0]), np.array([1]))
    weights = trained([graph], [question], HageTraining(), 0, 2)[0].weights()
    assert all(np.isfinite(values).all() for values in weights.as_dict().values())
    assert weights.features.shape == (0, 4)


def test_training_depends_on_the_seed_alone():
    graphs, questions = some()
    settings = HageTraining(batch=3)
    (first, told), (again, told_again), (other, _) = (
        trained(graphs, questions, settings, seed, 3) for seed in (1, 1, 2)
    )
    assert told == told_again
    assert all(same(arrays(first), arrays(again)))
    assert not any(same(arrays(first)[:1], arrays(other)[:1]))


def test_weights_are_those_of_their_time():
    trainer, _ = trained(*some(), HageTraining(batch=3), 1, 1)
    early = trainer.weights()
    trainer.epoch()
    assert not np.array_equal(early.first_weight, trainer.weights().first_weight)
    assert not np.array_equal(early.features, trainer.weights().features)


def test_training_goes_on_from_a_state_as_if_it_had_not_ended():
    graphs, questions = some()
    settings = HageTraining(batch=3)
    whole = HageTrainer(graphs, questions, settings, 0)
    for _ in range(4):
        whole.step()
    saved = io.BytesIO()
    torch.save(whole.state_dict(), saved)
    reports = [whole.step() for _ in range(4)]
    saved.seek(0)
    resumed = HageTrainer(graphs, questions, settings, 0)
    resumed.load_state_dict(torch.load(saved, weights_only=True))
    assert [resumed.step() for _ in range(4)] == reports
    assert all(same(arrays(whole), arrays(resumed)))
    assert torch.equal(whole.average, resumed.average)


def test_gradients_averaged_over_workers_are_those_of_one():
    graphs, questions = some()
    asked = torch.arange(7)
    starts = torch.tensor([int(question.starts[0]) + 8 * question.graph for question in questions])

    def gradients(workers, worker):
        seen, record = recorder()
        trainer = HageTrainer(graphs, questions, HageTraining(), 0, DataParallel(worker, workers, record))
        own = slice(worker, None, workers)
        trainer.learn(trainer.walk(asked[own], starts[own], greedily), 7)
        return seen[0]

    alone = gradients(1, 0)
    for one, *parts in zip(alone[:-1], *(gradients(3, worker)[:-1] for worker in range(3)), strict=True):
        assert one.any()
        np.testing.assert_allclose(sum(parts) / 3, one, atol=1e-5)


def test_workers_that_train_together_stay_equal():
    graphs, questions = some(questions=5)
    barrier, given = threading.Barrier(3), {}

    def train(worker):
        def average(tensors):
            given[worker] = [tensor.clone() for tensor in tensors]
            barrier.wait(20)
            for place, tensor in enumerate(tensors):
                tensor.copy_(sum(own[place] for own in given.values()) / 3)
            barrier.wait(20)

        # The last batch of an epoch leaves the third worker without a question.
        trainer = HageTrainer(graphs, questions, HageTraining(batch=3), 0, DataParallel(worker, 3, average))
        for _ in range(4):
            trainer.step()
        states[worker] = copy.deepcopy(trainer.state_dict())

    states = {}
    threads = [threading.Thread(target=train, args=(worker,)) for worker in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(states[0]["features"], states[1]["features"])
    for name, values in states[0]["router"].items():
        assert torch.equal(values, states[1]["router"][name])
        assert torch.equal(values, states[2]["router"][name])
    assert states[0]["average"] == states[2]["average"] != 0


def test_settings_that_cannot_be_are_refused():
    for settings, message in (
        ({"baseline": "rloo"}, "compares walks of a question: walks must be at least 2"),
        ({"batch": 0}, "batch is 0; it must be at least 1"),
        ({"rules": WalkRules(hops=0)}, r"rules.hops is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            HageTraining(**settings)
    with pytest.raises(ValueError, match="2 workers train together only with an all_reduce"):
        DataParallel(world_size=2)
