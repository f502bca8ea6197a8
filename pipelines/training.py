"""Models trained on the questions of a benchmark: what they learn from, and how each kind of recipe learns.

Labels are the evidence turns of the training questions; nothing else of a benchmark's answers is read. A question knows
its own namespace and no other.
"""

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hgmem_core.boosting import BoostingSettings, fit_forest
from hgmem_core.frontier import FrontierWeights
from hgmem_core.frontier_policy import FrontierGraph, FrontierQuestion, FrontierTraining
from hgmem_core.frontier_training import HeldOutField, RoutedTraining
from hgmem_core.hage_training import HeldOutQuestion, WalkTraining
from hgmem_core.ids import content_id
from hgmem_core.learned_flat import TurnRanker, find_candidates
from hgmem_core.lexical import Floats, Ints
from hgmem_core.namespace_index import NamespaceIndex
from hgmem_core.query_analysis import QueryAnalysis, analyse_query
from hgmem_core.ranking import Query, Rows, best_rows, finite_vector
from hgmem_core.recipes import RECIPES, AnyRecipe, Hage, LearnedFlat, Routed
from hgmem_core.reinforce import HageTraining, one_thread
from hgmem_core.relations import PAPER
from hgmem_core.routed import RoutedWeights, field_of
from hgmem_core.run_config import TrainConfig
from hgmem_core.tasks.task import Questions, TaskError
from hgmem_core.trained import Trained, TrainedModelError, trained_of
from hgmem_core.training_run import VALIDATED, Arrays, TrainingRun
from hgmem_core.walks import TrainingGraph, TrainingQuestion
from pipelines.retriever import Retriever

_TREES_A_POINT = 10
"""Of a curve."""


@dataclass(frozen=True, slots=True)
class Example:
    """A question with its evidence, ready for a namespace.

    Attributes:
        query_id: Of the question.
        namespace: In which it is asked.
        index: The same, opened.
        query: With a vector.
        numbers: Its terms as the namespace numbers them.
        analysis: Of the question.
        evidence: Rows of the turns that hold the answer, at least one.
    """

    query_id: str
    namespace: str
    index: NamespaceIndex
    query: Query
    numbers: Ints
    analysis: QueryAnalysis
    evidence: Rows


def examples_of(retriever: Retriever, questions: Questions, groups: Set[str]) -> list[Example]:
    """Return the questions of some groups as examples, in their order.

    Raises:
        TaskError: The version lacks a namespace or an evidence turn, or there is no question.
    """
    rows = [row for row in questions.queries.to_pylist() if row["group"] in groups]
    if not rows:
        raise TaskError(f"there is no question of the groups {', '.join(sorted(groups))} to learn from")
    relevant: defaultdict[str, list[str]] = defaultdict(list)
    for row in questions.qrels.to_pylist():
        relevant[row["query_id"]].append(row["turn_id"])
    places: dict[str, dict[str, int]] = {}
    # Tuned vectors are asked with where there are any, for recipes that learn from them.
    asked_as = RECIPES["learned-flat:tuned" if retriever.asks_tuned else "hypergraph"]
    examples = []
    for row, vector in zip(rows, retriever.encode([row["text"] for row in rows]), strict=True):
        namespace = row["namespace"]
        index = retriever.namespace(namespace)
        if index is None:
            version = retriever.version.id
            raise TaskError(f"version {version} has no namespace {namespace!r}: it holds other data")
        if namespace not in places:
            places[namespace] = {turn: at for at, turn in enumerate(index.column("turn_id").to_pylist())}
        query = retriever.analyse(row["text"], asked_as, vector)
        evidence = sorted({places[namespace].get(turn, -1) for turn in relevant[row["query_id"]]})
        if evidence[0] < 0:
            raise TaskError(
                f"version {retriever.version.id} lacks a turn that is evidence for question {row['query_id']!r}: it "
                "holds other data"
            )
        examples.append(
            Example(
                row["query_id"],
                namespace,
                index,
                query,
                np.array(index.term_numbers(query.terms), np.int64),
                analyse_query(query.text, index.speakers[0], None, index.log_span),
                np.array(evidence, np.int64),
            )
        )
    return examples


