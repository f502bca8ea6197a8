"""What makes vectors of variant `tuned`: an encoder of its own, or heads on the vectors that a version has anyway."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hgmem_core.encoding import Encoder, EncoderIdentity, encode_queries
from hgmem_core.heads import Heads
from hgmem_core.lexical import Floats
from pipelines.tuned_files import read_tuned
from pipelines.tuned_heads import KIND, WEIGHTS, open_heads
from pipelines.weights import EncoderError


@dataclass(frozen=True, slots=True)
class Tuned:
    """An encoder or heads; travels to other processes as the folder of the one, and as what the others are.

    Attributes:
        identity: As a version's manifest keeps it: `kind` (`encoder` or `heads`), `text` (the form of what it reads),
            `base`, `weights_sha256` and `dimension`.
        heads: Of the kind `heads`, else None.
        folder: Where it lies.
        cache_dir: Where the exported encoder is kept.
    """

    identity: Mapping[str, Any]
    heads: Heads | None
    folder: Path
    cache_dir: Path

    @property
    def dimension(self) -> int:
        """Of its vectors."""
        return int(self.identity["dimension"])

    def encoder(self) -> Encoder:
        """Open the encoder, once in a process.

        Raises:
            EncoderError: It cannot be opened, or is not there any more as it was.
        """
        return _opened(self.folder, self.cache_dir, self.identity["weights_sha256"])

    def query(self, text: str, vector: Floats) -> Floats:
        """Return the unit vector of a question, float32 `[dimension]`.

        Args:
            text: The question.
            vector: Its vector by the encoder that heads stand on.
        """
        if self.heads is not None:
            return self.heads.query(vector)
        found: Floats = encode_queries(self.encoder(), [text])[0]
        return found


@lru_cache(maxsize=2)
def _opened(folder: Path, cache_dir: Path, weights_sha256: str) -> Encoder:
    # Imported here, and below, so that heads do not bring in what runs encoders.
    from pipelines.tuned_encoder import open_tuned

    found = open_tuned(folder, cache_dir)
    if found.identity.weights_sha256 != weights_sha256:
        raise EncoderError(f"{folder} was tuned anew meanwhile; run this again")
    return found


def open_tuned_vectors(folder: Path, cache_dir: Path, encoder: EncoderIdentity) -> Tuned:
    """Open what lies in a folder.

    Args:
        folder: Of a tuned encoder or of heads; its manifest says which.
        cache_dir: Where exported encoders are kept.
        encoder: Of the store that the vectors are for; heads must have been trained on it.

    Raises:
        EncoderError: The folder holds nothing that was tuned, or something damaged or for something else.
    """
    manifest = read_tuned(folder)
    about = {name: manifest[name] for name in ("kind", "text", "base")}
    if manifest["kind"] == KIND:
        heads = open_heads(folder, encoder.as_dict())
        own = {"weights_sha256": manifest["files"][WEIGHTS]["sha256"], "dimension": heads.dimension}
        return Tuned({**about, **own}, heads, folder, cache_dir)
    from pipelines.tuned_encoder import open_tuned

    identity = open_tuned(folder, cache_dir).identity
    own = {"weights_sha256": identity.weights_sha256, "dimension": identity.dimension}
    return Tuned({**about, **own}, None, folder, cache_dir)
