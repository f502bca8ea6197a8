"""An embedding model on vLLM, in the process that encodes: an actor on Ray, or whoever asks a store."""

from hgmem_core.model_config import EncoderConfig
from pipelines.model_files import model_folder, open_tokenizer, vector_length
from pipelines.text_encoder import TextEncoder, served_identity
from pipelines.vllm_pooling import VllmEmbedder
from pipelines.weights import EncoderError


def open_vllm_encoder(config: EncoderConfig) -> TextEncoder:
    """Return the encoder of a configuration; the model is loaded where and when it is first used.

    Raises:
        EncoderError: How long its vectors are cannot be known, or less than the dimension; the tokeniser is none.
    """
    folder = model_folder(config.model)
    own = vector_length(folder) if folder is not None else None
    if own is None and not config.dimension:
        raise EncoderError(
            f"encoder.dimension: how many floats {config.model} gives is not known here, where its config.json is not: "
            "set it to that number, or to a smaller one for a model that was trained to be cut"
        )
    identity = served_identity(config, own or config.dimension)
    embedder = VllmEmbedder(config.model, config.vllm.engine_kwargs)
    return TextEncoder(identity, embedder, open_tokenizer(config.tokenizer, config.model), makes_batches=True)
