"""Small invented logs and a fake encoder for the core tests."""

import hashlib
from datetime import UTC, datetime, timedelta

import numpy as np

from hgmem_core.encoding import EncoderIdentity
from hgmem_core.messages import Message
from hgmem_core.turns import merge_imports, messages_table, number_equals

BEGAN = datetime(2024, 3, 1, 18, 0, tzinfo=UTC)
IMPORTED = datetime(2026, 1, 1, tzinfo=UTC)


def message(text, at=0, speaker="Ana", session="s1", namespace="acme/ana", **fields):
    """A message said `at` minutes after the beginning; `at=None` for one without a time."""
    said_at = None if at is None else BEGAN + timedelta(minutes=at)
    return Message("log:1", namespace, session, text, speaker=speaker, said_at=said_at, **fields)


def imported(*messages, ingested_at=IMPORTED, max_chars=1_000):
    """The MESSAGE table of one file that holds these messages."""
    return number_equals(messages_table(messages, 0, ingested_at, max_chars))


def turns_of(*messages):
    """The TURN table of one import of one file."""
    return merge_imports([imported(*messages)])[0]


class HashEncoder:
    """Gives each word a fixed random direction: texts that share words are similar, and nothing needs loading."""

    identity = EncoderIdentity("static", "0" * 64, 16, 64, "", "mean", True, "fp32")

    def tokenize(self, texts):
        digests = ([hashlib.blake2b(word.encode(), digest_size=4).digest() for word in text.split()] for text in texts)
        return [[int.from_bytes(digest, "big") for digest in text] for text in digests]

    def encode_batch(self, pieces):
        vectors = np.zeros((len(pieces), 16), np.float32)
        for place, piece in enumerate(pieces):
            for token in piece:
                vectors[place] += np.random.default_rng(token).standard_normal(16, np.float32)
        return vectors
