import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from tracelab.errors import UsageError
from tracelab.model.kernel_kinds import Kind
from tracelab.model.steps import Step
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import Category, Thread, Trace
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.labels import step_labels
from tracelab.render.picture.lanes import Mark, build_lanes, busiest, caption, choose, device_busy
from tracelab.render.picture.layout import lane_tops
from tracelab.render.picture.letters import fit, printable, text_width
from tracelab.render.picture.save import save_figure
from tracelab.render.picture.style import PAINTS
from tracelab.render.picture.timeline import draw_timeline

MS = 1_000_000
NO_CALLS = np.zeros(0, dtype=np.int64)
THREADS = (Thread("7", "8", "pt_autograd_0"), Thread("7", "7", "python"), Thread("0", "9", ""))
GEMM = "void at::native::gemm_$x_$<float>(float*)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)"
COPY = "Memcpy HtoD (Pageable -> Device)"
LEFT, COLUMNS = 240, 1330  # the lanes' part of a picture that is 1600 pixels wide


def make_trace(*events):
    """A trace of (category, name, start, end, device, stream, correlation, thread) rows."""
    category, name, start, end, device, stream, correlation, thread = (
        np.array(column) for column in zip(*events, strict=True)
    )
    strings, codes = np.unique(name, return_inverse=True)
    absent = np.full(len(start), -1, dtype=np.int64)
    return Trace(
        path="somewhere/hand_made.json.gz",
        origin_ns=0,
        start_ns=start.astype(np.int64),
        duration_ns=(end - start).astype(np.int64),
        category=category.astype(np.int8),
        name_index=codes.astype(np.int32),
        thread_index=thread.astype(np.int32),
        device_number=device.astype(np.int32),
        stream_number=stream.astype(np.int64),
        correlation=correlation.astype(np.int64),
        wait_stream_number=absent,
        wait_correlation=absent,
        cuda_event_number=absent,
        file_index=np.arange(len(start), dtype=np.int64),
        strings=tuple(map(str, strings)),
        threads=THREADS,
        metadata={},
        objects=len(start),
        losses={},
    )


def on_gpu(name, start_ms, end_ms, device=0, stream=7, correlation=-1):
    category = Category.MEMCPY if name.startswith("Memcpy") else Category.KERNEL
    times = (round(start_ms * MS), round(end_ms * MS))
    return (category, name, *times, device, stream, correlation, 2)


def on_host(name, start_ms, end_ms, correlation=-1, thread=1, category=Category.RUNTIME):
    times = (round(start_ms * MS), round(end_ms * MS))
    return (category, name, *times, -1, -1, correlation, thread)


# Two streams: 0 to 40 ms a kernel, its gradient's all-reduce from 30 to 50 ms beside it, nothing
# until 70 ms, then a copy. The host launches, then blocks from 10 to 60 ms.
EVENTS = (
    on_gpu(GEMM, 0, 40, correlation=1),
    on_gpu(ALL_REDUCE, 30, 50, stream=13, correlation=2),
    on_gpu(COPY, 70, 100, correlation=3),
    on_host("cudaLaunchKernel", 0, 1, correlation=1),
    on_host("cudaLaunchKernel", 2, 3, correlation=2, thread=0),
    on_host("cudaDeviceSynchronize", 10, 60),
    on_host("cudaMemcpyAsync", 65, 66, correlation=3),
    on_host("ProfilerStep#4", 0, 62, category=Category.ANNOTATION),
    on_host("ProfilerStep#5", 62, 70, category=Category.ANNOTATION),
)
CALLS = np.array([5], dtype=np.int64)


@pytest.fixture(scope="module")
def timeline():
    return build_timeline(make_trace(*EVENTS))


def draw(timeline, **options):
    settings = {"blocking_calls": CALLS, "start_ns": 0, "end_ns": 100 * MS, **options}
    return draw_timeline(timeline, **settings)


def texts_of(figure):
    (axes,) = figure.axes
    return [text.get_text() for text in axes.texts]


def shapes_of(figure, gid):
    (axes,) = figure.axes
    (found,) = [c for c in axes.collections if c.get_gid() == gid] or [None]
    return found.get_paths() if found else []


