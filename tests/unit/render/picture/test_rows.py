"""Rows that are drawn, what they hold, and what the caption says of them."""

from dataclasses import replace

import numpy as np
import pytest

from tests.build.files import read, write
from tests.build.graph_rows import replayed
from tests.build.pictures import (
    ALL_REDUCE,
    COLUMNS,
    GEMM,
    MS,
    draw,
    extent,
    make_trace,
    on_gpu,
    on_host,
    scene,
    shapes_of,
    texts_of,
)
from tests.figures import figures
from tracelab.base.errors import UsageError
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import Category
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.rows import (
    MARK_PX,
    build_rows,
    busiest,
    caption,
    choose,
    place_marks,
)
from tracelab.render.picture.timeline import Part, draw_timelines
from tracelab.render.scene import Lane, Mark, Places


def rows_of(timeline, grid):
    shown = scene(timeline)
    return build_rows(shown, choose(shown, None), grid)


def test_everything_is_shown_by_default_and_the_main_thread_comes_first(timeline):
    choice = choose(scene(timeline), None)
    assert [x.id for x in choice.lanes] == [
        "host:1",
        "host:0",
        "idle:0",
        "stream:0/7",
        "stream:0/13",
    ]
    assert choice.kinds == ("compute", "comm", "copy")


@pytest.mark.parametrize(
    ("names", "streams", "kinds", "threads"),
    [
        (["stream:0/13"], [13], 3, 0),
        (["device:0"], [7, 13], 3, 0),
        (["host"], [], 3, 2),
        (["kind:comm"], [13], 1, 0),
        (["kind:copy", "kind:comm", "host"], [7, 13], 2, 2),
        (["kind:comm", "device:0"], [13], 1, 0),
    ],
)
def test_lanes_are_chosen_by_place_and_by_kind(timeline, names, streams, kinds, threads):
    choice = choose(scene(timeline), names)
    assert [number for lane in choice.lanes for number in lane.streams] == streams
    assert len(choice.kinds) == kinds
    assert sum(lane.type == "host" for lane in choice.lanes) == threads
    assert sum(lane.type == "idle" for lane in choice.lanes) == bool(streams)


@pytest.mark.parametrize("name", ["stream:0/99", "device:1", "kind:memset"])
def test_a_lane_that_does_not_exist_is_answered_with_those_that_do(timeline, name):
    with pytest.raises(UsageError) as caught:
        draw(timeline, lanes=[name])
    known = "host, device:0, stream:0/7, stream:0/13, kind:compute, kind:comm, kind:copy"
    assert str(caught.value) == f"there is no lane {name!r}; there are: {known}"


@pytest.mark.parametrize("name", ["gpu", "", "stream:7", "kind:foo", "device:x", "host "])
def test_what_no_lane_is_called_is_answered_with_how_they_are(timeline, name):
    with pytest.raises(UsageError) as caught:
        draw(timeline, lanes=[name])
    known = "lanes are host, device:0, stream:0/7, counter:0/allocated or kind:comm"
    assert str(caught.value) == f"there is no lane {name!r}; {known}"


def test_rows_hold_what_lies_in_the_picture(timeline):
    grid = Grid(35 * MS, 75 * MS, COLUMNS)
    rows = rows_of(timeline, grid)
    assert [(r.label, r.device, r.busy_ns / MS) for r in rows] == [
        ("main thread", None, 26),
        ("autograd", None, 0),
        ("idle by cause", 0, 40),
        ("stream 7", 0, 10),
        ("stream 13", 0, 15),
    ]
    compute, comm, copy = rows[3].bands[0].layers
    assert [layer.kind for layer in (compute, comm, copy)] == ["compute", "comm", "copy"]
    assert [(layer.start_ns / MS).tolist() for layer in (compute, comm, copy)] == [[0], [], [70]]
    assert (copy.covered.starts / MS).tolist() == [70]
    assert (copy.covered.ends / MS).tolist() == [75]


def test_a_call_that_blocks_is_not_drawn_as_a_launch_too(timeline):
    grid = Grid(0, 100 * MS, COLUMNS)
    main, *_ = rows_of(timeline, grid)
    layers = [layer for band in main.bands for layer in band.layers]
    assert {layer.kind: (layer.start_ns / MS).tolist() for layer in layers} == {
        "harmless": [],
        "blocking": [10, 65],
        "host_step": [0, 62],
        "launch_call": [0],
    }


def test_a_blocking_call_that_hardly_cost_anything_is_apart_from_the_others(timeline):
    """GIVEN a wait of 50 ms of which a GPU was idle for 0.1, and one of 1 ms with 0.1
    THEN the first is pale: 0.1 ms is a small part of a step and of the call."""
    shown = scene(timeline)
    host = shown.lane("host:1")
    cost = np.where(host.more["cost"] > 0, 100_000, 0)
    changed = replace(host, more={**host.more, "cost": cost})
    lanes = tuple(changed if lane is host else lane for lane in shown.lanes)
    choice = choose(replace(shown, lanes=lanes), ["host"])
    main, _ = build_rows(shown, choice, Grid(0, 100 * MS, COLUMNS))
    starts = {x.kind: (x.start_ns / MS).tolist() for band in main.bands for x in band.layers}
    assert (starts["harmless"], starts["blocking"]) == ([10], [65])


