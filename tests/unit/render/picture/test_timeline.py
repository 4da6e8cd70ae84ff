"""A whole picture: its size, its texts, what it refuses."""

import subprocess
import sys

import numpy as np
import pytest

from tests.build.pictures import (
    ALL_REDUCE,
    COLUMNS,
    GEMM,
    MS,
    THREADS,
    draw,
    make_trace,
    on_gpu,
    on_host,
    pixels_of,
    scene,
)
from tests.build.rows import absent_columns, graph_nodes_of, messages_of
from tracelab.base.errors import UsageError
from tracelab.model.timeline import build_timeline
from tracelab.model.trace import Trace
from tracelab.render.picture.save import Look
from tracelab.render.picture.timeline import Part, draw_timelines, require_drawable
from tracelab.render.scene import Span


def test_a_picture_of_nothing_is_refused(timeline):
    with pytest.raises(UsageError, match="nothing to draw in kind:comm, stream:0/7"):
        draw(timeline, lanes=["kind:comm", "stream:0/7"])
    with pytest.raises(UsageError, match="nothing to draw in no lane"):
        draw(timeline, lanes=[])
    with pytest.raises(UsageError, match="nothing to draw from"):
        draw(timeline, start_ns=5, end_ns=5)
    for width in (-1, 399, 16_385, 10_000_000):
        with pytest.raises(UsageError, match="a timeline's width is 400 to 16,384 pixels"):
            draw(timeline, width_px=width)


def test_no_text_leaves_the_picture_or_enters_the_legend():
    events = [on_gpu(GEMM, 2 * i, 2 * i + 3, device=i % 4, stream=2**40 + i) for i in range(40)] + [
        on_host("cudaDeviceSynchronize", i, i + 1, thread=1) for i in range(3)
    ]
    timeline = build_timeline(make_trace(*events))
    for width in (400, 1600):
        for lanes in (None, ["device:0"]):
            figure = draw(
                timeline,
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


@pytest.mark.parametrize("width", [401, 1000, 1600])
def test_the_width_is_exact_and_the_height_grows_with_the_lanes(width, tmp_path):
    heights = []
    for count in (1, 2, 8, 40):
        events = [on_gpu(GEMM, i, i + 20, stream=i) for i in range(count)]
        figure = draw(build_timeline(make_trace(*events)), width_px=width)
        pixels = pixels_of(figure, tmp_path / "picture.png")
        assert pixels.shape[:2] == (round(figure.bbox.height), width)
        heights.append(len(pixels))
    assert heights == sorted(set(heights))
    assert heights[-1] > 40 * 22


def test_pyplot_is_never_imported():
    code = "import sys, tracelab.render.picture.timeline; print('matplotlib.pyplot' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_a_million_activities_make_a_bounded_number_of_shapes():
    count = 1_000_000
    rng = np.random.default_rng(0)
    sparse = absent_columns(count) | {
        "device_number": rng.integers(0, 2, count).astype(np.int32),
        "stream_number": rng.integers(0, 4, count),
    }
    trace = Trace(
        **sparse,
        path="million.json",
        origin_ns=0,
        start_ns=np.cumsum(rng.integers(200, 1500, count)),
        duration_ns=rng.integers(1, 4000, count),
        category=rng.choice([0, 0, 1, 2], count).astype(np.int8),
        name_index=rng.integers(0, 2, count).astype(np.int32),
        thread_index=np.zeros(count, dtype=np.int32),
        messages=messages_of([])[0],
        graph_nodes=graph_nodes_of([])[0],
        file_index=np.arange(count, dtype=np.int64),
        strings=(GEMM, ALL_REDUCE),
        threads=THREADS,
        metadata={},
        objects=count,
        losses={},
        loss_names={},
    )
    timeline = build_timeline(trace)
    whole = timeline.windows[0]
    for end_ns in (whole.end_ns, whole.start_ns + 5 * MS, whole.start_ns + 100_000):
        figure = draw(timeline, start_ns=whole.start_ns, end_ns=end_ns)
        (axes,) = figure.axes
        paths = [path for c in axes.collections for path in c.get_paths()]
        assert len(paths) <= COLUMNS * len(timeline.streams) * 2
        assert sum(len(path.vertices) for path in paths) <= COLUMNS * len(timeline.streams) * 4 * 5
        assert len(axes.texts) <= 60 * len(timeline.streams)


def test_a_height_is_exact_and_too_low_a_one_says_what_is_needed(timeline):
    part = Part(scene(timeline), Span(0, 100 * MS))
    for height in (500, 1000):
        figure = draw_timelines([part], Look(height_px=height)).figure
        assert figure.bbox.height == height
        (axes,) = figure.axes
        bottoms = [path.vertices[:, 1].max() for path in axes.collections[0].get_paths()]
        assert max(bottoms) == pytest.approx(axes.get_ylim()[0])
        legend = figure.legends[0].get_window_extent()
        assert legend.y1 <= axes.get_window_extent().y0
    with pytest.raises(UsageError, match=r"need a height of \d+ pixels or more, not 250"):
        draw_timelines([part], Look(height_px=250))
    with pytest.raises(UsageError, match="a timeline's height is 200 to 16,384 pixels, not 199"):
        require_drawable(1, None, Look(height_px=199))


def test_more_files_than_anybody_compares_are_refused_with_the_way_out():
    with pytest.raises(UsageError, match=r"at most 20 files .* these are 21: draw each alone"):
        require_drawable(21, None, Look())
