"""The lanes: shapes and colors, work, idle time, gaps; and the header, labels and steps."""

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from tests.build.pictures import (
    COLUMNS,
    COPY,
    GEMM,
    LEFT,
    MS,
    draw,
    extent,
    lane_middles,
    make_trace,
    on_gpu,
    pixels_of,
    scene,
    shapes_of,
    texts_of,
)
from tracelab.model.timeline import build_timeline
from tracelab.render.first_screen import BusyShares
from tracelab.render.palette import DARK, KINDS, LIGHT, ink_on
from tracelab.render.picture.coverage import Grid
from tracelab.render.picture.draw_lanes import step_labels
from tracelab.render.picture.save import Look
from tracelab.render.picture.timeline import Part, draw_timelines
from tracelab.render.scene import Span
from tracelab.report.glossary import CAUSES


def test_shapes_stand_at_their_times_in_their_lanes(timeline):
    figure = draw(timeline)
    (gemm,) = shapes_of(figure, "compute")
    (reduce,) = shapes_of(figure, "comm")
    (copy,) = shapes_of(figure, "copy")
    blocked, _ = shapes_of(figure, "blocking")
    assert extent(gemm)[:2] == (0, 40)
    assert extent(reduce)[:2] == (30, 50)
    assert extent(copy)[:2] == (70, 100)
    assert extent(blocked)[:2] == (10, 60)
    assert extent(gemm)[2:] == extent(copy)[2:]
    assert extent(blocked)[3] < extent(gemm)[2] < extent(gemm)[3] < extent(reduce)[2]
    assert figure.axes[0].get_xlim() == (0, 100 * MS)


def causes_of(figure):
    """The idle time of each cause: (left, right, top, bottom) of its shapes."""
    causes = {cause: shapes_of(figure, cause) for cause in CAUSES.names}
    return {cause: [extent(x) for x in shapes] for cause, shapes in causes.items() if shapes}


def test_idle_time_has_a_row_by_cause_above_the_streams_of_its_gpu(timeline):
    figure = draw(timeline)
    causes = causes_of(figure)
    blocked, [(left, right, top, bottom)] = causes["host_blocked"], causes["host_busy"]
    assert [x[:2] for x in blocked] == [(50, 60), (65, 70)]
    assert (left, right) == (60, 65)
    assert bottom < extent(shapes_of(figure, "compute")[0])[2]
    assert bottom - top == 40
    assert shapes_of(figure, "idle") == []


def test_idle_means_every_stream_of_the_device_even_those_that_are_not_shown(timeline):
    shown = causes_of(draw(timeline, lanes=["stream:0/7"]))
    at = sorted(x[:2] for of_cause in shown.values() for x in of_cause)
    assert at == [(50, 60), (60, 65), (65, 70)]
    assert scene(timeline).busy(0, Span(45 * MS, 80 * MS)).starts.tolist() == [
        45 * MS,
        70 * MS,
    ]


def test_another_device_has_its_own_idle():
    events = (on_gpu(GEMM, 0, 50), on_gpu(GEMM, 50, 100, device=1))
    timeline = build_timeline(make_trace(*events))
    figure = draw(timeline)
    first, second = sorted(x for x in causes_of(figure)["edge"])[::-1]
    assert (first[:2], second[:2]) == ((50, 100), (0, 50))
    assert first[3] < second[2]
    assert {"GPU 0", "GPU 1"} <= set(texts_of(figure))


def test_idle_below_a_pixel_is_low_but_seen():
    events = (on_gpu(GEMM, 0, 50), on_gpu(GEMM, 50.05, 100))
    figure = draw(build_timeline(make_trace(*events)))
    [[(left, right, top, bottom)]] = causes_of(figure).values()
    assert right - left == pytest.approx(100 / COLUMNS, rel=1e-4)
    assert 6 < bottom - top < 30


