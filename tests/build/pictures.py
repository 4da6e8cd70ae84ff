"""For tests of the picture: a small timeline to draw, and what a picture shows where."""

import numpy as np
from matplotlib.image import imread

from tests.build.rows import absent_columns, graph_nodes_of, messages_of
from tracelab.analysis.analysis import Analysis
from tracelab.base.options import Options
from tracelab.model.trace import Category, Thread, Trace
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.read.streams import Source
from tracelab.render.picture.save import Look, Picture
from tracelab.render.picture.timeline import Part, draw_timelines, require_drawable
from tracelab.render.scene import Span

MS = 1_000_000


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
    sparse = absent_columns(len(start)) | {
        "device_number": device.astype(np.int32),
        "stream_number": stream.astype(np.int64),
        "correlation": correlation.astype(np.int64),
    }
    return Trace(
        **sparse,
        path="somewhere/step.json.gz",
        origin_ns=0,
        start_ns=start.astype(np.int64),
        duration_ns=(end - start).astype(np.int64),
        category=category.astype(np.int8),
        name_index=codes.astype(np.int32),
        thread_index=thread.astype(np.int32),
        messages=messages_of([])[0],
        graph_nodes=graph_nodes_of([])[0],
        file_index=np.arange(len(start), dtype=np.int64),
        strings=tuple(map(str, strings)),
        threads=THREADS,
        metadata={},
        objects=len(start),
        losses={},
        loss_names={},
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


def scene(timeline, window=None):
    source = Source(timeline.trace.path, None, named=True)
    analysis = Analysis(source, Options(prices=False), rules=())
    analysis.trace, analysis.timeline = timeline.trace, timeline
    analysis.windows = (window or timeline.windows[0],)
    return scene_of_file(analysis)


def draw(timeline, *, start_ns=0, end_ns=100 * MS, width_px=1600, **options):
    part = Part(scene(timeline), Span(start_ns, end_ns), **options)
    require_drawable(1, part.lanes, Look(width_px))
    return draw_timelines([part], Look(width_px)).figure


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
    Picture(figure, tuple).save(path)
    return imread(path)[:, :, :3]


def lane_middles(figure):
    """Pixel row of the middle of each of the lanes, from the picture's own labels."""
    (axes,) = figure.axes
    rows = {}
    for text in axes.texts:
        if text.get_text().startswith(("stream", "idle", "main", "autograd")):
            _, y = axes.transData.transform((0, text.get_position()[1]))
            rows[text.get_text()] = round(figure.bbox.height - y)
    return rows
