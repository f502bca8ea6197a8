"""The page at `/`, in a real browser."""

import re
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.pipelines.browser import Watched, open_browser, serving
from tests.pipelines.endpoint import key_for, serve_config
from tests.pipelines.logs import config_of, rows, run, write_jsonl

EVIL = "<img src=x onerror=\"alert('run')\"><script>alert('run')</script>"
QUESTION = "Where is the red bicycle?"


SUBJECTS = {
    "bicycle": [
        "Where is the red bicycle?",
        "The red bicycle is in the cellar.",
        "Its brakes and its chain are rusty.",
    ],
    "violin": ["Who plays the violin?", "My sister plays the violin in Porto.", "Her orchestra rehearses on Monday."],
    "garden": ["What grows in the garden?", "Tomatoes and mint grow behind the house.", "Snails ate the lettuce."],
    "boiler": ["Is the boiler repaired?", "The landlord repairs the boiler on Friday.", "It leaks hot water."],
}
"""What is said in a session about each; in a second one the same in other words."""


def log_rows():
    """Rows of Ana's log: two sessions on each subject, the second one a month later."""
    for month in (3, 4):
        for day, texts in enumerate(SUBJECTS.values(), 1):
            for number, text in enumerate(texts):
                yield {
                    "id": f"m{month}{day}{number}",
                    "user": "ana",
                    "session": f"s{month}{day}",
                    "time": f"2024-{month:02d}-{day:02d}T18:0{number}:00+00:00",
                    "speaker": ("Bo", "Ana")[number > 0],
                    "text": text if month == 3 else f"As I said: {text}",
                }


def evil_row(number, text, session):
    time = f"2024-05-0{number}T18:00:00+00:00"
    return {"id": f"x{number}", "user": "ana", "session": session, "time": time, "speaker": "Ana", "text": text}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explored")
    evil = [
        evil_row(1, f"The wiki page says {EVIL} and nothing else.", "s5"),
        evil_row(2, f"{EVIL} was on the wiki, again.", EVIL),
    ]
    timeless = [{**row, "user": "dora", "time": None} for row in rows(("ana",), 4)]
    log = write_jsonl(folder / "log.jsonl", [*log_rows(), *evil, *timeless, *rows(("bo",))])
    run(config_of(folder / "store", log))
    return folder / "store"


@pytest.fixture(scope="module")
def address(root):
    with serving(serve_config(root)) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser, address):
    """The page, opened; whatever is done with it, it may not fail, nor ask anything but the endpoint."""
    with opened(browser, address) as page:
        yield page


@contextmanager
def opened(browser, address, **settings):
    context = browser.new_context(**settings)
    context.set_default_timeout(20_000)
    page = context.new_page()
    page.watched = Watched(page)
    page.goto(address)
    yield page
    assert page.watched.errors == []
    assert page.watched.dialogs == []
    assert {urlsplit(url).netloc for url in page.watched.requests} == {urlsplit(address).netloc}
    context.close()


def ask(page, query=QUESTION, namespace="acme/ana", **fields):
    page.get_by_label("Namespace").fill(namespace)
    page.get_by_role("searchbox", name="Question").fill(query)
    for label, value in fields.items():
        page.locator("form").get_by_label(label).fill(value)
    page.get_by_role("button", name="Ask").click()


def hits(page):
    return page.get_by_role("tabpanel", name="Turns").get_by_role("listitem")


def test_a_question_shows_hits_with_day_speaker_source_and_scores(page):
    expect(page.get_by_role("heading", name="Ask a memory")).to_be_visible()
    ask(page)
    first = hits(page).first
    expect(first).to_contain_text("red bicycle")
    expect(first).to_contain_text(re.compile(r"2024-0\d-\d\d 18:0\d(Ana|Bo)"))
    expect(first).to_contain_text(re.compile(r"session s\d+ · position \d+ · source m\d+"))
    expect(first).to_contain_text(re.compile(r"dense/fact#\d+0\.\d+"))
    expect(page.get_by_role("status")).to_contain_text(re.compile(r"10 hits by hypergraph in \d+ ms"))
    expect(page.get_by_role("heading", name="Ask a memory")).to_be_hidden()


