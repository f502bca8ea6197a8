import asyncio
import gc
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise

import pytest

from hgmem_core.chat import ModelError
from hgmem_core.model_config import ServerConfig
from pipelines.http_client import Answered, HttpClient, Refused
from pipelines.http_gate import Timing
from tests.pipelines.scripted_server import Scripted, ScriptedServer

CHAT = "chat/completions"
PATH = "/v1/chat/completions"
ASKS_FOREVER = """
import sys
from itertools import repeat
from hgmem_core.model_config import ServerConfig
from pipelines.http_client import HttpClient

body = {"model": "scripted", "messages": []}
with HttpClient(ServerConfig(url=sys.argv[1])) as client:
    list(client.post("chat/completions", repeat(body), str))
"""
ASKS_AND_ENDS = """
import sys
from hgmem_core.model_config import ServerConfig
from pipelines.http_client import HttpClient

client = HttpClient(ServerConfig(url=sys.argv[1]))
print(len(list(client.post("chat/completions", [{"model": "scripted", "messages": []}] * 3, str))))
"""


class QuickTime:
    """Time that passes while somebody sleeps, at once; `then` is called after each sleep with their number."""

    def __init__(self, then=lambda number: None):
        self.now = 0.0
        self.slept = []
        self.then = then

    async def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds
        self.then(len(self.slept))
        await asyncio.sleep(0)

    def timing(self, chance=0.5):
        return Timing(lambda: self.now, self.sleep, lambda: chance)


def body(number):
    return {"model": "scripted", "messages": [{"role": "user", "content": str(number)}]}


def bodies(number):
    return [body(place) for place in range(number)]


def asked(sent):
    """Which of `bodies` one is."""
    return int(sent["messages"][0]["content"])


def text(content):
    return content["choices"][0]["message"]["content"]


def client_of(server, quick=None, **settings):
    return HttpClient(
        ServerConfig(url=server.url, **settings), timing=(quick.timing() if quick else Timing(sleep=asyncio.sleep))
    )


def failing_first(*failures):
    """A script that fails so often before each answer."""
    tries = {}

    def script(sent):
        number = asked(sent)
        tries[number] = tries.get(number, 0) + 1
        return failures[tries[number] - 1] if tries[number] <= len(failures) else Scripted(f"answer {number}")

    return script


def test_answers_come_as_they_are_ready_with_their_places():
    def script(sent):
        return Scripted(f"answer {asked(sent)}", seconds=0.3 if asked(sent) == 0 else 0.0)

    with ScriptedServer(script) as server, client_of(server) as client:
        outcomes = list(client.post(CHAT, bodies(5), text))
        assert [one.body for one in server.log_of(PATH)] == bodies(5)
    assert outcomes[-1][0] == 0
    assert sorted((place, outcome.content) for place, outcome in outcomes) == [(n, f"answer {n}") for n in range(5)]
    assert outcomes[-1][1].seconds >= 0.3 > max(outcome.seconds for _, outcome in outcomes[:-1])


def test_no_bodies_no_answers():
    with ScriptedServer() as server, client_of(server) as client:
        assert list(client.post(CHAT, [], text)) == []
        assert server.log == []


@pytest.mark.parametrize(
    "failure",
    [
        *(Scripted(status=status) for status in (408, 409, 425, 429, 500, 502, 503, 504, 529)),
        Scripted(breaks="at_once"),
        Scripted(breaks="half_way"),
        Scripted(hangs=True),
        Scripted(seconds=9.0),
        Scripted(raw=b"<html>busy</html>", content_type="text/html"),
        Scripted(raw=b'{"choices": ['),
        Scripted(raw=b""),
        Scripted(raw=b"\xff\xfe"),
        Scripted(raw=b"[" * 100_000),
    ],
    ids=lambda failure: f"{failure.status}-{failure.breaks}-{failure.hangs}-{(failure.raw or b'')[:5]}",
)
def test_what_may_go_better_is_tried_again(failure):
    quick = QuickTime()
    with (
        ScriptedServer(failing_first(failure, failure)) as server,
        client_of(server, quick, timeout_seconds=0.2) as client,
    ):
        [(_, outcome)] = client.post(CHAT, bodies(1), text)
        assert len(server.log) == 3
    assert (outcome.content, outcome.tries) == ("answer 0", 3)


