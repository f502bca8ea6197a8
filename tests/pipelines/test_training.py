"""What models learn from, and that they learn it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hgmem_core.learned_flat import TurnRanker, find_candidates, learned_odds, learned_order
from hgmem_core.recipes import RECIPES
from hgmem_core.relations import PAPER
from hgmem_core.run_config import TrainConfig
from hgmem_core.tasks.task import Questions, TaskError
from hgmem_core.trained import TrainedModelError
from pipelines.training import Trainer, examples_of, schedule_of
from tests.core.event_graphs import one_thread as one_thread  # a fixture
from tests.pipelines.small_benchmark import SAID, TOPICS, Small

FLAT = RECIPES["learned-flat"]
QUICK = TrainConfig(epochs=3, validate_epochs=1)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return Small(tmp_path_factory.mktemp("small"), "c1", "c2", "c3")


def within(small, *names):
    return [example for example in small.examples if example.namespace in {f"locomo/{name}" for name in names}]


def first_found(example, ranker):
    """The evidence's place in the order of a ranker, and in that of flat search, from 1."""
    index = example.index
    found = find_candidates(index, example.query, example.analysis, example.numbers, FLAT)
    orders = learned_order(index, found, ranker, len(index))[0], found.rows
    return [int(np.flatnonzero(np.isin(order, example.evidence))[0]) + 1 for order in orders]


def test_examples_are_the_questions_of_the_groups_with_their_evidence(small):
    assert len(small.examples) == 30
    for example in small.examples:
        [row] = example.evidence
        topic = next(topic for topic in TOPICS if topic in example.query.text)
        assert example.index.column("text")[row].as_py() == SAID[1].format(topic)
        assert example.index.speaker_of(row) in example.query.text
    multi_hop = examples_of(small.retriever, small.task.questions, {"1"})
    assert 0 < len(multi_hop) < 30
    with pytest.raises(TaskError, match="no question of the groups 7, 9 to learn from"):
        examples_of(small.retriever, small.task.questions, {"9", "7"})


def test_a_version_of_other_data_is_refused(small):
    questions = small.task.questions
    elsewhere, other = (
        Questions(
            *(
                table.set_column(table.schema.get_field_index(column), column, [[value] * len(table)])
                if column in table.column_names
                else table
                for table in (questions.queries, questions.qrels)
            ),
            questions.counts,
        )
        for column, value in (("namespace", "locomo/c9"), ("turn_id", "0" * 24))
    )
    with pytest.raises(TaskError, match="has no namespace 'locomo/c9': it holds other data"):
        examples_of(small.retriever, elsewhere, {"1", "4"})
    with pytest.raises(TaskError, match="lacks a turn that is evidence for question 'c1:0000': it holds other data"):
        examples_of(small.retriever, other, {"1", "4"})


def test_trees_find_in_an_unseen_conversation_what_flat_search_does_not(small):
    trainer = Trainer(QUICK)
    ranker = trainer.train(FLAT, within(small, "c1", "c2"), [], 0)
    places = np.array([first_found(example, ranker) for example in within(small, "c3")])
    learned, flat = places.mean(axis=0)
    assert learned < 1.5 < 2 < flat


def test_the_curve_of_trees_ends_with_all_of_them(small):
    trainer = Trainer(QUICK)
    training, validation = within(small, "c1", "c2"), within(small, "c3")
    ranker = trainer.grow_trees(FLAT, training, 0)
    curve = trainer.tree_curve(FLAT, ranker, validation)
    assert [row["trees"] for row in curve] == list(range(10, 201, 10))
    for trees, row in ((30, curve[2]), (200, curve[-1])):
        names = ("features", "thresholds", "masks", "values")
        forest = replace(ranker.forest, **{name: getattr(ranker.forest, name)[:trees] for name in names})
        losses, recalls = [], []
        for example in validation:
            found = find_candidates(example.index, example.query, example.analysis, example.numbers, FLAT)
            odds = np.where(np.isin(found.rows, example.evidence), 1, -1) * forest.scores(found.features)
            losses.append(np.log1p(np.exp(-odds)))
            best, _ = learned_order(example.index, found, TurnRanker(forest, ranker.features), 10)
            recalls.append(100 * np.isin(example.evidence, best).mean())
        assert row["validation loss"] == pytest.approx(np.concatenate(losses).mean(), rel=1e-4)
        assert row["recall@10"] == pytest.approx(np.mean(recalls))
    assert curve[-1]["validation loss"] < curve[0]["validation loss"]