def test_version_and_counts_are_shown(page):
    ask(page)
    expect(page.locator("header")).to_contain_text(re.compile("version[0-9a-f]{16}pointer1"))
    expect(page.get_by_role("region", name="What was said when")).to_contain_text(
        re.compile(r"turns26sessions10facts\d")
    )


def test_a_hit_leads_to_its_memory_and_from_there_to_its_fact(page):
    ask(page)
    hits(page).nth(2).get_by_role("button").first.click()
    memory = page.get_by_role("tabpanel", name="Memory")
    text = hits(page).nth(2).get_by_role("button").first.inner_text()
    expect(memory).to_contain_text(text)
    memory.get_by_role("listitem").filter(has=page.locator(".level.fact")).first.get_by_role("button").first.click()
    expect(memory.get_by_role("heading", name="fact")).to_be_visible()
    expect(memory).to_contain_text("Sources")


def test_the_levels_and_the_context_are_a_tab_away(page):
    ask(page)
    page.get_by_role("tab", name=re.compile("Facts")).click()
    expect(page.get_by_role("tabpanel", name="Facts").get_by_role("listitem").first).to_contain_text("red bicycle")
    page.get_by_role("tab", name="Context").click()
    context = page.get_by_role("tabpanel", name="Context")
    expect(context).to_contain_text("[1]")
    context.get_by_role("listitem").first.get_by_role("button").first.click()
    expect(page.get_by_role("tabpanel", name="Memory")).to_contain_text("turn")


def test_what_a_log_says_is_text_and_nothing_else(page):
    ask(page, "What does the wiki page say?")
    expect(hits(page).first).to_contain_text(EVIL)
    expect(page.get_by_role("tabpanel", name="Memory")).to_contain_text(EVIL)
    expect(page.get_by_role("group", name=re.compile("Hypergraph"))).to_contain_text("<img src=x")
    page.get_by_role("tab", name="Context").click()
    expect(page.get_by_role("tabpanel", name="Context")).to_contain_text(EVIL)
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2  # the page's own
    page.wait_for_load_state("networkidle")


def test_the_policy_forbids_markup_from_strings_and_other_addresses(browser, address):
    context = browser.new_context()
    page = context.new_page()
    response = page.goto(address)
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    refused = """() => new Promise((done) => {
        document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
        %s
    })"""
    tries = {
        "require-trusted-types-for": "try { document.body.innerHTML = '<b>x</b>' } catch {}",
        "img-src": "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.2:9/x'}))",
        "connect-src": "fetch('http://127.0.0.2:9/x').catch(() => {})",
        "style-src-attr": "document.body.setAttribute('style', 'color: red')",
    }
    for directive, script in tries.items():
        assert page.evaluate(refused % script) == directive
    context.close()


def test_every_level_of_the_hypergraph_is_drawn_with_lines_between(page):
    ask(page, "bicycle violin garden boiler")
    graph = page.get_by_role("group", name=re.compile("Hypergraph"))
    expect(graph.get_by_role("button", name="hit 1: ")).to_have_attribute("aria-pressed", "true")
    assert graph.get_by_role("button", name=re.compile("^topic: ")).count() > 1
    for level in ("episode", "fact"):
        assert graph.get_by_role("button", name=re.compile(f"^{level}: ")).count() > 3
    assert graph.get_by_role("button", name=re.compile("^hit ")).count() == 10
    lines = graph.locator("path.link")
    assert lines.count() >= 12
    assert all(re.match(r"M\d", line.get_attribute("d")) for line in lines.all())
    graph.get_by_role("button", name=re.compile("^topic: ")).first.click()
    expect(page.get_by_role("tabpanel", name="Memory").get_by_role("heading", name="topic")).to_be_visible()


