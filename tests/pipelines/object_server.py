"""A server of object storage for tests, over HTTP on loopback: it counts what it is asked, and fails when told to."""

import itertools
import threading
from collections import Counter
from contextlib import contextmanager
from urllib.parse import parse_qs
from urllib.request import Request, urlopen

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

NAMES = itertools.count()


class ObjectServer:
    """moto's S3 with a door in front of it.

    `asked` holds (method, key, status), `prefixes` what was listed. `faults` is called with (method, key) and returns
    an HTTP status that is answered in the place of the server, or None; `lost` likewise, after the server did what it
    was asked.
    """

    def __init__(self):
        self._app = create_backend_app("s3")
        self._one_at_a_time = threading.Lock()
        self.asked = []
        self.prefixes = []
        self.faults = self.lost = lambda method, key: None
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def new_bucket(self):
        """Make a bucket and return its address; forgets what was asked before."""
        name = f"bucket-{next(NAMES)}"
        with urlopen(Request(f"{self.url}/{name}", method="PUT")) as answer:
            assert answer.status == 200
        self.asked = []
        return f"s3://{name}"

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ, start_response):
        method, key = environ["REQUEST_METHOD"], environ["PATH_INFO"].partition("/")[2].partition("/")[2]
        query = parse_qs(environ["QUERY_STRING"])
        if "list-type" in query:
            method = "LIST"
            self.prefixes += query.get("prefix", [""])
        status = self.faults(method, key)
        if status is None:
            answered = []
            # moto looks whether an object is there and then writes it: of two writers at once both may.
            with self._one_at_a_time:
                body = self._app(environ, lambda status, headers, info=None: answered.append((status, headers)))
                content = b"".join(body)
            status = self.lost(method, key)
            if status is None:
                self.asked.append((method, key, int(answered[0][0][:3])))
                start_response(*answered[0])
                return [content]
        self.asked.append((method, key, status))
        start_response(f"{status} Fault", [("Content-Length", "0")])
        return [b""]

    def counts(self):
        """How often each method was asked for what; forgets it."""
        asked, self.asked, self.prefixes = self.asked, [], []
        return Counter((method, key) for method, key, _ in asked)

    @contextmanager
    def failing(self, **how):
        """Have `faults` or `lost` inside the `with`."""
        before = {name: getattr(self, name) for name in how}
        vars(self).update(how)
        try:
            yield
        finally:
            vars(self).update(before)


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type, message, *args):
        """Say nothing of each request."""


def times(count, status, wanted=lambda method, key: True):
    """A fault that comes so many times."""
    left = itertools.count(count, -1)
    return lambda method, key: status if wanted(method, key) and next(left) > 0 else None
