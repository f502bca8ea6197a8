"""Tuning draws questions to their evidence, can be taken up again, and treats no evidence as its opposite."""

import io
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from hgmem_core.data_parallel import DataParallel
from hgmem_core.encoding import encode_texts
from hgmem_core.run_config import TrainConfig
from hgmem_core.trained import TrainedModelError
from pipelines.bert_torch import WORDS
from pipelines.encoder_examples import TuningExample, examples_digest
from pipelines.encoder_tuning import EncoderTraining, EncoderTuner, EncoderTuning, HeldOutTurns, tune_encoder
from pipelines.tuned_encoder import open_tuned, save_tuned
from tests.core.event_graphs import one_thread as one_thread  # a fixture
from tests.pipelines.tiny_bert import tiny_bert

QUICK = EncoderTuning(epochs=2, batch=8, rate=2e-3, bfloat16=False)


@pytest.fixture
def base(tmp_path):
    return tiny_bert(tmp_path / "base")


def example(number, document=None, question=None, negatives=()):
    """A question whose word is the evidence's by number alone, which nothing but examples can tell."""
    return TuningExample(f"ask{number}", document or f"say{number}", question or f"q{number}", negatives)


EXAMPLES = [example(number, negatives=(f"say{number + 1}", f"say{number + 2}")) for number in range(20)]


def tuned(base, examples=EXAMPLES, settings=QUICK, seed=0):
    return tune_encoder(base, examples, settings, seed, lambda tuner, told: True)


def same(some, others):
    return all(np.array_equal(some[name], others[name]) for name in some)


def found(folder, base, weights):
    """The share of questions that are nearest to their own evidence, by the encoder as it is used."""
    save_tuned(folder, weights, dict.fromkeys(("data", "licence", "seed", "settings")), base)
    encoder = open_tuned(folder, folder / "cache", base.identity)
    queries, documents = (
        encode_texts(encoder, [getattr(one, name) for one in EXAMPLES[:10]]) for name in ("query", "document")
    )
    return np.mean((queries @ documents.T).argmax(1) == np.arange(len(queries)))


def test_questions_come_to_find_their_evidence(base, tmp_path):
    assert found(tmp_path / "base", base, base.weights()) < 0.3
    weights = tuned(base, EXAMPLES[:10], replace(QUICK, epochs=30, rate=5e-3))
    assert found(tmp_path / "tuned", base, weights) > 0.8
    assert weights.keys() == base.weights().keys()
    assert np.array_equal(weights[WORDS], base.weights()[WORDS])


def test_a_seed_gives_the_same_weights_again(base):
    assert same(tuned(base), tuned(base))
    assert not same(tuned(base), tuned(base, seed=1))


def test_tuning_goes_on_as_if_it_had_not_ended(base):
    kept = io.BytesIO()

    def stop_early(tuner, told):
        if tuner.steps == 4:
            torch.save(tuner.state_dict(), kept)
        return tuner.steps < 4

    tune_encoder(base, EXAMPLES, QUICK, 3, stop_early)
    kept.seek(0)
    steps = []
    state = torch.load(kept)
    weights = tune_encoder(base, EXAMPLES, QUICK, 3, lambda tuner, told: steps.append(tuner.steps) or True, state)
    assert steps == [5, 6]
    assert same(weights, tuned(base, seed=3))


def test_other_evidence_of_a_question_is_not_pushed_away(base):
    """With nothing but evidence in sight there is nothing to learn."""
    still = replace(QUICK, decay=0.0)
    of_one = [example(1, question="q"), example(1, "say2", "q", negatives=("say1",))]
    assert same(tuned(base, of_one, still), base.weights())
    # The second question's evidence is the first one's, too; the first one's other turn is none of the second's.
    shared = [*of_one, example(3, "say2", "p")]
    tuner = EncoderTuner(base, shared, still, 0)
    assert tuner.step()["loss"] > 0
    assert same(tuned(base, [example(1, "say2", "q"), example(3, "say2", "p")], still), base.weights())


def test_a_turn_that_looks_like_evidence_is_pushed_away(base):
    still = replace(QUICK, batch=1, decay=0.0)
    assert same(tuned(base, [example(1)], still), base.weights())
    assert not same(tuned(base, [example(1, negatives=("say9",))], still), base.weights())


def test_the_rate_rises_and_falls(base):
    rates = []
    settings = replace(QUICK, epochs=4, batch=2, warm_up=0.25)
    tune_encoder(base, EXAMPLES, settings, 0, lambda tuner, told: rates.append(told["rate"]) or True)
    assert len(rates) == 40
    assert np.argmax(rates) in (9, 10)
    assert max(rates) == pytest.approx(QUICK.rate)
    assert (np.diff(rates[:10]) > 0).all()
    assert (np.diff(rates[11:]) < 0).all()
    assert 0 < rates[-1] < QUICK.rate / 20


def test_the_middle_of_a_long_text_is_left_out(base):
    def loss(*middle):
        words = [*("say1 " * 10).split(), *middle, *("say2 " * 10).split()]
        tuner = EncoderTuner(base, [example(3, " ".join(words)), example(4)], replace(QUICK, max_tokens=20), 0)
        return tuner.step()["loss"]

    assert loss("say5", "say6") == loss("say7") == loss()