def test_a_walk_shows_the_way_to_a_hit(page):
    page.get_by_label("Recipe").select_option("magma-static")
    ask(page)
    way = hits(page).filter(has_text="way:").first
    expect(way).to_contain_text(re.compile(r"way: .*(temporal|semantic|causal|entity) →this"))
    expect(page.locator("#hypergraph path[marker-end]").first).to_be_attached()
    way.get_by_role("button").last.click()
    expect(page.get_by_role("tabpanel", name="Memory")).to_contain_text("turn")


def test_the_time_line_says_when_the_hits_were(page):
    ask(page, "What does the wiki page say?", **{"Hits": "1"})
    strip = page.get_by_role("img", name="26 turns from 2024-03-01 to 2024-05-02; hits of 2024-05-01")
    expect(strip).to_be_visible()
    assert strip.locator("rect").count() > 50
    ask(page, namespace="acme/dora")
    expect(page.get_by_text("No turn of this namespace has a time.")).to_be_visible()


def test_filters_are_asked_with(page):
    page.get_by_text("Filters").click()
    ask(page, **{"Said from": "2024-03-02", "Said to": "2024-03-02"})
    expect(hits(page)).to_have_count(3)
    expect(hits(page).filter(has_text="2024-03-02")).to_have_count(3)
    ask(page, Speaker="Nobody")
    expect(page.get_by_role("status")).to_contain_text("No turn of this namespace passes the filters.")


def test_an_empty_namespace_and_an_empty_question_say_so(page):
    ask(page, namespace="acme/nobody")
    expect(page.get_by_role("status")).to_contain_text("This version has nothing of that namespace")
    ask(page, "the of and")
    expect(page.get_by_role("status")).to_contain_text("The question has no word to search for")


def test_better_not_answered_is_shown_with_its_reason(page):
    def doubted(route):
        answer = route.fetch()
        doubt = {"code": "name", "text": "the memory does not know Zoe"}
        told = {"probability": 0.12, "abstains": True, "reason": doubt}
        route.fulfill(response=answer, json={**answer.json(), "abstention": told})

    page.route("**/v1/search", doubted)
    ask(page)
    status = page.get_by_role("status")
    expect(status).to_contain_text("Better not answered: the memory does not know Zoe.")
    expect(status).to_contain_text("held with probability 0.12")


def test_an_endpoint_that_is_gone_is_no_endless_wait(page):
    page.route("**/v1/search", lambda route: route.abort())
    ask(page)
    expect(page.get_by_role("alert")).to_contain_text("the endpoint does not answer; is it still running?")
    page.unroute("**/v1/search")
    page.route("**/v1/memories/get", lambda route: route.fulfill(status=502, body="<b>bad gateway</b>"))
    ask(page)
    expect(page.get_by_role("tabpanel", name="Memory")).to_contain_text("what answered is not the endpoint")
    expect(hits(page)).to_have_count(10)


def test_the_last_question_wins(page):
    waiting = []
    page.route("**/v1/search", lambda route: waiting.append(route) if len(waiting) < 1 else route.continue_())
    ask(page, "Who plays the violin?")
    ask(page)
    expect(hits(page).first).to_contain_text("bicycle")
    waiting[0].abort()
    expect(page.get_by_role("alert")).to_be_empty()
    expect(hits(page).first).to_contain_text("bicycle")


def test_a_refusal_is_shown_in_the_endpoints_own_words(page):
    ask(page, namespace="acme/../ana")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("(422)")
    expect(alert).to_contain_text("namespace no namespace: segments of printable text")
    ask(page)
    expect(alert).to_be_empty()
    expect(hits(page)).to_have_count(10)


