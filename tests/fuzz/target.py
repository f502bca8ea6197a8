"""What a parser is fuzzed by: a function of bytes that fails where the parser does what it does not promise."""

import time
from collections.abc import Callable
from dataclasses import dataclass

SMALL_BYTES = 4_096
MOST_SECONDS = 1.0


class TooSlow(AssertionError):
    """A small input that took long: some pattern goes over the text again and again."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parser under test.

    Attributes:
        read: Gives the bytes to the parser; raises nothing but for a finding.
        is_json: Whether the bytes are mostly JSON, which is then also changed value by value.
        words: What is put into inputs beside what the fuzzer finds out by itself.
        prepare: Makes what the first input would else have to wait for.
    """

    read: Callable[[bytes], None]
    is_json: bool = False
    words: tuple[str, ...] = ()
    prepare: Callable[[], object] = tuple

    def check(self, data: bytes) -> None:
        """Give bytes to the parser.

        Raises:
            TooSlow: They are no more than 4 KiB and took more than a second of this process's time.
            Exception: Whatever else is a finding.
        """
        began = time.process_time()
        self.read(data)
        took = time.process_time() - began
        if len(data) <= SMALL_BYTES and took > MOST_SECONDS:
            raise TooSlow(f"{len(data)} bytes took {took:.1f} s; no input of {SMALL_BYTES} bytes may take a second")


def text_of(data: bytes) -> str:
    """Return bytes as text; those that are no UTF-8 become halves of surrogate pairs, which JSON can hold, too."""
    return data.decode(errors="surrogateescape")
