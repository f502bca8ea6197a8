"""Models that run here on sentence-transformers, and the owner of that package: encoders and cross-encoders."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sentence_transformers import CrossEncoder, SentenceTransformer
from tokenizers import Tokenizer
from transformers.utils import logging as transformers

from hgmem_core.encoding import EncoderIdentity, Vectors
from hgmem_core.lexical import Floats
from hgmem_core.model_config import EncoderConfig
from pipelines.model_files import model_folder, weights_sha256
from pipelines.text_encoder import TextEncoder, kept_dimension, query_prefix
from pipelines.weights import EncoderError

BATCH_PAIRS = 32
"""Pairs of query and candidate that go through a cross-encoder together."""

_QUANTISATION = {"torch.float32": "fp32", "torch.float16": "fp16", "torch.bfloat16": "bf16"}

# Query and candidate are in the model's own form already; its template for chats is of another kind.
_VERBATIM = "{{ messages | map(attribute='content') | join }}"


class SentenceEmbedder:
    """A sentence encoder as its authors saved it: its modules decide how token vectors become one.

    Attributes:
        model: As sentence-transformers has it.
        prefix: What stands before a query, by the configuration or by the model itself.
        document_prefix: The same for everything else.
    """

    def __init__(self, config: EncoderConfig) -> None:
        """Load the model of a configuration, which has to be on this machine unless it may be downloaded.

        Raises:
            EncoderError: It is not there, or it is no sentence encoder.
        """
        self._config = config
        self._lock = threading.Lock()
        with _loading("encoder", config.model, config.download):
            self.model = SentenceTransformer(config.model, local_files_only=not config.download)
        prompts = {name: prompt or "" for name, prompt in self.model.prompts.items()}
        default = prompts.get(self.model.default_prompt_name or "", "")
        self.prefix = query_prefix(config, prompts.get("query") or default)
        self.document_prefix = config.document_prefix or prompts.get("document") or default

    def __reduce__(self) -> tuple[type["SentenceEmbedder"], tuple[EncoderConfig]]:
        """Travel to another process as what it takes to load the model there."""
        return SentenceEmbedder, (self._config,)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one vector for each text, float32 `[len(texts), d]`, in one batch."""
        # Some models leave the prefix out of a vector, so they must know it.
        prefixes = [one for one in (self.prefix, self.document_prefix) if all(text.startswith(one) for text in texts)]
        prompt = max(prefixes, key=len, default="")
        # The tokeniser is set to a batch's length while it works: two threads cannot.
        with self._lock:
            vectors = self.model.encode(
                [text[len(prompt) :] for text in texts],
                prompt=prompt,
                batch_size=max(len(texts), 1),
                normalize_embeddings=False,
                show_progress_bar=False,
            )
        return np.asarray(vectors, np.float32)


def open_sentence_encoder(config: EncoderConfig) -> TextEncoder:
    """Load the model of a configuration.

    Raises:
        EncoderError: See `SentenceEmbedder`.
    """
    embedder = SentenceEmbedder(config)
    model = embedder.model
    folder = model_folder(config.model)
    identity = EncoderIdentity(
        name=config.model,
        weights_sha256=weights_sha256(folder) if folder else "",
        dimension=kept_dimension(config, embedder.embed(["dimension"]).shape[1]),
        max_tokens=int(min(config.max_tokens, model.max_seq_length or config.max_tokens)),
        prefix=embedder.prefix,
        pooling=_pooling(model),
        normalised=True,
        quantisation=_QUANTISATION.get(str(model.dtype), str(model.dtype)),
        document_prefix=embedder.document_prefix,
    )
    return TextEncoder(identity, embedder, _tokenizer(model), makes_batches=False)


def _pooling(model: SentenceTransformer) -> str:
    """Return how the token vectors of a model become one, as its modules say."""
    for module in model:
        mode = getattr(module, "pooling_mode", None)
        if mode is not None:
            return mode if isinstance(mode, str) else "+".join(mode)
    return ""


def _tokenizer(model: SentenceTransformer) -> Tokenizer | None:
    """Return a copy of a model's tokeniser that neither cuts nor fills up; None if it is of another kind."""
    own = getattr(model.tokenizer, "backend_tokenizer", model.tokenizer)
    if not isinstance(own, Tokenizer):
        return None
    copy = Tokenizer.from_str(own.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


class CrossEncoderScorer:
    """A model that reads query and candidate together."""

    def __init__(self, model: str, download: bool, verbatim: bool) -> None:
        """Load a model by name or folder; without `download` it has to be on this machine.

        With `verbatim` it reads the one right behind the other, without a chat template.

        Raises:
            EncoderError: It is not there, or it gives more than one score.
        """
        self._lock = threading.Lock()
        processor: dict[str, Any] = {"chat_template": _VERBATIM} if verbatim else {}
        with _loading("rerank", model, download):
            self._model = CrossEncoder(model, local_files_only=not download, processor_kwargs=processor)
        if self._model.num_labels != 1:
            raise EncoderError(
                f"rerank.model: {model} gives {self._model.num_labels} numbers for a pair, not a score: take a reranker"
            )

    def scores(self, query: str, documents: Sequence[str]) -> Floats:
        """Return how well each document answers the query, float32 `[len(documents)]`."""
        with self._lock:
            found = self._model.predict(
                [(query, document) for document in documents], batch_size=BATCH_PAIRS, show_progress_bar=False
            )
        return np.asarray(found, np.float32)


@contextmanager
def _loading(section: str, model: str, download: bool) -> Iterator[None]:
    """Load a model without its own progress bars; what goes wrong becomes an EncoderError."""
    shows_bars = transformers.is_progress_bar_enabled()
    transformers.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    except (OSError, ValueError) as error:
        if not download and model_folder(model) is None:
            raise EncoderError(
                f"{section}.model: {model} is not on this machine: name its folder, put it into Hugging Face's cache, "
                f"or set {section}.download=true"
            ) from error
        raise EncoderError(f"{section}.model: {model} cannot be loaded: {' '.join(str(error).split())}") from error
    finally:
        if shows_bars:
            transformers.enable_progress_bar()  # type: ignore[no-untyped-call]
