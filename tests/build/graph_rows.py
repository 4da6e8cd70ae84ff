"""Replays of a CUDA graph whose nodes ran on as many streams as CUPTI likes to report."""

from __future__ import annotations

from tests.build.files import Event, copy, kernel, launch, step
from tests.build.rows import US

FIRST_STREAM = 100
_AT_ONCE, _NODE_NS, _SHIFT_NS = 6, 3 * US, US // 2  # six nodes at a time, each a little later
_REPLAY_NS = 42 * US  # from the start of a step to its first node


def replayed(*, streams: int = 300, nodes: int = 2, replays: int = 20) -> list[Event]:
    """A step for each replay: a kernel and a copy of the program, then a graph on many streams.

    The nodes begin six at a time every 4 us, each half a microsecond after the one before: their
    union is 5.5 us long, and the next six begin 1.5 us before the last of those ends.
    """
    step_ns = _REPLAY_NS + (streams * nodes // _AT_ONCE) * 4 * US + 18 * US
    events = []
    for number in range(replays):
        begun = 1_000 + number * step_ns
        kernel_id, copy_id, graph_id = (3 * number + i for i in (1, 2, 3))
        first = begun + _REPLAY_NS
        events += [
            step(number, begun, begun + step_ns),
            launch(begun + 1 * US, begun + 5 * US, kernel_id),
            launch(begun + 5 * US, begun + 9 * US, copy_id, name="cudaMemcpyAsync"),
            launch(begun + 12 * US, begun + 30 * US, graph_id, name="cudaGraphLaunch"),
            kernel(begun + 10 * US, begun + 40 * US, "embedding", correlation=kernel_id),
            copy(begun + 10 * US, begun + 20 * US, stream=8, correlation=copy_id),
        ]
        for node in range(streams * nodes):
            row, place = divmod(node, _AT_ONCE)
            start = first + row * 4 * US + place * _SHIFT_NS
            events.append(
                kernel(
                    start,
                    start + _NODE_NS,
                    f"node_{node % 7}",
                    stream=FIRST_STREAM + node % streams,
                    correlation=graph_id,
                )
            )
    return events
