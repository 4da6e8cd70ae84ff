"""The timeline of the page on lanes written by hand, in a browser."""

import random
import re
from collections import Counter

import pytest

from tests.browser.using import view, wait_until, wheel
from tests.build.lane_page import NONE, Lane, page_of
from tests.figures import figures

IDLE = ("host_blocked", "launch")
GPU = ("compute", "comm", "copy", "memset")
HOST = ("launch_call", "blocking")
ITS_STREAM, AN_EVENT, ITS_LAUNCH = 0, 2, 4
NAMES = [
    "step 1",
    "step 2",
    "void gemm_kernel<float>(int)",
    "copy_kernel",
    "</script><script>window.pwned = 1</script>",
    "ncclKernel",
    "cudaLaunchKernel",
    "cudaStreamSynchronize",
    "aten::mm",
    "train.py:7 forward",
    "data.py:31 · collate",
]
NO_NAME = 0xFFFF
HOSTILE = NAMES.index("</script><script>window.pwned = 1</script>")

# A GPU with two streams, ns:
#
#       0    1000   2000   3000   4000    5000   6000   7000   8000   9000  10000
# steps |------------- step 1 -------------|------------ step 2 ---------------|
# 0/7          gemm 0        gemm 1                |---------- copy 2 ------|
#                                                    |hostile 3|
# 0/8                           nccl 4
# host   l0             l1        |--- synchronize 2 --|l3
RANK_0 = [
    Lane("steps", "steps", "steps", ("step",), [(0, 5000, 0, 0), (5000, 10_000, 0, 1)]),
    Lane(
        "idle:0",
        "idle",
        "GPU 0 idle",
        IDLE,
        [
            (0, 1000, 1, 0, NO_NAME, NO_NAME),
            (2000, 3000, 1, 1, NO_NAME, 8),
            (4000, 6000, 0, 2, 10, NO_NAME),
            (9000, 10_000, 0, NONE, NO_NAME, NO_NAME),
        ],
        summary=True,
    ),
    Lane(
        "stream:0/7",
        "stream",
        "GPU 0 stream 7",
        GPU,
        [
            (1000, 2000, 0, 2, 8, 9, 0, ITS_LAUNCH, 0),
            (3000, 4000, 0, 2, 8, 9, 1, ITS_LAUNCH, 0),
            (6000, 9000, 2, 3, NO_NAME, NO_NAME, 3, ITS_STREAM, 1),
            (6500, 7500, 0, HOSTILE, NO_NAME, NO_NAME, NONE, 7, 0),
        ],
    ),
    Lane(
        "stream:0/8",
        "stream",
        "GPU 0 stream 8",
        GPU,
        [(3500, 3900, 1, 5, NO_NAME, NO_NAME, NONE, AN_EVENT, 0)],
    ),
    Lane(
        "host:0",
        "host",
        "thread 1",
        HOST,
        [
            (100, 200, 0, 6, 9, 0, NONE),
            (2500, 2600, 0, 6, 9, 0, NONE),
            (4000, 5500, 1, 7, 9, 1500, 1),
            (5600, 5700, 0, 6, NO_NAME, 0, NONE),
        ],
    ),
]
# Of rank 1 single activities are known from 4000 to 6000; else how busy it was in each 1000 ns.
RANK_1 = [
    Lane(
        "stream:0/7",
        "stream",
        "GPU 0 stream 7",
        GPU,
        [(4500, 5500, 1, 5, NO_NAME, NO_NAME, NONE, 7, 0)],
        summary=True,
        bins={"count": 10, "start": 0, "end": 10_000, "kinds": ["compute", "comm"]},
        bin_values=[[1000, 500, 0, 0, 0, 0, 0, 0, 250, 0], [0, 0, 0, 0, 500, 500, 0, 0, 0, 0]],
    ),
    Lane("host:0", "host", "thread 2", HOST, [(4400, 4450, 0, 6, NO_NAME, 0, NONE)]),
]
META = {
    "version": 1,
    "start": 0,
    "end": 10_000,
    "names": NAMES,
    "short": ["", "", "gemm_kernel", *[""] * 7, "data.py:31"],
    "words": {"host_blocked": "host blocked (in a call)"},
    "causes": {"host_blocked": "the CPU sat in a call", "launch": "launched, not yet started"},
    "reasons": ["its stream", "early", "an event", "a peer copy", "its launch", "queue", "SM", "?"],
    "windows": [
        {"label": "step 1", "start": 0, "end": 5000, "steady": False, "group": 0},
        {"label": "step 2", "start": 5000, "end": 10_000, "steady": True, "group": 0},
    ],
    "note": "Rank 1 is binned.",
    "groups": [
        {
            "label": "rank 0",
            "rank": 0,
            "open": True,
            "detail": [0, 10_000],
            "file": "host-a_0",
            "pace": "fastest",
        },
        {
            "label": "rank 1",
            "rank": 1,
            "open": False,
            "detail": [4000, 6000],
            "file": "host-b_1",
            "pace": "slowest",
        },
    ],
    "findings": [
        {
            "number": 1,
            "group": 0,
            "view": [3500, 6500],
            "place": [3900, 6100],
            "marks": [[1, 4000, 6000], [4, 4000, 5500]],
        },
        {
            "number": 2,
            "group": 1,
            "view": [4000, 6000],
            "place": [4400, 5600],
            "marks": [[0, 4500, 5500]],
        },
    ],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("lanes") / "page.html"
    file.write_text(page_of(META, [RANK_0, RANK_1]))
    return file


@pytest.fixture
def opened(open_page, path):
    """Opens the page, which is drawn then."""

    def open_it(hash_="", **context):
        page = open_page(f"{path.as_uri()}{hash_}", **context)
        page.evaluate("tracelabTimeline.ready")
        return page

    return open_it


def write(folder, meta, lanes):
    file = folder / "page.html"
    file.write_text(page_of({**META, "findings": [], "windows": [], **meta}, [lanes]))
    return file


def details(page):
    return page.inner_text("#details")


def busy(page, lane, first, last, group=0):
    return page.evaluate(f"tracelabTimeline.busy({lane!r}, {first}, {last}, {group})")


def place(page, lane, t, group=0):
    """Where a moment of a lane is on the screen."""
    page.evaluate("tracelabTimeline.paint()")
    box = page.locator("#lanes").bounding_box()
    (row,) = page.evaluate(
        "([lane, group]) => tracelabTimeline.rows"
        ".filter(x => x.lane === lane && x.group === group)",
        [lane, group],
    )
    return box["x"] + page.evaluate(f"tracelabTimeline.xOf({t})"), box["y"] + row["y"] + 8


def pixels(page, lane, first, last):
    """The colors of the pixels of a lane between two times, as #rrggbb, and how many have each."""
    x0, y = place(page, lane, first)
    x1, _ = place(page, lane, last)
    return page.evaluate(
        """([x0, x1, y, lane]) => {
          tracelabTimeline.paint();
          const canvas = document.getElementById('lanes'), box = canvas.getBoundingClientRect();
          const row = tracelabTimeline.rows.find(x => x.lane === lane);
          const data = canvas.getContext('2d').getImageData(
            Math.round(x0 - box.x), row.y, Math.max(1, Math.round(x1 - x0)), row.height - 1).data;
          const counts = {};
          for (let i = 0; i < data.length; i += 4) {
            const [r, g, b] = data.slice(i, i + 3);
            const color = '#' + [r, g, b].map(x => x.toString(16).padStart(2, '0')).join('');
            counts[color] = (counts[color] ?? 0) + 1;
          }
          return counts; }""",
        [x0, x1, y, lane],
    )


# What is measured


def test_busy_time_of_a_range_is_exact(opened):
    expected = {
        ("stream:0/7", 0, 10_000): {"compute": 2000, "copy": 3000},  # overlap counts once
        ("stream:0/7", 1500, 3250): {"compute": 750},
        ("stream:0/7", 6600, 7000): {"copy": 400},
        ("stream:0/7", 2000, 3000): {},
        ("idle:0", 0, 10_000): {"host_blocked": 3000, "launch": 2000},
        ("idle:0", 900, 4001): {"launch": 1100, "host_blocked": 1},
        ("host:0", 150, 4100): {"launch_call": 150, "blocking": 100},
    }
    page = opened()
    assert {where: busy(page, *where) for where in expected} == {
        where: {"ns": sum(kinds.values()), "kinds": kinds, "exact": True}
        for where, kinds in expected.items()
    }


def owners(items, end):
    """The kind of each ns, which is that of the first item that covers it; None for none."""
    kinds = [None] * end
    for first, last, kind, *_ in reversed(items):
        kinds[first:last] = [kind] * (last - first)
    return kinds


def test_busy_time_equals_that_counted_ns_by_ns(open_page, tmp_path):
    rng, end, lanes = random.Random(19), 500, []
    for number in range(12):
        starts = sorted(rng.randrange(end - 60) for _ in range(rng.randrange(1, 40)))
        items = [
            (start, start + rng.randrange(60), rng.randrange(4), 2, 8, 9, NONE, 7, 0)
            for start in starts
        ]
        lanes.append(Lane(f"stream:{number}", "stream", "s", GPU, items))
    group = {"label": "", "rank": 0, "open": True, "detail": [0, end]}
    page = open_page(write(tmp_path, {"end": end, "groups": [group]}, lanes))
    page.evaluate("tracelabTimeline.ready")
    ranges = [sorted(rng.sample(range(end + 1), 2)) for _ in range(100)]
    measured = page.evaluate(
        """([ids, ranges]) => ids.map(id =>
          ranges.map(([a, b]) => tracelabTimeline.busy(id, a, b).kinds))""",
        [[lane.id for lane in lanes], ranges],
    )
    for lane, of_lane in zip(lanes, measured, strict=True):
        kinds = owners(lane.items, end)
        for (first, last), of_range in zip(ranges, of_lane, strict=True):
            counts = Counter(GPU[kind] for kind in kinds[first:last] if kind is not None)
            assert of_range == counts, (lane.items, first, last)


def test_outside_the_detail_the_bins_say_how_busy(opened):
    expected = {
        (0, 10_000): ({"compute": 1750, "comm": 1000}, False),
        (0, 1500): ({"compute": 1250}, False),  # half of the second bin
        (4000, 6000): ({"comm": 1000}, True),
        (4600, 4700): ({"comm": 100}, True),
        (5400, 8500): ({"comm": 100, "compute": 125}, False),
    }
    page = opened()
    assert {times: busy(page, "stream:0/7", *times, group=1) for times in expected} == {
        times: {"ns": sum(kinds.values()), "kinds": kinds, "exact": exact}
        for times, (kinds, exact) in expected.items()
    }


def test_times_beyond_32_bits(open_page, tmp_path):
    start, length, cost = 3_000_000_000, 5_000_000_001, 4_999_999_999
    lane = Lane("stream:0/7", "stream", "s", GPU, [(start, start + length, 0, 2, 8, 9, 0, 7, 0)])
    host = Lane("host:0", "host", "h", HOST, [(1, 9_000_000_000, 1, 7, 9, cost, NONE)])
    meta = {
        "end": 10**10,
        "groups": [{"label": "", "rank": 0, "open": True, "detail": [0, 10**10]}],
    }
    page = open_page(write(tmp_path, meta, [lane, host]))
    page.evaluate("tracelabTimeline.ready")
    assert busy(page, "stream:0/7", 0, start + 17)["ns"] == 17
    assert busy(page, "stream:0/7", 0, 10**10)["ns"] == length
    facts = page.evaluate("tracelabTimeline.describe('host:0', 0)")["facts"]
    assert facts["idle time that it caused"] == "4.999999999 s"


def test_a_node_of_a_graph_says_where_it_was_captured(open_page, tmp_path):
    none = 0xFFFF
    items = [(1000, 2000, 0, 2, 8, 9, 0, 7, 0, 3), (3000, 4000, 0, 2, 8, 9, 0, 7, 0, none)]
    lane = Lane("stream:0/7", "stream", "s", GPU, items, of_graphs=True)
    host = Lane("host:0", "host", "h", HOST, [(1, 900, 0, 7, 9, 0, NONE)])
    meta = {
        "end": 10_000,
        "groups": [{"label": "", "rank": 0, "open": True, "detail": [0, 10_000]}],
    }
    page = open_page(write(tmp_path, meta, [lane, host]))
    page.evaluate("tracelabTimeline.ready")
    first, second = (
        page.evaluate(f"tracelabTimeline.describe('stream:0/7', {i})")["facts"] for i in range(2)
    )
    assert first["in a CUDA graph"] == NAMES[3]
    assert "in a CUDA graph" not in second


def test_dragging_measures_every_lane(opened):
    page = opened("#t=0-10000")
    x0, y = place(page, "stream:0/7", 2000)  # both ends snap to edges of activities
    x1, _ = place(page, "stream:0/7", 6000)
    page.mouse.move(x0 + 1, y)
    page.mouse.down()
    page.mouse.move(x1 - 1, y, steps=3)
    page.mouse.up()
    assert page.inner_text("#measured caption") == ("Measured 4 µs, from 2 µs to 6 µs")
    rows = [
        [cell.inner_text() for cell in row.locator("th, td").all()]
        for row in page.locator("#measured tbody tr").all()
    ]
    assert rows == [
        ["rank 0, GPU 0", "1 µs", "3 µs", "25.0 %",
         "host blocked (in a call) 2 µs, launch 1 µs"],
        ["rank 0, GPU 0 stream 7", "1 µs", "3 µs", "25.0 %", "compute 1 µs"],
        ["rank 0, GPU 0 stream 8", "400 ns", "3.6 µs", "10.0 %", "comm 400 ns"],
        ["rank 0, thread 1", "1.7 µs", "2.3 µs", "42.5 %", "launch call 200 ns, blocking 1.5 µs"],
        ["rank 1, GPU 0 stream 7", "about 1 µs", "about 3 µs", "25.0 %", "comm 1 µs"],
    ]  # fmt: skip
    titles = [
        x.get_attribute("title") for x in page.locator("#measured tr").nth(4).locator("td").all()
    ]
    assert titles == ["1,700 ns", "2,300 ns", None, "launch call 200 ns, blocking 1,500 ns"]
    page.keyboard.press("Escape")
    assert page.inner_text("#measured") == ""


def test_a_gpu_is_busy_or_idle_only_in_its_steps(open_page, tmp_path):
    group = {"label": "", "rank": 0, "open": True, "detail": [0, 10_000]}
    steps = Lane("steps", "steps", "steps", ("step",), [(1000, 5000, 0, 0)])
    idle = Lane("idle:0", "idle", "idle", IDLE, [(2000, 3000, 0, NONE, NO_NAME, NO_NAME)])
    page = open_page(write(tmp_path, {"groups": [group]}, [steps, idle]))
    page.evaluate("tracelabTimeline.ready")

    def measured(first, last):
        (of_lane,) = page.evaluate(f"tracelabTimeline.measure({first}, {last})")
        return of_lane["busy"], of_lane["idle"]

    assert measured(1000, 5000) == (3000, 1000)
    assert measured(999, 5000) == (None, 1000)
    assert measured(1000, 5001) == (None, 1000)


# What is shown


def test_a_page_opens_at_the_first_steady_step(opened):
    page = opened()
    assert view(page) == [5000, 10_000]
    assert page.input_value("#window") == "1"
    assert page.inner_text("#timeline-note") == "Rank 1 is binned."
    assert page.inner_text("#legend").split("\n") == [
        "host blocked (in a call), blocking", "launch", "compute", "copy", "comm",
    ]  # fmt: skip


def test_the_step_selector_sets_the_view(opened):
    page = opened()
    page.select_option("#window", label="step 1")
    assert view(page) == [0, 5000]
    page.select_option("#window", label="all the time")
    assert view(page) == [0, 10_000]
    page.evaluate("tracelabTimeline.goTo(1, 77)")
    assert page.input_value("#window") == ""


def test_a_click_on_a_finding_goes_to_its_evidence_and_marks_it(opened):
    page = opened()
    page.click("li.finding[data-finding='1'] button")
    assert view(page) == [3500, 6500]
    assert page.evaluate("location.hash") == "#f=1&t=3500-6500"
    assert page.locator("li.finding[aria-current=true]").inner_text() == "finding 1"
    mark = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--mark')")
    assert mark in pixels(page, "idle:0", 3900, 4100)  # the outline of the evidence
    assert mark not in pixels(page, "idle:0", 3600, 3800)
    page.go_back()
    assert page.evaluate("location.hash") == ""


def test_a_second_click_goes_close_to_the_worst_place_and_a_third_one_back(opened):
    page, views = opened(), []
    for _ in range(3):
        page.click("li.finding[data-finding='1'] button")
        views.append(view(page))
    assert views == [[3500, 6500], [3900, 6100], [3500, 6500]]
    page.evaluate("tracelabTimeline.goTo(0, 777)")
    page.click("li.finding[data-finding='1'] button")
    assert view(page) == [3500, 6500]


def test_a_finding_of_a_closed_group_opens_it(opened):
    page = opened()
    assert page.evaluate("tracelabTimeline.rows.filter(x => x.group === 1).length") == 2
    page.keyboard.press("n")
    page.keyboard.press("n")
    assert page.evaluate("location.hash") == "#f=2&t=4000-6000"
    assert page.evaluate("tracelabTimeline.rows.filter(x => x.group === 1).length") == 3
    page.keyboard.press("p")
    assert page.evaluate("tracelabTimeline.finding") == 1


def test_the_hash_of_an_address_says_what_is_seen(opened):
    page = opened("#f=1&t=4000-4500")
    assert view(page) == [4000, 4500]
    assert page.evaluate("tracelabTimeline.finding") == 1
    page.evaluate("location.hash = '#f=2'")
    wait_until(page, "tracelabTimeline.finding === 2")
    assert view(page) == [4000, 6000]
    page.click("li.finding[data-finding='1'] button")
    page.evaluate("location.hash = '#f=1'")  # what is shown already: no second click
    wait_until(page, "location.hash === '#f=1'")
    assert view(page) == [3500, 6500]
    page.evaluate("location.hash = '#t=17-1017'")
    wait_until(page, "tracelabTimeline.finding === null")
    assert view(page) == [17, 1017]
    page.evaluate("location.hash = '#kernels'")  # a place in the page
    assert view(page) == [17, 1017]


def test_a_hash_that_says_nothing_is_ignored(opened):
    page, views = opened(), {}
    for nonsense in ("#f=99", "#t=9-1", "#t=1e9-x", "#f=1;alert(1)", "#t=-"):
        page.evaluate("hash => { location.hash = hash }", nonsense)
        page.reload()
        page.evaluate("tracelabTimeline.ready")
        views[nonsense] = view(page)
    assert {*map(tuple, views.values())} == {(5000, 10_000)}, views


def test_a_zoomed_view_gets_into_the_hash(opened):
    page = opened()
    page.evaluate("tracelabTimeline.goTo(1000.4, 3000.3)")
    wait_until(page, "location.hash === '#t=1000-3000'")


def test_the_view_stays_in_the_time_there_is(opened):
    page = opened()
    page.evaluate("tracelabTimeline.goTo(-500, 900)")
    assert view(page) == [0, 1400]
    page.evaluate("tracelabTimeline.goTo(-500, 90000)")
    assert view(page) == [0, 10_000]


# What the mouse does


def test_hovering_says_all_that_is_known(opened, snapshot):
    page = opened("#t=0-10000")
    page.mouse.move(*place(page, "stream:0/7", 3500))
    assert figures(details(page)) == ["1 µs", "3 µs", "0", "7", "1", "500 ns"]
    assert details(page) == snapshot
    page.mouse.move(*place(page, "stream:0/8", 3600))
    assert {"0", "7", "1.5 µs"} <= {*figures(details(page))}
    assert details(page) == snapshot
    page.mouse.move(*place(page, "idle:0", 5000))
    assert figures(details(page))[:6] == ["2 µs", "4 µs", "0", "0", "7", "1"]
    assert details(page) == snapshot
    page.mouse.move(*place(page, "host:0", 5000))
    assert figures(details(page)) == ["1.5 µs", "4 µs", "1", "1.5 µs", "0", "7"]
    assert details(page) == snapshot
    page.mouse.move(*place(page, "host:0", 5650))
    assert {"0", "7", "400 ns"} <= {*figures(details(page))}
    assert details(page) == snapshot


def test_an_idle_gap_says_what_the_host_ran(opened):
    page = opened()
    said = [
        page.evaluate(f"tracelabTimeline.describe('idle:0', {i})")["facts"].get("meanwhile")
        for i in range(4)
    ]
    assert said == [None, "the host ran `aten::mm`", "the host ran `collate` (data.py:31)", None]


def test_modules_are_nested_and_named(open_page, tmp_path):
    """GIVEN a module with thousands inside of it THEN each level is seen and can be pointed at."""
    inside = [(10 + 4 * i, 13 + 4 * i, 0, 2, 1) for i in range(5000)]
    modules = Lane(
        "module:0", "module", "modules", ("module",), [(0, 30_000, 0, 3, 0), *inside], levels=2
    )
    host = Lane("host:0", "host", "main thread", HOST, [(1, 2, 0, 7, 9, 0, NONE)])
    group = {"label": "", "rank": 0, "open": True, "detail": [0, 30_000]}
    page = open_page(write(tmp_path, {"end": 30_000, "groups": [group]}, [modules, host]))
    page.evaluate("tracelabTimeline.ready")
    page.evaluate("tracelabTimeline.goTo(0, 30_000)")
    x, y = place(page, "module:0", 25_000)
    page.mouse.move(x, y)
    assert details(page).startswith("copy_kernel\nkind module")
    assert "on modules of main thread" in details(page)
    assert len(pixels(page, "module:0", 21_000, 29_000)) > 1  # the outer one, with nothing inside
    x, y = place(page, "module:0", 15_001)
    page.mouse.move(x, y + 13)
    assert details(page).startswith("void gemm_kernel<float>(int)")
    page.mouse.move(x, y)
    assert details(page).startswith("copy_kernel")


def test_lines_lead_to_the_launch_and_to_what_was_waited_for(opened):
    page = opened("#t=0-10000")
    assert page.evaluate("tracelabTimeline.describe('stream:0/7', 2).links") == [
        {"from": "host:0", "fromNs": 5600, "to": "stream:0/7", "toNs": 6000, "isLaunch": True},
        {"from": "stream:0/7", "fromNs": 4000, "to": "stream:0/7", "toNs": 6000, "isLaunch": False},
    ]
    before = pixels(page, "stream:0/8", 5000, 6500)  # the lane between the call and the copy
    assert len(before) == 2  # its ground and its lower border
    page.mouse.move(*place(page, "stream:0/7", 8000))
    assert pixels(page, "stream:0/8", 5000, 6500) != before
    page.mouse.move(0, 0)
    assert pixels(page, "stream:0/8", 5000, 6500) == before


def test_what_overlaps_in_a_stream_stands_in_a_row_of_its_own(opened):
    page = opened("#t=0-10000")
    x, y = place(page, "stream:0/7", 7000)
    page.mouse.move(x, y)
    assert details(page).startswith("copy_kernel")
    (height,) = page.evaluate(
        "tracelabTimeline.rows.filter(row => row.lane === 'stream:0/7' && !row.group)"
        ".map(row => row.height)"
    )
    page.mouse.move(x, y - 8 + height - 5)
    assert details(page).startswith("</script><script>window.pwned = 1</script>\nkind compute")
    assert page.evaluate("window.pwned") is None


def test_the_wheel_scrolls_the_page_until_the_lanes_are_clicked(opened):
    page = opened("#t=0-10000")
    x, y = place(page, "stream:0/7", 5000)
    page.mouse.move(x, y)
    wheel(page, -300)
    assert view(page) == [0, 10_000]
    page.keyboard.down("Control")
    wheel(page, -150)
    page.keyboard.up("Control")
    first, last = view(page)
    assert last - first < 4000
    assert first < 5000 < last  # what was under the mouse is there still
    page.mouse.click(x, y)
    wheel(page, 3000)
    assert view(page)[1] == 10_000
    page.keyboard.press("Escape")
    wheel(page, -300)
    assert view(page) == [0, 10_000]


def test_a_double_click_zooms_to_an_activity(opened):
    page = opened("#t=0-10000")
    page.mouse.dblclick(*place(page, "stream:0/7", 1500))
    assert view(page) == [750, 2250]


def test_the_brush_of_the_overview_chooses_and_moves_the_view(opened):
    page = opened("#t=0-10000")
    box = page.locator("#overview").bounding_box()

    def drag(first, last):
        page.mouse.move(box["x"] + first * box["width"], box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + last * box["width"], box["y"] + 20, steps=3)
        page.mouse.up()
        return view(page)

    assert drag(0.2, 0.4) == pytest.approx([2000, 4000], abs=10)
    assert drag(0.3, 0.5) == pytest.approx([4000, 6000], abs=10)
    assert drag(0.6, 0.8) == pytest.approx([4000, 8000], abs=20)  # its edge


def test_a_click_on_a_rank_opens_and_closes_it(opened):
    page = opened()
    (header,) = page.evaluate("tracelabTimeline.rows.filter(x => !x.lane && x.group === 1)")
    box = page.locator("#lanes").bounding_box()
    page.mouse.click(box["x"] + 30, box["y"] + header["y"] + 5)
    assert page.evaluate("tracelabTimeline.rows.at(-1).lane") == "host:0"
    page.mouse.click(box["x"] + 30, box["y"] + header["y"] + 5)
    assert page.evaluate("tracelabTimeline.rows.at(-1).lane") == "stream:0/7"


# What the keyboard does


def test_the_keyboard_alone_reaches_every_activity(opened, snapshot):
    page = opened("#t=0-10000")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "lanes":
            break
    page.keyboard.press("ArrowRight")
    assert details(page).startswith("step 1")
    page.keyboard.press("ArrowDown")
    assert details(page).startswith("launch\nduration 1 µs · start 2 µs")
    page.keyboard.press("j")
    assert {"1 µs"} <= {*figures(details(page))}
    assert details(page) == snapshot
    page.keyboard.press("ArrowRight")
    assert details(page).startswith("copy_kernel")
    assert page.get_attribute("#details", "aria-live") == "polite"
    page.keyboard.press("Enter")
    assert view(page) == [5250, 9750]
    page.keyboard.press("ArrowLeft")  # not in the view: it moves there
    first, last = view(page)
    assert last - first == 4500
    assert first <= 3000
    page.keyboard.press("Home")
    assert view(page) == [0, 10_000]
    for _ in range(9):
        page.keyboard.press("ArrowDown")
    assert "GPU 0 stream 7" in details(page)
    page.keyboard.press("ArrowUp")
    assert details(page) == "rank 1, closed; Enter opens it"
    page.keyboard.press("Enter")
    assert details(page) == "rank 1, open; Enter closes it"
    page.keyboard.press("ArrowDown")
    assert details(page).startswith("ncclKernel")  # rows after the header are those that it opened


def test_keys_zoom_move_and_measure(opened):
    page = opened("#t=4000-6000")
    page.focus("#lanes")
    page.keyboard.press("+")
    assert view(page) == pytest.approx([4300, 5700])
    page.keyboard.press("s")
    assert view(page) == pytest.approx([4000, 6000])
    page.keyboard.press("a")
    assert view(page) == pytest.approx([3500, 5500])
    page.keyboard.press("d")
    page.keyboard.press("m")
    assert "Measured 2 µs, from 4 µs to 6 µs" in page.inner_text("#measured")
    page.keyboard.press("Home")
    page.keyboard.press("z")
    assert view(page) == [4000, 6000]


def test_search_goes_through_names_operators_and_lines_by_time(opened):
    page = opened("#t=0-10000")
    page.keyboard.press("/")
    page.keyboard.type("GEMM")
    assert page.inner_text("#search-count") == "2 matches"
    page.keyboard.press("Enter")
    assert page.inner_text("#search-count") == "1 of 2 matches"
    assert "start 1 µs" in details(page)
    page.keyboard.press("Enter")
    assert "start 3 µs" in details(page)
    page.keyboard.press("Enter")  # around the end
    assert "start 1 µs" in details(page)
    page.keyboard.press("Shift+Enter")
    assert page.inner_text("#search-count") == "2 of 2 matches"
    page.fill("#search", "train.py")  # two activities, three calls
    assert page.inner_text("#search-count") == "5 matches"
    starts = []
    for _ in range(5):
        page.keyboard.press("Enter")
        starts.append(re.search(r"start (\S+ \S+)", details(page))[1])
    assert starts == ["100 ns", "1 µs", "2.5 µs", "3 µs", "4 µs"]
    page.fill("#search", "no such thing")
    assert page.inner_text("#search-count") == "no match"
    page.keyboard.press("Escape")
    assert page.inner_text("#search-count") == ""


def test_search_finds_findings_files_and_kinds(opened):
    page = opened()
    page.fill("#search", "FINDING 2")
    assert page.inner_text("#search-count") == "1 match"
    page.keyboard.press("Enter")
    assert page.evaluate("tracelabTimeline.finding") == 2
    assert page.inner_text("#search-count") == "1 of 1 match"
    page.fill("#search", "rank 1")
    page.keyboard.press("Enter")
    assert page.inner_text("#search-count") == "1 of 1 match"
    assert details(page) == "rank 1: host-b_1"
    page.fill("#search", "HOST-B")  # its file
    assert page.inner_text("#search-count") == "1 match"
    page.fill("#search", "step 2")  # spans of all lanes that have names
    page.keyboard.press("Enter")
    assert details(page).startswith("step 2")


def test_search_finds_what_has_no_name_by_its_kind(open_page, tmp_path):
    phases = Lane(
        "phase:0",
        "phase",
        "phases",
        ("forward", "annotation"),
        [(0, 50, 0, NO_NAME, 0), (10, 20, 1, 3, 1)],
    )
    group = {"label": "", "rank": 0, "open": True, "detail": [0, 100]}
    page = open_page(write(tmp_path, {"end": 100, "groups": [group]}, [phases]))
    page.evaluate("tracelabTimeline.ready")
    for text, count in (("forward", "1 match"), ("annotation", "no match"), ("copy_", "1 match")):
        page.fill("#search", text)
        assert page.inner_text("#search-count") == count


# Several files


def test_ranks_are_opened_and_closed_by_their_boxes(opened):
    page = opened()
    boxes = page.locator("#open-ranks label")
    assert [x.text_content().strip() for x in boxes.all()] == [
        "rank 1 (slowest)",
        "rank 0 (fastest)",
    ]
    assert page.inner_text("#open-ranks summary") == "2 ranks; open: rank 0"
    page.focus("#open-ranks summary")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # rank 1 opens
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # rank 0 closes
    rows = page.evaluate("tracelabTimeline.rows.map(({ group, lane }) => `${group} ${lane}`)")
    assert rows == ["0 null", "0 idle:0", "1 null", "1 stream:0/7", "1 host:0"]
    assert page.inner_text("#open-ranks summary") == "2 ranks; open: rank 1"
    page.keyboard.press("Escape")
    page.mouse.click(*place(page, None, 6000))  # the heading of rank 0
    assert [box.is_checked() for box in page.locator("#open-ranks input").all()] == [True, True]


def test_times_of_a_job_begin_where_it_does(open_page, tmp_path):
    group = {"label": "", "rank": 0, "open": True, "detail": [5_000_000, 5_000_100]}
    meta = {"start": 5_000_000, "zero": 5_000_000, "end": 5_000_100, "groups": [group]}
    stream = Lane(
        "stream:0/7", "stream", "s", GPU, [(5_000_030, 5_000_050, 0, 2, 8, 9, NONE, 7, 0)]
    )
    page = open_page(write(tmp_path, meta, [stream]))
    page.evaluate("tracelabTimeline.ready")
    described = page.evaluate("tracelabTimeline.describe('stream:0/7', 0)")
    assert described["facts"]["start"] == "30 ns"
    page.focus("#lanes")
    page.keyboard.press("m")
    assert page.inner_text("#measured caption") == "Measured 100 ns, from 0 ns to 100 ns"


# Numbers over time


def test_a_number_over_time_is_as_high_as_its_highest_value_in_a_pixel(open_page, tmp_path):
    gib = 2**30
    # From 0 to 500 low, with one high value of 1 ns; then half as high; then nothing.
    items = [
        (0, 250, 0, gib // 4),
        (250, 251, 0, 3 * gib // 2),
        (251, 500, 0, gib // 4),
        (500, 800, 0, 3 * gib // 4),
        (800, 1000, 0, 0),
    ]
    lane = Lane("counter:0/memory", "counter", "GPU 0 memory", ("counter",), items, unit="bytes")
    group = {"label": "", "rank": 0, "open": True, "detail": [0, 100_000]}
    page = open_page(write(tmp_path, {"end": 100_000, "groups": [group]}, [lane]))
    page.evaluate("tracelabTimeline.ready")
    page.evaluate("tracelabTimeline.goTo(0, 1000)")
    color = "#8fa3b5"
    (row,) = page.evaluate("tracelabTimeline.rows")
    full = row["height"] - 4

    def high(first, last):
        """The height of the lane's columns in a stretch of time, on average."""
        counts = pixels(page, lane.id, first, last)
        return counts.get(color, 0) / (sum(counts.values()) / (row["height"] - 1))

    assert high(510, 790) == pytest.approx(full / 2, abs=1)
    assert high(10, 240) == pytest.approx(full / 6, abs=1)
    assert high(810, 990) == 0
    # Thousands of values a pixel: the one high value is in a column of its own.
    page.evaluate("tracelabTimeline.goTo(0, 100_000)")
    assert color in pixels(page, lane.id, 0, 1000)
    page.evaluate("tracelabTimeline.goTo(0, 1000)")
    page.mouse.move(*place(page, lane.id, 250.5))
    assert details(page).startswith("GPU 0 memory\nis 1.5 GiB")
    page.mouse.move(*place(page, lane.id, 600))
    assert "is 768 MiB" in details(page)


def test_help_lists_the_keys_and_closes(opened):
    page = opened()
    page.keyboard.press("?")
    assert page.locator("#timeline-help").is_visible()
    page.keyboard.press("n")  # keys of the page do nothing meanwhile
    assert page.evaluate("tracelabTimeline.finding") is None
    page.click("#timeline-help button")
    assert not page.locator("#timeline-help").is_visible()
    page.click("#help")
    page.keyboard.press("Escape")
    assert not page.locator("#timeline-help").is_visible()


def test_a_screen_reader_is_told_what_the_lanes_are(opened):
    page = opened()
    canvas = page.locator("#lanes")
    assert canvas.get_attribute("role") == "application"
    assert canvas.get_attribute("aria-label").startswith("Timeline")
    assert canvas.get_attribute("aria-describedby") == "details"
    page.mouse.move(*place(page, "stream:0/7", 8000))
    assert page.get_attribute("#details", "aria-live") == "off"  # the mouse is not read out


# How it looks


def test_light_dark_and_paper(opened):
    page = opened("#t=0-10000", color_scheme="dark")
    assert "#14171a" in pixels(page, "stream:0/7", 2100, 2900)
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    assert "#ffffff" in pixels(page, "stream:0/7", 2100, 2900)
    assert "#0072b2" in pixels(page, "stream:0/7", 3100, 3900)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    width = page.evaluate("document.getElementById('lanes').width")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.getElementById('lanes').width") == 2 * width
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("document.getElementById('lanes').width") == width
    assert "#14171a" in pixels(page, "stream:0/7", 2100, 2900)


def crowd(count):
    """A lane that is busy 1 ns of each 4, with compute and copies in turn."""
    items = [(4 * i, 4 * i + 1, 2 * (i % 2), 2, 8, 9, NONE, 7, 0) for i in range(count)]
    return Lane("stream:0/7", "stream", "GPU 0 stream 7", GPU, items)


def crowd_meta(count):
    group = {"label": "", "rank": 0, "open": True, "detail": [0, 4 * count]}
    return {"end": 4 * count, "groups": [group]}


def test_a_crowd_shows_the_share_of_each_pixel(open_page, tmp_path):
    page = open_page(write(tmp_path, crowd_meta(40_000), [crowd(40_000)]))
    page.evaluate("tracelabTimeline.ready")
    counts = pixels(page, "stream:0/7", 16_000, 144_000)
    (height,) = page.evaluate("tracelabTimeline.rows.map(row => row.height)")
    columns = sum(counts.values()) / (height - 1)  # its border is left out
    # Four pixels of the row are room. A quarter of the others is busy, half of it with compute.
    compute, copies = counts["#0072b2"] / columns, counts["#009e73"] / columns
    assert compute == pytest.approx((height - 4) / 8, abs=0.5)
    assert compute + copies == pytest.approx((height - 4) / 4, abs=0.5)


def test_lines_of_a_thousand_steps_do_not_hide_the_lanes(open_page, tmp_path):
    steps = [
        {"label": f"step {i}", "start": 160 * i, "end": 160 * (i + 1), "steady": i > 0, "group": 0}
        for i in range(1000)
    ]
    page = open_page(write(tmp_path, {**crowd_meta(40_000), "windows": steps}, [crowd(40_000)]))
    page.evaluate("tracelabTimeline.ready")
    page.evaluate("tracelabTimeline.goTo(0, 160_000)")
    counts = pixels(page, "stream:0/7", 16_000, 144_000)
    assert set(counts) == {"#ffffff", "#0072b2", "#009e73"}
    page.evaluate("tracelabTimeline.goTo(0, 800)")
    assert len(pixels(page, "stream:0/7", 100, 700)) > 3  # there they are again


def test_painting_takes_as_long_for_many_activities_as_for_few(open_page, tmp_path):
    counting = """() => {
      window.painted = 0;
      for (const name of ['fillRect', 'fillText', 'putImageData', 'strokeRect', 'stroke']) {
        const own = CanvasRenderingContext2D.prototype[name];
        CanvasRenderingContext2D.prototype[name] = function (...values) {
          window.painted++;
          return own.apply(this, values);
        };
      } }"""
    painted = []
    for count in (2000, 40_000):
        page = open_page(write(tmp_path, crowd_meta(count), [crowd(count)]))
        page.evaluate("tracelabTimeline.ready")
        page.evaluate(counting)
        page.evaluate(
            "tracelabTimeline.goTo(0, tracelabTimeline.view[1]); tracelabTimeline.paint()"
        )
        painted.append(page.evaluate("window.painted"))
    assert max(painted) < 100


def test_data_that_are_cut_off_are_said_to_be(open_page, tmp_path, snapshot):
    file = write(tmp_path, crowd_meta(10), [crowd(10)])
    file.write_text(file.read_text().replace('"count":10,', '"count":11,'))
    page = open_page(file, expects=["the timeline's data is cut off"])
    wait_until(page, "document.getElementById('timeline-note').textContent")
    assert page.inner_text("#timeline-note") == snapshot
