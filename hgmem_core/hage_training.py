"""What a training of HAGE takes, as arrays that travel to any process, and how its walks are validated."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hgmem_core.data_parallel import ALONE, DataParallel
from hgmem_core.hage import HageWeights, find_anchors, hage_rank, period_of
from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_index import NamespaceIndex, TieOrder
from hgmem_core.query_analysis import QueryAnalysis
from hgmem_core.ranking import Rows
from hgmem_core.recipes import Hage
from hgmem_core.reinforce import HageTrainer, HageTraining
from hgmem_core.relations import Relations
from hgmem_core.run_config import TrainConfig
from hgmem_core.training_run import TrainingRun
from hgmem_core.walks import TrainingGraph, TrainingQuestion

_BEST = 10
"""Validation counts the evidence among so many turns; see `hgmem_core.training_run.VALIDATED`."""


@dataclass(frozen=True, slots=True)
class HeldOutQuestion:
    """A question that is searched for as after training.

    Attributes:
        relations: Between the turns of its namespace.
        ties: The order of turns that are equally good.
        vector: Unit or zeros, float32 `[dimension]`.
        cosines: Of all turns with it, float32 `[turns]`.
        intent: Over temporal, semantic, causal and entity relations; sum 1, float32 `[4]`.
        anchors: Of `hgmem_core.hage.find_anchors`.
        evidence: Rows of the turns that hold the answer, distinct, at least one.
    """

    relations: Relations
    ties: TieOrder
    vector: Floats
    cosines: Floats
    intent: Floats
    anchors: Rows
    evidence: Rows

    @classmethod
    def of(
        cls, index: NamespaceIndex, vector: Floats, numbers: Ints, analysis: QueryAnalysis, evidence: Rows
    ) -> "HeldOutQuestion":
        """Take what a search for the question reads of its namespace.

        Args:
            index: The namespace.
            vector: Of the question.
            numbers: Its terms as the namespace numbers them.
            analysis: Of the question.
            evidence: Rows of the turns that hold the answer, distinct.
        """
        cosines = index.cosines(vector)
        anchors = find_anchors(index, vector, cosines, numbers.tolist(), None, period_of(analysis))
        intent = np.array(analysis.intent, np.float32)
        return cls(index.relations("turn"), index.id_order, vector, cosines, intent, anchors, evidence)

    def recall(self, weights: HageWeights, recipe: Hage) -> float:
        """Return the share of the evidence among the ten best turns, in percent."""
        rows = hage_rank(
            self.ties, self.vector, self.cosines, self.relations, weights, self.intent, self.anchors, recipe
        )
        return 100.0 * float(np.isin(self.evidence, rows[:_BEST]).mean())


@dataclass(frozen=True, slots=True)
class WalkTraining:
    """Everything that a training takes.

    Attributes:
        graphs: To walk on.
        questions: To walk for.
        held_out: Questions that tell when to stop; none trains to the end.
        recipe: How they are searched for.
        settings: How to learn.
        config: How long.
        seed: Of all that is drawn.
    """

    graphs: Sequence[TrainingGraph]
    questions: Sequence[TrainingQuestion]
    held_out: Sequence[HeldOutQuestion]
    recipe: Hage
    settings: HageTraining
    config: TrainConfig
    seed: int

    def start(self, parallel: DataParallel = ALONE) -> TrainingRun:
        """Return the training at its beginning; see `hgmem_core.reinforce.HageTrainer`.

        Raises:
            ValueError: No question has a target, or a graph or question is not as it should be.
        """
        trainer = HageTrainer(self.graphs, self.questions, self.settings, self.seed, parallel)

        def validate() -> float:
            weights = trainer.weights()
            [mean] = parallel.mean([sum(one.recall(weights, self.recipe) for one in parallel.share(self.held_out))])
            return mean * parallel.world_size / len(self.held_out)

        return TrainingRun(trainer, validate if self.held_out else None, self.config)
