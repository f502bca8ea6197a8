"""The parsers that are fuzzed, by name, and where the target of each is; loading one loads the parser."""

from importlib import import_module
from pathlib import Path

from tests.fuzz.target import Target

CORPUS = Path(__file__).parent / "corpus"
"""One folder a parser: invented inputs to begin with, and those that were findings once."""

PARSERS = {
    "log_files": (
        "jsonl", "gzip", "csv", "openai", "chatgpt", "claude", "slack", "chatgpt-zip", "slack-zip", "slack-names",
        "otel", "locomo", "longmemeval", "hotpotqa", "musique", "trajectories", "tau-bench", "intercode", "alfworld",
        "feedback",
    ),
    "texts": ("loose-json", "replies", "dates", "questions", "times", "turn-text"),
    "store_files": ("tombstones", "manifests", "pointers", "imports", "store-json", "keys", "config"),
    "wire": ("request-bodies", "tool-calls", "event-streams", "completions"),
}  # fmt: skip
"""By module of this folder."""

NAMES = tuple(name for names in PARSERS.values() for name in names)


def load(name: str) -> Target:
    """Return the target of a parser, ready."""
    module = next(module for module, names in PARSERS.items() if name in names)
    targets: dict[str, Target] = import_module(f"tests.fuzz.{module}").TARGETS
    targets[name].prepare()
    return targets[name]


def corpus(name: str) -> list[Path]:
    """Return the inputs of a parser that are kept."""
    return sorted(path for path in (CORPUS / name).iterdir() if path.is_file())
