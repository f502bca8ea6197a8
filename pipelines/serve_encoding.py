"""Questions that wait together are encoded together; one that cannot be hurts no other."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from hgmem_core.chat import ModelError
from hgmem_core.encoding import Encoder, EncodingError, encode_queries
from hgmem_core.lexical import Floats
from pipelines.weights import EncoderError

Failure: TypeAlias = ModelError | EncodingError | EncoderError

Encode: TypeAlias = Callable[[Encoder, str], Awaitable[Floats]]
"""Gives the unit vector of a question, float32 `[dimension]`."""


def encode_together(asked: Sequence[tuple[Encoder, str]]) -> list[Floats | Failure]:
    """Return the unit vector of each question, or why there is none.

    Those that share an encoder are one batch. If it fails as a whole, each is tried by itself.
    """
    vectors: dict[int, Floats | Failure] = {}
    for encoder in {id(encoder): encoder for encoder, _ in asked}.values():
        places = [place for place, (other, _) in enumerate(asked) if other is encoder]
        vectors |= zip(places, _batch(encoder, [asked[place][1] for place in places]), strict=True)
    return [vectors[place] for place in range(len(asked))]


def _batch(encoder: Encoder, texts: Sequence[str]) -> list[Floats | Failure]:
    try:
        return list(encode_queries(encoder, texts))
    except (ModelError, EncodingError, EncoderError) as error:
        return [error] if len(texts) == 1 else [one for text in texts for one in _batch(encoder, [text])]


def vector_of(found: Floats | Failure) -> Floats:
    """Return a vector.

    Raises:
        ModelError: There is none; or EncodingError, or EncoderError.
    """
    if isinstance(found, Exception):
        raise found
    return found