def test_an_answer_that_its_reader_finds_broken_is_asked_for_again():
    def read(content):
        if not content["choices"]:
            raise ValueError("no choices")
        return text(content)

    with (
        ScriptedServer(failing_first(Scripted(document={"choices": []}))) as server,
        client_of(server, QuickTime()) as client,
    ):
        assert [outcome.content for _, outcome in client.post(CHAT, bodies(1), read)] == ["answer 0"]
        assert len(server.log) == 2


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (Scripted(hangs=True), "gave no answer within 0.1 s"),
        (Scripted(breaks="at_once"), "broke off the connection (Server disconnected)"),
        (Scripted(status=500, raw=b"<html>"), "answered HTTP 500 (a web page)"),
        (Scripted(raw=b"<html>"), "answered with a web page"),
        (Scripted(raw=b"{"), "answered with what is no JSON"),
    ],
)
def test_how_the_last_try_failed_is_told(failure, cause):
    with (
        ScriptedServer(lambda sent: failure) as server,
        client_of(server, QuickTime(), timeout_seconds=0.1, retries=0) as client,
    ):
        [(_, outcome)] = client.post(CHAT, bodies(1), text)
    assert (outcome.status, outcome.message) == (None, f"try 1 of 1 {cause}")


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_request_that_the_server_refuses_is_not_sent_again_and_ends_nothing(status):
    def script(sent):
        return Scripted(status=status, message="too\n long") if asked(sent) == 1 else Scripted("answer")

    with ScriptedServer(script) as server, client_of(server, QuickTime()) as client:
        outcomes = dict(client.post(CHAT, bodies(3), text))
        assert len(server.log) == 3
    assert (outcomes[1].status, outcomes[1].message, outcomes[1].tries) == (status, "too long", 1)
    assert [outcomes[place].content for place in (0, 2)] == ["answer", "answer"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"object": "error", "message": "no room"}, "no room"),
        ({"detail": [{"loc": ["body"], "msg": "field required"}]}, '[{"loc": ["body"], "msg": "field required"}]'),
        ({"error": "no room"}, "no room"),
        ({}, "HTTP 400"),
        ({"error": {"message": "x" * 1_000}}, "x" * 300 + "..."),
    ],
)
def test_the_servers_own_words_are_found_whatever_it_calls_them(document, message):
    with ScriptedServer(lambda sent: Scripted(status=400, document=document)) as server, client_of(server) as client:
        [(_, outcome)] = client.post(CHAT, bodies(1), text)
    assert outcome.message == message