def test_phases_and_named_regions_are_strips_above_the_calls_of_a_thread():
    """GIVEN a forward pass with a region of the user's inside, and calls
    THEN the first strip is the phase, the second the region; a thread without them has none."""
    events = (
        on_gpu(GEMM, 20, 90, correlation=1),
        on_host("ProfilerStep#1", 0, 100, category=Category.ANNOTATION),
        on_host("DDP.forward", 0, 50, category=Category.ANNOTATION),
        on_host("attention", 10, 40, category=Category.ANNOTATION),
        on_host("cudaLaunchKernel", 12, 13, correlation=1),
    )
    timeline = build_timeline(make_trace(*events))
    main, *_ = rows_of(timeline, Grid(0, 100 * MS, COLUMNS))
    kinds = [[x.kind for x in band.layers if len(x.start_ns)] for band in main.bands]
    assert kinds == [["forward"], ["annotation"], [], ["host_step"], ["launch_call"]]
    assert main.bands[0].lower < main.bands[1].upper < main.bands[1].lower < main.bands[2].upper
    assert {"forward", "attention"} <= set(texts_of(draw(timeline)))


def test_kinds_that_overlap_on_a_stream_are_busy_once():
    timeline = build_timeline(make_trace(on_gpu(GEMM, 0, 10), on_gpu(ALL_REDUCE, 5, 15)))
    grid = Grid(0, 20 * MS, COLUMNS)
    _, row = rows_of(timeline, grid)
    assert row.busy_ns == 15 * MS


def test_the_end_of_a_long_stream_is_shown():
    timeline = build_timeline(make_trace(on_gpu(GEMM, 0, 10, stream=140234567812345)))
    assert "stream …7812345" in texts_of(draw(timeline))


def test_the_caption_says_what_is_shown(timeline, snapshot):
    grid = Grid(0, 100 * MS, COLUMNS)
    rows = rows_of(timeline, grid)
    every = "  ·  ".join(caption(rows, grid, None, 5))
    assert figures(every) == ["100 ms", "0 ns", "3"]
    assert every == snapshot
    host = "  ·  ".join(caption(rows[:1], grid, ["host"], 4))
    assert figures(host) == ["100 ms", "0 ns", "1", "4"]
    assert host == snapshot


@pytest.mark.slow
def test_of_too_many_lanes_the_busiest_stay_in_order():
    events = [on_gpu(GEMM, 0, 1 + i % 7, stream=i) for i in range(420)]
    timeline = build_timeline(make_trace(*events))
    grid = Grid(0, 10 * MS, COLUMNS)
    rows = rows_of(timeline, grid)
    kept = busiest(rows, 60)
    busy = [f"stream {i}" for i in range(420) if i % 7 == 6]
    assert [r.label for r in kept] == ["idle by cause", *busy]
    figure = draw(timeline, end_ns=10 * MS)
    assert any("the 400 busiest of 420 lanes" in text for text in texts_of(figure))


@pytest.fixture
def replays(tmp_path):
    """300 streams with two nodes of a graph each, six at a time, beside two of the program."""
    return build_timeline(read(write(tmp_path / "replays.json", replayed(replays=1))))


def test_streams_of_graphs_share_a_lane_with_as_many_bands_as_overlap(replays, snapshot):
    assert [len(x.streams) for x in choose(scene(replays), None).lanes] == [0, 0, 1, 1, 300]
    window = replays.windows[0]
    grid = Grid(window.start_ns, window.end_ns, COLUMNS)
    row = rows_of(replays, grid)[-1]
    assert (row.label, row.device, row.streams) == ("300 graph streams", 0, 300)
    # Every 4 us six nodes of 3 us begin, each half a microsecond later: the first two of the next
    # six find the first two bands free again, and no third one begins while six are running.
    assert row.busy_ns == 401_500
    shown = [band.layers[0] for band in row.bands]
    assert [len(layer.name) for layer in shown] == [100] * 6
    for layer in shown:
        assert (layer.start_ns[1:] >= layer.end_ns[:-1]).all()
    below = "  ·  ".join(caption([row], grid, None, 1))
    assert below == snapshot


def test_a_single_stream_of_graphs_can_still_be_chosen(replays):
    def streams(*names):
        return [x.streams for x in choose(scene(replays), names).lanes if x.type == "stream"]

    assert streams("stream:0/150") == [(150,)]
    assert [len(x) for x in streams("stream:0/graphs")] == [300]
    assert [len(x) for x in streams("stream:0/150", "device:0")] == [1, 1, 1, 299]


def test_streams_of_graphs_are_drawn_as_one(replays):
    figure = draw(replays, end_ns=replays.windows[0].end_ns)
    labels = [text for text in texts_of(figure) if "stream" in text and len(text) < 20]
    assert labels == ["stream 7", "stream 8", "300 graph streams"]


