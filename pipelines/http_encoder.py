"""An embedding model at an OpenAI-compatible server."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hgmem_core.chat import ModelError
from hgmem_core.encoding import Vectors
from hgmem_core.model_config import EncoderConfig
from pipelines.http_client import HttpClient, Refused
from pipelines.model_files import open_tokenizer
from pipelines.text_encoder import TextEncoder, served_identity

PATH = "embeddings"


class HttpEmbedder:
    """Sends texts in requests of a few, many at a time; threads may share it."""

    def __init__(self, config: EncoderConfig) -> None:
        """Connect to nothing yet."""
        self._config = config
        self._client = HttpClient(config.http, "encoder.http")

    def __reduce__(self) -> tuple[type["HttpEmbedder"], tuple[EncoderConfig]]:
        """Travel to another process, where it has connections of its own."""
        return HttpEmbedder, (self._config,)

    def dimension(self) -> int:
        """Ask for one vector, to see whether the server has the model, and return its length.

        Raises:
            ModelError: It has not.
        """
        answer = self._client.try_out(PATH, self._body(["dimension"]), read_vectors)
        if isinstance(answer, Refused):
            raise self._refused(answer)
        return int(self._checked(answer, 1).shape[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one vector for each text, float32 `[len(texts), d]`.

        Raises:
            ModelError: The server is of no use, takes a text for too long, or answers with something else.
        """
        size = self._config.batch_size
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        found: dict[int, Vectors] = {}
        for place, answer in self._client.post(PATH, self._bodies(batches), read_vectors):
            if isinstance(answer, Refused):
                raise self._refused(answer)
            found[place] = self._checked(answer.content, len(batches[place]))
        if len({vectors.shape[1] for vectors in found.values()}) > 1:
            raise self._error("gives vectors of several lengths")
        return np.concatenate([found[place] for place in range(len(batches))])

    def _bodies(self, batches: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
        return (self._body(batch) for batch in batches)

    def _body(self, texts: Sequence[str]) -> dict[str, Any]:
        return {"model": self._config.model, "input": list(texts), "encoding_format": "float"}

    def _checked(self, vectors: Vectors, texts: int) -> Vectors:
        if len(vectors) != texts:
            raise self._error(f"gave {len(vectors)} vectors for {texts} texts")
        if not np.isfinite(vectors).all():
            raise self._error("gave a vector that holds NaN or inf: run the model in a wider type, such as bfloat16")
        return vectors

    def _refused(self, refused: Refused) -> ModelError:
        remedy = "" if refused.status is None else "; if texts are too long for the model, lower encoder.max_tokens"
        return self._error(f"did not take texts ({refused.message}){remedy}")

    def _error(self, what: str) -> ModelError:
        return ModelError(f"{self._client.address(PATH)}, model {self._config.model}: {what}")


def read_vectors(content: Any) -> Vectors:  # noqa: ANN401 - whatever a server says
    """Return the vectors of an answer, in the order of the texts: float32 `[n, d]`.

    Raises:
        ValueError: It is no such answer; says what it is instead.

    >>> read_vectors({"data": [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": [1, 2]}]}).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    try:
        rows = sorted(content["data"], key=lambda row: int(row["index"]))
        vectors = np.array([row["embedding"] for row in rows], np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("no list of vectors of one length") from error
    if vectors.ndim != 2:
        raise ValueError("no list of vectors of one length")
    return vectors


def open_http_encoder(config: EncoderConfig) -> TextEncoder:
    """Ask a server for one vector and return its encoder.

    Raises:
        ModelError: The server does not answer as it must.
        EncoderError: The tokeniser is none, or the dimension is more than the model's.
    """
    embedder = HttpEmbedder(config)
    identity = served_identity(config, embedder.dimension())
    return TextEncoder(identity, embedder, open_tokenizer(config.tokenizer, config.model), makes_batches=True)
