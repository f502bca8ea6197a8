"""A browser for tests of pages, and the endpoint's application on a port of loopback for it to ask."""

import os
import socket
import threading
from contextlib import contextmanager

import pytest
import uvicorn
from playwright.sync_api import sync_playwright

from pipelines.serve_api import make_app
from pipelines.serve_service import open_service

BROWSER_VARIABLE = "HGMEM_BROWSER"
"""Names a Chromium; tests fail where it is set and there is none, and are skipped where it is not set."""

DEFAULT_BROWSER = "/usr/bin/chromium"


@contextmanager
def open_browser():
    """Give a headless Chromium."""
    path = os.environ.get(BROWSER_VARIABLE, DEFAULT_BROWSER)
    if BROWSER_VARIABLE not in os.environ and not os.path.exists(path):
        pytest.skip(f"there is no {path}: install Debian's chromium, or name another one as {BROWSER_VARIABLE}")
    with sync_playwright() as playwright:
        # Its sandbox does not work for root, as whom tests may run; it sees nothing but this project's own page.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def serving(config):
    """Answer on loopback and give the address."""
    listener = socket.create_server(("127.0.0.1", 0))  # who connects before the server is ready waits in its queue
    server = uvicorn.Server(uvicorn.Config(make_app(open_service(config)), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://localhost:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()


class Watched:
    """What a page did that a person may not see.

    Attributes:
        requests: The addresses that it asked.
        errors: Of its scripts, and what its policy forbade.
        dialogs: What it opened.
    """

    def __init__(self, page):
        self.requests, self.errors, self.dialogs = [], [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)
        page.on("dialog", self._opened)

    def _said(self, message):
        # A refused request is the endpoint's answer, and shown by the page as such.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.errors.append(message.text)

    def _opened(self, dialog):
        self.dialogs.append(dialog.message)
        dialog.dismiss()
