"""Text to unit vectors: the encoder protocol, and the one way texts are split, batched and averaged."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]

# Texts are tokenised and sorted by length one window at a time: wide enough that a batch holds pieces of nearly one
# length, small enough that the token ids of a window, some 100 bytes each, stay within a few hundred megabytes.
WINDOW_TEXTS = 4096
WINDOW_CHARS = 2_000_000


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


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of one text's token ids that the encoder takes in one go."""

    row: int
    ids: list[int]


def encode_texts(encoder: Encoder, texts: Sequence[str], batch_size: int = 32) -> Vectors:
    """Return one vector of unit length for each text: float32 `[len(texts), dimension]`.

    Nothing is cut off: a text longer than the encoder takes becomes several pieces of nearly equal length, and its
    vector is the mean of theirs, weighted by their numbers of tokens. Pieces are encoded in order of their length,
    `batch_size` at a time, so that a batch holds little padding.

    A text without tokens, such as the empty one, gives a row of zeros.

    Raises:
        EncodingError: The encoder gave something else than finite vectors of its dimension; names the text's place.
        ValueError: `batch_size` is below one.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    vectors = np.zeros((len(texts), encoder.identity.dimension), dtype=np.float32)
    for start, stop in windows(texts):
        vectors[start:stop] = _encode_window(encoder, texts[start:stop], batch_size, start)
    return vectors


def count_tokens(encoder: Encoder, text: str) -> int:
    """Return the number of the text's tokens, special tokens not counted."""
    return len(encoder.tokenize([text])[0])


def split_evenly(ids: list[int], size: int) -> list[list[int]]:
    """Cut `ids` into the fewest runs of at most `size`, whose lengths differ by one at most.

    >>> split_evenly([1, 2, 3, 4, 5], size=4)
    [[1, 2], [3, 4, 5]]
    """
    count = -(-len(ids) // size)
    bounds = [len(ids) * place // count for place in range(count + 1)] if count else []
    return [ids[start:stop] for start, stop in pairwise(bounds)]


def windows(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of successive runs of texts, each within both limits or of one text.

    Texts of one window never share a batch with others: encoded by itself, a run of whole windows gives the same bits.
    """
    start = chars = 0
    for place, text in enumerate(texts):
        if place > start and (place - start == WINDOW_TEXTS or chars + len(text) > WINDOW_CHARS):
            yield start, place
            start, chars = place, 0
        chars += len(text)
    if start < len(texts):
        yield start, len(texts)


def _encode_window(encoder: Encoder, texts: Sequence[str], batch_size: int, offset: int) -> Vectors:
    """Encode texts that fit in memory together; `offset` is the place of the first among all texts."""
    token_ids = encoder.tokenize(texts)
    if len(token_ids) != len(texts):
        raise EncodingError(f"texts from {offset}: {len(texts)} texts were tokenised to {len(token_ids)} lists of ids")
    size = encoder.identity.max_tokens - 2
    pieces = [_Piece(row, piece) for row, ids in enumerate(token_ids) for piece in split_evenly(ids, size)]
    pieces.sort(key=lambda piece: len(piece.ids))  # stable: among equals, the order of the texts

    # Sums are kept in float64, so that the number of pieces costs no precision.
    sums = np.zeros((len(texts), encoder.identity.dimension), dtype=np.float64)
    for start in range(0, len(pieces), batch_size):
        batch = pieces[start : start + batch_size]
        encoded = encoder.encode_batch([piece.ids for piece in batch])
        _check(encoded, [offset + piece.row for piece in batch], encoder.identity.dimension)
        weights = np.array([[len(piece.ids)] for piece in batch], dtype=np.float64)
        np.add.at(sums, [piece.row for piece in batch], encoded * weights)

    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    vectors: Vectors = np.divide(sums, norms, out=sums, where=norms > 0).astype(np.float32)
    return vectors


def _check(vectors: Vectors, places: Sequence[int], dimension: int) -> None:
    if vectors.shape != (len(places), dimension):
        raise EncodingError(
            f"text {places[0]}: the encoder gave an array of shape {vectors.shape} "
            f"for a batch of {len(places)} pieces, not {(len(places), dimension)}"
        )
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise EncodingError(f"text {places[int(np.argmin(finite))]}: the encoder gave a vector that holds NaN or inf")