def test_bfloat16_gives_nearly_the_same(base):
    exact, near = (
        EncoderTuner(base, EXAMPLES, replace(QUICK, bfloat16=choice), 0).step()["loss"] for choice in (False, True)
    )
    assert near != exact
    assert near == pytest.approx(exact, rel=0.05)


def test_texts_are_encoded_as_the_tuned_encoder_does(base, tmp_path):
    """Texts of many lengths, in several batches, come back in their order."""
    texts = [" ".join(f"say{(number * place) % 24}" for place in range(number % 7 + 1)) for number in range(150)]
    save_tuned(tmp_path / "saved", base.weights(), dict.fromkeys(("data", "licence", "seed", "settings")), base)
    encoder = open_tuned(tmp_path / "saved", tmp_path / "cache", base.identity)
    found = EncoderTuner(base, EXAMPLES, QUICK, 0).encode(texts)
    np.testing.assert_allclose(found, encode_texts(encoder, texts), atol=1e-5)


def gradients(base, examples, rank=0, world_size=1):
    given = []
    parallel = DataParallel(rank, world_size, lambda some: given.extend(one.clone() for one in some))
    EncoderTuner(base, examples, replace(QUICK, batch=len(examples)), 0, parallel).step()
    return given


def test_every_example_of_a_batch_counts_the_same_whoever_has_it(base):
    """Of three examples one worker has two; the other's one has a third of the whole."""
    alike = example(1, negatives=("say9",))
    alone = gradients(base, [alike])
    shared = gradients(base, [alike] * 3, rank=1, world_size=2)
    for mine, lone in zip(shared, alone, strict=True):  # means over two workers are halves of their sum
        torch.testing.assert_close(mine / 2, lone / 3)


def test_workers_stay_together(base):
    """Three workers on batches of eight: shares of three, three and two."""
    barrier, given = threading.Barrier(3, timeout=60), [None] * 3

    def reducer(worker):
        def all_reduce(tensors):
            given[worker] = [tensor.clone() for tensor in tensors]
            barrier.wait()
            means = [torch.stack(every).mean(0) for every in zip(*given, strict=True)]
            barrier.wait()
            for tensor, mean in zip(tensors, means, strict=True):
                tensor.copy_(mean)

        return all_reduce

    tuners = [EncoderTuner(base, EXAMPLES, QUICK, 0, DataParallel(worker, 3, reducer(worker))) for worker in range(3)]
    threads = [threading.Thread(target=lambda tuner=tuner: [tuner.step() for _ in range(4)]) for tuner in tuners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, *others = (tuner.weights().as_dict() for tuner in tuners)
    assert all(same(first, other) for other in others)
    assert not same(first, base.weights())


def test_what_is_held_back_tells_how_good_weights_are(base):
    """Weights that were tuned to the contrary find less, whatever their loss."""
    documents = [example.document for example in EXAMPLES[:14]]
    held_out = HeldOutTurns(documents, [one.query for one in EXAMPLES[:14]], [np.array([row]) for row in range(14)])
    contrary = [replace(one, document=documents[-1 - row]) for row, one in enumerate(EXAMPLES[:14])]
    config = TrainConfig(epochs=30, validate_epochs=10, patience=9)
    recalls = {}
    for name, examples in (("right", EXAMPLES[:14]), ("contrary", contrary)):
        run = EncoderTraining(base, examples, [held_out], replace(QUICK, rate=5e-3), config, 0).start()
        while not run.is_over:
            run.next_epoch()
        recalls[name] = {row["epoch"]: row["recall@10"] for row in run.curve if "recall@10" in row}
        assert run.weights().keys() == base.weights().keys()
    assert recalls["right"].keys() == {0, 10, 20, 30}
    assert recalls["right"][0] == recalls["contrary"][0]
    assert recalls["right"][30] == 100
    assert recalls["contrary"][30] < recalls["right"][0]


def test_a_worker_without_a_share_waits_for_the_others(base):
    given = []
    tuner = EncoderTuner(base, EXAMPLES[:1], QUICK, 0, DataParallel(1, 2, given.append))
    assert tuner.step()["loss"] == 0
    assert all(not gradient.any() for gradient in given[0])


def test_weights_out_of_hand_end_tuning(base):
    with pytest.raises(TrainedModelError, match=r"the loss is nan at step \d+: lower rate=1e\+30"):
        tuned(base, settings=replace(QUICK, rate=1e30))


def test_what_cannot_be_tuned_with_is_refused(base):
    with pytest.raises(ValueError, match="no question with evidence"):
        tuned(base, [])
    with pytest.raises(ValueError, match="batch is 0; it must be at least 1"):
        EncoderTuning(batch=0)
    with pytest.raises(ValueError, match="temperature is 0; it must be above 0"):
        EncoderTuning(temperature=0)


def test_the_digest_of_examples_tells_them_apart():
    one, other = example(1, negatives=("say2", "say3")), example(1, negatives=("say3", "say2"))
    assert examples_digest([one]) == examples_digest([replace(one)])
    assert len({examples_digest(some) for some in ([one], [other], [one, other], [other, one], [])}) == 5