def extent(path):
    (left, top), (right, bottom) = path.vertices.min(axis=0), path.vertices.max(axis=0)
    return left / MS, right / MS, top, bottom


def pixels_of(figure, path):
    save_figure(figure, path)
    return imread(path)[:, :, :3]


def lane_middles(figure):
    """Pixel row of the middle of each of the lanes, from the picture's own labels."""
    (axes,) = figure.axes
    rows = {}
    for text in axes.texts:
        if text.get_text().startswith(("stream", "host")):
            _, y = axes.transData.transform((0, text.get_position()[1] + 8))
            rows[text.get_text()] = round(figure.bbox.height - y)
    return rows


# ------------------------------------------------------------------ what is chosen and said


def test_everything_is_shown_by_default_and_the_main_thread_comes_first(timeline):
    choice = choose(timeline, CALLS, None)
    assert choice.streams == (0, 1)
    assert choice.kinds == (Kind.COMPUTE, Kind.COMM, Kind.COPY)
    assert choice.threads == (1, 0)


@pytest.mark.parametrize(
    ("names", "streams", "kinds", "threads"),
    [
        (["stream:0/13"], (1,), 3, 0),
        (["device:0"], (0, 1), 3, 0),
        (["host"], (), 3, 2),
        (["kind:comm"], (1,), 1, 0),
        (["kind:copy", "kind:comm", "host"], (0, 1), 2, 2),
        (["kind:comm", "device:0"], (1,), 1, 0),
    ],
)
def test_lanes_are_chosen_by_place_and_by_kind(timeline, names, streams, kinds, threads):
    choice = choose(timeline, CALLS, names)
    assert (choice.streams, len(choice.kinds), len(choice.threads)) == (streams, kinds, threads)


@pytest.mark.parametrize("name", ["stream:0/99", "device:1", "kind:memset", "gpu", ""])
def test_a_lane_that_does_not_exist_is_answered_with_those_that_do(timeline, name):
    with pytest.raises(UsageError) as caught:
        draw(timeline, lanes=[name])
    known = "host, device:0, stream:0/7, stream:0/13, kind:compute, kind:comm, kind:copy"
    assert str(caught.value) == f"there is no lane {name!r}; there are: {known}"


def test_a_picture_of_nothing_is_refused(timeline):
    with pytest.raises(UsageError, match="nothing to draw in kind:comm, stream:0/7"):
        draw(timeline, lanes=["kind:comm", "stream:0/7"])
    with pytest.raises(UsageError, match="nothing to draw in no lane"):
        draw(timeline, lanes=[])
    with pytest.raises(UsageError, match="would show nothing"):
        draw(timeline, start_ns=5, end_ns=5)
    with pytest.raises(UsageError, match="at least 400 pixels"):
        draw(timeline, width_px=399)
    only_host = build_timeline(make_trace(on_host("cudaDeviceSynchronize", 1, 2)))
    with pytest.raises(UsageError, match="no GPU activity to draw"):
        draw(only_host, blocking_calls=np.array([0]))


def test_rows_hold_what_lies_in_the_picture(timeline):
    grid = Grid(35 * MS, 75 * MS, COLUMNS)
    rows = build_lanes(timeline, CALLS, choose(timeline, CALLS, None), grid)
    assert [(r.label, r.device, r.busy_ns / MS) for r in rows] == [
        ("host thread 7", None, 25),
        ("host thread 8", None, 0),
        ("stream 7", 0, 10),
        ("stream 13", 0, 15),
    ]
    compute, comm, copy = rows[2].bands[0].layers
    assert [layer.mark for layer in (compute, comm, copy)] == [Mark.COMPUTE, Mark.COMM, Mark.COPY]
    assert [layer.event_ids.tolist() for layer in (compute, comm, copy)] == [[0], [], [2]]
    assert (copy.covered.starts / MS).tolist() == [70]
    assert (copy.covered.ends / MS).tolist() == [75]


