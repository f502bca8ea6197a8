"""A program for `test_haproxy`: serves a store with two replicas until its input ends, and tells the port."""

import sys

from pipelines.serve_benchmark import endpoint
from tests.pipelines.endpoint import serve_config


def main() -> None:
    """Serve the store that the first argument names."""
    with endpoint(serve_config(sys.argv[1], timeout_seconds=60), replicas=2) as port:
        sys.stdout.write(f"port {port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
