import numpy as np
import pytest

from hgmem_core.heads import first_heads
from pipelines.encoders import EncoderError
from pipelines.tuned_heads import WEIGHTS, open_heads, save_heads
from tests.core.fixtures import HashEncoder

ABOUT = {"data": "d" * 64, "licence": "CC BY 4.0", "seed": 3, "settings": {"epochs": 2}}
BASE = HashEncoder.identity.as_dict()


def test_heads_are_found_again_for_their_encoder_alone(tmp_path):
    heads = first_heads(16, 0.3)
    folder = save_heads(tmp_path / "heads", heads, ABOUT, BASE)
    found = open_heads(folder, BASE).as_dict()
    assert all(np.array_equal(found[name], array) for name, array in heads.as_dict().items())
    with pytest.raises(EncoderError, match=r"tuned on another encoder \(weights_sha256: '0+', not '1'\)"):
        open_heads(folder, {**BASE, "weights_sha256": "1"})
    (folder / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(EncoderError, match=r"heads\.safetensors has 7 bytes"):
        open_heads(folder, BASE)
