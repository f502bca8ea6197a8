"""What was tuned on evidence, on disk: files beside a sealed manifest that says what they are for and made of.

The files are written first and the manifest last, so that a folder without one holds nothing, and a folder whose files
are not those of its manifest is refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hgmem_core import __version__
from pipelines.files import create_json, damage_of, read_sealed, seal, write_file
from pipelines.versions import differing_properties
from pipelines.weights import EncoderError

TUNED_SCHEMA_VERSION = 1
"""Raised when such a manifest changes; what has another version is tuned again."""

ABOUT = ("data", "licence", "seed", "settings")
"""What must be known: the digest and the terms of what it was tuned on, and how."""

_MANIFEST = "manifest.json"
_AGAIN = "tune it again, with python -m jobs.train"


def write_tuned(folder: Path, files: Mapping[str, bytes], made: Mapping[str, Any], about: Mapping[str, Any]) -> Path:
    """Write files and their manifest into a folder, in the place of those that are there, and return the folder.

    Args:
        folder: Made if need be.
        files: Content by name.
        made: What decides how they are used: `kind`, `text` and `base`; see `read_tuned`.
        about: At least what `ABOUT` names.

    Raises:
        ValueError: `about` leaves something out.
    """
    missing = [name for name in ABOUT if name not in about]
    if missing:
        raise ValueError(f"about says nothing of {', '.join(missing)}")
    folder.mkdir(parents=True, exist_ok=True)
    listed = {}
    for name, content in files.items():
        draft = folder / f".{name}"
        try:
            listed[name] = write_file(draft, content)
            draft.replace(folder / name)
        finally:
            draft.unlink(missing_ok=True)  # a full disk is not left fuller
    known = {"schema_version": TUNED_SCHEMA_VERSION, "software_version": __version__}
    create_json(folder / _MANIFEST, seal({**about, **known, **made, "files": listed}), replace=True)
    return folder


def read_tuned(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder after a look at its files.

    Raises:
        EncoderError: There is none, it is of other software, or a file is not as it was written.
    """
    path = folder / _MANIFEST
    if not path.is_file():
        raise EncoderError(f"{folder} holds nothing that was tuned: there is no {path.name}; {_AGAIN}")
    manifest = read_sealed(path)
    if manifest is None:
        raise EncoderError(f"{path} is damaged; {_AGAIN}")
    if manifest["schema_version"] != TUNED_SCHEMA_VERSION:
        raise EncoderError(
            f"{path} has schema_version {manifest['schema_version']}, this software reads {TUNED_SCHEMA_VERSION}; "
            f"{_AGAIN}"
        )
    for name, listed in manifest["files"].items():
        damage = damage_of(folder / name, listed)
        if damage:
            raise EncoderError(f"{damage}; {_AGAIN}")
    return manifest


def check_made(folder: Path, manifest: Mapping[str, Any], kind: str, text: str, base: Mapping[str, Any]) -> None:
    """Refuse what was tuned for something else.

    Args:
        folder: Named in the refusal.
        manifest: Of the folder.
        kind: What it must be.
        text: The form of what it must read.
        base: The identity of the encoder that it must have been made of.

    Raises:
        EncoderError: Names what differs.
    """
    for name, wanted in (("kind", kind), ("text", text)):
        if manifest[name] != wanted:
            raise EncoderError(f"{folder} has {name} {manifest[name]!r}, and {wanted!r} is needed; {_AGAIN}")
    made_of = manifest["base"]
    differing = [
        f"{name}: {made_of.get(name)!r}, not {base.get(name)!r}" for name in differing_properties(made_of, base)
    ]
    if differing:
        raise EncoderError(f"{folder} was tuned on another encoder ({'; '.join(differing)}); {_AGAIN}")
