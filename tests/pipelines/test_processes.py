import os
import subprocess
import sys
import time

import numpy as np
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


def test_descendants_count_and_what_ended_still_does():
    with Meter() as without:
        pass
    with Meter() as meter:
        child = subprocess.Popen([sys.executable, "-c", GRANDCHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.6)  # until the meter has looked
        child.communicate()
    assert meter.usage.cpu_seconds > 0.5
    assert meter.usage.most_processes == without.usage.most_processes + 2
    assert meter.usage.wall_seconds > 1.1
    assert meter.usage.peak_memory_bytes - without.usage.peak_memory_bytes > 55_000_000


def test_what_was_used_before_does_not_count():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    with Meter() as meter:
        time.sleep(0.7)
    assert meter.usage.cpu_seconds < 0.2


def test_shared_pages_count_once():
    held = np.ones(10_000_000)
    with Meter() as alone:
        pass
    code = "import os, sys\nif os.fork() == 0: sys.stdin.read()\nelse: print('ready', flush=True); os.wait()"
    code = f"held = bytearray(b'x') * 80_000_000\n{code}"
    with Meter() as meter:
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        time.sleep(0.6)
        child.communicate()
    added = meter.usage.peak_memory_bytes - alone.usage.peak_memory_bytes
    assert 75_000_000 < added < 140_000_000
    assert held.all()


def test_work_in_a_fresh_process_has_its_environment_and_its_errors_come_back(monkeypatch):
    monkeypatch.setenv("HGMEM_KEPT", "kept")
    environment = {"HGMEM_KEPT": "other", "HGMEM_NEW": "new"}
    assert in_fresh_process(environment, os.getenv, "HGMEM_KEPT") == "other"
    assert in_fresh_process(environment, os.getpid) != os.getpid()
    assert (os.environ["HGMEM_KEPT"], "HGMEM_NEW" in os.environ) == ("kept", False)
    with pytest.raises(ConfigError, match="unknown key"):
        in_fresh_process({}, parse_config, "a = 1")