def test_a_call_that_blocks_is_not_drawn_as_a_launch_too(timeline):
    grid = Grid(0, 100 * MS, COLUMNS)
    calls = np.array([5, 6], dtype=np.int64)
    main, *_ = build_lanes(timeline, calls, choose(timeline, calls, None), grid)
    assert {b.layers[0].mark: b.layers[0].event_ids.tolist() for b in main.bands} == {
        Mark.BLOCKING: [5, 6],
        Mark.HOST_STEP: [7, 8],
        Mark.LAUNCH: [3],
    }


def test_kinds_that_overlap_on_a_stream_are_busy_once():
    timeline = build_timeline(make_trace(on_gpu(GEMM, 0, 10), on_gpu(ALL_REDUCE, 5, 15)))
    grid = Grid(0, 20 * MS, COLUMNS)
    (row,) = build_lanes(timeline, NO_CALLS, choose(timeline, NO_CALLS, None), grid)
    assert row.busy_ns == 15 * MS


def test_the_end_of_a_long_stream_is_shown():
    timeline = build_timeline(make_trace(on_gpu(GEMM, 0, 10, stream=140234567812345)))
    assert "stream …7812345" in texts_of(draw(timeline, blocking_calls=NO_CALLS))


def test_the_caption_says_what_is_shown(timeline):
    grid = Grid(0, 100 * MS, COLUMNS)
    rows = build_lanes(timeline, CALLS, choose(timeline, CALLS, None), grid)
    assert caption(rows, grid, None, 4) == "100 ms from 0 ns into the trace  ·  3 GPU activities"
    assert caption(rows[:1], grid, ["host"], 4) == (
        "100 ms from 0 ns into the trace  ·  only host  ·  the 1 busiest of 4 lanes"
    )
    far = Grid(0, 100_000 * MS, COLUMNS)
    rows = build_lanes(timeline, CALLS, choose(timeline, CALLS, None), far)
    assert caption(rows, far, None, 4).endswith("low bars: busy share of one pixel (75.2 ms)")


def test_of_too_many_lanes_the_busiest_stay_in_order():
    events = [on_gpu(GEMM, 0, 1 + i % 7, stream=i) for i in range(420)]
    timeline = build_timeline(make_trace(*events))
    grid = Grid(0, 10 * MS, COLUMNS)
    rows = build_lanes(timeline, NO_CALLS, choose(timeline, NO_CALLS, None), grid)
    kept = busiest(rows, 60)
    assert [r.label for r in kept] == [f"stream {i}" for i in range(420) if i % 7 == 6]
    figure = draw(timeline, blocking_calls=NO_CALLS, end_ns=10 * MS)
    assert any("the 400 busiest of 420 lanes" in text for text in texts_of(figure))


def test_lanes_of_a_device_stand_closer_than_devices():
    first, second, third = lane_tops([0, 0, 1], 40)
    assert first == 0
    assert 40 < second < third - second


def test_letters_that_the_font_lacks_become_question_marks():
    assert printable("µs → 漢\x00\n$a$") == "µs → ???$a$"


def test_a_text_is_cut_to_its_room():
    whole = "vectorized_elementwise_kernel"
    assert fit(whole, 500, 12) == whole
    cut = fit(whole, 100, 12)
    assert cut.endswith("…")
    assert whole.startswith(cut[:-1])
    assert text_width(cut, 12) <= 100
    assert fit(whole, 30, 12) == ""


def test_step_labels_are_thinned_out():
    grid = Grid(0, 1000 * MS, 1000)
    few = [Step(i, 0, i * 250 * MS, (i + 1) * 250 * MS) for i in range(4)]
    assert step_labels(few, grid) == [
        (0, "step 0"),
        (250, "step 1"),
        (500, "step 2"),
        (750, "step 3"),
    ]
    many = [Step(i, 0, i * 10 * MS, (i + 1) * 10 * MS) for i in range(100)]
    at = [x for x, _ in step_labels(many, grid)]
    assert 5 <= len(at) <= 20
    assert len(set(np.diff(at))) == 1
    assert step_labels([], grid) == []


# ------------------------------------------------------------------ what is drawn


