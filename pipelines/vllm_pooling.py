"""Vectors and scores from vLLM in this process, and the owner of its pooling side; nothing is loaded before its use."""

import atexit
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from hgmem_core.chat import ModelError
from hgmem_core.encoding import Vectors
from hgmem_core.lexical import Floats
from hgmem_core.rerank import RerankError

_YES_OR_NO = {
    "architectures": ["Qwen3ForSequenceClassification"],
    "classifier_from_token": ["no", "yes"],
    "is_original_qwen3_reranker": True,
}
"""What makes vLLM read a checkpoint that says `yes` or `no` as one that scores."""

# A text that is longer than the model takes loses its end, and never ends a job.
_CUT = {"truncate_prompt_tokens": -1}


class VllmEmbedder:
    """An embedding model; threads may share it. It travels as what it takes to load the model elsewhere."""

    def __init__(self, model: str, engine_kwargs: Mapping[str, Any]) -> None:
        """Name the model, or its folder, and what vLLM is to know besides."""
        self._model = model
        self._engine_kwargs = engine_kwargs
        self._lock = Lock()

    def __reduce__(self) -> tuple[type["VllmEmbedder"], tuple[str, Mapping[str, Any]]]:
        """Travel without the model."""
        return VllmEmbedder, (self._model, self._engine_kwargs)

    @cached_property
    def _engine(self) -> Any:  # noqa: ANN401 - vLLM is not there where types are checked
        return _pooling_engine(self._model, {"convert": "embed", **self._engine_kwargs})

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vector of each text, exactly as it is given: float32 `[len(texts), dimension]`.

        Raises:
            ModelError: vLLM cannot run the model.
        """
        with self._lock:
            engine = self._engine
            outputs = engine.embed(list(texts), tokenization_kwargs=_CUT, use_tqdm=False) if texts else []
        vectors = np.array([output.outputs.embedding for output in outputs], dtype=np.float32)
        return vectors.reshape(len(texts), engine.model_config.embedding_size)


class VllmScorer:
    """A reranker; threads may share it. It travels as what it takes to load the model elsewhere."""

    def __init__(self, model: str, engine_kwargs: Mapping[str, Any], yes_or_no: bool) -> None:
        """Name the model, or its folder, and what vLLM is to know besides.

        With `yes_or_no` it is a chat model whose odds of `yes` against `no` are the score, as the published
        Qwen3-Reranker; else one with a head that scores.
        """
        self._model = model
        self._engine_kwargs = engine_kwargs
        self._yes_or_no = yes_or_no
        self._lock = Lock()

    def __reduce__(self) -> tuple[type["VllmScorer"], tuple[str, Mapping[str, Any], bool]]:
        """Travel without the model."""
        return VllmScorer, (self._model, self._engine_kwargs, self._yes_or_no)

    @cached_property
    def _engine(self) -> Any:  # noqa: ANN401
        overrides = {"hf_overrides": _YES_OR_NO} if self._yes_or_no else {}
        return _pooling_engine(self._model, {**overrides, **self._engine_kwargs})

    def scores(self, query: str, documents: Sequence[str]) -> Floats:
        """Return how well each document answers the query, both exactly as they are given: float32 `[len(documents)]`.

        A model without a separator reads the one right behind the other.

        Raises:
            RerankError: vLLM cannot run the model.
        """
        if not documents:
            return np.zeros(0, np.float32)
        with self._lock:
            try:
                engine = self._engine
            except ModelError as error:
                raise RerankError(str(error)) from error
            outputs = engine.score(query, list(documents), tokenization_kwargs=_CUT, use_tqdm=False)
        return np.array([output.outputs.score for output in outputs], dtype=np.float32)


def _pooling_engine(model: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Start an engine, which ends with this process."""
    # Imported here because it takes half a minute, and this module is also there where vLLM is not.
    try:
        from vllm import LLM
    except ImportError as error:
        raise ModelError(f"{model} is to run on vLLM, which is not installed here ({error})") from error
    try:
        engine = LLM(model, runner="pooling", **deepcopy(dict(arguments)))
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"vLLM cannot run {model}: {' '.join(str(error).split())}") from error
    # Registered last, it runs first at exit: before the standard library, which would wait for the engine's processes.
    atexit.register(engine.llm_engine.engine_core.shutdown)
    return engine
