"""Ray clusters of a test's own: own ports, folders, token and home; ended by process id, and nothing else with them."""

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID
from ray.thirdparty_files import psutil

SECONDS_TO_START = 90
RAY = (sys.executable, "-m", "ray.scripts.scripts")
FAKE_PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"


@dataclass(frozen=True)
class Head:
    """A running head node."""

    address: str
    """Of its control store, for drivers."""
    url: str
    """Of its jobs and dashboard."""
    token: str
    environment: dict[str, str]
    """Of the node, and of clients that have its token."""

    def ask(self, path, token=None, body=None):
        """Return the status and the content of a page of the dashboard; another `token` than its own may be tried."""
        token = self.token if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self.url + path, body and json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def nodes(self):
        """Return how many nodes are alive."""
        status, text = self.ask("/api/v0/nodes")
        assert status == 200, text
        return sum(node["state"] == "ALIVE" for node in json.loads(text)["data"]["result"]["result"])

    def submit(self, working_dir, *entrypoint, job="", **environment):
        """Run `ray job submit` until the job has ended; an `environment` value of None removes a variable."""
        merged = {**self.environment, **environment}
        options = ["--address", self.url, "--working-dir", str(working_dir)]
        options += ["--submission-id", job] if job else []
        return subprocess.run(
            [*RAY, "job", "submit", *options, "--", *map(str, entrypoint)],
            env={name: value for name, value in merged.items() if value is not None},
            cwd=self.environment["HOME"],
            capture_output=True,
            text=True,
            timeout=120,
        )


def clean_environment(home):
    """Return this process's environment without what it says of Ray and with another home."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**inherited, "HOME": str(home), "PATH": path, "RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def head_node(*options, port=None, **environment):
    """Run `ray start --head` with token authentication until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="hgmem-", ignore_cleanup_errors=True) as name:  # short: sockets lie in it
        folder = Path(name)
        token = secrets.token_hex(32)
        secret = folder / "token"
        secret.touch(mode=0o600)
        secret.write_text(token)
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(secret)}
        everything = {**clean_environment(folder), **auth, **environment}
        dashboard, agent, client, free = free_ports(4)
        control = port or free
        command = [
            *RAY, "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={control}",
            "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}",
            f"--ray-client-server-port={client}", f"--temp-dir={folder}", "--object-store-memory=100000000", *options,
        ]  # fmt: skip
        output = folder / "output"
        with output.open("w") as log:
            process = subprocess.Popen(
                command, env=everything, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        head = Head(f"127.0.0.1:{control}", f"http://127.0.0.1:{dashboard}", token, everything)
        try:
            _wait_until_ready(head, process, output)
            yield head
        finally:
            end(process)


def _wait_until_ready(head, process, output):
    def is_ready():
        assert process.poll() is None, f"ray start ended:\n{output.read_text()}"
        try:
            return head.ask("/api/jobs/")[0] == 200 and head.nodes() > 0
        except OSError:
            return False

    wait_for(is_ready, SECONDS_TO_START, lambda: f"Ray is not ready:\n{output.read_text()}")


def wait_for(condition, seconds, complaint=lambda: "it did not come to pass"):
    """Return what `condition` returns once that is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.1)
    return value


def end(process):
    """End a process and all that it started, in its session or below it: by request, then without asking."""
    family = _family(process)
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.terminate()
    psutil.wait_procs([each for each in family if each.pid != process.pid and _is_alive(each)], timeout=3)
    while family := _family(process):
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=0.2)
    process.wait(20)


def _family(process):
    """Return a process with those below it, and those that its session still has once their parents are gone."""
    alive = [each for each in psutil.process_iter() if _is_alive(each)]
    root = [each for each in alive if each.pid == process.pid]
    below = [child for each in root for child in each.children(recursive=True)]
    return list({*root, *below, *(each for each in alive if _session(each) == process.pid)})


def _is_alive(each):
    with suppress(psutil.Error):
        return each.status() != psutil.STATUS_ZOMBIE
    return False


def _session(each):
    with suppress(ProcessLookupError):
        return os.getsid(each.pid)
    return None


def free_ports(count):
    """Return ports of this machine that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def autoscaling_cluster(config, resources, **changes):
    """Run a head whose autoscaler obeys a prepared `ray up` configuration, but starts its nodes as processes here.

    Args:
        config: What Ray made of the `ray up` file.
        resources: What a node of each type has here.
        changes: Top-level keys of the configuration that the test cannot wait for, such as the idle timeout.
    """
    nothing = {key: [] for key in config if key.endswith("_commands")}
    (port,) = free_ports(1)
    provider = {
        "type": "external", "module": FAKE_PROVIDER, "gcs_address": f"127.0.0.1:{port}", "launch_multiple": True,
        "head_node_id": FAKE_HEAD_NODE_ID, "use_node_id_as_ip": True, "disable_node_updaters": True,
        "disable_launch_config_check": True,
    }  # fmt: skip
    types = {
        name: {**each, "node_config": {}, "resources": resources[name]}
        for name, each in config["available_node_types"].items()
    }
    local = {**config, **nothing, "provider": provider, "auth": {}, "file_mounts": {}, "available_node_types": types}
    with tempfile.TemporaryDirectory(prefix="hgmem-") as folder:
        path = Path(folder) / "cluster.yaml"
        path.write_text(json.dumps({**local, **changes}))  # JSON is YAML
        variables = {
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_FAKE_CLUSTER": "1",
            "RAY_enable_autoscaler_v2": "1",  # what `ray up` starts
            "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
        }
        cpus = resources[config["head_node_type"]]["CPU"]
        with head_node(f"--autoscaling-config={path}", f"--num-cpus={cpus}", port=port, **variables) as head:
            yield head