def test_shapes_stand_at_their_times_in_their_lanes(timeline):
    figure = draw(timeline)
    (gemm,) = shapes_of(figure, "compute")
    (reduce,) = shapes_of(figure, "comm")
    (copy,) = shapes_of(figure, "copy")
    (blocked,) = shapes_of(figure, "blocking")
    assert extent(gemm)[:2] == (0, 40)
    assert extent(reduce)[:2] == (30, 50)
    assert extent(copy)[:2] == (70, 100)
    assert extent(blocked)[:2] == (10, 60)
    assert extent(gemm)[2:] == extent(copy)[2:]
    assert extent(blocked)[3] < extent(gemm)[2] < extent(gemm)[3] < extent(reduce)[2]
    assert figure.axes[0].get_xlim() == (0, 100 * MS)


def test_idle_is_hatched_across_the_lanes_of_the_device(timeline):
    figure = draw(timeline)
    (idle,) = shapes_of(figure, "idle")
    left, right, top, bottom = extent(idle)
    assert (left, right) == (50, 70)
    assert top == extent(shapes_of(figure, "compute")[0])[2]
    assert bottom == extent(shapes_of(figure, "comm")[0])[3]


def test_idle_means_every_stream_of_the_device_even_those_that_are_not_shown(timeline):
    (idle,) = shapes_of(draw(timeline, lanes=["stream:0/7"]), "idle")
    assert extent(idle)[:2] == (50, 70)
    assert device_busy(timeline, 0, Grid(45 * MS, 80 * MS, 100)).starts.tolist() == [
        45 * MS,
        70 * MS,
    ]


def test_another_device_has_its_own_idle():
    events = (on_gpu(GEMM, 0, 50), on_gpu(GEMM, 50, 100, device=1))
    timeline = build_timeline(make_trace(*events))
    figure = draw(timeline, blocking_calls=NO_CALLS)
    first, second = (extent(shape) for shape in shapes_of(figure, "idle"))
    assert (first[:2], second[:2]) == ((50, 100), (0, 50))
    assert first[3] < second[2]
    assert {"GPU 0", "GPU 1"} <= set(texts_of(figure))


def test_idle_below_a_pixel_is_not_hatched():
    events = (on_gpu(GEMM, 0, 50), on_gpu(GEMM, 50.05, 100))
    figure = draw(build_timeline(make_trace(*events)), blocking_calls=NO_CALLS)
    assert shapes_of(figure, "idle") == []
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["compute"]


def test_step_boundaries_are_lines_with_labels(timeline):
    figure = draw(timeline)
    at = [path.vertices[0, 0] / MS for path in shapes_of(figure, "steps")]
    # Step 4 ends when the host does, step 5 with the copy that it launched.
    assert at == [0, 62, 100]
    assert {"step 4", "step 5"} <= set(texts_of(figure))
    inside_5 = draw(timeline, start_ns=70 * MS)
    assert [t for t in texts_of(inside_5) if t.startswith("step ")] == ["step 5"]


def test_labels_say_lane_share_and_names(timeline):
    texts = texts_of(draw(timeline))
    assert texts.count("cudaDeviceSynchronize") == 1
    expected = {
        "hand_made.json.gz",
        "GPU 0",
        "80 % busy",
        "stream 7",
        "70 % busy",
        "stream 13",
        "20 % busy",
        "host thread 7",
        "50 % blocked",
        "host thread 8",
        "0 % blocked",
        "gemm_$x_$",
        "HtoD (Pageable -> Device)",
        "time (ms)",
    }
    assert expected <= set(texts)
    assert any(text.startswith("ncclDevKernel_AllReduce_") for text in texts)


def test_the_legend_lists_what_occurs_and_nothing_else(timeline):
    legend = [text.get_text() for text in draw(timeline).legends[0].get_texts()]
    assert legend == [
        "compute",
        "communication",
        "copy",
        "blocking call",
        "launch call",
        "step on the host",
        "idle (no stream busy)",
    ]
    only = draw(timeline, lanes=["kind:comm"], start_ns=35 * MS, end_ns=45 * MS)
    assert [text.get_text() for text in only.legends[0].get_texts()] == ["communication"]