def test_the_key_stays_in_the_tab(browser, root, tmp_path):
    key = key_for(tmp_path / "keys", "acme/ana:read")
    with serving(serve_config(root, keys=str(tmp_path / "keys"), audit=str(tmp_path / "audit"))) as address:
        with opened(browser, address) as page:
            dialog = page.get_by_role("dialog", name="Key")
            expect(dialog).to_contain_text("This endpoint asks for a key.")
            dialog.get_by_label("Key").fill("hgm_wrong")
            page.keyboard.press("Enter")
            expect(dialog).to_contain_text("The endpoint does not take this key.")
            dialog.get_by_label("Key").fill(key)
            page.keyboard.press("Enter")
            expect(dialog).to_be_hidden()
            ask(page)
            expect(hits(page)).to_have_count(10)
            ask(page, namespace="acme/bo")
            expect(page.get_by_role("alert")).to_contain_text("Forbidden (403)")
            expect(page.get_by_role("alert")).to_contain_text("the key has no right to read there")
            kept = "[JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie, location.href]"
            assert page.evaluate(kept) == ["{}", "{}", "", f"{address}/"]
            assert key not in page.content()
            page.reload()
            expect(dialog).to_contain_text("This endpoint asks for a key.")


def test_it_is_used_by_keyboard_alone(page):
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the results")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Key")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("acme/ana")
    page.keyboard.press("Tab")
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    expect(hits(page)).to_have_count(10)
    seen = [focused(page)]
    while len(seen) < 100 and "tab Memory" not in seen:
        page.keyboard.press("Tab")
        seen.append(focused(page))
        if seen[-1].startswith("button hit 1"):
            page.keyboard.press("ArrowDown")
            expect(page.get_by_role("button", name="hit 2: ")).to_be_focused()
            page.keyboard.press("ArrowLeft")
            expect(
                page.get_by_role("button", name=re.compile("^(fact|episode): ")).and_(page.locator(":focus"))
            ).to_be_visible()
            page.keyboard.press("Enter")
            expect(page.get_by_role("tabpanel", name="Memory").locator("h3")).not_to_have_text("turn")
    assert "tab Memory" in seen and any(one.startswith("button hit 1") for one in seen)
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Context")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Context")).to_be_visible()
    page.get_by_role("heading", name="hgmem Explorer").click()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Question")).to_be_focused()


def focused(page):
    """Role and name of what has the focus, which has to be seen."""
    about = page.evaluate("""() => {
        const one = document.activeElement;
        const style = getComputedStyle(one);
        const label = one.ariaLabel ?? one.textContent.trim().slice(0, 40);
        return [style.outlineStyle, one.getAttribute("role") ?? one.localName, label];
    }""")
    assert about[0] != "none", about
    return " ".join(about[1:])


def test_axe_finds_nothing(browser, address):
    with opened(browser, address, color_scheme="light") as page:
        assert violations(page) == []
        answered(page)
        assert violations(page) == []
        ask(page, namespace="a//b")
        expect(page.get_by_role("alert")).to_contain_text("(422)")
        page.get_by_role("button", name="Key").click()
        assert violations(page) == []


def test_axe_finds_nothing_in_the_dark(browser, address):
    with opened(browser, address, color_scheme="dark") as page:
        answered(page)
        assert violations(page) == []


def answered(page):
    """Ask by a recipe that walks, so that every part of the page has something to show."""
    page.get_by_label("Recipe").select_option("magma-static")
    ask(page)
    expect(hits(page)).to_have_count(10)
    expect(page.get_by_role("tabpanel", name="Memory")).to_contain_text("Hyperedges")


def violations(page):
    """What axe has against the page as it stands, whatever its impact."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]


def test_dark_mode_is_dark(browser, address):
    brightness = {}
    for scheme in ("light", "dark"):
        with opened(browser, address, color_scheme=scheme) as page:
            ask(page)
            expect(hits(page)).to_have_count(10)
            colours = page.evaluate(
                "[...document.querySelectorAll('body, #found > section, input, .node:not(.near)')]"
                ".map((one) => getComputedStyle(one).backgroundColor)"
            )
            brightness[scheme] = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours]
    assert min(brightness["light"]) > 600 and max(brightness["dark"]) < 300


def test_a_narrow_screen_is_not_scrolled_sideways(browser, address):
    with opened(browser, address, viewport={"width": 360, "height": 700}) as page:
        ask(page)
        expect(hits(page)).to_have_count(10)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        hits(page).nth(5).get_by_role("button").first.click()
        expect(page.get_by_role("tabpanel", name="Memory")).to_be_in_viewport()