def stops_early(recipe: AnyRecipe) -> bool:
    """Tell whether questions are held back to stop a training where that leaves fewer to learn from.

    Trees are grown to the end. A frontier can be stopped, but its few epochs are not worth a fifth of the questions.
    """
    return isinstance(recipe, Hage)


def unless_set(train: TrainConfig, **values: int) -> TrainConfig:
    """Return a configuration that has these values where nobody set another; its own defaults are for walks."""
    return train.model_copy(
        update={name: value for name, value in values.items() if name not in train.model_fields_set}
    )


def schedule_of(recipe: AnyRecipe, train: TrainConfig) -> TrainConfig:
    """Return how long a recipe is trained that learns in epochs."""
    if not isinstance(recipe, Routed):
        return train
    settings = FrontierTraining()
    # Epochs are few: each is looked at, none is done twice, and the warm start alone does not end a training.
    patience = settings.warm_epochs
    return unless_set(train, epochs=settings.epochs, validate_epochs=1, patience=patience, checkpoint_epochs=1)


Learning = WalkTraining | RoutedTraining
"""Everything that a training in epochs takes."""


class Trainer:
    """Trains recipes on examples; what is read of an example is kept from one training to the next."""

    def __init__(self, config: TrainConfig) -> None:
        """Know nothing yet; `config` is of what learns in epochs."""
        self._config = config
        self._candidates: dict[tuple[str, str], _Candidates] = {}
        self._graphs: dict[str, TrainingGraph] = {}
        self._grown: dict[tuple[str, frozenset[str], int], TurnRanker] = {}

    def train(
        self, recipe: AnyRecipe, training: Sequence[Example], validation: Sequence[Example], seed: int
    ) -> Trained:
        """Train the model of a recipe in this process.

        Args:
            recipe: One that has a model.
            training: To learn from.
            validation: Held back, to stop by where that is done; see `stops_early`.
            seed: Of all that is drawn.

        Raises:
            TrainedModelError: The recipe has no model, or the examples hold nothing to learn from.
        """
        if isinstance(recipe, LearnedFlat):
            return self._trees(recipe, training, seed)
        with one_thread():
            run = started(self.learning(recipe, training, validation, seed))
            while not run.is_over:
                run.next_epoch()
        return self.model(recipe, training, seed, run.weights())

    def learning(
        self, recipe: AnyRecipe, training: Sequence[Example], validation: Sequence[Example], seed: int
    ) -> Learning:
        """Return everything that a training takes that goes in epochs; for the arguments see `train`.

        Raises:
            TrainedModelError: The recipe is not trained in epochs, or the examples hold nothing to learn from.
        """
        if isinstance(recipe, Routed):
            return self.frontier_training(recipe, training, validation, seed)
        return self.walk_training(recipe, training, validation, seed)

    def model(self, recipe: AnyRecipe, training: Sequence[Example], seed: int, arrays: Arrays) -> Trained:
        """Return the model of a recipe that was trained in epochs.

        Args:
            recipe: Was trained.
            training: The examples that it learned from.
            seed: Of all that was drawn.
            arrays: What was learned in epochs.

        Raises:
            TrainedModelError: They are not what the recipe learns.
        """
        if not isinstance(recipe, Routed):
            return trained_of(recipe, arrays, PAPER)
        try:
            return RoutedWeights(self._trees(recipe.flat, training, seed), FrontierWeights.from_dict(arrays))
        except ValueError as error:
            raise TrainedModelError(f"recipe {recipe.name!r}: {error}") from error

    def grow_trees(self, recipe: LearnedFlat, training: Sequence[Example], seed: int) -> TurnRanker:
        """Train trees that tell evidence from the other candidates.

        Raises:
            TrainedModelError: The examples hold nothing to learn from.
        """
        found = [self._found(recipe, example) for example in _asked(recipe, training)]
        features, labels = _joined(found)
        try:
            return TurnRanker(fit_forest(features, labels, BoostingSettings(), seed), found[0].names)
        except ValueError as error:
            raise TrainedModelError(f"recipe {recipe.name!r}: {error}") from error

    def frontier_training(
        self, recipe: Routed, training: Sequence[Example], validation: Sequence[Example], seed: int
    ) -> RoutedTraining:
        """Return everything that a training of a frontier takes; odds are those of trees that never saw the question.

        Of a question to learn from they never saw the namespace; with one namespace alone, they saw only the questions
        of the other half. Those that judge what is held back saw all that is not.

        Args:
            recipe: Which trees, and how far the frontier grows.
            training: To learn from.
            validation: Held back.
            seed: Of all that is drawn.

        Raises:
            TrainedModelError: The examples hold nothing to learn from.
        """
        parts = [example.namespace for example in _asked(recipe, training)]
        if len(set(parts)) == 1:
            ids = sorted((example.query_id for example in training), key=content_id)
            half = {name: str(at % 2) for at, name in enumerate(ids)}
            parts = [half[example.query_id] for example in training]
            if len(training) < 2:
                raise TrainedModelError(f"recipe {recipe.name!r}: one question is too little to learn from; take more")
        graphs: dict[str, FrontierGraph] = {}
        questions = []
        for part in sorted(set(parts)):
            others = [example for example, own in zip(training, parts, strict=True) if own != part]
            ranker = self._trees(recipe.flat, others, seed)
            asked = [example for example, own in zip(training, parts, strict=True) if own == part]
            questions += [self._question(recipe, example, ranker, graphs) for example in asked]
        held_out = []
        if validation:
            ranker = self._trees(recipe.flat, training, seed)
            for example in validation:
                question = self._question(recipe, example, ranker, graphs)
                held_out.append(HeldOutField(question, self._found(recipe.flat, example).rows, example.index.id_order))
        return RoutedTraining(questions, held_out, recipe, FrontierTraining(), schedule_of(recipe, self._config), seed)

    def _question(
        self, recipe: Routed, example: Example, ranker: TurnRanker, graphs: dict[str, FrontierGraph]
    ) -> FrontierQuestion:
        """Return a question with the odds of trees; its namespace's graph is made once for all questions."""
        found = self._found(recipe.flat, example)
        odds = ranker.forest.scores(found.features)
        field = field_of(example.index, example.query, example.analysis, found.rows, odds)
        if example.namespace not in graphs:
            graphs[example.namespace] = FrontierGraph.of(field)
        return FrontierQuestion(graphs[example.namespace], field.odds, field.question, field.intent, example.evidence)

    def _trees(self, recipe: LearnedFlat, training: Sequence[Example], seed: int) -> TurnRanker:
        """Grow trees, once for the same questions: leaving out one namespace and then another is leaving out both."""
        key = recipe.name, frozenset(example.query_id for example in training), seed
        if key not in self._grown:
            self._grown[key] = self.grow_trees(recipe, training, seed)
        return self._grown[key]

    def tree_curve(
        self, recipe: LearnedFlat, ranker: TurnRanker, validation: Sequence[Example]
    ) -> list[dict[str, float]]:
        """Return how well the first trees alone do on questions that are held back: a row for every ten more.

        Returns:
            Rows of `trees`, `validation loss` (of a candidate, in nats) and `recall@10`.
        """
        found = [self._found(recipe, example) for example in validation]
        features, labels = _joined(found)
        ends = np.cumsum([len(one.rows) for one in found])[:-1]
        forest = ranker.forest
        odds = np.full(len(labels), forest.baseline, np.float32)
        curve = []
        for first in range(0, len(forest.values), _TREES_A_POINT):
            some = slice(first, first + _TREES_A_POINT)
            parts = {name: getattr(forest, name)[some] for name in ("features", "thresholds", "masks", "values")}
            odds += replace(forest, **parts, baseline=0.0).scores(features)
            loss = np.logaddexp(0, np.where(labels, -odds, odds)).mean()
            recalls = [one.recall(own) for one, own in zip(found, np.split(odds, ends), strict=True)]
            trees = min(first + _TREES_A_POINT, len(forest.values))
            curve.append({"trees": trees, "validation loss": float(loss), VALIDATED: float(np.mean(recalls))})
        return curve

    def walk_training(
        self, recipe: AnyRecipe, training: Sequence[Example], validation: Sequence[Example], seed: int
    ) -> WalkTraining:
        """Return everything that a training of walks takes; walks begin at the turn nearest to the question.

        Raises:
            TrainedModelError: The recipe is not one of trained walks, or there is no example.
        """
        if not isinstance(recipe, Hage) or recipe.trained is None:
            raise TrainedModelError(f"recipe {recipe.name!r} is not trained")
        graphs = {one.namespace: self._graph(one) for one in _asked(recipe, training)}
        numbers = {name: number for number, name in enumerate(sorted(graphs))}
        return WalkTraining(
            [graphs[name] for name in sorted(graphs)],
            [_walked(example, numbers[example.namespace]) for example in training],
            [_held_out(example) for example in validation],
            recipe,
            HageTraining(recipe.trained),
            self._config,
            seed,
        )

    def _found(self, recipe: LearnedFlat, example: Example) -> "_Candidates":
        key = recipe.name, example.query_id
        if key not in self._candidates:
            found = find_candidates(example.index, example.query, example.analysis, example.numbers, recipe)
            self._candidates[key] = _Candidates(found.features, found.rows, found.names, example)
        return self._candidates[key]

    def _graph(self, example: Example) -> TrainingGraph:
        index = example.index
        if example.namespace not in self._graphs:
            vectors = np.stack([index.turn_vector(row) for row in range(len(index))])
            self._graphs[example.namespace] = TrainingGraph(index.relations("turn"), vectors)
        return self._graphs[example.namespace]


