"""Opening the reranker that the configuration names."""

from collections.abc import Sequence
from dataclasses import dataclass

from hgmem_core.lexical import Floats
from hgmem_core.model_config import RerankConfig
from hgmem_core.rerank import INSTRUCTION, RerankError, Reranking, Scorer, qwen3_document, qwen3_query
from pipelines.encoders import check_installed
from pipelines.model_files import architecture

_BYTES_A_TOKEN = 4


def open_reranker(config: RerankConfig) -> Reranking | None:
    """Open the reranker that `config` names; None for none. A model here is loaded, a server is not asked yet.

    Raises:
        EncoderError: A package or the model is missing; says what to install or to change.
    """
    scorer = _open_scorer(config)
    if scorer is None:
        return None
    if _speaks_qwen3(config):
        scorer = Qwen3Scorer(scorer, config.instruction or INSTRUCTION)
    return Reranking(scorer, config.candidates, config.max_tokens * _BYTES_A_TOKEN)


def _open_scorer(config: RerankConfig) -> Scorer | None:
    # Imported here so that a reranker brings in its own libraries only.
    match config.engine:
        case "none":
            return None
        case "http":
            from pipelines.http_reranker import ServedScorer

            return ServedScorer(config)
        case "sentence-transformers":
            check_installed("sentence_transformers", "'hgmem[transformers]'")
            from pipelines.sentence_transformer import CrossEncoderScorer

            return LocalScorer(CrossEncoderScorer(config.model, config.download, verbatim=_speaks_qwen3(config)))
        case "vllm":
            check_installed("vllm", "vllm")
            from pipelines.vllm_pooling import VllmScorer

            # Some copies of the model have a head that scores, and no words to answer with.
            has_head = architecture(config.model).endswith("ForSequenceClassification")
            yes_or_no = _speaks_qwen3(config) and not has_head
            return LocalScorer(VllmScorer(config.model, config.vllm.engine_kwargs, yes_or_no))


def _speaks_qwen3(config: RerankConfig) -> bool:
    if config.template != "auto":
        return config.template == "qwen3"
    asks_for_yes_or_no = config.engine == "http" and config.protocol == "yes_no"
    return asks_for_yes_or_no or "qwen3-reranker" in config.model.lower()


@dataclass(frozen=True, slots=True)
class LocalScorer:
    """Runs a model in this process; if it fails, for want of memory for instance, the query goes on without it."""

    scorer: Scorer

    def scores(self, query: str, documents: Sequence[str]) -> Floats:
        """See `hgmem_core.rerank.Scorer`."""
        try:
            return self.scorer.scores(query, documents)
        except RerankError:
            raise
        except (RuntimeError, ValueError) as error:
            raise RerankError(f"the reranker failed: {' '.join(str(error).split())}") from error


@dataclass(frozen=True, slots=True)
class Qwen3Scorer:
    """Gives query and documents the form that Qwen3-Reranker reads, one right behind the other."""

    scorer: Scorer
    instruction: str

    def scores(self, query: str, documents: Sequence[str]) -> Floats:
        """See `hgmem_core.rerank.Scorer`."""
        return self.scorer.scores(qwen3_query(self.instruction, query), [qwen3_document(text) for text in documents])