def test_a_title_replaces_the_files_name(timeline):
    texts = texts_of(draw(timeline, title="rank 3, step $5$"))
    assert "rank 3, step $5$" in texts
    assert "hand_made.json.gz" not in texts


def test_no_text_leaves_the_picture_or_enters_the_legend():
    events = [on_gpu(GEMM, 2 * i, 2 * i + 3, device=i % 4, stream=2**40 + i) for i in range(40)] + [
        on_host("cudaDeviceSynchronize", i, i + 1, thread=1) for i in range(3)
    ]
    timeline = build_timeline(make_trace(*events))
    for width in (400, 1600):
        for lanes in (None, ["device:0"]):
            figure = draw(
                timeline,
                blocking_calls=np.arange(40, 43),
                title="a long title " * 40,
                lanes=lanes,
                width_px=width,
            )
            figure.draw_without_rendering()
            (axes,) = figure.axes
            legend = figure.legends[0].get_window_extent()
            for text in [*axes.texts, *axes.get_xticklabels()]:
                box = text.get_window_extent()
                assert box.x0 >= 0, text.get_text()
                assert box.y0 >= legend.y1, text.get_text()
                assert box.x1 <= figure.bbox.width, text.get_text()
                assert box.y1 <= figure.bbox.height, text.get_text()
            assert legend.y0 >= 0
            assert legend.x1 <= figure.bbox.width


def test_pixels_have_the_colours_of_what_ran(timeline, tmp_path):
    figure = draw(timeline)
    pixels = pixels_of(figure, tmp_path / "picture.png")
    assert pixels.shape[1] == 1600
    rows = lane_middles(figure)

    def colour(label, at_ms, down=0):
        return pixels[rows[label] + down, LEFT + round(at_ms / 100 * COLUMNS)]

    def paint(mark):
        return pytest.approx(to_rgb(PAINTS[mark].fill), abs=0.01)

    assert colour("stream 7", 10) == paint(Mark.COMPUTE)
    assert colour("stream 7", 40 - 0.08) == paint(Mark.COMPUTE)
    assert colour("stream 13", 32) == paint(Mark.COMM)
    assert colour("host thread 7", 12, down=-10) == paint(Mark.BLOCKING)
    # The gap has no colour: it is nearly white and grey, hatched or not.
    for label, at_ms in (("stream 7", 41), ("stream 7", 60), ("stream 13", 60), ("stream 13", 10)):
        there = colour(label, at_ms)
        assert np.ptp(there) < 0.06
        assert there.min() > 0.7


def test_a_gap_between_thin_kernels_stays_open_in_the_picture(tmp_path):
    starts = [i / 50 for i in range(5000) if not 2000 <= i < 2010]  # 15 us each, every 20 us
    timeline = build_timeline(make_trace(*(on_gpu(GEMM, s, s + 0.015) for s in starts)))
    figure = draw(timeline, blocking_calls=NO_CALLS)
    pixels = pixels_of(figure, tmp_path / "picture.png")
    bottom = lane_middles(figure)["stream 7"] + 18
    row = pixels[bottom, LEFT : LEFT + COLUMNS]
    blue = np.abs(row - to_rgb(PAINTS[Mark.COMPUTE].fill)).max(axis=1) < 0.02
    open_columns = np.flatnonzero(~blue)
    # From 39.995 to 40.2 ms no kernel runs: pixels 531.9 to 534.7, two whole columns.
    assert open_columns.tolist() == [532, 533]


def test_a_lone_microsecond_is_seen_in_the_picture(tmp_path):
    timeline = build_timeline(make_trace(on_gpu(GEMM, 500, 500.001), on_gpu(COPY, 0, 1)))
    figure = draw(timeline, blocking_calls=NO_CALLS, end_ns=1000 * MS)
    pixels = pixels_of(figure, tmp_path / "picture.png")
    bottom = lane_middles(figure)["stream 7"] + 18
    assert pixels[bottom, LEFT + COLUMNS // 2] == pytest.approx(
        to_rgb(PAINTS[Mark.COMPUTE].fill), abs=0.02
    )


