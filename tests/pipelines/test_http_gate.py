import asyncio
from contextlib import AsyncExitStack

import pytest

from pipelines.http_gate import Gate, Timing


def run(test):
    """Run a test of a gate: nothing in it takes any time."""

    async def within():
        async with asyncio.timeout(30):
            await test()

    asyncio.run(within())


async def no_time(seconds):
    await asyncio.sleep(0)


async def for_ever(seconds):
    await asyncio.get_running_loop().create_future()


def gate_of(most, sleep=no_time, now=lambda: 0.0):
    return Gate(most, Timing(now, sleep, lambda: 1.0))


async def let_through(gate, wanted):
    """How many of `wanted` tries a gate lets through at a time."""
    entered = 0

    async def one():
        nonlocal entered
        async with gate.passage():
            entered += 1
            await for_ever(0)

    tasks = [asyncio.create_task(one()) for _ in range(wanted)]
    for _ in range(20):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return entered


def lose_connection(gate):
    gate.failed("a", 0.0, is_connected=False, is_throttled=False)


def test_as_many_go_through_as_may_and_one_once_the_server_is_down():
    async def test():
        gate = gate_of(3)
        assert await let_through(gate, 10) == 3
        lose_connection(gate)
        assert await let_through(gate, 10) == 1
        gate.answered()
        assert await let_through(gate, 10) == 3

    run(test)


def test_different_requests_that_fail_one_after_the_other_mean_that_the_server_is_down():
    async def test():
        gate = gate_of(100)
        for request in "aabbccddaaaa":
            gate.failed(request, 0.0, is_connected=True, is_throttled=False)
        assert await let_through(gate, 100) == 100
        gate.answered()
        for request in "efgh":
            gate.failed(request, 0.0, is_connected=True, is_throttled=False)
        assert await let_through(gate, 100) == 100
        gate.failed("i", 0.0, is_connected=True, is_throttled=False)
        assert await let_through(gate, 100) == 1

    run(test)


def test_probes_never_make_more_than_may_be_in_flight():
    async def test():
        gate = gate_of(2)
        async with gate.passage(), gate.passage():
            lose_connection(gate)
            assert await let_through(gate, 3) == 0

    run(test)


@pytest.mark.parametrize("is_down", [False, True])
def test_whoever_is_cancelled_gives_back_a_place_that_it_had_and_no_other(is_down):
    async def test():
        async def one(gate):
            async with gate.passage():
                await for_ever(0)

        gate = gate_of(2, sleep=for_ever)
        if is_down:
            lose_connection(gate)
        tasks = [asyncio.create_task(one(gate)) for _ in range(6)]
        for turns in (0, 1, 5):
            for _ in range(turns):
                await asyncio.sleep(0)
            tasks.pop(0).cancel()
            tasks.pop().cancel()
        await asyncio.sleep(0)
        gate.answered()
        assert await let_through(gate, 10) == 2

    run(test)


def test_a_server_that_throttles_is_asked_half_as_much_at_a_time_and_ever_more_again():
    now = 0.0

    async def test():
        nonlocal now
        gate = gate_of(16, now=lambda: now)

        async def throttle(number):
            nonlocal now
            began, now = now + 1, now + 2
            async with AsyncExitStack() as stack:
                for _ in range(number):
                    await stack.enter_async_context(gate.passage())
                for _ in range(number):  # of those that went out together, one counts
                    gate.failed("a", began, is_connected=True, is_throttled=True)

        await throttle(16)
        assert await let_through(gate, 16) == 8
        await throttle(8)
        assert await let_through(gate, 16) == 4
        for _ in range(5):
            gate.answered()
        assert await let_through(gate, 16) == 5
        for _ in range(1_000):
            gate.answered()
        assert await let_through(gate, 32) == 16
        for _ in range(10):
            await throttle(1)
        assert await let_through(gate, 16) == 1

    run(test)


def test_pauses_between_probes_grow():
    slept = []

    async def test():
        async def sleep(seconds):
            slept.append(seconds)

        gate = gate_of(2, sleep=sleep)
        lose_connection(gate)
        for _ in range(7):
            async with gate.passage():
                lose_connection(gate)
        gate.answered()
        lose_connection(gate)
        async with gate.passage():
            pass

    run(test)
    assert slept == [1, 2, 4, 8, 16, 30, 30, 1]


def test_silence_begins_with_the_first_try_that_failed_or_the_last_answer():
    now = 100.0

    async def test():
        nonlocal now
        gate = gate_of(2, now=lambda: now)
        gate.failed("a", 40.0, is_connected=True, is_throttled=False)
        assert gate.silent_seconds == 0
        lose_connection(gate)
        assert gate.silent_seconds == 60
        gate.answered()
        assert gate.silent_seconds == 0
        now = 130.0
        gate.failed("a", 90.0, is_connected=False, is_throttled=False)
        assert gate.silent_seconds == 30

    run(test)