@dataclass(frozen=True, slots=True)
class _Candidates:
    """What of `hgmem_core.learned_flat.Candidates` is learned from."""

    features: Floats
    rows: Rows
    names: tuple[str, ...]
    example: Example

    def recall(self, odds: Floats) -> float:
        """Return the share of the evidence among the ten best candidates, in percent."""
        index = self.example.index
        scores = np.zeros(len(index), np.float32)
        scores[self.rows] = odds
        best = best_rows(scores, self.rows, 10, index.id_order)
        return 100.0 * float(np.isin(self.example.evidence, best).mean())


def _joined(found: Sequence[_Candidates]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the features of all candidates, one question after the other, and whether each is evidence."""
    labels = [np.isin(one.rows, one.example.evidence) for one in found]
    return np.concatenate([one.features for one in found]), np.concatenate(labels)


def _asked(recipe: AnyRecipe, training: Sequence[Example]) -> Sequence[Example]:
    if not training:
        raise TrainedModelError(f"recipe {recipe.name!r}: there are no questions to learn from")
    return training


def _vector(example: Example) -> Floats:
    return finite_vector(example.query, "hage")


def _walked(example: Example, graph: int) -> TrainingQuestion:
    """Return a question to walk for, from the turn nearest to it, as published."""
    vector = _vector(example)
    nearest = int(np.argmax(example.index.cosines(vector)))
    intent = np.array(example.analysis.intent, np.float32)
    return TrainingQuestion(graph, vector, intent, np.array([nearest]), example.evidence)


def _held_out(example: Example) -> HeldOutQuestion:
    return HeldOutQuestion.of(example.index, _vector(example), example.numbers, example.analysis, example.evidence)


def started(learning: Learning) -> TrainingRun:
    """Return a training at its beginning, in this process.

    Raises:
        TrainedModelError: The examples hold nothing to learn from.
    """
    try:
        return learning.start()
    except ValueError as error:
        raise TrainedModelError(f"recipe {learning.recipe.name!r}: {error}") from error
