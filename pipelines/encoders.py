"""Opening the encoder that the configuration names."""

from pathlib import Path

from platformdirs import user_cache_path

from hgmem_core.config import EncoderConfig
from hgmem_core.encoding import Encoder
from pipelines.weights import EncoderError

__all__ = ["EncoderError", "open_encoder"]


def open_encoder(config: EncoderConfig) -> Encoder:
    """Load the encoder that `config` names, from installed packages alone; nothing is downloaded.

    The first use of `minilm` writes the model that it runs, some 90 MB, to `cache_dir`.

    Raises:
        EncoderError: The weights package is missing, or its files are not the pinned ones; says what to install.
    """
    # Imported here so that an encoder brings in its own libraries only.
    match config.name:
        case "minilm":
            from pipelines.minilm import MiniLM

            return MiniLM(Path(config.cache_dir) if config.cache_dir else user_cache_path("hgmem") / "encoders")
        case "static":
            from pipelines.static import StaticEncoder

            return StaticEncoder()