def test_a_number_over_time_is_a_row_below_the_streams_that_says_the_highest_one(timeline):
    """GIVEN memory of 1 GiB for 40 ms, then 3 GiB for 40 ms
    THEN the row is a third as high, and then as high as it can be."""
    bounds_ns = np.array([0, 40, 80]) * MS
    lane = Lane(
        id="counter:0/allocated",
        label="GPU 0 allocated",
        device=0,
        kinds=("counter",),
        start_ns=bounds_ns[:-1],
        end_ns=bounds_ns[1:],
        kind=np.zeros(2, dtype=np.uint8),
        more={"value": np.array([2**30, 3 * 2**30])},
        unit="bytes",
    )
    shown = scene(timeline)
    shown = replace(shown, lanes=(*shown.lanes, lane))
    choice = choose(shown, ["counter:0/allocated", "stream:0/7"])
    row = build_rows(shown, choice, Grid(0, 80 * MS, 8))[-1]
    assert row.label == "allocated, at most 3 GiB"
    assert row.heights == pytest.approx([1 / 3] * 4 + [1] * 4)
    figure = draw_timelines([Part(shown, shown.window)]).figure
    (low,) = shapes_of(figure, "counter")
    assert extent(low)[:2] == (0, 80)
    assert max(extent(x)[3] for x in shapes_of(figure, "copy")) <= extent(low)[2]


def test_numbers_of_findings_stand_at_their_worst_evidence_first():
    """GIVEN waits of 30, 1 and 20 ms, of which the last begins where the picture ends
    THEN the longest one is marked, and the others are not, which is outside or hides a number."""
    events = (
        on_gpu(GEMM, 0, 70, correlation=1),
        on_host("cudaLaunchKernel", 0, 1, correlation=1),
        on_host("cudaStreamSynchronize", 10, 40),
        on_host("cudaStreamSynchronize", 41, 42),
        on_host("cudaStreamSynchronize", 60, 80),
    )
    timeline = build_timeline(make_trace(*events))
    shown = scene(timeline)
    host = shown.lane("host:1")
    places = Places(
        event_id=np.arange(3),
        start_ns=host.start_ns[1:4],
        end_ns=host.end_ns[1:4],
        thread=np.ones(3, dtype=np.int32),
        name=np.zeros(3, dtype=np.int64),
        row=np.full(3, -1),
    )
    mark = Mark(2, "program", "2", "TL101", {}, {}, np.arange(3), 0, {})
    shown = replace(shown, marks=(mark,), places=places)
    rows = build_rows(shown, choose(shown, None), Grid(0, 60 * MS, 120))
    [found] = place_marks(shown, [1, 2], rows, Grid(0, 60 * MS, 120))
    assert (found.number, rows[found.row].id) == (2, "host:1")
    assert (found.span, found.middle_px) == ((10 * MS, 40 * MS), 50)
    both = replace(shown, marks=(mark, replace(mark, number=3)))
    first, second = place_marks(both, [2, 3], rows, Grid(0, 60 * MS, 120))
    assert second.middle_px == first.middle_px + MARK_PX
    assert place_marks(shown, [1], rows, Grid(0, 60 * MS, 120)) == []


def cite(shown, start_ns, end_ns):
    """A scene with a finding that cites one event of thread 1."""
    places = Places(
        event_id=np.arange(1),
        start_ns=np.array([start_ns]),
        end_ns=np.array([end_ns]),
        thread=np.ones(1, dtype=np.int32),
        name=np.zeros(1, dtype=np.int64),
        row=np.full(1, -1),
    )
    mark = Mark(1, "program", "1", "TL101", {}, {}, np.arange(1), 0, {})
    return replace(shown, marks=(mark,), places=places)


def test_evidence_without_a_row_is_marked_where_its_gpu_is_idle(timeline):
    shown = cite(scene(timeline), 10 * MS, 60 * MS)
    grid = Grid(0, 100 * MS, COLUMNS)
    rows = build_rows(shown, choose(shown, ["stream:0/7"]), grid)
    assert [rows[x.row].id for x in place_marks(shown, [1], rows, grid)] == ["idle:0"]
    figure = draw_timelines([Part(shown, shown.window, findings=(1,))]).figure
    (frame,) = shapes_of(figure, "marks")
    assert extent(frame)[:2] == (10, 60)
    assert extent(frame)[2:] == extent(shapes_of(figure, "blocking")[0])[2:]
    assert "1" in texts_of(figure)


def test_evidence_of_everything_is_marked_at_the_longest_idle_time(timeline):
    shown = cite(scene(timeline), 0, 100 * MS)
    grid = Grid(0, 100 * MS, COLUMNS)
    rows = build_rows(shown, choose(shown, None), grid)
    [found] = place_marks(shown, [1], rows, grid)
    assert (rows[found.row].id, found.span) == ("idle:0", (50 * MS, 60 * MS))
    busy = Grid(0, 40 * MS, COLUMNS)
    assert place_marks(shown, [1], build_rows(shown, choose(shown, None), busy), busy) == []
