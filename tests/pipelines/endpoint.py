"""A small store behind the endpoint's application, asked in this process without Serve."""

from contextlib import contextmanager
from datetime import UTC, datetime

from starlette.testclient import TestClient

from pipelines.serve_api import make_app
from pipelines.serve_keys import Grant, make_key
from pipelines.serve_service import open_service
from tests.pipelines.logs import config_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def serve_config(root, **serve):
    """The configuration of an endpoint for a store with the static encoder."""
    return config_of(root, serve=serve)


def key_for(folder, *grants):
    """Make a key and return it."""
    return make_key(folder, [Grant.parse(grant) for grant in grants], NOW)[1]


@contextmanager
def client_of(config, key=None, client=("127.0.0.1", 50_000), encode=None):
    """Give a client of an application of its own."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    service = open_service(config, encode)
    with TestClient(
        make_app(service), "http://localhost", headers=headers, client=client, raise_server_exceptions=False
    ) as asked:
        asked.service = service
        yield asked
