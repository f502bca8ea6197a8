"""Every input that is kept of every parser, findings of earlier fuzzing among them, without the fuzzer."""

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.parsers import CORPUS, NAMES, PARSERS, corpus, load
from tests.fuzz.target import Target, TooSlow


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_of_a_parser_does_what_it_promises(name):
    target = load(name)
    found = corpus(name)
    assert found
    for path in found:
        target.check(path.read_bytes())
    for data in (b"", b"\x00", b"{", b"[]", b"null", b"\xff\xfe", b'{"a": "\\ud800"}', b"[" * 4_096):
        target.check(data)


def test_every_corpus_and_every_target_is_of_a_parser():
    assert {path.name for path in CORPUS.iterdir()} == set(NAMES)
    for module, names in PARSERS.items():
        assert all(isinstance(load(name), Target) for name in names), module


def test_a_small_input_may_not_take_long(monkeypatch):
    clock = iter([0.0, 1.5, 0.0, 1.5])
    monkeypatch.setattr("time.process_time", lambda: next(clock))
    with pytest.raises(TooSlow, match="3 bytes took 1"):
        Target(lambda data: None).check(b"abc")
    Target(lambda data: None).check(b"abc" * 4_096)  # of a large one nothing is promised


def test_a_kept_input_can_be_given_to_its_parser(tmp_path, capsys):
    path = tmp_path / "input"
    path.write_bytes(b"2024-05-08")
    assert main(["--input", str(path), "times"]) == 0
    with pytest.raises(SystemExit):
        main(["--input", str(path)])
    with pytest.raises(SystemExit):
        main(["parchment"])
    assert "there is no parser parchment" in capsys.readouterr().err
