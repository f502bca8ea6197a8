"""Text to unit vectors: the encoder protocol, and the one way texts are split, batched and averaged."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]

Tokens: TypeAlias = Sequence[Any]
"""The tokens of a text as its encoder has them: ids, or the bits of the text that they stand for."""

# Texts are tokenised and sorted by length one window at a time: wide enough that a batch holds pieces of nearly one
# length, small enough that the token ids of a window, some 100 bytes each, stay within a few hundred megabytes.
WINDOW_TEXTS = 4096
WINDOW_CHARS = 2_000_000


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """What makes two encoders the same: vectors of one may be compared with vectors of the other only then.

    Attributes:
        name: A packaged encoder's name in the configuration, else the model's.
        weights_sha256: Digest of the weights; empty where a server does not tell.
        dimension: Floats in a vector.
        max_tokens: Tokens in one piece of text, special tokens included; longer texts are split and averaged.
        prefix: Text put before a query, or the empty string.
        pooling: How token vectors become one; empty where a server does not tell.
        normalised: Whether vectors have unit length.
        quantisation: Of the weights, such as `fp32`; empty where a server does not tell.
        document_prefix: Text put before everything that is not a query, or the empty string.
    """

    name: str
    weights_sha256: str
    dimension: int
    max_tokens: int
    prefix: str
    pooling: str
    normalised: bool
    quantisation: str
    document_prefix: str = ""

    def as_dict(self) -> dict[str, str | int | bool]:
        """Return the identity as JSON-ready values, as the manifest keeps it."""
        return asdict(self)


class Encoder(Protocol):
    """A model that turns batches of tokens into vectors. It holds no state between calls."""

    @property
    def identity(self) -> EncoderIdentity:
        """Which encoder this is."""
        ...

    @property
    def makes_batches(self) -> bool:
        """Whether it makes its own batches, and so is best given all there is at once, as a server is."""
        ...

    def tokenize(self, texts: Sequence[str]) -> Sequence[Tokens]:
        """Return the tokens of each text, whole, without special tokens; none for a blank text."""
        ...

    def understands(self, tokens: Tokens) -> bool:
        """Say whether a text says something to the model, given its tokens.

        It does not where the vocabulary has no words of its language and can only spell it, sign by sign.
        """
        ...

    def encode_batch(self, pieces: Sequence[Tokens]) -> Vectors:
        """Return one vector for each piece of at most `max_tokens` - 2 tokens: float32 `[len(pieces), dimension]`.

        An encoder that does not make its own batches is deterministic: the same pieces in the same order give the same
        bits.
        """
        ...


class EncodingError(RuntimeError):
    """The encoder gave something that is not a vector."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of one text's tokens that the encoder takes in one go."""

    row: int
    tokens: Tokens


def encode_queries(encoder: Encoder, texts: Sequence[str]) -> Vectors:
    """Return the vectors of queries, float32 `[len(texts), dimension]`; see `encode_texts`.

    A query that the encoder does not understand gives a row of zeros, so that its words alone decide: the vector would
    be near to anything.
    """
    vectors = encode_texts(encoder, texts, prefix=encoder.identity.prefix)
    vectors[[not encoder.understands(tokens) for tokens in encoder.tokenize(texts)]] = 0
    return vectors


def encode_documents(encoder: Encoder, texts: Sequence[str], bounds: Sequence[int], batch_size: int) -> Vectors:
    """Return the vectors of texts that are searched, float32 `[len(texts), dimension]`; see `encode_runs`."""
    return encode_runs(encoder, texts, bounds, batch_size, encoder.identity.document_prefix)