@pytest.mark.parametrize(
    ("asks", "waits"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Date": "Wed, 21 Oct 2026 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2026 07:28:20 GMT"}, 20.0),
        ({"Date": "Wed, 21 Oct 2026 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2026 07:27:00 GMT"}, 0.0),
        ({"Retry-After": "86400"}, 60.0),
        ({"Retry-After": "-5"}, 0.0),
        ({"Retry-After": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_the_server_says_when_to_come_again(asks, waits, status):
    quick = QuickTime()
    script = failing_first(Scripted(status=status, headers=asks))
    with ScriptedServer(script) as server, client_of(server, quick) as client:
        [(_, outcome)] = client.post(CHAT, bodies(1), text)
    # Beside what is asked for, half of the second that a first pause has at most.
    assert quick.slept == [pytest.approx(waits + 0.5)]
    assert outcome.seconds == pytest.approx(waits + 0.5)


def test_pauses_grow_and_are_drawn_by_chance():
    slept = []
    for chance in (0.25, 1.0):
        quick = QuickTime()
        with ScriptedServer(lambda sent: Scripted(status=500)) as server:
            config = ServerConfig(url=server.url, retries=8)
            with HttpClient(config, timing=quick.timing(chance)) as client:
                list(client.post(CHAT, bodies(1), text))
        slept.append(quick.slept)
    assert slept[1] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert slept[0] == [seconds / 4 for seconds in slept[1]]


def test_a_request_that_always_fails_costs_its_tries_and_the_others_nothing():
    def script(sent):
        return Scripted(status=500, message="out of memory") if asked(sent) == 3 else Scripted("answer")

    # It is the last that is left, for much longer than a server that is down is waited for.
    quick = QuickTime()
    with ScriptedServer(script) as server, client_of(server, quick, retries=4, give_up_minutes=0.01) as client:
        outcomes = dict(client.post(CHAT, bodies(20), text))
        assert len(server.log) == 19 + 5
    lost = outcomes.pop(3)
    assert lost == Refused(None, "try 5 of 5 answered HTTP 500 (out of memory)", seconds=lost.seconds, tries=5)
    assert {outcome.content for outcome in outcomes.values()} == {"answer"}
    assert lost.seconds > 0.6


@pytest.mark.parametrize(
    ("status", "headers", "remedy"),
    [
        (401, {}, "put a key that is valid there into SERVER_KEY, which llm.http.key_variable names"),
        (403, {}, "put a key that is valid there into SERVER_KEY, which llm.http.key_variable names"),
        (404, {}, "correct llm.http.url, which ends in the version, such as /v1, or the model's name"),
        (501, {}, "correct llm.http.url, which ends in the version, such as /v1, or the model's name"),
        (
            307,
            {"Location": "https://user:secret@elsewhere.example/v1/chat/completions?token=secret"},
            "it points to https://elsewhere.example/v1/chat/completions: if that is the server, correct llm.http.url",
        ),
    ],
)
def test_a_server_that_is_of_no_use_ends_everything_at_once(monkeypatch, status, headers, remedy):
    monkeypatch.setenv("SERVER_KEY", "secret")

    def script(sent):
        return Scripted(status=status, headers=headers, document={"message": "bad key\n'secret'"})

    with ScriptedServer(script) as server, client_of(server, concurrency=1, key_variable="SERVER_KEY") as client:
        with pytest.raises(ModelError) as caught:
            list(client.post(CHAT, bodies(100), text))
        assert len(server.log) == 1
        assert str(caught.value) == (f"{server.url}/chat/completions answered HTTP {status} (bad key '***'); {remedy}")


def test_the_key_of_the_environment_is_sent_and_kept_to_oneself(monkeypatch):
    monkeypatch.setenv("SERVER_KEY", " secret\n")
    with ScriptedServer(key="secret") as server, client_of(server, key_variable="SERVER_KEY") as client:
        assert [outcome.content for _, outcome in client.post(CHAT, bodies(1), text)] == ["{}"]
        assert b"secret" not in pickle.dumps(client)
        assert "secret" not in repr(client)
    with ScriptedServer(key="secret") as server, client_of(server) as client:
        with pytest.raises(ModelError, match="put its key into an environment variable, and name that"):
            list(client.post(CHAT, bodies(1), text))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key_variable": "NO_SUCH_KEY"}, "llm.http.key_variable: there is no environment variable NO_SUCH_KEY"),
        ({"key_variable": "ODD_KEY"}, "llm.http.key_variable: what the environment variable ODD_KEY holds is no key"),
        ({"url": "127.0.0.1:8000/v1"}, "llm.http.url is not an address"),
        ({"url": "ftp://127.0.0.1/v1"}, "llm.http.url is not an address"),
        ({"url": "http://127.0.0.1:port/v1"}, "llm.http.url is not an address"),
        ({"url": "http://127.0.0.1/v1?key=a"}, "llm.http.url is not an address"),
        ({"url": "http://ana:hidden@127.0.0.1/v1"}, "llm.http.url holds a name or password"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_sent(monkeypatch, settings, message):
    monkeypatch.setenv("ODD_KEY", "a\nb")
    with HttpClient(ServerConfig(**settings)) as client:
        with pytest.raises(ModelError, match=message) as caught:
            list(client.post(CHAT, bodies(1), text))
    assert "hidden" not in str(caught.value)


def test_a_server_that_dies_and_comes_back_costs_no_request_its_tries():
    with ScriptedServer(lambda sent: Scripted("answer")) as server:

        def die_or_revive(sleeps):
            if sleeps == 40:
                server.revive()

        quick = QuickTime(die_or_revive)
        with client_of(server, quick, concurrency=4, retries=0) as client:
            outcomes = client.post(CHAT, bodies(30), text)
            first = next(outcomes)
            assert server.is_idle.wait(10)
            server.die()
            rest = list(outcomes)
    # What was on its way when it died may be lost: it has no second try. All that waited was answered.
    answered = [first, *((place, one) for place, one in rest if isinstance(one, Answered))]
    assert len(rest) == 29
    assert len(answered) >= 26


def test_a_server_that_fails_all_is_tried_with_one_request_at_a_time_and_always_another():
    good = threading.Event()

    def script(sent):
        return Scripted("answer") if good.is_set() else Scripted(status=503, seconds=0.002)

    def recover(sleeps):
        if sleeps == 60:
            good.set()

    with (
        ScriptedServer(script) as server,
        client_of(server, QuickTime(recover), concurrency=8, retries=10) as client,
    ):
        outcomes = list(client.post(CHAT, bodies(20), text))
        log = server.log_of(PATH)
    assert {outcome.content for _, outcome in outcomes} == {"answer"}
    # Until the fifth had failed, the places of four were free again.
    probes = [one for one in log if one.status == 503][8 + 4 :]
    assert len(probes) > 10
    assert all(after.began >= before.ended for before, after in pairwise(probes))
    assert len({asked(one.body) for one in probes[:8]}) == 8
    # Once it answers, the rest goes on together.
    assert server.log.index(probes[-1]) < len(log) - 20
    assert len({one.began < log[-20].ended for one in log[-20:]}) == 2


def test_a_server_that_is_gone_is_given_up_for_all():
    quick = QuickTime()
    with ScriptedServer() as server:
        pass
    with client_of(server, quick, concurrency=2, give_up_minutes=10.0) as client:
        with ThreadPoolExecutor(2) as threads:
            asking = [threads.submit(lambda: list(client.post(CHAT, bodies(1), text))) for _ in range(2)]
            messages = {str(one.exception(timeout=30)) for one in asking}
        passed = quick.now
        with pytest.raises(ModelError) as caught:
            list(client.post(CHAT, bodies(1), text))
    assert messages == {str(caught.value)}
    assert str(caught.value) == (
        f"{server.url}/chat/completions cannot be reached (Connection refused), and nothing was answered for "
        "10 minutes; start the server, or correct llm.http.url, then run this again: what was answered is kept"
    )
    assert 600 <= passed < 700
    assert quick.now == passed  # nothing more is waited for


@pytest.mark.parametrize("concurrency", [1, 2, 8])
def test_a_server_that_fails_all_costs_no_request_its_tries(concurrency):
    with (
        ScriptedServer(lambda sent: Scripted(status=502)) as server,
        client_of(server, QuickTime(), concurrency=concurrency, give_up_minutes=1.0) as client,
    ):
        outcomes = client.post(CHAT, map(body, count()), text)
        with pytest.raises(ModelError):
            next(outcomes)


def test_a_server_that_only_fails_is_given_up_too():
    with (
        ScriptedServer(lambda sent: Scripted(status=429)) as server,
        client_of(server, QuickTime(), retries=100, give_up_minutes=10.0) as client,
        pytest.raises(ModelError, match=r"HTTP 429 .*, and nothing was answered for 10 minutes; lower"),
    ):
        list(client.post(CHAT, bodies(100), text))


def test_a_request_that_hangs_holds_up_neither_probes_nor_giving_up():
    hanging = threading.Event()

    def script(sent):
        if asked(sent) == 0:
            hanging.set()
            return Scripted(hangs=True)
        return Scripted(status=503)

    with (
        ScriptedServer(script) as server,
        client_of(server, QuickTime(), concurrency=2, retries=100) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        waiting = threads.submit(lambda: list(client.post(CHAT, bodies(1), text)))
        assert hanging.wait(10)
        with pytest.raises(ModelError, match="answered HTTP 503"):
            list(client.post(CHAT, map(body, count(1)), text))
        assert "answered HTTP 503" in str(waiting.exception(timeout=10))


def test_time_without_requests_is_no_silence():
    quick = QuickTime()
    with ScriptedServer() as server, client_of(server, quick) as client:
        for _ in range(3):
            server.script = failing_first(Scripted(breaks="at_once"))
            outcomes = list(client.post(CHAT, bodies(64), text))
            assert all(isinstance(outcome, Answered) for _, outcome in outcomes)
            quick.now += 100_000


def test_a_server_that_takes_few_at_a_time_answers_all():
    def script(sent):
        return Scripted("answer", seconds=0.005) if len(running()) <= 3 else Scripted(status=429)

    def running():
        return [one for one in server.log if one.ended is None]

    with ScriptedServer(script) as server, client_of(server, QuickTime()) as client:
        outcomes = list(client.post(CHAT, bodies(150), text))
        sent = len(server.log)
    assert [outcome for _, outcome in outcomes if isinstance(outcome, Refused)] == []
    assert sent < 2 * 150


def test_the_limit_holds_over_all_threads():
    with (
        ScriptedServer(lambda sent: Scripted(str(asked(sent)), seconds=0.01)) as server,
        client_of(server, concurrency=5) as client,
        ThreadPoolExecutor(4) as threads,
    ):
        done = list(threads.map(lambda _: list(client.post(CHAT, bodies(20), text)), range(4)))
        assert server.most_in_flight == 5
        assert len(server.log) == 80
    for outcomes in done:
        assert sorted((place, outcome.content) for place, outcome in outcomes) == [(n, str(n)) for n in range(20)]


def test_bodies_are_pulled_as_there_is_room():
    pulled = count()
    with ScriptedServer() as server, client_of(server, concurrency=4) as client:
        outcomes = client.post(CHAT, (body(next(pulled)) for _ in count()), text)
        for _ in range(50):
            next(outcomes)
        outcomes.close()
    assert 50 < next(pulled) <= 50 + 4 + 2


def test_an_answer_is_not_kept_waiting_by_bodies_that_take_long_to_make():
    got, got_before = [], []
    arrived = threading.Semaphore(0)

    def script(sent):
        arrived.release()

    def slow_bodies():
        for number in range(20):
            got_before.append(len(got))
            yield body(number)
            # The next one is made only when this one's answer was sent.
            assert arrived.acquire(timeout=10)
            assert server.is_idle.wait(10)

    with ScriptedServer(script) as server, client_of(server) as client:
        for place, _ in client.post(CHAT, slow_bodies(), text):
            got.append(place)
    assert got_before[-1] >= 10
    assert len(got) == 20


def test_closing_cancels_what_is_on_its_way():
    def script(sent):
        return Scripted(hangs=True) if asked(sent) else Scripted("answer")

    with ScriptedServer(script) as server, client_of(server, concurrency=2) as client:
        outcomes = client.post(CHAT, bodies(10), text)
        assert next(outcomes)[0] == 0
        outcomes.close()
        assert server.is_idle.wait(10)
        # Nothing is left in the way of others, and nothing was sent afterwards.
        assert [outcome.content for _, outcome in client.post(CHAT, bodies(1), text)] == ["answer"]
        assert len(server.log) <= 4


def test_closing_the_client_frees_whoever_waits():
    arrived = threading.Event()

    def script(sent):
        arrived.set()
        return Scripted(hangs=True)

    with ScriptedServer(script) as server, ThreadPoolExecutor(1) as threads:
        client = client_of(server)
        asking = threads.submit(lambda: list(client.post(CHAT, bodies(3), text)))
        assert arrived.wait(10)
        client.close()
        assert "was closed" in str(asking.exception(timeout=10))
        with pytest.raises(RuntimeError, match="is closed"):
            list(client.post(CHAT, bodies(1), text))
        client.close()


def test_an_interrupt_ends_it():
    arrived = threading.Event()

    def script(sent):
        arrived.set()
        return Scripted(hangs=True)

    with ScriptedServer(script) as server:
        process = subprocess.Popen([sys.executable, "-c", ASKS_FOREVER, server.url], stderr=subprocess.PIPE, text=True)
        assert arrived.wait(60)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "Unclosed" not in err


def test_a_client_that_nobody_closes_ends_quietly_with_its_process():
    with ScriptedServer() as server:
        command = [sys.executable, "-c", ASKS_AND_ENDS, server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_a_client_that_nobody_holds_leaves_no_thread():
    def threads():
        return [one for one in threading.enumerate() if one.name == "http"]

    before = threads()
    with ScriptedServer() as server:
        client = client_of(server)
        assert len(list(client.post(CHAT, bodies(3), text))) == 3
        assert len(threads()) == len(before) + 1
        del client
        gc.collect()
    assert threads() == before


def test_errors_of_ours_are_raised_where_it_is_called():
    def broken_bodies():
        yield body(0)
        raise KeyError("ours")

    with ScriptedServer() as server, client_of(server) as client:
        with pytest.raises(KeyError, match="ours"):
            list(client.post(CHAT, broken_bodies(), text))
        with pytest.raises(KeyError, match="other"):
            list(client.post(CHAT, bodies(1), lambda content: content["other"]))
        with pytest.raises(TypeError):
            list(client.post(CHAT, [{"model": {1, 2}}], text))
        assert len(list(client.post(CHAT, bodies(2), text))) == 2


def test_a_client_travels_and_connects_anew():
    with ScriptedServer() as server, client_of(server) as client:
        list(client.post(CHAT, bodies(1), text))
        with pickle.loads(pickle.dumps(client)) as copy:
            assert [outcome.content for _, outcome in copy.post(CHAT, bodies(1), text)] == ["{}"]
        assert len(list(client.post(CHAT, bodies(1), text))) == 1


def test_a_proxy_of_the_environment_is_not_used(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with ScriptedServer() as server, client_of(server) as client:
        assert len(list(client.post(CHAT, bodies(1), text))) == 1


@pytest.mark.parametrize(
    ("url", "path", "address"),
    [
        ("http://a/v1", "models", "http://a/v1/models"),
        ("http://a/v1/", "models", "http://a/v1/models"),
        ("http://a/v1", "/tokenize", "http://a/tokenize"),
        ("http://a/llm/v1", "/tokenize", "http://a/llm/tokenize"),
        ("http://a/api", "/tokenize", "http://a/api/tokenize"),
    ],
)
def test_where_a_path_leads(url, path, address):
    assert HttpClient(ServerConfig(url=url)).address(path) == address


def test_trying_out_does_not_wait_for_long():
    quick = QuickTime()
    with ScriptedServer() as server:
        with client_of(server, quick) as client:
            assert client.try_out("models", None, lambda content: content["data"][0]["id"]) == "scripted"
            assert client.try_out(CHAT, body(0), text) == "{}"
        server.script = lambda sent: Scripted(status=400, message="no template")
        with client_of(server, quick) as client:
            assert client.try_out(CHAT, body(0), text).message == "no template"
    assert quick.slept == []
    with client_of(server, quick) as client:
        with pytest.raises(ModelError, match=r"/v1/models cannot be reached \(Connection refused\); start the server"):
            client.try_out("models", None, text)
    assert 0 < quick.now < 10
