"""Whether given texts are anywhere in the files of a store: in what they hold decoded, and in their bytes.

Parquet and Arrow files are decoded batch by batch, JSON by value, and what is compressed with gzip is unpacked; of
every file the bytes as they lie on disk are looked at, too, in pieces. So memory depends on neither store nor file.
"""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.progress import Progress

PIECE_BYTES = 1 << 22
BATCH_ROWS = 4_096
_WORD = 8
"""Bytes that are compared at once. A text of twice as many, less one, has a whole word of the data wherever it lies, so
that of the data only every eighth place is looked at, for all texts together."""

_LONG = 2 * _WORD - 1

RAW = frozenset({".faiss"})
"""Kinds of files whose bytes are all there is to see."""

_DECODED = frozenset({".parquet", ".arrow", ".json", ".jsonl", ".gz"})

Bytes: TypeAlias = bytes | memoryview | pa.Buffer


class Texts:
    """Texts to look for, as UTF-8, many at a time."""

    def __init__(self, texts: Collection[str]) -> None:
        """Take the texts.

        Raises:
            ValueError: One is empty.
        """
        bodies = {text: text.encode("utf-8", "surrogatepass") for text in texts}
        if not all(bodies.values()):
            raise ValueError("an empty text is everywhere: give one to look for")
        self.longest = max(map(len, bodies.values()), default=1)
        self._short = {text: body for text, body in bodies.items() if len(body) < _LONG}
        self._by_word: dict[int, list[tuple[str, bytes, int]]] = {}
        for text, body in bodies.items():
            for first in range(_WORD if len(body) >= _LONG else 0):
                word = int.from_bytes(body[first : first + _WORD], "little")
                self._by_word.setdefault(word, []).append((text, body, first))
        self._words = np.array(sorted(self._by_word), np.uint64)
        # So many bits that of other words few look like one of these.
        self._bits = min(max(16, 4 + len(self._words).bit_length()), 26)
        self._marks = np.zeros(1 << self._bits, bool)
        self._marks[self._hash(self._words)] = True

    def within(self, data: Bytes) -> set[str]:
        """Return those texts that are in some bytes."""
        view = memoryview(data).cast("B")
        body = view.tobytes() if self._short else b""
        found = {text for text, sought in self._short.items() if sought in body}
        if not self._by_word or len(view) < _LONG:
            return found
        words = np.frombuffer(view, "<u8", len(view) // _WORD)
        places = np.flatnonzero(self._marks[self._hash(words)])
        candidates = words[places]
        # Of what lies beyond the last word the nearest is that one.
        nearest = self._words[np.searchsorted(self._words[:-1], candidates)]
        for place in places[nearest == candidates].tolist():
            for text, sought, first in self._by_word[int(words[place])]:
                start = place * _WORD - first
                if text not in found and start >= 0 and view[start : start + len(sought)] == sought:
                    found.add(text)
        return found

    def _hash(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        mixed: npt.NDArray[np.uint64] = (words * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - self._bits)
        return mixed


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text was found: the file, and where in it, such as `column text` or `bytes`."""

    path: str
    where: str
    text: str


@dataclass(slots=True)
class Audit:
    """What an audit has looked at, and what it found.

    Attributes:
        files: How many.
        bytes: Of them on disk.
        found: Where the texts are.
        undecoded: Kinds of files of which only the bytes could be looked at, and how many of each.
        unreadable: Files that are not what their names say, or vanished; of what was there, the bytes were looked at.
    """

    files: int = 0
    bytes: int = 0
    found: list[Place] = field(default_factory=list)
    undecoded: Counter[str] = field(default_factory=Counter)
    unreadable: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values."""
        return {
            "files": self.files,
            "bytes": self.bytes,
            "found": [{"path": one.path, "where": one.where, "text": one.text} for one in self.found],
            "undecoded": dict(sorted(self.undecoded.items())),
            "unreadable": self.unreadable,
        }


def audit(root: Path, paths: Iterable[Path], texts: Texts, progress: Progress) -> Audit:
    """Look for texts in files, and in their names.

    Args:
        root: The folder that paths are told relative to.
        paths: The files.
        texts: What to look for.
        progress: Told of files.
    """
    made = Audit()
    progress.start("audit", None)
    for path in paths:
        _look_into(made, path, path.relative_to(root).as_posix(), texts)
        progress.advance("audit", 1)
    progress.finish("audit")
    return made


def _look_into(made: Audit, path: Path, name: str, texts: Texts) -> None:
    found: dict[tuple[str, str], None] = dict.fromkeys(("name", text) for text in texts.within(name.encode()))
    try:
        size = path.stat().st_size
        found |= dict.fromkeys(
            ("bytes", text) for piece in _pieces(path, texts.longest) for text in texts.within(piece)
        )
        made.files += 1
        made.bytes += size
        for where, body in _decoded(path, texts.longest):
            found |= dict.fromkeys((where, text) for text in texts.within(body))
    except (OSError, ValueError, EOFError, zlib.error, RecursionError, pa.ArrowException):
        made.unreadable.append(name)
    if path.suffix not in _DECODED | RAW:
        made.undecoded[path.suffix or "no suffix"] += 1
    made.found += [Place(name, where, text) for where, text in found]


def _pieces(path: Path, longest: int) -> Iterator[bytes]:
    """Yield a file in pieces that overlap so much that a text lies in one of them whole."""
    with path.open("rb") as file:
        yield from _overlapping(iter(lambda: file.read(PIECE_BYTES), b""), longest)


def _overlapping(pieces: Iterable[bytes], longest: int) -> Iterator[bytes]:
    before = b""
    for piece in pieces:
        before += piece
        yield before
        before = before[len(before) - min(longest - 1, len(before)) :]


def _decoded(path: Path, longest: int) -> Iterator[tuple[str, Bytes]]:
    """Yield what a file says, with where in it."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                yield from _of_batch(batch)
    elif path.suffix == ".arrow":
        with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as reader:
            mapped.seek(0)
            whole = mapped.read_buffer()
            for number in range(reader.num_record_batches):
                for where, buffer in _of_batch(reader.get_batch(number)):
                    if not whole.address <= buffer.address < whole.address + whole.size:  # what is not compressed
                        yield where, buffer
    elif path.suffix == ".json":
        yield "values", _strings(json.loads(path.read_bytes()))
    elif path.suffix == ".jsonl":
        with path.open("rb") as lines:
            for line in lines:
                yield "values", _strings(json.loads(line))
    elif path.suffix == ".gz":
        with gzip.open(path) as unpacked:
            pieces = iter(lambda: unpacked.read(PIECE_BYTES), b"")
            yield from (("unpacked", piece) for piece in _overlapping(pieces, longest))


def _of_batch(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Buffer]]:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        yield from ((f"column {name}", buffer) for buffer in _buffers(column))


def _buffers(column: pa.Array) -> Iterator[pa.Buffer]:
    if isinstance(column, pa.DictionaryArray):
        yield from _buffers(column.dictionary)
    yield from (buffer for buffer in column.buffers() if buffer is not None and buffer.size)


def _strings(value: object) -> bytes:
    """Return every text of a JSON value, names of members too."""
    found: list[str] = []
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict):
            found += one
            left += one.values()
        elif isinstance(one, list):
            left += one
    return "\0".join(found).encode("utf-8", "surrogatepass")
