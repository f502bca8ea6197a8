"""A report in a real browser: it asks nothing, runs nothing, and can be read by everybody."""

from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from pipelines.build_report import build_page
from pipelines.evaluation_report import evaluation_page
from pipelines.report_page import render
from pipelines.store import Store
from pipelines.versions import open_version
from tests.pipelines.browser import Watched, open_browser
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.reported import EVIL, invented_result


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    path = tmp_path_factory.mktemp("reports") / "evaluation.html"
    curve = {"recipe": "hage", "rows": [{"epoch": one, "loss": 2.0 - one} for one in range(3)]}
    path.write_text(render(evaluation_page(invented_result(), "r.json", [curve])), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    said = {**rows(("ana",))[0], "id": "x1", "text": f"The wiki page says {EVIL} and nothing else."}
    log = write_jsonl(folder / "log.jsonl", [*rows(), said, {**said, "id": "x2", "time": EVIL}, EVIL])
    run(config_of(folder / "store", log, imports={"max_reject_rate": 0.5}))
    path = folder / "build.html"
    path.write_text(render(build_page(open_version(Store.open(folder / "store")))), encoding="utf-8")
    return path


@contextmanager
def opened(browser, path, **settings):
    context = browser.new_context(**settings)
    page = context.new_page()
    page.watched = Watched(page)
    page.goto(path.as_uri())
    yield page
    assert page.watched.errors == []
    assert page.watched.dialogs == []
    assert page.watched.requests == [path.as_uri()]
    context.close()


def serious(page):
    found = Axe().run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


def open_all(page):
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["evaluation", "build"])
def test_everybody_can_read_a_report(browser, request, name, scheme):
    with opened(browser, request.getfixturevalue(name), color_scheme=scheme) as page:
        open_all(page)
        assert serious(page) == []


def test_texts_of_a_log_stay_texts(browser, evaluation):
    with opened(browser, evaluation) as page:
        expect(page.get_by_role("heading", name=f"What does {EVIL} mean?")).to_be_visible()
        expect(page.locator("blockquote").first).to_have_text(f"Ana: The wiki says {EVIL}")
        assert page.locator("img, script").count() == 0


def test_raw_rows_of_a_log_stay_texts(browser, build):
    with opened(browser, build) as page:
        open_all(page)
        raw = page.get_by_role("region", name="Examples of rejects").get_by_role("cell", name="<img src=x")
        expect(raw).to_have_count(2)  # a reason that quotes it, and the start of a row
        assert page.locator("img, script").count() == 0


def test_charts_have_texts_and_the_colours_of_the_page(browser, evaluation):
    inks = []
    for scheme in ("light", "dark"):
        with opened(browser, evaluation, color_scheme=scheme) as page:
            label = page.locator("svg text", has_text="1 multi-hop").first
            expect(label).to_be_visible()
            inks.append(label.evaluate("(one) => getComputedStyle(one).fill"))
            assert inks[-1] == page.evaluate("getComputedStyle(document.body).color")
    assert len(set(inks)) == 2


def test_on_a_telephone_nothing_but_tables_is_wider_than_the_page(browser, evaluation):
    with opened(browser, evaluation, viewport={"width": 360, "height": 700}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_it_is_printed_light_and_unfolded(browser, evaluation):
    with opened(browser, evaluation, color_scheme="dark") as page:
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(22, 25, 29)"
        expect(page.get_by_role("heading", name="Who plays the violin?")).to_be_visible()
