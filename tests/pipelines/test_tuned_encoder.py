"""A tuned encoder on disk: found again as it was, and refused where anything about it is not what it says."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from hgmem_core.encoding import encode_texts
from pipelines.bert_encoder import TOKENIZER, WEIGHTS
from pipelines.bert_torch import bert_vectors, load_bert
from pipelines.encoders import EncoderError
from pipelines.files import seal
from pipelines.tuned_encoder import open_tuned, save_tuned
from tests.pipelines.tiny_bert import tiny_bert

ABOUT = {"data": "d" * 64, "licence": "CC BY 4.0", "seed": 3, "settings": {"epochs": 2}}
TEXTS = ["say1 >> say2 say3", "ask4", "say5 " * 40]


@pytest.fixture
def base(tmp_path):
    return tiny_bert(tmp_path / "base")


@pytest.fixture
def weights(base):
    return tiny_bert(base.path.parent / "other", seed=2).weights()


@pytest.fixture
def folder(base, weights, tmp_path):
    return save_tuned(tmp_path / "tuned", weights, ABOUT, base)


def opened(folder, base):
    return open_tuned(folder, folder.parent / "cache", base.identity)


def test_gives_the_vectors_of_its_weights(folder, base, weights):
    encoder = opened(folder, base)
    ids = [[2, *ids, 3] for ids in encoder.tokenize(TEXTS[:2])]
    config = base.config()
    tensors = load_bert(weights, config, "cpu")
    for text, one in zip(TEXTS, ids, strict=False):
        [expected] = bert_vectors(tensors, config, torch.tensor([one]), torch.ones(1, len(one), dtype=torch.bool))
        [vector] = encode_texts(encoder, [text])
        np.testing.assert_allclose(vector, expected / expected.norm(), atol=1e-5)


def test_is_another_encoder_than_its_base(folder, base):
    identity = opened(folder, base).identity
    assert (identity.name, identity.dimension, identity.max_tokens) == ("tiny-tuned", 16, 64)
    assert identity.weights_sha256 != base.identity.weights_sha256
    assert opened(folder, base).identity == identity


def test_its_manifest_says_what_it_is_made_of(folder, base):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert ABOUT.items() <= manifest.items()
    assert manifest["base"] == base.identity.as_dict()
    assert manifest["files"].keys() == {path.name for path in folder.iterdir()} - {"manifest.json"}


def test_travels_to_another_process(folder, base):
    encoder = opened(folder, base)
    copy = pickle.loads(pickle.dumps(encoder))
    assert copy.identity == encoder.identity
    assert np.array_equal(encode_texts(copy, TEXTS), encode_texts(encoder, TEXTS))


def test_another_one_takes_its_place(folder, base):
    before = opened(folder, base)
    save_tuned(folder, base.weights(), ABOUT, base)
    after = opened(folder, base)
    assert after.identity != before.identity
    assert not np.allclose(encode_texts(after, TEXTS), encode_texts(before, TEXTS))


def rewrite(folder, **changes):
    path = folder / "manifest.json"
    path.write_text(json.dumps(seal({**json.loads(path.read_text()), **changes})))


@pytest.mark.parametrize("name", [WEIGHTS, TOKENIZER])
def test_damage_is_refused(folder, base, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(EncoderError, match=rf"{name} has sha256 .*tune it again"):
        opened(folder, base)
    (folder / name).unlink()
    with pytest.raises(EncoderError, match=rf"{name} is missing .*tune it again"):
        opened(folder, base)


def test_a_manifest_that_was_changed_is_refused(folder, base):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace("context-", "window-"))
    with pytest.raises(EncoderError, match=r"manifest\.json is damaged"):
        opened(folder, base)
    path.unlink()
    with pytest.raises(EncoderError, match="holds nothing that was tuned"):
        opened(folder, base)
    with pytest.raises(EncoderError, match="nowhere holds nothing that was tuned"):
        opened(folder.parent / "nowhere", base)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"text": "window-1"}, "has text 'window-1', and 'context-1' is needed"),
        ({"kind": "heads"}, "has kind 'heads', and 'encoder' is needed"),
        ({"schema_version": 0}, "has schema_version 0, this software reads 1"),
    ],
)
def test_what_is_for_something_else_is_refused(folder, base, changes, why):
    rewrite(folder, **changes)
    with pytest.raises(EncoderError, match=why):
        opened(folder, base)


def test_another_base_is_refused(folder, base):
    other = replace(base.identity, weights_sha256="0" * 64, max_tokens=32)
    with pytest.raises(EncoderError, match=r"on another encoder \(max_tokens: 64, not 32; weights_sha256: ") as refusal:
        open_tuned(folder, folder.parent / "cache", other)
    assert base.identity.weights_sha256 in str(refusal.value)


def test_nothing_is_saved_without_saying_what_it_was_made_of(base, weights, tmp_path):
    with pytest.raises(ValueError, match="about says nothing of licence, settings"):
        save_tuned(tmp_path / "new", weights, {"data": "", "seed": 0}, base)
    assert not (tmp_path / "new").exists()