def test_pixels_have_the_colours_of_what_ran(timeline, tmp_path):
    figure = draw(timeline)
    pixels = pixels_of(figure, tmp_path / "picture.png")
    assert pixels.shape[1] == 1600
    rows = lane_middles(figure)

    def colour(label, at_ms, down=0):
        return pixels[rows[label] + down, LEFT + round(at_ms / 100 * COLUMNS)]

    def paint(kind):
        return pytest.approx(to_rgb(KINDS[kind].color), abs=0.01)

    assert colour("stream 7", 10) == paint("compute")
    assert colour("stream 7", 40 - 0.08) == paint("compute")
    assert colour("stream 13", 32) == paint("comm")
    assert colour("main thread", 12, down=-6) == paint("blocking")
    assert colour("idle by cause", 55) == paint("host_blocked")
    # The gap has no colour: it is nearly white and grey.
    for label, at_ms in (("stream 7", 41), ("stream 7", 60), ("stream 13", 60), ("stream 13", 10)):
        there = colour(label, at_ms)
        assert np.ptp(there) < 0.06
        assert there.min() > 0.7


def test_a_gap_between_thin_kernels_stays_open_in_the_picture(tmp_path):
    starts = [i / 50 for i in range(5000) if not 2000 <= i < 2010]  # 15 us each, every 20 us
    timeline = build_timeline(make_trace(*(on_gpu(GEMM, s, s + 0.015) for s in starts)))
    figure = draw(timeline)
    pixels = pixels_of(figure, tmp_path / "picture.png")
    bottom = lane_middles(figure)["stream 7"] + 18
    row = pixels[bottom, LEFT : LEFT + COLUMNS]
    blue = np.abs(row - to_rgb(KINDS["compute"].color)).max(axis=1) < 0.02
    open_columns = np.flatnonzero(~blue)
    # From 39.995 to 40.2 ms no kernel runs: pixels 531.9 to 534.7, two whole columns.
    assert open_columns.tolist() == [532, 533]


def test_a_lone_microsecond_is_seen_in_the_picture(tmp_path):
    timeline = build_timeline(make_trace(on_gpu(GEMM, 500, 500.001), on_gpu(COPY, 0, 1)))
    figure = draw(timeline, end_ns=1000 * MS)
    pixels = pixels_of(figure, tmp_path / "picture.png")
    bottom = lane_middles(figure)["stream 7"] + 18
    assert pixels[bottom, LEFT + COLUMNS // 2] == pytest.approx(
        to_rgb(KINDS["compute"].color), abs=0.02
    )


def test_names_lie_within_their_kernels():
    # Kernels of 42, 70 ... 182 pixels, one every 16 ms.
    lengths_ms = np.arange(42, 200, 28) * 100 / COLUMNS
    starts_ms = np.arange(len(lengths_ms)) * 16.0
    events = [
        on_gpu("vectorized_elementwise_kernel", start, start + length)
        for start, length in zip(starts_ms, lengths_ms, strict=True)
    ]
    figure = draw(build_timeline(make_trace(*events)))
    (axes,) = figure.axes
    named = [x for x in axes.texts if x.get_text().startswith("elem")]
    assert named
    for text in named:
        box = text.get_window_extent().transformed(axes.transData.inverted())
        index = np.searchsorted(starts_ms * MS, box.x0, side="right") - 1
        assert box.x1 <= (starts_ms[index] + lengths_ms[index]) * MS


def test_step_labels_are_thinned_out():
    grid = Grid(0, 1000 * MS, 1000)
    few = {i: Span(i * 250 * MS, (i + 1) * 250 * MS) for i in range(4)}
    assert step_labels(few, grid) == [
        (0, "step 0"),
        (250, "step 1"),
        (500, "step 2"),
        (750, "step 3"),
    ]
    many = {i: Span(i * 10 * MS, (i + 1) * 10 * MS) for i in range(100)}
    at = [x for x, _ in step_labels(many, grid)]
    assert 5 <= len(at) <= 20
    assert len(set(np.diff(at))) == 1
    assert step_labels({}, grid) == []


