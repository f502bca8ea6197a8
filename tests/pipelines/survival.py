"""Kills and lost nodes: whatever a rebuild on Ray loses, the published store is that of an undisturbed one.

`python -m tests.pipelines.survival --kills 10 --losses 3` kills the driver at random moments and takes nodes away:
before the first block, in the middle, and while an output is written. The tests run a small form of it.
"""

import argparse
import os
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from hgmem_core.config import to_toml
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from pipelines.static import StaticEncoder
from pipelines.store import Store
from pipelines.versions import current_version
from tests.pipelines.logs import config_of, rows, write_jsonl
from tests.pipelines.ray_cluster import head_node

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOT = Path(__file__).parents[2]
MOMENTS = ("before the first block", "in the middle", "during a write")


def write_logs(folder, users=40):
    return [
        write_jsonl(folder / f"log{part}.jsonl", rows([f"user{part}-{number}" for number in range(users)], 24))
        for part in range(4)
    ]


def config(root, logs, **run):
    return config_of(root, *logs, buckets=6, run={"engine": "ray", "workers": 2, **run})


def tables(root):
    """Everything that readers of a store see, as bytes; what the clock says apart."""
    seen = {}
    for path in sorted(Path(root).rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and name.split("/")[0] in ("outputs", "versions", "current", "store.json"):
            # Some hold the time of the import, and pointers that of the job.
            timed = ("turns.parquet", "nodes.arrow", "manifest.json")
            is_timed = name.startswith(("outputs/import", "current")) or path.name in timed
            seen[name] = b"" if is_timed else path.read_bytes()
    return seen


def leftovers(root, folders):
    return [path for name in folders for path in (Path(root) / name).glob("*")]


def undisturbed(folder, logs):
    """Build without Ray, to compare with."""
    root = folder / "undisturbed"
    done = rebuild(config(root, logs, engine="local"), StaticEncoder(), NOW, Silent())
    return done.built.version, tables(root)


def check(expected, root, version, left=("tmp", "pieces")):
    assert version == expected[0], f"{root} has version {version}, an undisturbed build {expected[0]}"
    found = tables(root)
    assert found.keys() == expected[1].keys(), sorted(found.keys() ^ expected[1].keys())[:10]
    assert found == expected[1], [name for name in found if found[name] != expected[1][name]][:10]
    assert leftovers(root, left) == []


def rebuild_in_a_process(config_path, environment, kill_after=None):
    """Run the job; kill it with SIGKILL after so many seconds, if it has not ended. Return its output, or None."""
    command = [sys.executable, "-m", "jobs.rebuild", str(config_path), "--json"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, err = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None
    assert process.returncode == 0, err
    return out


def survive_kills(folder, kills, seed=0):
    """Kill drivers at random moments of their run until so many were; yield each moment in seconds.

    A run that had ended before its moment is run to the end and compared, too, and another takes its place.
    """
    chance = random.Random(seed)
    logs = write_logs(folder)
    expected = undisturbed(folder, logs)
    with head_node("--num-cpus=2") as head:
        environment = {**head.environment, "PYTHONPATH": str(ROOT)}

        def prepared(name):
            path = folder / f"{name}.toml"
            path.write_text(to_toml(config(folder / name, logs, ray={"address": head.address})))
            return path

        began = time.monotonic()
        rebuild_in_a_process(prepared("first"), environment)
        duration = time.monotonic() - began
        check(expected, folder / "first", expected[0])
        number = 0
        while kills:
            name = f"killed-{number}"
            path = prepared(name)
            moment = chance.uniform(0.1, 0.9) * duration
            was_killed = rebuild_in_a_process(path, environment, kill_after=moment) is None
            rebuild_in_a_process(path, environment)
            check(expected, folder / name, current(folder / name))
            number += 1
            if was_killed:
                kills -= 1
                yield moment


def current(root):
    return current_version(Store.open(root))[1]


class NodeLoss(Silent):
    """Takes a node away at a moment of a build, seen from the driver."""

    def __init__(self, moment, root, lose):
        self._moment, self._root, self._lose = moment, Path(root), lose
        self._watcher = threading.Thread(target=self._watch)
        self.lost = False

    def start(self, stage, total):
        if stage != "build":
            return
        if self._moment == "before the first block":
            self._take()
        elif self._moment == "during a write":
            self._watcher.start()

    def advance(self, stage, amount):
        if stage == "build" and self._moment == "in the middle" and not self.lost:
            self._take()

    def _watch(self):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not self._is_writing():
            time.sleep(0.0005)
        if time.monotonic() < deadline:
            self._take()

    def _take(self):
        self.lost = True
        self._lose()

    def _is_writing(self):
        """Say whether a file of an output lies in a folder that is not finished."""
        return any(not (path.parent / "manifest.json").exists() for path in self._root.glob("tmp/*/turns.parquet"))


@contextmanager
def cluster_of_two():
    """Run a head with one CPU and a second node with two, and be connected to them."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100_000_000})
    try:
        second = cluster.add_node(num_cpus=2, object_store_memory=100_000_000)
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


def lose_a_node(moment, root, logs):
    """Build while a node is taken away; print the version."""
    with cluster_of_two() as (cluster, second):
        loss = NodeLoss(moment, root, lambda: cluster.remove_node(second, allow_graceful=False))
        done = rebuild(config(root, logs), StaticEncoder(), NOW, loss)
        assert loss.lost
        assert sum(node["Alive"] for node in ray.nodes()) == 1
    print(done.built.version)  # noqa: T201


def survive_losses(folder, moments):
    """Lose a node at each of some moments; yield the moment."""
    logs = write_logs(folder)
    expected = undisturbed(folder, logs)
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "PYTHONPATH": str(ROOT)}
    for number, moment in enumerate(moments):
        root = folder / f"lost-{number}"
        command = [sys.executable, "-m", "tests.pipelines.survival", "--lose", moment, str(root), *map(str, logs)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        # What the lost node left in tmp/ stays for a day: nobody can tell that it will not come back.
        check(expected, root, done.stdout.split()[-1], left=("pieces",))
        yield moment


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--losses", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lose", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.lose:
        moment, root, *logs = arguments.lose
        lose_a_node(moment, root, logs)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kills").mkdir()
        (folder / "losses").mkdir()
        for moment in survive_kills(folder / "kills", arguments.kills, arguments.seed):
            print(f"killed after {moment:.2f} s: equal", flush=True)  # noqa: T201
        for moment in survive_losses(folder / "losses", [MOMENTS[at % 3] for at in range(arguments.losses)]):
            print(f"node lost {moment}: equal", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
