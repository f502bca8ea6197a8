import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines.serve_gate import Gate
from pipelines.serve_metrics import Metrics
from pipelines.serve_problems import Problem


def gate_of(pool, threads=2, queue=3, timeout_s=60.0):
    return Gate(pool, threads, queue, 7, timeout_s, Metrics().waiting.set)


async def through(gate, work):
    async with gate.turn():
        return await gate.run(work)


def test_what_neither_works_nor_may_wait_is_told_when_to_come_again():
    release = threading.Event()

    async def ask():
        gate = gate_of(pool)
        tasks = [asyncio.create_task(through(gate, release.wait)) for _ in range(6)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        release.set()
        return [task.exception() for task in done], [await task for task in tasks if task not in done]

    with ThreadPoolExecutor(2) as pool:
        [problem], answers = asyncio.run(ask())
    assert isinstance(problem, Problem)
    assert (problem.status, problem.headers["Retry-After"]) == (429, "7")
    assert answers == [True] * 5


def test_waiting_counts_towards_the_time_out():
    release = threading.Event()

    async def ask():
        gate = gate_of(pool, threads=1, timeout_s=0.05)
        first = asyncio.create_task(through(gate, release.wait))
        await asyncio.sleep(0)
        with pytest.raises(Problem) as raised:
            await through(gate, lambda: None)
        release.set()
        return raised.value.status, await asyncio.gather(first, return_exceptions=True)

    with ThreadPoolExecutor(1) as pool:
        status, [first] = asyncio.run(ask())
    assert status == first.status == 504


def test_cancelled_requests_hold_nobody_up():
    """200 requests are cancelled, working, waiting, or before they began; a normal one is answered at once after."""
    started = threading.Semaphore(0)
    release = threading.Event()

    def work():
        started.release()
        release.wait()

    async def ask():
        gate = gate_of(pool, queue=200)
        tasks = [asyncio.create_task(through(gate, work)) for _ in range(200)]
        await asyncio.to_thread(started.acquire)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        release.set()
        began = time.perf_counter()
        answer = await through(gate, lambda: "answer")
        return ended, answer, time.perf_counter() - began

    with ThreadPoolExecutor(2) as pool:
        ended, answer, seconds = asyncio.run(ask())
    assert {type(one) for one in ended} == {asyncio.CancelledError}
    assert (answer, seconds < 1.0) == ("answer", True)


def test_a_failure_frees_its_place():
    def fail():
        raise ValueError("of the work")

    async def ask():
        gate = gate_of(pool, threads=1, queue=0)
        for _ in range(3):
            with pytest.raises(ValueError, match="of the work"):
                await through(gate, fail)
        return await through(gate, lambda: "answer")

    with ThreadPoolExecutor(1) as pool:
        assert asyncio.run(ask()) == "answer"
