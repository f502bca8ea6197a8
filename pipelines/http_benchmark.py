"""How many requests the `http` client keeps on their way to a slow server, and what memory that takes."""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from hgmem_core.chat import Request
from hgmem_core.model_config import LlmConfig, ServerConfig
from pipelines.benchmark import spread
from pipelines.http_chat import HttpChat
from pipelines.processes import in_fresh_process
from pipelines.progress import Progress

PROMPT_BYTES = 8_192
_ANSWER = {"choices": [{"message": {"content": '{"facts": []}'}, "finish_reason": "stop"}]}
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MIB = 1 << 20


class Span(NamedTuple):
    """When the server had a request, in seconds on a clock of its own."""

    began: float
    ended: float


def benchmark_http(
    requests: int, concurrency: int, latency_seconds: float, repeats: int, progress: Progress
) -> dict[str, Any]:
    """Measure chats with a server of another process that answers each after the same time, however many there are.

    Args:
        requests: How many, each with a prompt of `PROMPT_BYTES`.
        concurrency: How many may be in flight.
        latency_seconds: Of an answer.
        repeats: Each in a process of its own.
        progress: Told of repeats.

    Returns:
        Requests in flight as the server saw it, over the whole time and from the first answer to the last request;
        seconds, CPU milliseconds of the client a request, and by how much its memory was larger in the last quarter of
        the answers than in the first.
    """
    progress.start("http", repeats)
    runs = []
    for _ in range(repeats):
        runs.append(in_fresh_process({}, measure_http, requests, concurrency, latency_seconds))
        progress.advance("http", 1)
    return {
        "case": "http",
        "requests": requests,
        "concurrency": concurrency,
        "latency_ms": round(1e3 * latency_seconds),
        "prompt_bytes": PROMPT_BYTES,
        "repeats": repeats,
        **{name: spread([run[name] for run in runs], 2) for name in runs[0]},
    }


def measure_http(requests: int, concurrency: int, latency_seconds: float) -> dict[str, float]:
    """Measure once, see `benchmark_http`."""
    ours, theirs = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=_serve, args=(latency_seconds, theirs), daemon=True)
    server.start()
    config = LlmConfig(
        engine="http",
        model="none",
        http=ServerConfig(url=f"http://127.0.0.1:{ours.recv()}/v1", concurrency=concurrency),
    )
    memory = []
    with HttpChat(config) as chat:
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in chat.ask(_requests(requests)):
            memory.append(_memory_bytes())
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    ours.send("end")
    spans = ours.recv()
    server.join()
    quarter = max(1, requests // 4)
    return {
        "mean_in_flight": mean_in_flight(spans),
        "mean_without_ends": mean_in_flight(spans, min(s.ended for s in spans), max(s.began for s in spans)),
        "seconds": seconds,
        "cpu_ms_a_request": 1e3 * cpu / requests,
        "memory_growth_mib": (max(memory[-quarter:]) - max(memory[:quarter])) / _MIB,
    }


def mean_in_flight(spans: Sequence[Span], began: float | None = None, ended: float | None = None) -> float:
    """Return how many spans there are at a time, on average from `began` to `ended`; without them, over all."""
    began = min(span.began for span in spans) if began is None else began
    ended = max(span.ended for span in spans) if ended is None else ended
    return sum(max(0.0, min(span.ended, ended) - max(span.began, began)) for span in spans) / (ended - began)


def _requests(number: int) -> Iterator[Request]:
    """Make requests one by one, each with a prompt of its own."""
    for place in range(number):
        user = f"{place} ".ljust(PROMPT_BYTES, "x")
        yield Request("bench/http", "extract", str(place), 1, "", user, "Answer", {"type": "object"}, 64, "off")


def _memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _serve(latency_seconds: float, pipe: Connection) -> None:
    asyncio.run(_answer(latency_seconds, pipe))


async def _answer(latency_seconds: float, pipe: Connection) -> None:
    """Tell the port, answer until told to end, tell when there were requests."""
    spans: list[Span] = []

    async def handle(request: web.Request) -> web.Response:
        began = time.perf_counter()
        await request.read()
        await asyncio.sleep(latency_seconds)
        spans.append(Span(began, time.perf_counter()))
        return web.json_response(_ANSWER)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
    await site.start()
    pipe.send(site.port)
    await asyncio.to_thread(pipe.recv)
    await runner.cleanup()
    pipe.send(spans)
