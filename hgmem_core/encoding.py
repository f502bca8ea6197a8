"""Text to unit vectors: the encoder protocol, and the one way texts are split, batched and averaged."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """What makes two encoders the same: vectors of one may be compared with vectors of the other only then.

    Attributes:
        name: The encoder's name in the configuration.
        weights_sha256: Digest of the weights file.
        dimension: Floats in a vector.
        max_tokens: Tokens in one piece of text, special tokens included; longer texts are split and averaged.
        prefix: Text put before a query, or the empty string.
        pooling: How token vectors become one.
        normalised: Whether vectors have unit length.
        quantisation: Of the weights, such as `fp32`.
    """

    name: str
    weights_sha256: str
    dimension: int
    max_tokens: int
    prefix: str
    pooling: str
    normalised: bool
    quantisation: str

    def as_dict(self) -> dict[str, str | int | bool]:
        """Return the identity as JSON-ready values, as the manifest keeps it."""
        return asdict(self)


class Encoder(Protocol):
    """A model that turns batches of token ids into vectors. It holds no state between calls."""

    @property
    def identity(self) -> EncoderIdentity:
        """Which encoder this is."""
        ...

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, whole, without special tokens."""
        ...

    def encode_batch(self, pieces: Sequence[Sequence[int]]) -> Vectors:
        """Return one vector for each piece of at most `max_tokens` - 2 ids: float32 `[len(pieces), dimension]`.

        Deterministic: the same pieces in the same order give the same bits. A piece without ids gives zeros.
        """
        ...


class EncodingError(RuntimeError):
    """The encoder gave something that is not a vector."""
