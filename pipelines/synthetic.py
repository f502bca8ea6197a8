"""Synthetic chat logs of any size: words by Zipf's law, short sessions, the same text for the same seed."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

WORDS_A_TURN = 24
TURNS_A_SESSION = 20
VOCABULARY = 30_000
_SYLLABLES = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]


def write_log(path: Path, turns: int, namespaces: int, seed: int = 0) -> None:
    """Write a JSONL log of `turns` messages in `namespaces` conversations of two, about 140 characters a message.

    Each row has `id`, `user`, `session`, `time`, `speaker` and `text`.
    """
    rng = np.random.default_rng(seed)
    words = np.array([_word(number) for number in range(VOCABULARY)])
    started = datetime(2024, 1, 1, 9, tzinfo=UTC)
    with path.open("w", encoding="utf-8") as file:
        for number in range(turns):
            user, at = number % namespaces, number // namespaces
            session = at // TURNS_A_SESSION
            ranks = np.minimum(rng.zipf(1.3, WORDS_A_TURN), VOCABULARY) - 1
            row = {
                "id": f"m{at}",
                "user": f"u{user:06d}",
                "session": f"s{session:05d}",
                "time": (started + timedelta(days=session, minutes=at % TURNS_A_SESSION)).isoformat(),
                "speaker": ("Ada", "Ben")[at % 2],
                "text": " ".join(words[ranks]),
            }
            file.write(json.dumps(row) + "\n")


def _word(number: int) -> str:
    """Return the `number`-th word: a distinct pronounceable one, shorter for smaller numbers."""
    syllables = []
    while True:
        number, place = divmod(number, len(_SYLLABLES))
        syllables.append(_SYLLABLES[place])
        if not number:
            return "".join(syllables)
        number -= 1
