"""Fuzz one parser in this process, with atheris: `python -m tests.fuzz.one PARSER [options of libFuzzer]`."""

import json
import random
import sys
import tempfile

from tests.fuzz.parsers import load


def main(name: str, options: list[str]) -> None:
    """Fuzz a parser until an option or a finding ends the process."""
    import atheris  # here, because the other tests go without it

    with atheris.instrument_imports(include=["hgmem_core", "pipelines"]):
        target = load(name)

    def mutated(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        changed = with_another_value(data, rng) if rng.random() < 0.5 else b""
        found: bytes = changed if 0 < len(changed) <= max_size else atheris.Mutate(data, max_size)
        return found

    with tempfile.NamedTemporaryFile("w", suffix=".dict") as words:
        words.writelines(map(entry, target.words))
        words.flush()
        atheris.Setup(
            [sys.argv[0], *options, *([f"-dict={words.name}"] if target.words else [])],
            target.check,
            custom_mutator=mutated if target.is_json else None,
        )
        atheris.Fuzz()


def with_another_value(data: bytes, rng: random.Random) -> bytes:
    """Return JSON that differs from other JSON in some of its values; nothing, where it is none."""
    from tests.core.importers.test_malformed import spoilt

    try:
        text = json.dumps(spoilt(json.loads(data), rng), default=str, ensure_ascii=rng.random() < 0.5)
    except (ValueError, RecursionError):
        return b""
    return text.encode(errors="surrogatepass")


def entry(word: str) -> str:
    r"""Return a word as a dictionary of libFuzzer has it.

    >>> entry("a\n")
    '"\\x61\\x0a"\n'
    """
    return '"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"\n'


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