def test_step_boundaries_are_lines_with_labels(timeline):
    figure = draw(timeline)
    at = [path.vertices[0, 0] / MS for path in shapes_of(figure, "steps")]
    # Step 4 ends when the host does, step 5 with the copy that it launched.
    assert at == [0, 62, 100]
    assert {"step 4", "step 5"} <= set(texts_of(figure))
    inside_5 = draw(timeline, start_ns=70 * MS)
    assert [t for t in texts_of(inside_5) if t.startswith("step ")] == ["step 5"]


def test_labels_say_lanes_and_names(timeline):
    texts = texts_of(draw(timeline))
    assert texts.count("cudaDeviceSynchronize") == 1
    expected = {
        "step.json.gz",
        "GPU 0",
        "stream 7",
        "stream 13",
        "main thread",
        "autograd",
        "idle by cause",
        "gemm_$x_$",
        "copy H2D pageable",
        "AllReduce",
        "time (ms)",
    }
    assert expected <= set(texts)


def shares_of(figure):
    """Every share in a picture, and what the caption says they are of."""
    texts = texts_of(figure)
    of = [part for text in texts for part in text.split("  ·  ") if " share of " in part]
    return [text for text in texts if text.endswith(" %")], [x.split(" of ")[1] for x in of]


def test_the_share_of_a_gpu_is_of_the_shown_time(timeline):
    # 0 to 50 and 70 to 100 ms of 100; from 50 ms on it is 30 of 50
    assert shares_of(draw(timeline)) == (["busy 80 %"], ["the shown time"])
    assert shares_of(draw(timeline, start_ns=50 * MS))[0] == ["busy 60 %"]
    assert shares_of(draw(timeline, lanes=["host"])) == ([], [])


def test_the_share_of_a_gpu_is_the_given_one(timeline):
    step = BusyShares("step 4", {0: "83 %", 1: "9 %"})
    assert shares_of(draw(timeline, busy=step)) == (["busy 83 %"], ["step 4"])
    assert shares_of(draw(timeline, busy=BusyShares("step 4", {})))[0] == []


def test_a_title_replaces_the_files_name(timeline):
    texts = texts_of(draw(timeline, title="rank 3, step $5$"))
    assert "rank 3, step $5$" in texts
    assert "step.json.gz" not in texts


def test_the_axis_keeps_the_time_of_the_trace(timeline):
    (axes,) = draw(timeline, start_ns=61 * MS, end_ns=81 * MS).axes
    ticks = zip(axes.get_xticks() / MS, axes.get_xticklabels(), strict=True)
    assert [(at, label.get_text()) for at, label in ticks][:3] == [(1, "62"), (3, "64"), (5, "66")]


def test_a_dark_picture_has_other_colors_everywhere(timeline):
    part = Part(scene(timeline), Span(0, 100 * MS))
    light, dark = (draw_timelines([part], Look(theme=theme)).figure for theme in (LIGHT, DARK))
    colors = {
        c.get_gid(): (to_hex(c.get_facecolor()[0]), to_hex(d.get_facecolor()[0]))
        for c, d in zip(light.axes[0].collections, dark.axes[0].collections, strict=True)
        if c.get_gid() in KINDS and len(c.get_paths())
    }
    assert {"compute", "comm", "copy", "blocking", "host_step", "host_busy"} <= colors.keys()
    assert all(first != second for kind, (first, second) in colors.items() if kind != "comm")
    assert colors["compute"] == (KINDS["compute"].color.lower(), KINDS["compute"].dark.lower())
    assert (light.get_facecolor()[0], dark.get_facecolor()[0]) == (1, pytest.approx(0x15 / 255))
    for figure, theme in ((light, LIGHT), (dark, DARK)):
        inks = {x.get_color() for x in figure.axes[0].texts if x.get_text() == "GPU 0"}
        assert inks == {theme.text}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_letters_are_read_on_every_color(kind, theme):
    color = theme.color_of(kind)
    light, dark = sorted(0.05 + luminance(x) for x in (color, ink_on(color)))[::-1]
    assert light / dark >= 4


def luminance(color):
    red, green, blue = (
        x / 12.92 if x <= 0.04 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(color)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