@pytest.mark.parametrize("name", ["learned-flat:hypergraph", "hage", "hage:trainable-edges", "routed"])
def test_a_model_depends_on_its_examples_and_its_seed_alone(small, name):
    recipe = RECIPES[name]
    training, validation = within(small, "c1", "c2"), within(small, "c3")
    kept = Trainer(QUICK)
    kept.train(recipe, training[:10], [], 5)
    first, again = (one.train(recipe, training, validation, 0).as_dict() for one in (kept, Trainer(QUICK)))
    assert all(np.array_equal(first[key], again[key]) for key in first)
    other = Trainer(QUICK).train(recipe, training[:9], validation, 0).as_dict()
    assert any(first[key].shape != other[key].shape or (first[key] != other[key]).any() for key in first)


def test_walks_learn_on_the_graphs_of_training_alone(small):
    training, validation = within(small, "c2", "c1"), within(small, "c3")
    walks = Trainer(QUICK).walk_training(RECIPES["hage"], training, validation, 0)
    assert [len(graph.relations) for graph in walks.graphs] == [20, 20]
    assert (len(walks.questions), len(walks.held_out)) == (20, 10)
    for example, question in zip(training, walks.questions, strict=True):
        graph = walks.graphs[question.graph]
        assert graph.relations.layout == PAPER
        assert np.array_equal(graph.vectors[3], example.index.turn_vector(3))
        cosines = graph.vectors @ question.vector
        assert cosines[question.starts] == pytest.approx(cosines.max())
        assert question.targets.tolist() == example.evidence.tolist()


@pytest.mark.parametrize("name", ["hage", "routed"])
def test_the_weights_that_found_most_are_kept(small, name):
    recipe, training, validation = RECIPES[name], within(small, "c1", "c2"), within(small, "c3")
    trainer = Trainer(QUICK)
    trained = trainer.train(recipe, training, validation, 0).as_dict()
    found = {}
    for epochs in (1, 2, 3):
        run = Trainer(TrainConfig(epochs=epochs)).learning(recipe, training, validation, 0).start()
        while not run.is_over:
            run.next_epoch()
        model = trainer.model(recipe, training, 0, run.weights()).as_dict()
        found[epochs] = run.curve[-1]["recall@10"], model
    best = max(found, key=lambda epochs: found[epochs][0])
    assert best < 3, "the last is the best here, which says nothing"
    assert all(np.array_equal(trained[key], array) for key, array in found[best][1].items())


def test_a_frontier_learns_on_odds_of_trees_that_saw_other_questions(small, monkeypatch):
    routed, seen = RECIPES["routed"], []
    trainer = Trainer(QUICK)
    grow = trainer.grow_trees

    def grow_trees(recipe, training, seed):
        seen.append({example.query_id for example in training})
        return grow(recipe, training, seed)

    monkeypatch.setattr(trainer, "grow_trees", grow_trees)
    both = within(small, "c1", "c2")
    model = trainer.train(routed, both, [], 0)
    ids = {name: {example.query_id for example in within(small, name)} for name in ("c1", "c2")}
    assert seen == [ids["c2"], ids["c1"], ids["c1"] | ids["c2"]]
    flat = grow(routed.flat, both, 0)
    assert all(np.array_equal(array, flat.as_dict()[name]) for name, array in model.flat.as_dict().items())
    seen.clear()
    trainer.learning(routed, within(small, "c3"), [], 0)
    first, second = seen
    assert first | second == {example.query_id for example in within(small, "c3")}
    assert not first & second


