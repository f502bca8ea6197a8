"""The fast encoder: one fixed vector for each token, from the weights that come with `wordllama`."""

from collections.abc import Sequence

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from hgmem_core.encoding import EncoderIdentity, Vectors
from pipelines.weights import package_folder, verified

REQUIREMENT = "wordllama==0.4.0.post1"
MODULE = "wordllama"
WEIGHTS_SHA256 = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
TOKENIZER_SHA256 = "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
DIMENSION = 256
MAX_TOKENS = 4096
"""The model has no limit; this one bounds the memory of a piece, and pieces average to what the whole text would."""


class StaticEncoder:
    """WordLlama's l2_supercat vectors of 256 floats: a text is the mean of its tokens, whatever their order.

    Some hundred times as fast as MiniLM, and weaker: it knows words, not sentences.

    The package's two files are read without importing it, which would set up the root logger and load an HTTP client.
    An instance may be used by several threads at once.
    """

    makes_batches = False

    def __init__(self) -> None:
        """Load the weights and the tokeniser from the installed package.

        Raises:
            EncoderError: The package is missing, or its files are not the pinned ones.
        """
        folder = package_folder(MODULE, REQUIREMENT)
        tokenizer_path = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
        self._tokenizer = Tokenizer.from_file(str(verified(tokenizer_path, TOKENIZER_SHA256, REQUIREMENT)))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # a text that says "</s>" means those letters
        weights_path = folder / "weights" / "l2_supercat_256.safetensors"
        weights = load_file(verified(weights_path, WEIGHTS_SHA256, REQUIREMENT))
        self._vectors: Vectors = weights["embedding.weight"].astype(np.float32)

    def __reduce__(self) -> tuple[type["StaticEncoder"], tuple[()]]:
        """Travel to another process as what it takes to open the encoder there."""
        return StaticEncoder, ()

    @property
    def identity(self) -> EncoderIdentity:
        """Which encoder this is."""
        return EncoderIdentity(
            name="static",
            weights_sha256=WEIGHTS_SHA256,
            dimension=DIMENSION,
            max_tokens=MAX_TOKENS,
            prefix="",
            pooling="mean",
            normalised=True,
            quantisation="fp16",
        )

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, whole, without special tokens; a blank text has none."""
        # The tokeniser has tokens for white space, which say nothing on their own.
        words = [text if text.strip() else "" for text in texts]
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(words, add_special_tokens=False)]

    def understands(self, tokens: Sequence[int]) -> bool:
        """Say whether a text says something to the model: most signs of any script have a vector."""
        return True

    def encode_batch(self, pieces: Sequence[Sequence[int]]) -> Vectors:
        """Return the mean of each piece's token vectors: float32 `[len(pieces), 256]`, not normalised."""
        means = np.zeros((len(pieces), DIMENSION), dtype=np.float32)
        for row, piece in enumerate(pieces):
            if piece:
                means[row] = self._vectors[piece].mean(axis=0, dtype=np.float64)
        return means
