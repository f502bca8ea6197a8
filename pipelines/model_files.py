"""Models by name or folder: where their files lie on this machine, which weights they are, their tokeniser."""

import hashlib
import json
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from tokenizers import Tokenizer

from pipelines.files import file_sha256
from pipelines.weights import EncoderError


def model_folder(model: str) -> Path | None:
    """Return the folder of a model: itself, or where the Hugging Face cache keeps a model of that name; else None."""
    folder = Path(model)
    if folder.is_dir():
        return folder
    try:
        found = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def weights_sha256(folder: Path) -> str:
    """Return the digest of a model's weights: that of their file, or of several files' names and digests.

    Raises:
        EncoderError: There are no weights.
    """
    for pattern in ("*.safetensors", "*.bin"):
        # Exports of the same weights for other software lie beside them.
        paths = [path for path in sorted(folder.rglob(pattern)) if path.parent.name not in ("onnx", "openvino")]
        if len(paths) == 1:
            return file_sha256(paths[0])
        if paths:
            lines = [f"{path.relative_to(folder).as_posix()} {file_sha256(path)}\n" for path in paths]
            return hashlib.sha256("".join(lines).encode()).hexdigest()
    raise EncoderError(f"{folder} holds no weights: no *.safetensors and no *.bin")


def vector_length(folder: Path) -> int | None:
    """Return how many floats an embedding model gives; None where its files do not say it outright."""
    if "Dense" in str(_json(folder / "modules.json")):
        return None  # layers behind the model change the length
    config = _json(folder / "config.json")
    size = config.get("hidden_size") if isinstance(config, dict) else None
    return size if isinstance(size, int) else None


def architecture(model: str) -> str:
    """Return the class that a model's weights belong to, such as `Qwen3ForCausalLM`; "" where that is not known."""
    folder = model_folder(model)
    config = _json(folder / "config.json") if folder is not None else None
    named = config.get("architectures") if isinstance(config, dict) else None
    return str(named[0]) if named else ""


def _json(path: Path) -> object:
    """Return what a file says, None if there is none.

    Raises:
        EncoderError: It is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError as error:
        raise EncoderError(f"{path} is not JSON: {error}") from error


def open_tokenizer(named: str, model: str) -> Tokenizer | None:
    """Return a tokeniser: the one that is named, a file or a folder, else the model's; None if that is not known.

    Raises:
        EncoderError: The one that is named is not there, or is none.
    """
    folder = Path(named) if named else model_folder(model)
    path = folder / "tokenizer.json" if folder is not None and folder.is_dir() else folder
    if path is None or not path.is_file():
        if named:
            raise EncoderError(f"encoder.tokenizer: {named} is no tokenizer.json and no folder that holds one")
        return None
    # The library raises bare exceptions for whatever it cannot read; a file of another kind shows before that.
    content = _json(path)
    if not isinstance(content, dict) or "model" not in content:
        raise EncoderError(f"encoder.tokenizer: {path} is no tokenizer: it has no model")
    return Tokenizer.from_file(str(path))