def flat_odds(example, ranker):
    """The log odds of the candidates of flat search by trees."""
    recipe = RECIPES["routed"].flat
    found = find_candidates(example.index, example.query, example.analysis, example.numbers, recipe)
    return found.rows, learned_odds(found, ranker)


def test_questions_to_learn_from_share_a_graph_and_those_held_back_have_the_odds_of_all_trees(small):
    trainer, routed = Trainer(QUICK), RECIPES["routed"]
    training, validation = within(small, "c1", "c2"), within(small, "c3")
    learning = trainer.learning(routed, training, validation, 0)
    assert len({id(one.graph) for one in learning.questions}) == 2
    assert len({id(one.question.graph) for one in learning.held_out}) == 1
    others, every = (trainer.grow_trees(routed.flat, examples, 0) for examples in (within(small, "c2"), training))
    asked = [(training[0], learning.questions[0], others)]
    asked += [(example, one.question, every) for example, one in zip(validation, learning.held_out, strict=True)]
    for example, question, ranker in asked:
        rows, odds = flat_odds(example, ranker)
        np.testing.assert_allclose(question.odds[rows], odds, rtol=1e-6)
        assert question.evidence.tolist() == example.evidence.tolist()
        facts = np.arange(len(question.graph.turns))
        assert np.array_equal(question.graph.vectors, example.index.graph.fact_vectors(facts))
    for example, one in zip(validation, learning.held_out, strict=True):
        assert np.array_equal(one.candidates, flat_odds(example, every)[0])


def test_a_frontier_has_epochs_of_its_own_unless_others_are_set(small):
    routed, training = RECIPES["routed"], within(small, "c1", "c2")
    learning = Trainer(TrainConfig()).learning(routed, training, [], 0)
    with_all = Trainer(TrainConfig()).train(routed, training, [], 0).frontier
    for epochs, same in ((9, True), (8, False)):
        some = Trainer(TrainConfig(epochs=epochs, patience=1)).train(routed, training, [], 0).frontier
        assert np.array_equal(some.first_weight, with_all.first_weight) == same
    train = schedule_of(routed, TrainConfig(workers=3))
    assert learning.config == train.model_copy(update={"workers": 1})
    assert (train.epochs, train.validate_epochs, train.patience, train.checkpoint_epochs) == (9, 1, 6, 1)
    chosen = TrainConfig(epochs=20, validate_epochs=10, patience=5, checkpoint_epochs=10)
    assert schedule_of(routed, chosen) == chosen
    assert schedule_of(RECIPES["hage"], TrainConfig()) == TrainConfig()


def test_training_leaves_torch_as_many_threads_as_it_had(small):
    torch.set_num_threads(2)  # the fixture sets it back
    Trainer(TrainConfig(epochs=1)).train(RECIPES["hage"], within(small, "c1"), [], 0)
    assert torch.get_num_threads() == 2


def test_what_cannot_be_trained_says_why(small):
    trainer, examples = Trainer(QUICK), within(small, "c1")
    nowhere = [replace(example, evidence=np.zeros(0, np.int64)) for example in examples]
    for recipe, training, message in (
        ("hybrid", examples, "recipe 'hybrid' is not trained"),
        ("hage:static", examples, "recipe 'hage:static' is not trained"),
        ("hage", [], "recipe 'hage': there are no questions to learn from"),
        ("learned-flat", [], "recipe 'learned-flat': there are no questions to learn from"),
        ("hage", nowhere, "recipe 'hage': none of the 10 questions has a target"),
        ("learned-flat", nowhere, "recipe 'learned-flat': all 200 training rows have the same label"),
        ("routed", [], "recipe 'routed': there are no questions to learn from"),
        ("routed", nowhere, r"recipe 'learned-flat:hypergraph': all \d+ training rows have the same label"),
    ):
        with pytest.raises(TrainedModelError, match=message):
            trainer.train(RECIPES[recipe], training, [], 0)
        trainer = Trainer(QUICK)
