"""Settings of all tests, and the one Ray that some of them share."""

import os
import secrets
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are shared: how long an example takes says nothing about the code.
settings.register_profile("hgmem", deadline=None)
settings.load_profile("hgmem")

# A token of the tests' own, set before anything imports Ray, which would else make one in the user's home.
_FOLDER = tempfile.TemporaryDirectory(prefix="hgmem-")
_TOKEN = Path(_FOLDER.name) / "token"
_TOKEN.touch(mode=0o600)
_TOKEN.write_text(secrets.token_hex(32))
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(_TOKEN), "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="session")
def local_ray():
    """A Ray of two CPUs that this process is connected to."""
    import ray

    ray.init(address="local", num_cpus=2, object_store_memory=100_000_000, log_to_driver=False, include_dashboard=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def storage_server():
    """A server of object storage on loopback."""
    from tests.pipelines.object_server import ObjectServer

    server = ObjectServer()
    yield server
    server.close()


@pytest.fixture
def object_server(storage_server, tmp_path, monkeypatch):
    """The server, as this test's environment names it; the mirrors are this test's own."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", storage_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return storage_server


@pytest.fixture
def bucket(object_server):
    """The address of a bucket of this test's own."""
    return object_server.new_bucket()
