"""MiniLM tuned on evidence: a question is drawn to the turns that answer it, and away from those that do not.

The loss is a softmax over the cosines of a question with the evidence turn and with other turns, divided by a
temperature. The others are the evidence of the other questions in the batch, and for each example one turn that shares
words with its question. Turns are read with their context. The vectors of words stay as they are.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hgmem_core.data_parallel import ALONE, DataParallel
from hgmem_core.lexical import Floats, Ints
from hgmem_core.run_config import TrainConfig
from hgmem_core.trained import TrainedModelError
from hgmem_core.training_run import TrainingRun
from pipelines.bert_encoder import BertFolder, ends
from pipelines.bert_onnx import Array
from pipelines.bert_torch import WORDS, bert_vectors, load_bert
from pipelines.encoder_examples import TuningExample

_FOUND_WITHIN = 10
"""Validation counts the evidence among so many turns; see `hgmem_core.training_run.VALIDATED`."""

_ENCODED_AT_ONCE = 64
"""Texts, where nothing is learned."""


@dataclass(frozen=True, slots=True)
class EncoderTuning:
    """How an encoder is tuned.

    Attributes:
        epochs: Times that every example is seen.
        batch: Examples for an update, of all workers together.
        rate: AdamW's learning rate at its highest.
        warm_up: The share of the steps in which it rises to that; afterwards it falls to 0, both by the line.
        temperature: By which cosines are divided.
        decay: AdamW's weight decay.
        largest_norm: To which gradients are clipped.
        max_tokens: Of a text, at most those that the encoder takes; of a longer one the middle is left out.
        parts: In which a batch of turns is encoded, the short ones together: fewer parts mean more padding.
        bfloat16: Whether products of matrices are computed in bfloat16: faster on processors that have it (AVX512_BF16,
            AMX, GPUs since 2020), slower on others.
    """

    epochs: int = 2
    batch: int = 32
    rate: float = 3e-5
    warm_up: float = 0.1
    temperature: float = 0.05
    decay: float = 0.01
    largest_norm: float = 1.0
    max_tokens: int = 256
    parts: int = 4
    bfloat16: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be tuned with."""
        for name, least in (("epochs", 1), ("batch", 1), ("parts", 1), ("max_tokens", 16)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        for name in ("rate", "temperature"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")


@dataclass(frozen=True, slots=True)
class TunedWeights:
    """A checkpoint: arrays by their names in a `BertModel`."""

    arrays: dict[str, Array]

    def as_dict(self) -> dict[str, Array]:
        """Return the arrays."""
        return self.arrays


class EncoderTuner:
    """Tunes step by step.

    Several workers may tune together. They get the same examples, settings and seed, each takes its share of every
    batch, and their gradients are averaged: weights stay equal on all. A question is held against the turns of its
    worker's share alone, so a batch should grow with the workers. What a step draws depends on the seed, the step and
    the worker alone, so tuning goes on from `state_dict` as if it had not ended; on a processor it gives the same bits
    again as long as the number of threads, which the caller sets, is the same.
    """

    def __init__(
        self,
        base: BertFolder,
        examples: Sequence[TuningExample],
        settings: EncoderTuning,
        seed: int,
        parallel: DataParallel = ALONE,
    ) -> None:
        """Load the encoder to begin with.

        Args:
            base: The encoder.
            examples: Of all questions that it is tuned on.
            settings: How.
            seed: Of all that is drawn.
            parallel: Which of several workers this one is, and where its tensors are.

        Raises:
            ValueError: There is no example, or the encoder is of another kind.
        """
        if not examples:
            raise ValueError("there is no question with evidence: nothing can be learned")
        self.settings, self.steps = settings, 0
        self._examples, self._seed, self._parallel = examples, seed, parallel
        self._base, self._config = base.weights(), base.config()
        self._tensors = load_bert(self._base, self._config, parallel.device)
        self._trained = {name: tensor for name, tensor in self._tensors.items() if name != WORDS}
        for tensor in self._trained.values():
            tensor.requires_grad_()
        self._optimiser = torch.optim.AdamW(self._trained.values(), lr=settings.rate, weight_decay=settings.decay)
        self._tokenizer = base.tokenizer()
        self._ends = ends(self._tokenizer)
        self._most = min(settings.max_tokens, base.identity.max_tokens) - 2
        self._evidence: defaultdict[str, set[str]] = defaultdict(set)
        for example in examples:
            self._evidence[example.question].add(example.document)

    @property
    def steps_an_epoch(self) -> int:
        """In which every example is seen once."""
        return -(-len(self._examples) // self.settings.batch)

    @property
    def last_step(self) -> int:
        """The number of steps after which tuning is over."""
        return self.settings.epochs * self.steps_an_epoch

    def step(self) -> dict[str, float]:
        """Update the weights after one batch; return `loss`, that of this worker's share, and the learning `rate`.

        Raises:
            TrainedModelError: The loss is NaN or infinite: weights grew out of hand.
        """
        batch = self._next_batch()
        own = [self._examples[number] for number in self._parallel.share(batch)]
        trained = list(self._trained.values())
        told, gradients = 0.0, [torch.zeros_like(tensor) for tensor in trained]
        if own:
            loss = self._loss(own)
            told = float(loss.detach())
            if not np.isfinite(told):
                raise TrainedModelError(f"the loss is {told} at step {self.steps + 1}: lower rate={self.settings.rate}")
            gradients = list(torch.autograd.grad(loss * (len(own) * self._parallel.world_size / len(batch)), trained))
        self._parallel.average(gradients)
        for tensor, gradient in zip(trained, gradients, strict=True):
            tensor.grad = gradient
        torch.nn.utils.clip_grad_norm_(trained, self.settings.largest_norm)
        rate = self._rate()
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.step()
        self.steps += 1
        return {"loss": told, "rate": rate}

    def epoch(self) -> dict[str, float]:
        """Go on to the end of an epoch; return the mean `loss` of its steps, and the learning `rate` at its end."""
        told = [self.step()]
        while self.steps % self.steps_an_epoch:
            told.append(self.step())
        return {"loss": float(np.mean([one["loss"] for one in told])), "rate": told[-1]["rate"]}

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the unit vectors of texts as the weights are now, float32 `[len(texts), dimension]`."""
        with torch.no_grad():
            parts = -(-len(texts) // _ENCODED_AT_ONCE)
            vectors: Floats = self._encode(texts, parts).cpu().numpy()
        return vectors

    def weights(self) -> TunedWeights:
        """Return the whole checkpoint as it is now, by the names of the one that tuning began with."""
        tuned = {name: tensor.detach().cpu().numpy().copy() for name, tensor in self._trained.items()}
        return TunedWeights({**self._base, **tuned})

    def state_dict(self) -> dict[str, Any]:
        """Return all that tuning goes on from, as tensors and plain values; the next step changes them in place."""
        weights = {name: tensor.detach() for name, tensor in self._trained.items()}
        return {"steps": self.steps, "weights": weights, "optimiser": self._optimiser.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; encoder, examples, settings and seed are those that it was made with."""
        self.steps = state["steps"]
        for name, tensor in self._trained.items():
            tensor.data.copy_(state["weights"][name])
        self._optimiser.load_state_dict(state["optimiser"])

    def _next_batch(self) -> list[int]:
        """Return the examples of the next step: each once in an epoch, in an order of its own, in like parts."""
        epoch, place = divmod(self.steps, self.steps_an_epoch)
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._examples))
        batch: list[int] = np.array_split(order, self.steps_an_epoch)[place].tolist()
        return batch

    def _rate(self) -> float:
        last, rising = self.last_step, self.settings.warm_up * self.last_step
        risen = (self.steps + 1) / rising if rising else 1.0
        return self.settings.rate * min(risen, 1.0, (last - self.steps) / max(1.0, last - rising))

    def _loss(self, examples: Sequence[TuningExample]) -> Tensor:
        draw = np.random.default_rng([self._seed, self.steps, self._parallel.rank, 1])
        lookalikes = [one.negatives[draw.integers(len(one.negatives))] for one in examples if one.negatives]
        texts = [*(one.document for one in examples), *lookalikes]
        queries = self._encode([one.query for one in examples], 1)
        scores = queries @ self._encode(texts, self.settings.parts).T / self.settings.temperature
        # What is evidence, too, must not be pushed away, whichever example it came with.
        is_evidence = [[text in self._evidence[one.question] for text in texts] for one in examples]
        other = torch.tensor(is_evidence, device=self._parallel.device)
        other.fill_diagonal_(False)
        own = torch.arange(len(examples), device=self._parallel.device)
        return functional.cross_entropy(scores.masked_fill(other, -torch.inf), own)

    def _encode(self, texts: Sequence[str], parts: int) -> Tensor:
        """Return unit vectors, float32 `[len(texts), dimension]`."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        token_ids = [self._cut(encoding.ids) for encoding in encodings]
        order = sorted(range(len(texts)), key=lambda place: len(token_ids[place]))
        device, vectors = self._parallel.device, []
        for part in np.array_split(order, min(parts, len(order))):
            padded = [torch.tensor(token_ids[place]) for place in part]
            ids = torch.nn.utils.rnn.pad_sequence(padded, batch_first=True)
            lengths = torch.tensor([len(one) for one in padded])
            mask = torch.arange(ids.shape[1]) < lengths[:, None]
            with torch.autocast(device.partition(":")[0], torch.bfloat16, enabled=self.settings.bfloat16):
                vectors.append(bert_vectors(self._tensors, self._config, ids.to(device), mask.to(device)))
        back = torch.tensor(np.argsort(order), device=device)
        return functional.normalize(torch.cat(vectors), dim=1)[back]

    def _cut(self, token_ids: list[int]) -> list[int]:
        """Return a text's ids between those around it; of a long one the middle is left out, for a turn stands last."""
        before, after = self._ends
        if len(token_ids) > self._most:
            half = self._most // 2
            token_ids = token_ids[: self._most - half] + token_ids[-half:]
        return [before, *token_ids, after]


def tune_encoder(
    base: BertFolder,
    examples: Sequence[TuningExample],
    settings: EncoderTuning,
    seed: int,
    on_step: Callable[[EncoderTuner, Mapping[str, float]], bool],
    state: Mapping[str, Any] | None = None,
) -> dict[str, Array]:
    """Tune an encoder and return its checkpoint.

    Args:
        base: The encoder to begin with.
        examples: Of all questions that it is tuned on.
        settings: How.
        seed: Of all that is drawn.
        on_step: Given the tuner and what `EncoderTuner.step` told, after each step; tells whether to go on.
        state: Of `EncoderTuner.state_dict`, to go on from; None to begin.

    Raises:
        ValueError: See `EncoderTuner`.
        TrainedModelError: See `EncoderTuner.step`.
    """
    tuner = EncoderTuner(base, examples, settings, seed)
    if state is not None:
        tuner.load_state_dict(state)
    while tuner.steps < tuner.last_step:
        if not on_step(tuner, tuner.step()):
            break
    return tuner.weights().as_dict()


@dataclass(frozen=True, slots=True)
class HeldOutTurns:
    """The turns of a namespace with questions that are held back.

    Attributes:
        texts: `hgmem_core.embeddings.context_texts` of its turns.
        queries: The texts of the questions.
        evidence: The rows of each question's evidence turns, distinct, at least one.
    """

    texts: Sequence[str]
    queries: Sequence[str]
    evidence: Sequence[Ints]

    def found(self, tuner: EncoderTuner) -> float:
        """Return the share of evidence among the ten nearest turns, summed over the questions."""
        scores = tuner.encode(self.queries) @ tuner.encode(self.texts).T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :_FOUND_WITHIN]
        return float(sum(np.isin(own, top).mean() for own, top in zip(self.evidence, best, strict=True)))


@dataclass(frozen=True, slots=True)
class EncoderTraining:
    """Everything that a tuning takes; travels to other processes, on machines that have the encoder.

    Attributes:
        base: The encoder to begin with.
        examples: Of the questions that it is tuned on.
        held_out: Questions that tell when to stop; none tunes to the end.
        settings: How to learn.
        config: How long: its epochs take the place of those of `settings`.
        seed: Of all that is drawn.
    """

    base: BertFolder
    examples: Sequence[TuningExample]
    held_out: Sequence[HeldOutTurns]
    settings: EncoderTuning
    config: TrainConfig
    seed: int

    def start(self, parallel: DataParallel = ALONE) -> TrainingRun:
        """Return the tuning at its beginning; see `EncoderTuner`.

        Raises:
            ValueError: See `EncoderTuner`.
        """
        settings = replace(self.settings, epochs=self.config.epochs)
        tuner = EncoderTuner(self.base, self.examples, settings, self.seed, parallel)
        asked = sum(len(one.queries) for one in self.held_out)

        def validate() -> float:
            [mean] = parallel.mean([sum(one.found(tuner) for one in parallel.share(self.held_out))])
            return 100.0 * mean * parallel.world_size / asked

        return TrainingRun(tuner, validate if asked else None, self.config)
