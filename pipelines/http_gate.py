"""How much is asked of a server at a time: the limit, fewer while it throttles, one by one while it is down."""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

FAILING_REQUESTS = 5
"""As many different requests that failed with no answer in between mean that the server is down, not they bad; fewer
where fewer can be on their way."""

LONGEST_PROBE_PAUSE = 30.0
"""Seconds before one more try of a server that is down."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Where a client takes time and chance from.

    Attributes:
        now: Seconds on a clock that is never set back.
        sleep: Waits for some seconds.
        random: From 0 up to 1.
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random

    def jitter(self, most: float) -> float:
        """Return anything up to so many seconds: those who failed together do not come back together."""
        return most * self.random()


class Gate:
    """Lets tries through in the order in which they came; of one event loop.

    Where the server throttles, half as many as were in flight are let through, and with the answers ever more again.
    Where it is down, one goes through at a time, after ever longer pauses, and each time that of another request; with
    any answer all go on.
    """

    def __init__(self, most: int, timing: Timing) -> None:
        """Let `most` through at a time."""
        self._most = most
        self._timing = timing
        self._allowed = float(most)
        self._lowered_at = float("-inf")
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._is_shut = False
        self._is_probing = False
        self._probes = 0
        self._failing: set[object] = set()
        self._answered_at = float("-inf")
        self._silent_since: float | None = None

    @property
    def silent_seconds(self) -> float:
        """How long a server that is down has answered nothing; 0 for one that is not down."""
        if not self._is_shut or self._silent_since is None:
            return 0.0
        return self._timing.now() - self._silent_since

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Wait until a try may go out; it is in flight while the `with` block runs."""
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._admit()
        try:
            is_probe = await turn
            if is_probe and self._is_shut:
                self._probes += 1
                await self._timing.sleep(self._timing.jitter(min(LONGEST_PROBE_PAUSE, 2.0 ** (self._probes - 1))))
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._in_flight -= 1
                self._is_probing = self._is_probing and not turn.result()
                self._admit()

    def answered(self) -> None:
        """Take note that the server answered."""
        self._is_shut = False
        self._probes = 0
        self._failing.clear()
        self._answered_at = self._timing.now()
        self._silent_since = None
        self._allowed = min(float(self._most), self._allowed + 1 / self._allowed)
        self._admit()

    def failed(self, request: object, began: float, *, is_connected: bool, is_throttled: bool) -> None:
        """Take note that a try failed.

        Args:
            request: Whose try it was.
            began: When it went out.
            is_connected: Whether the server was there at all.
            is_throttled: Whether it said that it is asked too much.
        """
        if is_throttled and began > self._lowered_at:  # those that went out together are one sign
            self._allowed = max(1.0, min(self._allowed, self._in_flight) / 2)
            self._lowered_at = self._timing.now()
        if self._silent_since is None:
            self._silent_since = max(began, self._answered_at)
        self._failing.add(request)
        is_down = not is_connected or len(self._failing) >= min(FAILING_REQUESTS, self._most + 1)
        self._is_shut = self._is_shut or is_down

    def _admit(self) -> None:
        while self._waiting and self._has_room():
            turn = self._waiting.popleft()
            if not turn.done():  # its request was cancelled
                self._in_flight += 1
                self._is_probing = self._is_probing or self._is_shut
                turn.set_result(self._is_shut)

    def _has_room(self) -> bool:
        # One that went out before the server was down may hang for long: it holds up no probe.
        if self._is_shut:
            return not self._is_probing and self._in_flight < self._most
        return self._in_flight < int(self._allowed)
