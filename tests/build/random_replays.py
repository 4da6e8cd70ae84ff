"""For properties of CUDA graphs: random replays for Hypothesis.

Times are in ns.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.build.rows import copy, event_node, host_node, kernel, launch
from tracelab.model.trace import ABSENT

_makers = st.sampled_from([kernel, kernel, kernel, kernel, copy, host_node, event_node])


@st.composite
def random_replays(draw, unit=100):
    """The rows of some replays, and of some other launches.

    Most nodes start once some others are over, some a little before.
    """
    rows, now = [], 0
    streams = st.sampled_from(draw(st.lists(st.sampled_from([7, 13, 20]), min_size=1, max_size=3)))
    devices = st.sampled_from(draw(st.sampled_from([[0], [0], [0, 1]])))
    for number in range(1, draw(st.integers(2, 4))):
        begun = draw(st.integers(max(0, now - 30), now))
        rows.append(launch(begun * unit, (begun + 3) * unit, number, name="cudaGraphLaunch"))
        nodes = []
        for _ in range(draw(st.integers(1, 8))):
            maker, lane = draw(_makers), {"device": draw(devices), "stream": draw(streams)}
            before = (
                draw(st.lists(st.sampled_from(nodes), max_size=3, unique=True)) if nodes else []
            )
            ready = max([now // 2 if nodes else begun, *(rows[x].end // unit for x in before)])
            start = max(begun, ready + draw(st.integers(-1, 12)))
            length = 0 if maker is event_node else draw(st.integers(0, 12))
            correlation = number
            if maker is host_node and draw(st.integers(0, 2)) == 0:
                correlation = ABSENT
            if maker is event_node:
                row = event_node(start * unit, correlation=correlation, **lane)
            else:
                end = (start + length) * unit
                row = maker(start * unit, end, correlation=correlation, **lane)
            nodes += [len(rows)] if correlation != ABSENT else []
            rows.append(row)
            now = max(now, start + length)
        if draw(st.booleans()):
            rows.append(launch((now - 1) * unit, now * unit, 100 + number))
            rows.append(kernel((now + 2) * unit, (now + 6) * unit, correlation=100 + number))
            now += 6
    rows.append(launch(now * unit, (now + 1) * unit, 99))
    rows.append(kernel((now + 2) * unit, (now + 3) * unit, correlation=99))
    return rows
