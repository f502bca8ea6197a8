"""Linear heads learn what vectors alone do not show, go back to what they were without it, and never give NaN."""

from dataclasses import replace

import numpy as np
import pytest

from hgmem_core.heads import (
    HeadExamples,
    Heads,
    HeadsError,
    HeadTraining,
    evidence_loss,
    first_heads,
    fit_heads,
    heads_of,
)
from tests.core.event_graphs import units

SIZE = 8
QUICK = HeadTraining(epochs=30, rate=1e-2, decay=0.0, batch=16)


def go_on(told):
    return True


def turned(seed, turns=40, angle=1.3):
    """A namespace whose questions are their evidence turned by an angle in some planes: no cosine shows which it is."""
    rng = np.random.default_rng(seed)
    vectors = units(rng, turns, SIZE)
    rotation = np.eye(SIZE, dtype=np.float32)
    for plane in range(0, SIZE, 2):
        rotation[plane : plane + 2, plane : plane + 2] = [
            [np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)],
        ]  # fmt: skip
    queries = vectors @ rotation.T
    return HeadExamples(vectors, np.arange(turns) // 10, queries, [np.array([row]) for row in range(turns)])


def fitted(training, validation=(), settings=QUICK, seed=0, on_epoch=go_on):
    return fit_heads(training, validation, settings, seed, on_epoch)


def recall(heads, examples, within=3):
    documents = heads.documents(examples.vectors, examples.session)
    found = []
    for query, evidence in zip(examples.queries, examples.evidence, strict=True):
        best = np.argsort(-(documents @ heads.query(query)), kind="stable")[:within]
        found.append(np.isin(evidence, best).mean())
    return np.mean(found)


def same(one, other):
    return all(np.array_equal(one.as_dict()[name], other.as_dict()[name]) for name in one.as_dict())


def test_a_turn_is_read_with_the_two_before_it_in_its_session():
    rng = np.random.default_rng(0)
    vectors, session = units(rng, 7, SIZE), np.array([0, 0, 0, 0, 1, 1, 1])
    heads = Heads(np.eye(SIZE, dtype=np.float32), rng.standard_normal((SIZE, 2 * SIZE)).astype(np.float32))
    for row, before in enumerate([[], [0], [0, 1], [1, 2], [], [4], [4, 5]]):
        mean = vectors[before].sum(axis=0)
        read = np.concatenate([vectors[row], mean / max(np.linalg.norm(mean), 1e-9)])
        expected = heads.document_weight @ read
        np.testing.assert_allclose(
            heads.documents(vectors, session)[row], expected / np.linalg.norm(expected), atol=1e-6
        )


def test_untrained_heads_leave_cosines_as_they_are():
    examples = turned(0)
    heads = first_heads(SIZE, 0.0)
    np.testing.assert_allclose(heads.documents(examples.vectors, examples.session), examples.vectors, atol=1e-6)
    np.testing.assert_allclose(heads.query(examples.queries[3]), examples.queries[3], atol=1e-6)


def test_nothing_said_and_nothing_asked_have_no_vector():
    vectors = np.zeros((3, SIZE), np.float32)
    vectors[0, 0] = 1
    heads = first_heads(SIZE, 0.5)
    documents = heads.documents(vectors, np.zeros(3, np.int32))
    assert documents.any(axis=1).tolist() == [True, False, False]
    assert not heads.query(np.zeros(SIZE, np.float32)).any()


def test_the_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(5)
    size, turns = 4, 9
    weights = [rng.standard_normal((size, size)), rng.standard_normal((size, 2 * size))]
    queries, inputs = rng.standard_normal((3, size)), rng.standard_normal((turns, 2 * size))
    is_evidence = np.zeros((3, turns), bool)
    is_evidence[[0, 1, 1, 2], [4, 0, 8, 2]] = True

    def loss(*moved):
        return evidence_loss(Heads(*moved), queries, inputs, is_evidence, 0.3)

    _, gradients = loss(*weights)
    for which, gradient in enumerate(gradients):
        direction = rng.standard_normal(gradient.shape)
        ends = []
        for step in (-1e-5, 1e-5):
            moved = list(weights)
            moved[which] = weights[which] + step * direction
            ends.append(loss(*moved)[0])
        assert (ends[1] - ends[0]) / 2e-5 == pytest.approx((gradient * direction).sum(), rel=1e-3)


def test_heads_learn_what_holds_in_namespaces_that_they_never_saw():
    unseen = turned(9)
    assert recall(first_heads(SIZE, 0.5), unseen) < 0.3
    told = []
    heads = fitted([turned(seed) for seed in range(4)], [turned(8)], on_epoch=lambda one: told.append(one) or True)
    assert recall(heads, unseen) > 0.8
    assert told[-1]["loss"] < 0.5 * told[0]["loss"]
    assert max(one["recall"] for one in told) > told[0]["recall"]


def test_several_evidence_turns_are_not_held_against_each_other():
    """Two equal turns are both found: were one held against the other, the loss could not fall below log 2."""
    examples = turned(1)
    doubled = replace(
        examples,
        vectors=np.repeat(examples.vectors, 2, axis=0),
        session=np.repeat(examples.session, 2),
        evidence=[np.array([2 * row, 2 * row + 1]) for row in range(40)],
    )
    losses = []
    settings = replace(QUICK, temperature=0.05)
    fitted([doubled], settings=settings, on_epoch=lambda one: losses.append(one["loss"]) or True)
    assert losses[-1] < 0.5 * np.log(2)


def test_training_ends_where_validation_gets_no_better_and_gives_back_the_best():
    epochs = []
    # What holds here is turned the other way there.
    there = [turned(1, angle=-1.3)]
    heads = fitted([turned(0)], there, replace(QUICK, patience=3), on_epoch=lambda one: epochs.append(one) or True)
    assert len(epochs) == 3
    assert same(heads, first_heads(SIZE, 0.5))


def test_a_seed_gives_the_same_heads_again():
    training = [turned(0), turned(1)]
    assert same(fitted(training), fitted(training))
    assert not same(fitted(training), fitted(training, seed=1))


def test_questions_without_evidence_teach_nothing():
    whole = turned(0)
    none = np.zeros(0, np.int64)
    some = replace(whole, evidence=[own if row % 2 else none for row, own in enumerate(whole.evidence)])
    half = replace(whole, queries=whole.queries[1::2], evidence=whole.evidence[1::2])
    assert same(fitted([some]), fitted([half]))
    with pytest.raises(HeadsError, match="no training question has evidence"):
        fitted([replace(whole, evidence=[none] * 40)])


def test_large_namespaces_are_held_against_some_turns_at_a_time():
    unseen = turned(9)
    first = []

    def trained(turns):
        losses = []
        heads = fitted(
            [turned(seed, turns=80) for seed in range(3)],
            settings=replace(QUICK, turns=turns),
            on_epoch=lambda one: losses.append(one["loss"]) or True,
        )
        first.append(losses[0])
        return heads

    assert recall(trained(20), unseen) > 0.7
    trained(80)
    assert first[0] < 0.9 * first[1]  # of fewer turns it is easier to be the best


def test_weights_are_drawn_back_to_what_they_began_with():
    def distance(decay):
        heads = fitted([turned(0)], settings=replace(QUICK, decay=decay))
        return np.abs(heads.query_weight - np.eye(SIZE)).max()

    assert distance(20.0) < 0.5 * distance(0.0)


@pytest.mark.parametrize("turns", [1, 2])
def test_nothing_to_compare_with_is_no_error(turns):
    """One turn alone, or evidence alone, has no other to be told from."""
    examples = turned(0, turns=turns)
    every = replace(examples, evidence=[np.arange(turns)] * turns)
    heads = fitted([every], [every])
    assert np.isfinite(heads.documents(every.vectors, every.session)).all()
    assert same(heads, first_heads(SIZE, 0.5))


def test_heads_are_kept_as_arrays():
    heads = fitted([turned(0)])
    assert same(heads_of(heads.as_dict()), heads)
    with pytest.raises(HeadsError, match="arrays query_weight are no heads"):
        heads_of({"query_weight": heads.query_weight})
    with pytest.raises(HeadsError, match=r"shapes \(8, 8\) and \(8, 8\)"):
        Heads(heads.query_weight, heads.query_weight)
    with pytest.raises(HeadsError, match="NaN"):
        Heads(heads.query_weight * np.float32(np.nan), heads.document_weight)


def test_settings_that_cannot_train_are_refused():
    with pytest.raises(HeadsError, match=r"temperature is 0\.001; it must be at least 0\.01"):
        HeadTraining(temperature=0.001)