def encode_runs(encoder: Encoder, texts: Sequence[str], bounds: Sequence[int], batch_size: int, prefix: str) -> Vectors:
    """Return the vectors of texts, float32 `[len(texts), dimension]`; see `encode_texts`.

    Args:
        encoder: Sees each run by itself, unless it makes its own batches.
        texts: In order.
        bounds: Where each run begins, and the end.
        batch_size: Pieces of text in one batch.
        prefix: Put before each piece.
    """
    runs = pairwise([0, len(texts)] if encoder.makes_batches else bounds)
    parts = [encode_texts(encoder, texts[start:stop], batch_size, prefix) for start, stop in runs]
    return np.concatenate([np.zeros((0, encoder.identity.dimension), np.float32), *parts])


def encode_texts(encoder: Encoder, texts: Sequence[str], batch_size: int = 32, prefix: str = "") -> Vectors:
    """Return one vector of unit length for each text: float32 `[len(texts), dimension]`.

    Nothing is cut off: a text longer than the encoder takes becomes several pieces of nearly equal length, and its
    vector is the mean of theirs, weighted by their numbers of tokens. Pieces are encoded in order of their length,
    `batch_size` at a time, so that a batch holds little padding; an encoder that makes its own batches gets them all.

    A text without tokens, such as the empty one, gives a row of zeros.

    Args:
        encoder: Makes the vectors.
        texts: To encode.
        batch_size: Pieces in one batch.
        prefix: Put before each piece.

    Raises:
        EncodingError: The encoder gave something else than finite vectors of its dimension; names the text's place.
        ValueError: `batch_size` is below one, or the prefix leaves no room for text.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    vectors = np.zeros((len(texts), encoder.identity.dimension), dtype=np.float32)
    for start, stop in windows(texts):
        vectors[start:stop] = _encode_window(encoder, texts[start:stop], batch_size, prefix, start)
    return vectors


def count_tokens(encoder: Encoder, text: str) -> int:
    """Return the number of the text's tokens, special tokens not counted."""
    return len(encoder.tokenize([text])[0])


def split_evenly(tokens: Tokens, size: int) -> list[Tokens]:
    """Cut `tokens` into the fewest runs of at most `size`, whose lengths differ by one at most.

    >>> split_evenly([1, 2, 3, 4, 5], size=4)
    [[1, 2], [3, 4, 5]]
    """
    count = -(-len(tokens) // size)
    bounds = [len(tokens) * place // count for place in range(count + 1)] if count else []
    return [tokens[start:stop] for start, stop in pairwise(bounds)]


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


def _encode_window(encoder: Encoder, texts: Sequence[str], batch_size: int, prefix: str, offset: int) -> Vectors:
    """Encode texts that fit in memory together; `offset` is the place of the first among all texts."""
    tokens = encoder.tokenize(texts)
    if len(tokens) != len(texts):
        raise EncodingError(f"texts from {offset}: {len(texts)} texts were tokenised to {len(tokens)} lists of tokens")
    before = encoder.tokenize([prefix])[0] if prefix else []
    size = encoder.identity.max_tokens - 2 - len(before)
    if size < 1:
        raise ValueError(
            f"the encoder takes {encoder.identity.max_tokens} tokens, of which the prefix {prefix!r} leaves none to a "
            "text: raise encoder.max_tokens or shorten the prefix"
        )
    pieces = [_Piece(row, piece) for row, own in enumerate(tokens) for piece in split_evenly(own, size)]
    pieces.sort(key=lambda piece: len(piece.tokens))  # stable: among equals, the order of the texts
    if encoder.makes_batches:
        batch_size = max(len(pieces), 1)

    # Sums are kept in float64, so that the number of pieces costs no precision.
    sums = np.zeros((len(texts), encoder.identity.dimension), dtype=np.float64)
    for start in range(0, len(pieces), batch_size):
        batch = pieces[start : start + batch_size]
        encoded = encoder.encode_batch([[*before, *piece.tokens] if prefix else piece.tokens for piece in batch])
        _check(encoded, [offset + piece.row for piece in batch], encoder.identity.dimension)
        weights = np.array([[len(piece.tokens)] for piece in batch], dtype=np.float64)
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
