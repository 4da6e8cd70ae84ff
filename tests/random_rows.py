"""Random rows of whole traces, for Hypothesis: every kind of work, wait and oddity that files have.

Times are ticks, see `tests.by_tick`.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.by_tick import BLOCKING, INPUT
from tests.timelines_by_hand import (
    AUTOGRAD,
    D2D,
    MAIN,
    PAGEABLE_H2D,
    WATCHDOG,
    annotation,
    call,
    comm,
    copy,
    event_row,
    kernel,
    launch,
    memset,
    operator,
    python,
    step,
    sync_row,
)
from tracelab.trace import ABSENT, Category

LAST = 60

_moment = st.integers(0, LAST)
_short = st.integers(0, 6)
_thread = st.sampled_from([MAIN, MAIN, AUTOGRAD, WATCHDOG])
_device = st.sampled_from([0, 0, 1, 2])
_stream = st.sampled_from([7, 13, 20])
_makers = st.sampled_from(
    [
        kernel,
        kernel,
        comm,
        copy,
        lambda *at, **lane: copy(*at, PAGEABLE_H2D, **lane),
        lambda *at, **lane: copy(*at, D2D, **lane),
        memset,
    ]
)


@st.composite
def _work(draw, correlation):
    """Some activities of one launch, mostly launched before they start."""
    maker, device = draw(_makers), draw(_device)
    begin, thread = draw(_moment), draw(_thread)
    is_graph = draw(st.integers(0, 9)) == 0
    rows = []
    for _ in range(draw(st.integers(1, 3)) if is_graph else 1):
        start = begin + draw(st.integers(-3 if not is_graph else 0, 20))
        start = max(start, 0)
        lane = {"device": device, "stream": draw(_stream), "correlation": correlation}
        rows.append(maker(start, start + draw(_short), **lane))
    if draw(st.integers(0, 7)) == 0:
        return rows  # launched before recording began
    copies = rows[0].category == Category.MEMCPY
    plain = ["cudaMemcpyAsync", "cudaMemcpyAsync", "cudaMemcpy"] if copies else ["cudaLaunchKernel"]
    name = "cudaGraphLaunch" if is_graph else draw(st.sampled_from(plain))
    end = begin + draw(_short)
    rows.append(launch(begin, end, correlation, name=name, thread=thread))
    if draw(st.integers(0, 9)) == 0:  # a driver call inside the runtime call
        rows.append(call("cuLaunchKernel", begin, end, correlation=correlation, thread=thread))
    return rows


@st.composite
def _waiting(draw, correlation):
    """A call that waits for the GPU, with or without CUPTI's record of what for."""
    name = draw(st.sampled_from([*BLOCKING, "cudaEventQuery"]))
    start, thread = draw(_moment), draw(_thread)
    end = start + draw(st.integers(0, 20))
    rows = [call(name, start, end, correlation=correlation, thread=thread)]
    if draw(st.booleans()):
        kind = {"D": "Context Sync", "S": "Stream Sync"}.get(name[4], "Event Sync")
        record = draw(st.sampled_from([ABSENT, correlation + 500, correlation + 500]))
        waited_for = {"wait_stream": draw(_stream), "wait_correlation": record}
        place = {"device": draw(_device), "stream": draw(_stream)}
        rows.append(sync_row(kind, start, end, correlation=correlation, **place, **waited_for))
        rows.append(call("cudaEventRecord", draw(_moment), LAST, correlation=correlation + 500))
    return rows


@st.composite
def _stream_wait(draw, correlation):
    """A stream that waits for another; its record is a call, a row of the GPU, both or neither."""
    start, device, record = draw(_moment), draw(_device), correlation + 500
    rows = [call("cudaStreamWaitEvent", start, start + 1, correlation=correlation)]
    named = draw(st.booleans())
    rows.append(
        sync_row(
            "Stream Wait Event",
            start,
            start,
            correlation=correlation,
            device=device,
            stream=draw(_stream),
            wait_stream=draw(_stream) if named else ABSENT,
            wait_correlation=record if named else ABSENT,
        )
    )
    if draw(st.booleans()):
        at = draw(_moment)
        rows.append(call("cudaEventRecord", at, at + 1, correlation=record))
    if draw(st.booleans()):
        rows.append(event_row(draw(_moment), correlation=record, event=1, device=device))
    return rows


@st.composite
def _doing(draw):
    """Something that a thread was recorded doing."""
    start, thread = draw(_moment), draw(_thread)
    end = start + draw(st.integers(0, 15))
    maker, name = draw(
        st.sampled_from(
            [(operator, "aten::mm"), (python, "train.py(3): step"), (annotation, INPUT)]
        )
    )
    return [maker(name, start, end, thread=thread)]


@st.composite
def random_rows(draw):
    """The rows of a whole trace, in ticks, with at least one activity, in any order."""
    groups = [draw(_work(i)) for i in range(1, 1 + draw(st.integers(1, 20)))]
    groups += [draw(_waiting(100 + i)) for i in range(draw(st.integers(0, 5)))]
    groups += [draw(_stream_wait(200 + i)) for i in range(draw(st.integers(0, 4)))]
    groups += [draw(_doing()) for _ in range(draw(st.integers(0, 6)))]
    groups += [
        [step(10 + i, start, start + draw(st.integers(0, 30)))]
        for i, start in enumerate(sorted(draw(st.lists(_moment, max_size=3))))
    ]
    rows = [row for group in groups for row in group]
    return draw(st.permutations(rows)) if draw(st.booleans()) else rows
