"""The files of the page at `/`, as they are answered; what the page does with them is in test_explorer.py."""

import hashlib
import re

import pytest

from pipelines.serve_explorer import read_assets
from tests.pipelines.endpoint import client_of, key_for, serve_config
from tests.pipelines.test_serve_api import problem_of

D3_SHA256 = "912111098ea99503a6f4967361d2bbdc9dbf58cf9c678c8e27e5b02d1a07f0c1"


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """A client without a key of an endpoint that has keys, and a store without a version."""
    folder = tmp_path_factory.mktemp("served")
    key_for(folder / "keys", "acme:read")
    with client_of(serve_config(folder / "store", keys=str(folder / "keys"), audit=str(folder / "audit"))) as client:
        yield client


def test_the_page_needs_no_key_and_no_version(ask):
    for path in read_assets():
        assert ask.get(path).status_code == 200
    assert ask.get("/v1/version").status_code == 401


def test_the_page_names_only_files_that_there_are(ask):
    page = ask.get("/").text
    named = re.findall(r'(?:src|href)="(?!#)([^"]*)"', page)
    assert len(named) == 4
    assert {f"/{name}" for name in named} <= read_assets().keys()
    for path in read_assets():
        for name in re.findall(r'from "\./([^"]*)"', ask.get(path).text):
            assert f"/explorer/{name}" in read_assets()


def test_headers_let_it_run_and_reach_nothing_else(ask):
    for path in read_assets():
        headers = ask.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
    assert ask.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert ask.get("/explorer/main.js").headers["content-type"].startswith("text/javascript")


def test_what_a_browser_has_is_not_sent_again(ask):
    first = ask.get("/explorer/d3.min.js")
    assert first.headers["cache-control"] == "no-cache"
    again = ask.get("/explorer/d3.min.js", headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert ask.get("/explorer/d3.min.js", headers={"If-None-Match": '"other"'}).content == first.content


def test_other_names_and_other_origins_are_refused_here_too(ask):
    problem_of(ask.get("/", headers={"Host": "evil.example.com"}), 421)
    problem_of(ask.get("/explorer/main.js", headers={"Origin": "https://evil.example.com"}), 403)


@pytest.mark.parametrize("path", ["/explorer/", "/explorer/none.js", "/explorer/../serve_api.py", "/explorer/%2e%2e/x"])
def test_nothing_else_is_in_its_folder(ask, path):
    assert ask.get(path).status_code in (401, 404)


def test_the_library_is_the_one_that_was_published():
    assert hashlib.sha256(read_assets()["/explorer/d3.min.js"].content).hexdigest() == D3_SHA256


@pytest.mark.parametrize("path", [path for path in read_assets() if path.endswith(".js") and "d3" not in path])
def test_no_module_makes_markup_of_strings_or_keeps_anything(path):
    source = read_assets()[path].content.decode()
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|localStorage|sessionStorage|cookie ="
    assert not re.search(forbidden, source)
