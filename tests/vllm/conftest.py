"""Tests with the real vLLM on CPUs, in an environment of their own; elsewhere there is nothing to collect here."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from tempfile import TemporaryFile

import pytest

from tests.vllm.tiny_qwen3 import write_tiny_qwen3

collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]

# Set before Ray starts, so that its workers have it, too.
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}

# Engines end with the process, when pytest has closed what they then write to.
logging.raiseExceptions = False

CONTEXT_TOKENS = 4_096
ENGINE_KWARGS = {"dtype": "float32", "enforce_eager": True, "max_model_len": CONTEXT_TOKENS}
# Without it greedy decoding may go on with blanks for ever.
OUTPUTS = {"backend": "xgrammar", "disable_any_whitespace": True, "reasoning_parser": "qwen3"}

STARTS_WITHIN_SECONDS = 600
ENDS_WITHIN_SECONDS = 60


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """The folder of a tiny model, by its kind."""
    folder = tmp_path_factory.mktemp("models")
    return {kind: write_tiny_qwen3(folder / kind, kind) for kind in ("chat", "embedding", "reranker", "scorer")}


@contextmanager
def served(folder, *arguments):
    """Run vLLM's server for a model, and give its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    engine = ["--dtype", "float32", "--enforce-eager", "--max-model-len", str(CONTEXT_TOKENS)]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", address[0]]
    command += ["--port", str(address[1]), "--model", str(folder), "--served-model-name", "tiny", *engine, *arguments]
    with TemporaryFile() as log:
        # A group of its own, by whose number its engine's processes are ended with it.
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            _wait(server, address, log)
            yield f"http://{address[0]}:{address[1]}"
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(ENDS_WITHIN_SECONDS)
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait(server, address, log):
    """Wait until a server listens; fail with what it wrote if it ends before, or takes too long."""
    until = time.monotonic() + STARTS_WITHIN_SECONDS
    while time.monotonic() < until and server.poll() is None:
        with suppress(ConnectionRefusedError), socket.create_connection(address):
            return
        with suppress(subprocess.TimeoutExpired):
            server.wait(0.5)
    log.seek(0)
    pytest.fail(f"no server: {log.read().decode(errors='replace')}")
