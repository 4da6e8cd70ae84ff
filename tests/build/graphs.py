"""Captures, replays and eager runs of the same activities: what traces of CUDA graphs hold.

A replay is `replay(at, ...)`: one call, and behind it its activities, 2 ns each.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.build.rows import (
    AUTOGRAD,
    H2D,
    MAIN,
    call,
    copy,
    kernel,
    launch,
    memset,
    operator,
)
from tests.reference.origins import BEGIN, END, REPLAY

COPY, FILL = "copy", "fill"  # beside the names of kernels
CALLS = {COPY: "cudaMemcpyAsync", FILL: "cudaMemsetAsync"}


def activity(name, start, correlation, **more):
    if name == FILL:
        return memset(start, start + 2, correlation=correlation)
    if name == COPY:
        return copy(start, start + 2, H2D, copied_bytes=64, correlation=correlation, **more)
    return kernel(start, start + 2, name, correlation=correlation, **more)


def asked_for(name, at, correlation, thread=MAIN):
    return launch(at, at + 1, correlation, name=CALLS.get(name, "cudaLaunchKernel"), thread=thread)


def eager(at, names, *, thread=MAIN, within="aten::mm"):
    """Launches and activities in turns, of an operator: 10 ns each."""
    rows = [operator(within, at, at + 10 * len(names), thread=thread)]
    for i, name in enumerate(names):
        moment, correlation = at + 10 * i, 1_000_000 + at + 10 * i
        rows.append(asked_for(name, moment + 1, correlation, thread))
        rows.append(activity(name, moment + 5, correlation))
    return rows


def capture(at, names, *, thread=MAIN, launching=MAIN, within="aten::mm"):
    """The calls alone, between the two of the capture; 10 ns each."""
    end = at + 10 * len(names) + 10
    rows = [
        call(BEGIN, at, at + 2, thread=thread),
        call(END, end, end + 2, thread=thread),
        operator(within, at + 3, end - 1, thread=launching),
    ]
    for i, name in enumerate(names):
        moment = at + 10 * (i + 1)
        rows.append(asked_for(name, moment, 2_000_000 + moment, launching))
    return rows


def replay(at, names, *, streams=(7,), every=2):
    """One call, and its activities in turns in some streams; `every` ns one starts."""
    rows = [launch(at, at + 2, 3_000_000 + at, name=REPLAY)]
    for i, name in enumerate(names):
        of_lane = {"stream": streams[i % len(streams)]} if name != FILL else {}
        rows.append(activity(name, at + 3 + every * i, 3_000_000 + at, **of_lane))
    return rows


@st.composite
def graph_programs(draw):
    """Captures, replays and eager runs of a few sequences, and parts of them, in any order."""
    name = st.sampled_from(["a", "b", "c", COPY, FILL])
    sequences = draw(st.lists(st.lists(name, min_size=1, max_size=7), min_size=1, max_size=3))
    rows, at = [], 100
    for _ in range(draw(st.integers(2, 8))):
        names = draw(st.sampled_from(sequences))
        within = draw(st.sampled_from(["aten::mm", "aten::mm", "aten::bmm"]))
        thread = draw(st.sampled_from([MAIN, MAIN, MAIN, AUTOGRAD]))
        kind = draw(st.sampled_from(["eager", "capture", "replay", "replay"]))
        if kind == "eager":
            part = names[draw(st.integers(0, 1)) :] or names
            rows += eager(at, part, thread=thread, within=within)
        elif kind == "capture":
            launching = draw(st.sampled_from([thread, MAIN, AUTOGRAD]))
            rows += capture(at, names, thread=thread, launching=launching, within=within)
            at -= draw(st.sampled_from([0, 0, 33]))  # may overlap the next one
        else:
            streams = draw(st.sampled_from([(7,), (7,), (7, 9)]))
            every = 2 if len(streams) == 1 else draw(st.integers(1, 2))
            rows += replay(at, names, streams=streams, every=every)
        at += 10 * len(names) + 20
    return rows + replay(at, sequences[0])
