import json
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from pipelines.files import StoreError
from pipelines.serve_keys import Grant, KeyFileError, KeyRing, make_key, read_keys, revoke_key

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("grant", "namespace", "right", "allowed"),
    [
        ("acme:read", "acme", "read", True),
        ("acme:read", "acme/alice", "read", True),
        ("acme:read", "acmeco", "read", False),
        ("acme/al:read", "acme/alice", "read", False),
        ("acme/alice:read", "acme", "read", False),
        ("acme:read", "acme/alice", "write", False),
        ("acme:write", "acme/alice", "read", True),
        ("acme:admin", "acme/alice", "write", True),
        ("*:read", "anybody/at/all", "read", True),
        ("acme:admin", "*", "admin", False),
        ("*:admin", "*", "admin", True),
    ],
)
def test_a_grant_covers_whole_segments_and_lesser_rights(grant, namespace, right, allowed):
    assert Grant.parse(grant).allows(namespace, right) is allowed


@pytest.mark.parametrize(
    "text", ["acme", "acme:own", ":read", "acme//x:read", "acme/../x:read", "acme/:read", "a\0:read"]
)
def test_what_is_no_grant_is_refused(text):
    with pytest.raises((ValueError, ValidationError)):
        Grant.parse(text)


def test_a_key_is_found_by_its_text_alone_and_is_not_on_disk(tmp_path):
    key, text = make_key(tmp_path, [Grant.parse("acme:read")], NOW, "desk")
    ring = KeyRing(tmp_path)
    assert ring.find(text) == key
    for wrong in (text[:-1], text + "x", text[:-1] + ("a" if text[-1] != "a" else "b"), "", "hgm_", key.id, key.sha256):
        assert ring.find(wrong) is None
    secret = text.removeprefix(f"hgm_{key.id}_")
    assert all(secret not in path.read_text() for path in tmp_path.iterdir())


def test_a_secret_goes_with_its_own_id_only(tmp_path):
    _, one = make_key(tmp_path, [Grant.parse("acme:read")], NOW)
    _, other = make_key(tmp_path, [Grant.parse("globex:read")], NOW)
    assert KeyRing(tmp_path).find(one[:17] + other[17:]) is None


def test_a_revoked_key_is_no_longer_found_after_a_refresh_and_stays_listed(tmp_path):
    key, text = make_key(tmp_path, [Grant.parse("acme:read")], NOW)
    ring = KeyRing(tmp_path)
    assert ring.find(text) is not None
    revoke_key(tmp_path, key.id, NOW)
    ring.refresh()
    assert ring.find(text) is None
    assert [each.revoked_at for each in read_keys(tmp_path)] == [NOW]


def test_a_new_key_is_found_after_a_refresh(tmp_path):
    make_key(tmp_path, [Grant.parse("acme:read")], NOW)
    ring = KeyRing(tmp_path)
    key, text = make_key(tmp_path, [Grant.parse("acme:write")], NOW)
    ring.refresh()
    assert ring.find(text) == key


@pytest.mark.parametrize("content", ["", "{}", '{"id": "x"}', "[1]"])
def test_a_damaged_key_file_is_named_and_the_known_keys_stay(tmp_path, content):
    _, text = make_key(tmp_path, [Grant.parse("acme:read")], NOW)
    ring = KeyRing(tmp_path)
    (tmp_path / "0123456789ab.json").write_text(content)
    with pytest.raises(StoreError, match="0123456789ab"):
        ring.refresh()
    assert ring.find(text) is not None


def test_a_grant_that_somebody_widened_to_nonsense_is_damage(tmp_path):
    key, _ = make_key(tmp_path, [Grant.parse("acme:read")], NOW)
    path = tmp_path / f"{key.id}.json"
    content = json.loads(path.read_text())
    content["grants"] = [{"prefix": "", "right": "admin"}]
    path.write_text(json.dumps(content))
    with pytest.raises(StoreError, match="namespace is empty"):
        read_keys(tmp_path)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(StoreError, match=r"jobs\.keys"):
        KeyRing(tmp_path / "nowhere")
    with pytest.raises(KeyFileError, match=r"no key '\.\./x'"):
        revoke_key(tmp_path, "../x", NOW)
