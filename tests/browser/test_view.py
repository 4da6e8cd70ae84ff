"""The served page hands its trace to Perfetto, which shows there what was clicked."""

import contextlib
import threading
from pathlib import Path

import pytest

from tests.browser.viewers import QUERY
from tracelab.analysis.reports import analyze_file, merge_results
from tracelab.base.options import Options
from tracelab.outputs.view import contents, viewed
from tracelab.read.sources import find_sources
from tracelab.render.html.page import (
    Served,
    ServedTrace,
    asset,
    content_security_policy,
    script_json,
)
from tracelab.system.loopback import LoopbackServer, content_of_bytes, content_of_file

TRACES = Path(__file__).parents[2] / "traces"
ITEM = TRACES / "events_item.pt.trace.json.gz"
PAGEABLE = TRACES / "copies_pageable.pt.trace.json.gz"

LOADED = "() => window.app && app.trace && app.trace.engine && !app.isLoadingTrace"
VISIBLE = """() => {
  const shown = app.trace.timeline.visibleWindow;
  return [Number(shown.start.integral) + shown.start.fractional, shown.duration];
}"""


@contextlib.contextmanager
def served(contents):
    with LoopbackServer() as server:
        thread = threading.Thread(target=server.serve, args=(contents,))
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def open_served(open_page):
    """Open what is served; nothing of it reaches beyond this machine."""

    def open_(url, **options):
        page = open_page(url, service_workers="block", **options)
        page.context.route(
            lambda address: not address.startswith("http://127.0.0.1:"), lambda route: route.abort()
        )
        return page

    return open_


def page_of(meta, traces, perfetto):
    """A page of nothing but what the script needs."""
    script = asset("perfetto_link.js")
    links = script_json(Served(traces, perfetto).script_data())
    csp = content_security_policy([script], [], is_served=True)
    findings = "".join(
        f'<li class="finding" data-finding="{x["number"]}">' for x in meta["findings"]
    )
    return content_of_bytes(
        f"""<!doctype html><meta charset="utf-8">
        <meta http-equiv="Content-Security-Policy" content="{csp}">
        <header id="top"></header><ol>{findings}</ol>
        <script type="application/json" id="timeline-meta">{script_json(meta)}</script>
        <script type="application/json" id="served">{links}</script>
        <script>{script}</script>""".encode(),
        "text/html",
    )


def clicked(page, name, nth=0):
    """The window that a click opens, with its trace."""
    return opened_by(page, page.get_by_role("button", name=name).nth(nth).click)


def opened_by(page, act):
    """The window that something opens, with its trace."""
    with page.context.expect_page() as opened:
        act()
    opened.value.wait_for_function(LOADED)
    return opened.value


def visible_ns(window, trace):
    """What Perfetto shows, ns since the trace's first event."""
    start, length = window.evaluate(VISIBLE)
    return round(start - trace.origin_ns), round(start + length - trace.origin_ns)


def wait_until_visible(window, trace, expected):
    window.wait_for_function(
        f"([start, end]) => {{ const [from, length] = ({VISIBLE})();"
        " return Math.abs(from - start) < 1000 && Math.abs(from + length - end) < 1000; }",
        arg=[trace.origin_ns + time for time in expected],
    )


# Its first event is at 4390939011195.034 us, its last one ends 14.76 ms later.
TRACE = ServedTrace("item", 0, "trace/0", 4_390_939_011_195_034, 0, 14_757_000)
MARKS = [[0, 2_000_000, 3_000_000]]  # only whether there are any matters
META = {
    "groups": [{"rank": 0}],
    "findings": [
        {"number": 1, "group": 0, "place": [1_500_000, 3_500_000], "marks": MARKS},
        {"number": 2, "group": 0, "place": [8_000_000, 15_000_000], "marks": MARKS},
        {"number": 3, "group": 0, "place": [0, 15_000_000], "marks": []},
    ],
}
REQUESTS = ["request: http://127.0.0.1"]  # of the trace, from the page's own server


def test_perfetto_shows_the_finding_that_was_clicked_and_then_the_next_one(open_served, viewers):
    page = page_of(META, (TRACE,), viewers.address)
    with served({"": page, "trace/0": content_of_file(ITEM, "application/gzip")}) as url:
        page = open_served(url, expects=REQUESTS)
        window = clicked(page, "Show in Perfetto")
        wait_until_visible(window, TRACE, (1_500_000, 3_500_000))
        page.get_by_role("button", name="Show in Perfetto").nth(1).click()
        # It is cut where the trace ends, just before its last event does.
        wait_until_visible(window, TRACE, (8_000_000, 14_756_000))
        assert len(page.context.pages) == 2
        assert window.title().startswith("item")
        assert page.locator("#perfetto-status").text_content() == ""
        # What cites nothing cannot be shown.
        assert page.get_by_role("button", name="Show in Perfetto").count() == 2


