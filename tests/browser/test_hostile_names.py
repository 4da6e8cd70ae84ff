"""Names of a trace are text, whatever stands in them: nothing of them runs, nothing is asked for.

Once with the page's content security policy, which must have nothing to forbid, and once without
it: escaping alone is enough.
"""

import re

import pytest

import tracelab
from tests.browser.using import drag, hover_over_all, ready, view
from tests.build.hostile import PAYLOADS, poisoned
from tests.bundled_traces import FOLDER
from tracelab.findings.remedies import REMEDIES

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
# What is not seen, or turns the direction of writing; a page has line ends alone.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    trace = poisoned(FOLDER / "events_item.pt.trace.json.gz", folder)
    page = folder / "page.html"
    tracelab.write_page(trace, page)
    return page


@pytest.fixture(scope="module")
def hostile_job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile_job")
    for rank in (0, 1):
        source = FOLDER / f"ddp_hook_side_stream_rank{rank}.pt.trace.json.gz"
        trace = poisoned(source, folder, f"'\"><b>{rank}_rank{rank}.json.gz")
    page = folder / "page.html"
    tracelab.write_page(trace.parent, page)
    return page


@pytest.fixture(scope="module")
def harmless_page(tmp_path_factory):
    page = tmp_path_factory.mktemp("harmless") / "page.html"
    tracelab.write_page(FOLDER / "events_item.pt.trace.json.gz", page)
    return page


@pytest.fixture(params=["hostile_page", pytest.param("hostile_job", marks=pytest.mark.slow)])
def path(request):
    return request.getfixturevalue(request.param)


def without_policy(path, folder):
    text, count = POLICY.subn("", path.read_text())
    assert count == 1
    other = folder / "without_policy.html"
    other.write_text(text)
    return other


def use_everything(page):
    """Everything that a reader can do with a page; what was said of its activities."""
    ready(page)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    page.evaluate("document.querySelectorAll('.sort, .copy').forEach(one => one.click())")
    for box in page.locator(".filter:visible").all():
        box.fill("<script>")
        box.fill("")
    said = hover_over_all(page)
    for option in page.locator("#window option").all():
        page.select_option("#window", value=option.get_attribute("value"))
    for button in page.locator("li.finding button.show").all():
        button.click()
    said |= hover_over_all(page)
    for payload in PAYLOADS:
        page.fill("#search", payload.replace("\r", "").replace("\n", ""))
        page.press("#search", "Enter")
    page.fill("#search", "")
    page.focus("#lanes")
    for key in ["Home", *["ArrowRight"] * 10, "j", *["ArrowRight"] * 5, *"jjwwsdakknnp+-", "?"]:
        page.keyboard.press(key)
    page.keyboard.press("Escape")
    drag(page, "#lanes", 0.3, 0.6)
    page.click("#theme")
    page.click("#help")
    page.keyboard.press("Escape")
    page.evaluate("location.hash = '#f=1&t=<img src=x onerror=window.pwned=99>'")
    page.emulate_media(media="print")
    page.emulate_media(media="screen")
    return said


def elements(page, *more):
    """How many elements there are of each kind that a name could have brought."""
    return page.evaluate(
        """more => Object.fromEntries(
          ["script", "style", "link", "img", "iframe", "base", "object", "embed", ...more]
          .map(name => [name, document.querySelectorAll(name).length]))""",
        more,
    )


def handlers(page):
    """Attributes that run or load something."""
    return page.evaluate(
        """() => [...document.querySelectorAll("*")].flatMap(one => [...one.attributes])
          .map(attribute => attribute.name).filter(name => /^on|^srcdoc$|^src$/.test(name))"""
    )


@pytest.mark.parametrize(
    "has_policy", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["policy", "no policy"]
)
def test_nothing_of_a_name_runs_or_becomes_an_element(
    open_page, path, harmless_page, has_policy, tmp_path
):
    page = open_page(path if has_policy else without_policy(path, tmp_path))
    said = use_everything(page)
    assert page.evaluate("window.pwned") is None
    assert view(page)  # the page's own scripts are still alive
    assert elements(page, "meta")["meta"] == 3 + has_policy
    assert elements(page) == elements(open_page(harmless_page))
    assert handlers(page) == []
    assert any("window.pwned=" in text for text in said)


def test_links_are_ours(open_page, path):
    links = open_page(path).evaluate("[...document.links].map(one => one.getAttribute('href'))")
    outside = {link for link in links if not link.startswith("#")}
    assert outside <= {remedy.url for remedy in REMEDIES}


def test_what_is_not_seen_is_written_out(path):
    text = path.read_text()
    assert UNSEEN.findall(text) == []
    assert r"\u202egnp.elif\u2066\u200f" in text
