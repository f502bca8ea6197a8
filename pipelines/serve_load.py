"""Questions asked of an endpoint by several clients at a time, and of the retriever itself by a process of its own."""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from hgmem_core.config import Config
from pipelines.encoders import open_encoder
from pipelines.processes import ONE_THREAD, environment_with
from pipelines.retriever import Retriever
from pipelines.store import Store
from pipelines.versions import open_version

CLIENT_TIMEOUT_S = 120.0
"""For an answer: longer than the endpoint takes to start a replica anew."""

HITS = 10


class Asked(NamedTuple):
    """What became of one question.

    Attributes:
        place: Which it was.
        began: When it was sent, in seconds of the monotonic clock, which all processes of a machine share.
        ended: When the answer was there.
        status: Of HTTP; 0 where none came.
        version: That the answer is of; empty without one.
        turns: The ids that it names, best first.
    """

    place: int
    began: float
    ended: float
    status: int = 200
    version: str = ""
    turns: tuple[str, ...] = ()

    @property
    def milliseconds(self) -> float:
        """How long it took."""
        return 1e3 * (self.ended - self.began)


class Client:
    """One connection to an endpoint, opened anew where it was closed."""

    def __init__(self, port: int) -> None:
        """Connect to a port of this machine."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CLIENT_TIMEOUT_S)

    def send(self, path: str, body: Mapping[str, Any]) -> None:
        """Send a request, and do not wait."""
        self._connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})

    def ask(self, path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the content of an answer; 0 and nothing where none came."""
        try:
            self.send(path, body)
            response = self._connection.getresponse()
            content = response.read()
        except (http.client.HTTPException, OSError):
            self.close()
            return 0, {}
        # Of an answer that is not the endpoint's own, such as Serve's, the status says enough.
        is_json = "json" in response.headers.get("Content-Type", "")
        return response.status, json.loads(content) if is_json else {}

    def close(self) -> None:
        """Close the connection, whatever is on its way."""
        self._connection.close()


class Load:
    """Questions about one namespace, asked again and again in the same order."""

    def __init__(self, port: int, namespace: str, questions: Sequence[str]) -> None:
        """Take the endpoint's port on this machine, and what is asked."""
        self._port = port
        self._bodies = [{"query": text, "namespace": namespace, "k": HITS} for text in questions]

    def __len__(self) -> int:
        """Return how many different questions there are."""
        return len(self._bodies)

    def body(self, place: int) -> Mapping[str, Any]:
        """Return the request of a question."""
        return self._bodies[place % len(self._bodies)]

    def ask(self, requests: int, clients: int, before: Callable[[int], None] = lambda place: None) -> list[Asked]:
        """Ask so many questions, each client one after the other; return what became of them as they ended.

        Args:
            requests: How many questions, the first one again after the last.
            clients: How many ask at the same time.
            before: Told the number of each request by the client that sends it next.
        """
        # A range's iterator gives each number once, whichever thread takes it.
        numbers = iter(range(requests))
        with ThreadPoolExecutor(clients) as pool:
            asked = [pool.submit(self._client, numbers, before) for _ in range(clients)]
            every = [one for future in asked for one in future.result()]
        return sorted(every, key=lambda one: one.ended)

    def _client(self, numbers: Iterator[int], before: Callable[[int], None]) -> list[Asked]:
        client, done = Client(self._port), []
        for number in numbers:
            before(number)
            began = time.monotonic()
            status, answer = client.ask("/v1/search", self.body(number))
            turns = tuple(hit["turn_id"] for hit in answer.get("hits", ()))
            place = number % len(self._bodies)
            done.append(Asked(place, began, time.monotonic(), status, answer.get("version", ""), turns))
        client.close()
        return done


class Told(NamedTuple):
    """What a process says that asked the retriever itself.

    Attributes:
        asked: What became of each question.
        cpu_seconds: That it took for all of them.
    """

    asked: list[Asked]
    cpu_seconds: float


class Direct:
    """A process that asks the retriever itself, with one thread; made by `direct`."""

    def __init__(self, pipe: Connection) -> None:
        """Take the pipe that leads to it."""
        self._pipe = pipe

    def wait(self) -> None:
        """Wait until it has opened the version."""
        self._pipe.recv()

    def start(self, requests: int) -> None:
        """Let it ask so many questions."""
        self._pipe.send(requests)

    def told(self) -> Told:
        """Wait until it has done so."""
        told: Told = self._pipe.recv()
        return told


@contextmanager
def direct(config: Config, namespace: str, questions: Sequence[str], number: int) -> Iterator[list[Direct]]:
    """Give processes that have the current version of a store open, and end them."""
    spawn = get_context("spawn")
    pipes, processes = [], []
    with environment_with(ONE_THREAD):
        for _ in range(number):
            ours, theirs = spawn.Pipe()
            given = (config, namespace, list(questions), theirs)
            processes.append(spawn.Process(target=_answer, args=given, daemon=True))
            processes[-1].start()
            theirs.close()  # so that nobody waits for a process that could not begin
            pipes.append(ours)
    try:
        several = [Direct(pipe) for pipe in pipes]
        for one in several:
            one.wait()
        yield several
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.join()


def _answer(config: Config, namespace: str, questions: Sequence[str], pipe: Connection) -> None:
    """Ask as often as told, until the other end is closed."""
    version = open_version(Store.open(config.store.root, config.store.cache))
    retriever = Retriever(version, open_encoder(config.encoder))
    retriever.search(namespace, questions[0], k=HITS)
    pipe.send("ready")
    while True:
        try:
            requests = pipe.recv()
        except EOFError:
            return
        done, began_cpu = [], time.process_time()
        for number in range(requests):
            place = number % len(questions)
            began = time.monotonic()
            response = retriever.search(namespace, questions[place], k=HITS)
            turns = tuple(hit.turn_id for hit in response.hits)
            done.append(Asked(place, began, time.monotonic(), version=version.id, turns=turns))
        pipe.send(Told(done, time.process_time() - began_cpu))


def together(several: Sequence[Direct], requests: int) -> float:
    """Return how many questions a second several processes answer while all of them do, each given so many."""
    for one in several:
        one.start(requests)
    told = [one.told().asked for one in several]
    began = max(asked[0].began for asked in told)
    ended = min(asked[-1].ended for asked in told)
    during = [one for asked in told for one in asked if began <= one.began and one.ended <= ended]
    return len(during) / (ended - began)
