"""For properties of any trace: random rows for Hypothesis, with every kind of work and wait.

Times are ticks (`tests.reference.ticks`). Correlations grow with each group of rows.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.build.rows import (
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
from tests.reference.ticks import BLOCKING, INPUT
from tracelab.model.trace import ABSENT, Category

LAST = 60

_moment = st.integers(0, LAST)
_thread = st.sampled_from([MAIN, MAIN, MAIN, AUTOGRAD, WATCHDOG])
_lane = st.tuples(st.integers(0, 2), st.sampled_from([7, 13, 20]))
_CUPTI_ROWS = {
    "cudaDeviceSynchronize": "Context Sync",
    "cudaStreamSynchronize": "Stream Sync",
    "cudaEventSynchronize": "Event Sync",
}


def _pageable(start, end, **lane):
    return copy(start, end, PAGEABLE_H2D, **lane)


def _within_device(start, end, **lane):
    return copy(start, end, D2D, **lane)


_makers = st.sampled_from([kernel, kernel, kernel, comm, copy, _pageable, _within_device, memset])


@st.composite
def _work(draw, lanes, correlation):
    """The activities of one launch; most are launched before they start."""
    maker, launched = draw(_makers), draw(_moment)
    in_graph = draw(st.integers(0, 9)) == 0
    rows = []
    for _ in range(draw(st.integers(2, 4)) if in_graph else 1):
        device, stream = draw(lanes)
        start = max(0, launched + draw(st.integers(0 if in_graph else -2, 20)))
        end = start + draw(st.integers(0, 6))
        rows.append(maker(start, end, device=device, stream=stream, correlation=correlation))
    if draw(st.integers(0, 7)) == 0:
        return rows  # launched before recording began
    name = "cudaGraphLaunch" if in_graph else "cudaLaunchKernel"
    if rows[0].category == Category.MEMCPY and not in_graph:
        name = draw(st.sampled_from(["cudaMemcpyAsync", "cudaMemcpyAsync", "cudaMemcpy"]))
    end, thread = launched + draw(st.integers(0, 6)), draw(_thread)
    rows.append(launch(launched, end, correlation, name=name, thread=thread))
    if draw(st.integers(0, 9)) == 0:  # a driver call inside the runtime call
        rows.append(launch(launched, end, correlation, name="cuLaunchKernel", thread=thread))
    return rows


@st.composite
def _waiting(draw, lanes, correlation):
    """A call that waits for the GPU, with or without CUPTI's row of what for."""
    name = draw(st.sampled_from([*BLOCKING, "cudaEventQuery"]))
    start, (device, stream) = draw(_moment), draw(lanes)
    end = start + draw(st.integers(0, 20))
    rows = [call(name, start, end, correlation=correlation, thread=draw(_thread))]
    if name in _CUPTI_ROWS and draw(st.booleans()):
        record = draw(st.sampled_from([ABSENT, correlation - 1, correlation - 1]))
        at = draw(_moment)
        rows.append(call("cudaEventRecord", at, at + 1, correlation=correlation - 1))
        rows.append(
            sync_row(
                _CUPTI_ROWS[name],
                start,
                end,
                correlation=correlation,
                device=device,
                stream=stream,
                wait_stream=stream,
                wait_correlation=record,
            )
        )
    return rows


@st.composite
def _stream_wait(draw, lanes, correlation):
    """A stream that waits for another; its record is a call, a row of the GPU, both or neither."""
    (device, stream), (other_device, other), event = (
        draw(lanes),
        draw(lanes),
        draw(st.integers(1, 2)),
    )
    recorded = draw(_moment)
    start = draw(st.integers(recorded, LAST))
    named = draw(st.booleans())
    rows = [
        call("cudaStreamWaitEvent", start, start + 1, correlation=correlation),
        sync_row(
            "Stream Wait Event",
            start,
            start,
            correlation=correlation,
            device=device,
            stream=stream,
            wait_stream=other if named else ABSENT,
            wait_correlation=correlation - 1 if named else ABSENT,
            event=event,
        ),
    ]
    if draw(st.booleans()):
        rows.append(call("cudaEventRecord", recorded, recorded + 1, correlation=correlation - 1))
    if draw(st.booleans()):
        reached, place = draw(_moment), {"device": other_device, "stream": other}
        rows.append(event_row(reached, correlation=correlation - 1, event=event, **place))
    return rows


@st.composite
def _hand_over(draw, lanes, correlation):
    """Work of one stream, launched at once, that waits for work of another, on any device."""
    (device, stream), (other_device, other) = draw(lanes), draw(lanes)
    start = draw(st.integers(4, LAST))
    end = start + draw(st.integers(0, 15))
    then = end + draw(st.integers(-1, 3))
    named = device == other_device
    return [
        kernel(start, end, device=other_device, stream=other, correlation=correlation),
        launch(start - 4, start - 3, correlation),
        call("cudaEventRecord", start - 3, start - 3, correlation=correlation + 1),
        event_row(end, correlation=correlation + 1, event=9, device=other_device, stream=other),
        call("cudaStreamWaitEvent", start - 2, start - 2, correlation=correlation + 2),
        sync_row(
            "Stream Wait Event",
            start - 2,
            start - 2,
            correlation=correlation + 2,
            device=device,
            stream=stream,
            wait_stream=other if named else ABSENT,
            wait_correlation=correlation + 1 if named else ABSENT,
            event=9,
        ),
        kernel(then, then + 4, device=device, stream=stream, correlation=correlation + 3),
        launch(start - 1, start, correlation + 3),
    ]


@st.composite
def _doing(draw):
    """Something that a thread was recorded doing."""
    start = draw(_moment)
    end = start + draw(st.integers(0, 15))
    maker, name = draw(
        st.sampled_from(
            [(operator, "aten::mm"), (python, "train.py(3): step"), (annotation, INPUT)]
        )
    )
    return [maker(name, start, end, thread=draw(_thread))]


@st.composite
def random_rows(draw):
    """The rows of a whole trace, in ticks, with at least one activity, in any order."""
    lanes = st.sampled_from(draw(st.lists(_lane, min_size=1, max_size=5)))
    numbers = iter(range(4, 1000, 4))
    groups = [draw(_work(lanes, next(numbers))) for _ in range(draw(st.integers(1, 20)))]
    groups += [draw(_stream_wait(lanes, next(numbers))) for _ in range(draw(st.integers(0, 4)))]
    groups += [draw(_hand_over(lanes, next(numbers))) for _ in range(draw(st.integers(0, 3)))]
    groups += [draw(_waiting(lanes, next(numbers))) for _ in range(draw(st.integers(0, 5)))]
    groups += [draw(_doing()) for _ in range(draw(st.integers(0, 6)))]
    groups += [
        [step(10 + i, start, start + draw(st.integers(0, 30)))]
        for i, start in enumerate(sorted(draw(st.lists(_moment, max_size=3))))
    ]
    rows = [row for group in groups for row in group]
    return draw(st.permutations(rows)) if draw(st.booleans()) else rows