@pytest.mark.slow
def test_perfetto_opens_the_whole_trace(open_served, viewers):
    page = page_of(META, (TRACE,), viewers.address)
    with served({"": page, "trace/0": content_of_file(ITEM, "application/gzip")}) as url:
        page = open_served(url, expects=REQUESTS)
        window = clicked(page, "Open in Perfetto")
        start_ns, end_ns = visible_ns(window, TRACE)
        assert start_ns <= 0
        assert end_ns >= TRACE.end_ns
        # Chosen again, the window is still there; closed, another one opens.
        page.get_by_role("button", name="Open in Perfetto").click()
        assert len(page.context.pages) == 2
        window.close()
        clicked(page, "Open in Perfetto")


@pytest.mark.slow
def test_each_rank_has_a_window_and_a_clock_of_its_own(open_served, viewers):
    # Rank 1 began 2 ms later on the page's clock, and its clock runs faster between known moments.
    late = ServedTrace(
        "rank 1",
        1,
        "trace/1",
        TRACE.origin_ns,
        0,
        TRACE.end_ns,
        ((2_000_000, 0), (6_000_000, 8_000_000)),
    )
    meta = {
        "groups": [{"rank": 1}, {"rank": 0}],
        "findings": [
            {"number": 1, "group": 0, "place": [3_000_000, 3_500_000], "marks": MARKS},
            {"number": 2, "group": 1, "place": [3_000_000, 3_500_000], "marks": MARKS},
            {"number": 3, "group": 0, "place": [6_500_000, 7_000_000], "marks": MARKS},
        ],
    }
    page = page_of(meta, (TRACE, late), viewers.address)
    trace = content_of_file(ITEM, "application/gzip")
    with served({"": page, "trace/0": trace, "trace/1": trace}) as url:
        page = open_served(url, expects=REQUESTS)
        second = clicked(page, "Show in Perfetto")
        wait_until_visible(second, late, (2_000_000, 3_000_000))
        first = clicked(page, "Show in Perfetto", 1)
        wait_until_visible(first, TRACE, (3_000_000, 3_500_000))
        page.get_by_role("button", name="Show in Perfetto").nth(2).click()
        wait_until_visible(second, late, (8_500_000, 9_000_000))
        assert first.title() != second.title()
        choice = page.locator("select.perfetto")
        assert choice.locator("option").all_text_contents() == [
            "Open in Perfetto…",
            "item",
            "rank 1",
        ]
        first.close()
        opened_by(page, lambda: choice.select_option("item"))


def test_it_is_said_when_the_trace_is_not_served_any_more(open_served, viewers):
    page = page_of(META, (TRACE,), viewers.address)
    with served({"": page}) as url:
        page = open_served(url, expects=[*REQUESTS, "status of 404"])
        with page.context.expect_page():
            page.get_by_role("button", name="Open in Perfetto").click()
        page.get_by_text("Perfetto did not get the trace: it is not served any more").wait_for()


def test_it_is_said_when_the_window_is_closed_before_perfetto_is_there(open_served):
    page = page_of(META, (TRACE,), "http://127.0.0.1:9")  # where nothing listens
    with served({"": page, "trace/0": content_of_file(ITEM, "application/gzip")}) as url:
        page = open_served(url, expects=REQUESTS)
        # The server closes behind the last line: what it has not accepted by then would be reset.
        with page.expect_response("**/trace/0") as answered, page.context.expect_page() as opened:
            page.get_by_role("button", name="Open in Perfetto").click()
        page.get_by_text("Waiting for http://127.0.0.1:9…").wait_for()
        answered.value.finished()
        opened.value.close()
        page.get_by_text("Perfetto did not get the trace: its window was closed").wait_for()


@pytest.mark.slow
def test_the_finding_of_a_real_page_is_shown_where_its_evidence_is(open_served, viewers):
    [result] = [
        analyze_file(source, Options(cache=False), then=viewed)
        for source in find_sources([str(PAGEABLE)])
    ]
    report = merge_results([result], [str(PAGEABLE)], Options(cache=False))
    made = contents(report, [result], perfetto=viewers.address)
    with served(made) as url:
        page = open_served(url, expects=REQUESTS)
        window = clicked(page, "Show in Perfetto")
        # The trace that Perfetto has holds our tracks, and it shows the one thing that is cited.
        start, length = window.evaluate(VISIBLE)
        findings = window.evaluate(QUERY, "select ts, dur from slice where name like 'TL102%'")
        shown = [x for x in findings if start <= x["ts"] and x["ts"] + x["dur"] <= start + length]
        assert len(shown) == 1
        assert shown[0]["dur"] > 0.2 * length
