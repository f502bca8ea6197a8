"""The endpoint on Ray Serve: `pipelines.serving:app`, what `serve run`, `serve deploy` and KubeRay are given.

One deployment does it all: a replica takes the request, encodes the question together with others that wait, and
searches in a thread. A second deployment behind it would cost a hop between processes for every request and share
nothing that the files, mapped by all replicas of a node, do not share already.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict
from ray import serve
from ray.serve import Application
from ray.serve.context import _get_global_client

from hgmem_core.config import Config, config_from, parse_config
from hgmem_core.encoding import Encoder
from hgmem_core.lexical import Floats
from hgmem_core.section import ConfigError
from pipelines.serve_api import make_app
from pipelines.serve_encoding import Failure, encode_together, vector_of
from pipelines.serve_service import Service, open_service

CONFIG_VARIABLE = "HGMEM_CONFIG"
"""Names the configuration where the application's arguments do not."""

SPARE_REQUESTS = 16
"""Beyond what works and waits: those that are refused at once, and looks at health."""

_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_PATHS = {"store": ["root"], "encoder": ["cache_dir", "tuned"], "retrieve": ["models"], "serve": ["keys", "audit"]}


class Arguments(BaseModel):
    """`args` of the Serve application.

    Attributes:
        config: A TOML configuration, the same as that of the jobs; without one, what `HGMEM_CONFIG` names, else the
            defaults.
        set: Single settings, such as `store.root=/data/store`.
    """

    model_config = ConfigDict(extra="forbid")

    config: str = ""
    set: list[str] = []


class Endpoint:
    """A replica."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        """Open the store, the encoder and the current version.

        Args:
            tree: The configuration.

        Raises:
            ConfigError: Others than this machine could ask, and there are no keys.
            StoreError: The keys or the audit log cannot be read or written.
        """
        config = config_from(tree)
        check_host(_http_host(), bool(config.serve.keys))
        self._service = open_service(config, self._encode)
        # The decorator's number is of the class; this is the configuration's.
        self._batch.set_max_batch_size(config.serve.batch)  # type: ignore[attr-defined]

    def __serve_build_asgi_app__(self) -> FastAPI:
        """Return the application that Serve asks."""
        return make_app(self._service)

    async def check_health(self) -> None:
        """Answer a real question; Serve replaces a replica that cannot, unless no version can be served at all.

        It replaces one that notices nothing new any more, too.
        """
        await asyncio.to_thread(self._service.probe)

    @property
    def service(self) -> Service:
        """What the routes share."""
        return self._service

    async def _encode(self, encoder: Encoder, text: str) -> Floats:
        return vector_of(await self._batch((encoder, text)))

    # No waiting for company: while one batch is encoded, the next one gathers.
    @serve.batch(max_batch_size=8, batch_wait_timeout_s=0.0)
    async def _batch(self, asked: Sequence[tuple[Encoder, str]]) -> list[Floats | Failure]:
        return await asyncio.to_thread(encode_together, asked)


def app(arguments: Arguments) -> Application:
    """Return the Serve application of a configuration.

    Raises:
        ConfigError: It cannot be read, or says something that is not allowed.
    """
    return deployed(_configured(arguments))


def deployed(config: Config, **options: Any) -> Application:  # noqa: ANN401 - as Serve has them
    """Return the Serve application of a configuration; `options` are those of Serve's deployments."""
    config = with_whole_paths(config)
    waiting = config.serve.threads + config.answer.concurrency + 2 * config.serve.queue + SPARE_REQUESTS
    deployment: Any = serve.deployment(
        name="Endpoint",
        max_ongoing_requests=waiting,
        max_queued_requests=waiting,
        # Not even the addresses of requests are logged: somebody may put a question into one.
        logging_config={"enable_access_log": False},
        backpressure_config={"status_code": 429, "retry_after_s": config.serve.retry_after_seconds},
        ray_actor_options={"num_cpus": 1},
        health_check_period_s=10,
        health_check_timeout_s=30,
        graceful_shutdown_timeout_s=config.serve.timeout_seconds + config.answer.timeout_seconds + 5,
        **options,
    )(serve.ingress()(Endpoint))  # each replica makes the application itself, of what it opened
    bound: Application = deployment.bind(config.model_dump(mode="json"))
    return bound


def _configured(arguments: Arguments) -> Config:
    path = arguments.config or os.environ.get(CONFIG_VARIABLE, "")
    try:
        text = Path(path).read_text(encoding="utf-8") if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error}") from error
    return parse_config(text, arguments.set)


def with_whole_paths(config: Config) -> Config:
    """Return a configuration whose paths do not depend on the folder that a replica stands in."""
    tree = config.model_dump(mode="json")
    for section, names in _PATHS.items():
        for name in names:
            path = tree[section][name]
            if path and "://" not in path:
                tree[section][name] = str(Path(path).absolute())
    return config_from(tree)


def check_host(host: str | None, has_keys: bool) -> None:
    """Refuse to listen to other machines without keys.

    Args:
        host: What Serve's HTTP server is bound to; None if it has none.
        has_keys: Whether keys have to come with requests.

    Raises:
        ConfigError: It does.
    """
    if host is not None and host not in _LOCAL_HOSTS and not has_keys:
        raise ConfigError(
            f"Serve listens on {host}, where other machines can ask, and there are no keys: make some with python -m "
            "jobs.keys and name their folder as serve.keys, or set http_options.host to 127.0.0.1"
        )


def _http_host() -> str | None:
    # Serve has no public way to tell a replica what its HTTP server is bound to.
    client = _get_global_client()
    assert client is not None
    host: str | None = client.http_config.host
    return host
