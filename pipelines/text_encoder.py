"""Encoders that take texts, not token ids: models by name, run here, at a server, or on vLLM."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from tokenizers import Tokenizer

from hgmem_core.chat import ModelError
from hgmem_core.encoding import EncoderIdentity, Vectors
from hgmem_core.model_config import EncoderConfig
from pipelines.weights import EncoderError

QWEN3_INSTRUCTION = "Given a question, find the messages, events and facts of past conversations that answer it"
"""What a query looks for, for Qwen3-Embedding if nothing else was said."""


class Embedder(Protocol):
    """Runs a model, wherever that is; threads may share it, and it travels to other processes."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one vector for each text, float32 `[len(texts), d]` with the model's own d.

        Raises:
            ModelError: The model cannot be used, or gave something else.
        """
        ...


class TextEncoder:
    """A model by name, behind the protocol of encoders: its tokens are bits of text, which joined are the text."""

    def __init__(
        self, identity: EncoderIdentity, embedder: Embedder, tokenizer: Tokenizer | None, makes_batches: bool
    ) -> None:
        """Take what runs the model, and the model's tokeniser, None where it is not known."""
        self._identity = identity
        self._embedder = embedder
        self._tokenizer = tokenizer
        self._makes_batches = makes_batches

    @property
    def identity(self) -> EncoderIdentity:
        """Which encoder this is."""
        return self._identity

    @property
    def makes_batches(self) -> bool:
        """Whether it makes its own batches."""
        return self._makes_batches

    @property
    def knows_tokens(self) -> bool:
        """Whether its tokens are the model's; else they are an upper bound, each at most one byte."""
        return self._tokenizer is not None

    def tokenize(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the bits of each text that its tokens stand for; none for a blank text."""
        if self._tokenizer is None:
            # A token of a vocabulary that can spell everything is at least one byte of text.
            return [_bytewise(text) if text.strip() else [] for text in texts]
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [
            _bits(text, [start for start, _ in encoding.offsets]) if text.strip() else []
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def understands(self, tokens: Sequence[str]) -> bool:
        """Say whether a text says something to the model: it was chosen for the texts."""
        return True

    def encode_batch(self, pieces: Sequence[Sequence[str]]) -> Vectors:
        """Return the vector of each piece, cut to the dimension: float32 `[len(pieces), dimension]`.

        Raises:
            ModelError: The model cannot be used, or its vectors are shorter.
        """
        vectors = self._embedder.embed(["".join(piece) for piece in pieces])
        dimension = self._identity.dimension
        if vectors.ndim != 2 or vectors.shape[1] < dimension:
            raise ModelError(
                f"{self._identity.name} gives vectors of shape {vectors.shape}, not [n, {dimension}]: is it another "
                "model than at first, or encoder.dimension too large?"
            )
        return vectors[:, :dimension]


def _bytewise(text: str) -> list[str]:
    """Return as many bits as the text has bytes: its characters, each with an empty bit for each further byte.

    >>> _bytewise("né")
    ['n', 'é', '']
    """
    if text.isascii():
        return list(text)
    return [bit for character in text for bit in (character, *[""] * (len(character.encode()) - 1))]


def _bits(text: str, starts: Sequence[int]) -> list[str]:
    """Return the text in bits that begin where its tokens do; what stands before the first one belongs to it.

    >>> _bits(" ab c", [1, 2, 4])
    [' a', 'b ', 'c']
    """
    # Tokens of one character share its start, and some tokenisers let a token begin before the end of the last.
    bounds = [0, *starts[1:], len(text)] if starts else []
    for place in range(1, len(bounds)):
        bounds[place] = max(bounds[place], bounds[place - 1])
    return [text[start:stop] for start, stop in pairwise(bounds)]


def instructed(instruction: str) -> str:
    r"""Return what stands before a query for models that are told what it looks for, as Qwen3-Embedding was trained.

    >>> instructed("Find the answer") + "Who?"
    'Instruct: Find the answer\nQuery:Who?'
    """
    return f"Instruct: {instruction}\nQuery:"


def query_prefix(config: EncoderConfig, own: str = "") -> str:
    """Return what stands before a query.

    Args:
        config: An instruction or a prefix in it comes first.
        own: What the model itself says, if that is known.
    """
    if config.query_instruction:
        return instructed(config.query_instruction)
    is_qwen3 = "qwen3-embedding" in config.model.lower()
    return config.query_prefix or own or (instructed(QWEN3_INSTRUCTION) if is_qwen3 else "")


def kept_dimension(config: EncoderConfig, own: int) -> int:
    """Return how many floats are kept of vectors of `own`.

    Raises:
        EncoderError: More are asked for than there are.
    """
    if config.dimension > own:
        raise EncoderError(
            f"encoder.dimension={config.dimension}: {config.model} gives {own} floats, and only fewer can be kept"
        )
    return config.dimension or own


def served_identity(config: EncoderConfig, dimension: int) -> EncoderIdentity:
    """Return what is known of a model that gives so many floats and runs elsewhere: its name, not its weights.

    Raises:
        EncoderError: More floats are to be kept.
    """
    return EncoderIdentity(
        name=config.model,
        weights_sha256="",
        dimension=kept_dimension(config, dimension),
        max_tokens=config.max_tokens,
        prefix=query_prefix(config),
        pooling="",
        normalised=True,
        quantisation="",
        document_prefix=config.document_prefix,
    )
