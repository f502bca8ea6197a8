"""What a language model answered, kept by bucket: a request that was answered once is not sent again.

`calls/bucket-000012/<sha256 of the file>.parquet` holds rows of CALL. Files are written whole, some answers at a time,
so that an end without warning costs no more than the answers of the last moments. A file that is not as its name says
was damaged: it is removed, and what it held is asked again.

A request that the server did not take, or whose every try failed, has a reply that says so. It is kept for the job
that got it alone, in files whose names begin with `refused-<job>-`: that job does not try it over and over, the next
one does.
"""

import time
from collections.abc import Container, Iterator, Sequence, Set
from dataclasses import astuple, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hgmem_core.chat import Reply, Request
from hgmem_core.model_config import LlmConfig, PriceConfig
from hgmem_core.schemas import CALL, conform
from pipelines.chat_model import ChatModel
from pipelines.files import file_sha256, write_file
from pipelines.store import Store

SAVED_TOGETHER = 16
"""Answers in a file: fewer are lost at a sudden end, more make fewer files."""

_REFUSED = "refused-"

_UNSAVED_SECONDS = 5.0
"""After so long, the next answer of a slow model is saved with those before it, few as they are."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What calls took; seconds are summed over all in flight."""

    calls: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    thinking_tokens: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, reply: Reply) -> "Spent":
        """Return what one call took."""
        refused = int(reply.refusal is not None)
        return cls(1, refused, reply.prompt_tokens, reply.completion_tokens, reply.thinking_tokens or 0, reply.seconds)

    def __add__(self, other: "Spent") -> "Spent":
        """Return what both took."""
        return Spent(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def cost(spent: Spent, prices: PriceConfig) -> float:
    """Return what calls cost."""
    return (spent.prompt_tokens * prices.prompt + spent.completion_tokens * prices.completion) / 1e6


@dataclass(frozen=True, slots=True)
class Answered:
    """A request with its reply."""

    request: Request
    reply: Reply


class Calls:
    """The answers of a bucket of a store, as one model gave them."""

    def __init__(self, store: Store, bucket: int, config: LlmConfig, job: str) -> None:
        """Read nothing yet.

        Args:
            store: Where.
            bucket: Its number.
            config: Which model.
            job: The id of this job.
        """
        self._store = store
        self._refused = f"{_REFUSED}{job}-"
        self._folder = calls_folder(store, bucket)
        self._config = config
        self._read: set[Path] = set()
        self._replies: dict[tuple[str, str], Reply] = {}

    def find(self, requests: Sequence[Request]) -> dict[int, Reply]:
        """Return the replies that are known, by the place of their request."""
        for path in self._paths():
            if path not in self._read:
                self._read.add(path)
                self._load(path)
        keys = [self._key(request) for request in requests]
        return {place: self._replies[key] for place, key in enumerate(keys) if key in self._replies}

    def save(self, answered: Sequence[Answered]) -> None:
        """Write answers to a file of their own."""
        rows: dict[str, dict[tuple[str, ...], dict[str, object]]] = {"": {}, self._refused: {}}
        for one in answered:
            key = self._key(one.request)
            rows["" if one.reply.refusal is None else self._refused][key] = _row(one, key[1])
        for prefix, own in rows.items():
            if own:
                table = conform(pa.Table.from_pylist(list(own.values()), CALL.arrow), CALL)
                keep_calls(self._store, self._folder, table, prefix)

    def ask(
        self, chat: ChatModel, requests: Sequence[Request], known: Container[int]
    ) -> Iterator[tuple[list[int], Reply]]:
        """Ask those requests whose places are not known; yield and save their replies as they come.

        Of equal requests one is sent, and its reply is yielded for each. What came before an error is saved, too.
        """
        places: dict[tuple[str, str], list[int]] = {}
        for place, request in enumerate(requests):
            if place not in known:
                places.setdefault(self._key(request), []).append(place)
        equal = list(places.values())
        unsaved: list[Answered] = []
        saved_at = time.monotonic()
        try:
            for at, reply in chat.ask([requests[same[0]] for same in equal]):
                unsaved.append(Answered(requests[equal[at][0]], reply))
                if len(unsaved) == SAVED_TOGETHER or time.monotonic() - saved_at > _UNSAVED_SECONDS:
                    self.save(unsaved)
                    unsaved, saved_at = [], time.monotonic()
                yield equal[at], reply
        finally:
            if unsaved:
                self.save(unsaved)

    def without_equals(self, requests: Sequence[Request]) -> list[Request]:
        """Return requests of which no two are one question."""
        return list({self._key(request): request for request in requests}.values())

    def _key(self, request: Request) -> tuple[str, str]:
        config = self._config
        return request.namespace, request.digest(config.model, config.temperature, config.guided)

    def _paths(self) -> list[Path]:
        def is_own(path: Path) -> bool:
            return path.name.startswith(self._refused) or "-" not in path.stem

        return self._store.files(self._folder, "*.parquet", is_own)

    def _load(self, path: Path) -> None:
        if not is_sound(path):
            self._store.remove_file(path)
            return
        for row in pq.read_table(path).to_pylist():
            self._replies[row["namespace"], row["request_hash"]] = Reply(
                row["answer"], row["reasoning"], row["finish_reason"], row["prompt_tokens"], row["completion_tokens"],
                row["thinking_tokens"], row["seconds"], row["refusal"],
            )  # fmt: skip


def calls_folder(store: Store, bucket: int) -> Path:
    """Return where the answers of a bucket lie, or would."""
    return store.root / "calls" / f"bucket-{bucket:06d}"


def keep_calls(store: Store, folder: Path, table: pa.Table, prefix: str = "") -> Path:
    """Write rows of CALL to a file of their own, named by its content, and return it."""
    with store.workspace() as draft:
        written = draft / "calls.parquet"
        name = write_file(written, table)["sha256"]
        path = folder / f"{prefix}{name}.parquet"
        store.put(written, path)
        return path


def is_sound(path: Path) -> bool:
    """Say whether a file of calls is as it was written."""
    return file_sha256(path) == path.stem.rpartition("-")[2]


def drop_refused(store: Store) -> None:
    """Remove what is known of requests that had no answer: at the end of a job."""
    store.remove_files(store.root / "calls", f"*/{_REFUSED}*")


def erase_calls(store: Store, bucket: int, namespaces: Set[str]) -> dict[Path, Path | None]:
    """Remove every call of some namespaces of a bucket, refused ones too, and files that are damaged.

    Returns:
        For each file that was removed the one that has the rest of it; None if nothing is left.
    """
    removed: dict[Path, Path | None] = {}
    for path in store.files(calls_folder(store, bucket)):
        rows = pq.read_table(path) if path.suffix == ".parquet" and is_sound(path) else None
        rest = None
        if rows is not None:
            theirs = pc.is_in(rows.column("namespace"), value_set=pa.array(sorted(namespaces), pa.large_string()))
            if not pc.any(theirs).as_py():
                continue
            left = rows.filter(pc.invert(theirs))
            if left.num_rows:
                prefix = path.stem.removesuffix(path.stem.rpartition("-")[2])
                rest = keep_calls(store, path.parent, left, prefix)
        removed[path] = rest
        store.remove_file(path)
    return removed


def _row(one: Answered, request_hash: str) -> dict[str, object]:
    request, reply = one.request, one.reply
    return {
        "namespace": request.namespace,
        "stage": request.stage,
        "request_hash": request_hash,
        "row_id": request.row_id,
        "attempt": request.attempt,
        "finish_reason": reply.finish_reason,
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "thinking_tokens": reply.thinking_tokens,
        "seconds": reply.seconds,
        "answer": reply.text,
        "reasoning": reply.reasoning,
        "refusal": reply.refusal,
    }