@pytest.mark.parametrize("width", [401, 1000, 1600])
def test_the_width_is_exact_and_the_height_grows_with_the_lanes(width, tmp_path):
    heights = []
    for count in (1, 2, 8, 40):
        events = [on_gpu(GEMM, i, i + 20, stream=i) for i in range(count)]
        figure = draw(build_timeline(make_trace(*events)), blocking_calls=NO_CALLS, width_px=width)
        pixels = pixels_of(figure, tmp_path / "picture.png")
        assert pixels.shape[:2] == (round(figure.bbox.height), width)
        heights.append(len(pixels))
    assert heights == sorted(set(heights))
    assert heights[-1] > 40 * 22


# ------------------------------------------------------------------ files


@pytest.mark.parametrize(
    ("name", "head"),
    [("a.png", b"\x89PNG\r\n"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF-"), ("A.PNG", b"\x89PNG")],
)
def test_the_ending_says_the_format_and_a_picture_is_reproducible(timeline, tmp_path, name, head):
    save_figure(draw(timeline), tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(head)
    with mpl.rc_context(
        {
            "font.size": 30,
            "axes.facecolor": "red",
            "savefig.bbox": "tight",
            "savefig.dpi": 40,
            "svg.fonttype": "none",
            "hatch.linewidth": 5,
            "figure.autolayout": True,
        }
    ):
        save_figure(draw(timeline), str(tmp_path / name))
    assert (tmp_path / name).read_bytes() == first


@pytest.mark.parametrize("name", ["a.jpg", "a", "a.png.gz"])
def test_another_format_is_refused(timeline, tmp_path, name):
    with pytest.raises(UsageError, match=r"\.png, \.svg or \.pdf"):
        save_figure(draw(timeline), tmp_path / name)


def test_a_folder_that_is_not_there_is_said(timeline, tmp_path):
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        save_figure(draw(timeline), tmp_path / "nowhere" / "a.png")


def test_hostile_names_are_only_text(tmp_path):
    name = "$\\frac{1}{0}$ --> </text><script>&\x1b[31m \ud800 漢"
    timeline = build_timeline(make_trace(on_gpu(name, 0, 100)))
    figure = draw(timeline, blocking_calls=NO_CALLS, title=name)
    for ending in ("png", "svg", "pdf"):
        save_figure(figure, tmp_path / f"a.{ending}")
    assert "<script>" not in (tmp_path / "a.svg").read_text()


def test_pyplot_is_never_imported():
    code = "import sys, tracelab.render.picture.timeline; print('matplotlib.pyplot' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


# ------------------------------------------------------------------ size


def test_a_million_activities_make_a_bounded_number_of_shapes():
    count = 1_000_000
    rng = np.random.default_rng(0)
    absent = np.full(count, -1, dtype=np.int64)
    trace = Trace(
        path="million.json",
        origin_ns=0,
        start_ns=np.cumsum(rng.integers(200, 1500, count)),
        duration_ns=rng.integers(1, 4000, count),
        category=rng.choice([0, 0, 1, 2], count).astype(np.int8),
        name_index=rng.integers(0, 2, count).astype(np.int32),
        thread_index=np.zeros(count, dtype=np.int32),
        device_number=rng.integers(0, 2, count).astype(np.int32),
        stream_number=rng.integers(0, 4, count),
        correlation=absent,
        wait_stream_number=absent,
        wait_correlation=absent,
        cuda_event_number=absent,
        file_index=np.arange(count, dtype=np.int64),
        strings=(GEMM, ALL_REDUCE),
        threads=THREADS,
        metadata={},
        objects=count,
        losses={},
    )
    timeline = build_timeline(trace)
    whole = timeline.windows[0]
    for end_ns in (whole.end_ns, whole.start_ns + 5 * MS, whole.start_ns + 100_000):
        figure = draw(timeline, blocking_calls=NO_CALLS, start_ns=whole.start_ns, end_ns=end_ns)
        (axes,) = figure.axes
        paths = [path for c in axes.collections for path in c.get_paths()]
        assert len(paths) <= COLUMNS * len(timeline.streams) * 2
        assert sum(len(path.vertices) for path in paths) <= COLUMNS * len(timeline.streams) * 4 * 5
        assert len(axes.texts) <= 60 * len(timeline.streams)
