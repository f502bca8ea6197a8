"""How many requests work at the same time, how many may wait, and for how long."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import TypeVar

from pipelines.serve_problems import Problem

Result = TypeVar("Result")


class Gate:
    """Lets requests through to a pool of threads, for one event loop.

    A request that is cancelled leaves its place at once, in the queue or in the pool; a thread that works on one
    already goes on until it is done, and there are never more of those than threads.
    """

    def __init__(
        self,
        pool: Executor,
        threads: int,
        queue: int,
        retry_after_s: int,
        timeout_s: float,
        waiting: Callable[[float], None],
    ) -> None:
        """Be open.

        Args:
            pool: Of the threads.
            threads: How many requests work at the same time.
            queue: How many may wait.
            retry_after_s: When one that may not is to come again.
            timeout_s: For a request, its waiting included.
            waiting: Told how many wait.
        """
        self._pool = pool
        self._free = asyncio.Semaphore(threads)
        self._queue = queue
        self._retry_after_s = retry_after_s
        self._timeout_s = timeout_s
        self._told = waiting
        self._waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and hold it.

        Raises:
            Problem: 429 if too many wait already; 504 if it all took too long.
        """
        if self._free.locked() and self._waiting >= self._queue:
            headers = {"Retry-After": str(self._retry_after_s)}
            raise Problem(429, f"too many requests wait; come again in {self._retry_after_s} s", headers=headers)
        try:
            async with asyncio.timeout(self._timeout_s):
                self._count(1)
                try:
                    await self._free.acquire()
                finally:
                    self._count(-1)
                try:
                    yield
                finally:
                    self._free.release()
        except TimeoutError as error:
            raise Problem(504, f"not answered within {self._timeout_s:g} s; ask for less, or later") from error

    def _count(self, change: int) -> None:
        self._waiting += change
        self._told(self._waiting)

    async def run(self, work: Callable[[], Result]) -> Result:
        """Return what `work` returns, which a thread does."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
