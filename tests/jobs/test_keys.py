import json

import pytest

from hgmem_core.section import ConfigError
from jobs.keys import main
from pipelines.serve_keys import KeyRing


def test_a_key_is_made_listed_and_revoked(tmp_path, capsys):
    folder = ["--keys", str(tmp_path / "keys")]
    assert main(["make", *folder, "--grant", "acme/alice:read", "--grant", "*:admin", "--note", "desk", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert KeyRing(tmp_path / "keys").find(made["key"]).id == made["id"]
    assert main(["list", *folder]) == 0
    listed = capsys.readouterr().out
    assert all(text in listed for text in (made["id"], "acme/alice:read", "*:admin", "desk"))
    assert made["key"] not in listed
    assert main(["revoke", made["id"], *folder]) == 0
    assert "revoked" in capsys.readouterr().out
    assert KeyRing(tmp_path / "keys").find(made["key"]) is None


def test_a_key_that_is_made_for_people_is_a_line_of_its_own(tmp_path, capsys):
    main(["make", "--keys", str(tmp_path), "--grant", "acme:read"])
    assert KeyRing(tmp_path).find(capsys.readouterr().out.splitlines()[0]) is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["make", "--grant", "acme:read"], "serve.keys"),
        (["make", "--keys", "x"], "--grant"),
        (["make", "--keys", "x", "--grant", "acme:own"], "--grant: 'acme:own'"),
        (["make", "--keys", "x", "--grant", "acme/../x:read"], "--grant"),
        (["revoke", "--keys", "x"], "ID"),
        (["list", "0123456789ab", "--keys", "x"], "ID"),
    ],
)
def test_what_is_wrong_with_a_command_is_said(arguments, said):
    with pytest.raises(ConfigError, match=said):
        main(arguments)
