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
