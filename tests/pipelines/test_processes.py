import os
import subprocess
import sys
import time

import pytest

from hgmem_core.config import parse_config
from hgmem_core.section import ConfigError
from pipelines.processes import Meter, in_fresh_process

BUSY = """
import sys, time
held = bytearray(b"x") * 60_000_000
while time.process_time() < 0.6: pass
print("ready", flush=True)
sys.stdin.read()
"""
# A child that is busy and a parent that waits for it, as a Ray worker below its servers.
GRANDCHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
SHARED = """
import os, sys
held = bytearray(b"x") * 80_000_000
if os.fork() == 0: sys.stdin.read()
else: print("ready", flush=True); os.wait()
"""


# A session of Ray that other tests share, and its workers, are descendants of the tests' process too: what is measured
# here is a process of its own, below which is what it starts.
def test_descendants_count_and_what_ended_still_does():
    without, usage = in_fresh_process({}, with_a_child, GRANDCHILD)
    assert usage.cpu_seconds > 0.5
    assert usage.most_processes == without.most_processes + 2
    assert usage.wall_seconds > 1.1
    assert usage.peak_memory_bytes - without.peak_memory_bytes > 55_000_000


def test_what_was_used_before_does_not_count():
    assert in_fresh_process({}, busy_then_idle).cpu_seconds < 0.2


def test_shared_pages_count_once():
    without, usage = in_fresh_process({}, with_a_child, SHARED)
    assert 75_000_000 < usage.peak_memory_bytes - without.peak_memory_bytes < 140_000_000


def with_a_child(code):
    """What this process uses without and with a child that runs some code."""
    with Meter() as without:
        pass
    with Meter() as meter:
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.6)  # until the meter has looked
        child.communicate()
    return without.usage, meter.usage


def busy_then_idle():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    with Meter() as meter:
        time.sleep(0.7)
    return meter.usage


def test_work_in_a_fresh_process_has_its_environment_and_its_errors_come_back(monkeypatch):
    monkeypatch.setenv("HGMEM_KEPT", "kept")
    environment = {"HGMEM_KEPT": "other", "HGMEM_NEW": "new"}
    assert in_fresh_process(environment, os.getenv, "HGMEM_KEPT") == "other"
    assert in_fresh_process(environment, os.getpid) != os.getpid()
    assert (os.environ["HGMEM_KEPT"], "HGMEM_NEW" in os.environ) == ("kept", False)
    with pytest.raises(ConfigError, match="unknown key"):
        in_fresh_process({}, parse_config, "a = 1")
