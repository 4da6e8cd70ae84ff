"""An independent account of where the nodes of graphs come from: slow, from the definitions.

It works on the rows of `tests.build.rows`. Every call is compared with every capture.
"""

from __future__ import annotations

from itertools import pairwise

from tests.build.rows import Row
from tracelab.model.trace import ABSENT, HOST_CALLS, Category

GPU = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
ASKED_FOR = {
    "cudaLaunchKernel": Category.KERNEL,
    "cudaMemcpyAsync": Category.MEMCPY,
    "cudaMemsetAsync": Category.MEMSET,
}
BEGIN, END, REPLAY = "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphLaunch"


def origins_of(rows: list[Row], place_of) -> dict[int, int]:
    """Map the event id of each activity of a replay to that of the call that it comes from.

    Args:
        rows: of the trace; the event id of each is its place among them.
        place_of: a call's event id to where it is in the program.
    """
    calls = _calls(rows)
    launch_of = {
        i: calls[row.correlation]
        for i, row in enumerate(rows)
        if row.category in GPU and row.correlation in calls
    }
    graphs = _graphs(rows, launch_of)
    found = {}
    for nodes, candidates in _captured(rows, graphs):
        for position, node in enumerate(nodes):
            at_position = [candidate[position] for candidate in candidates]
            places = {place_of(call) for call in at_position} if at_position[1:] else {None}
            if len(places) == 1:
                found[node] = at_position[-1]
    return found


def _calls(rows):
    """The outermost host call of each correlation."""
    own = [i for i, row in enumerate(rows) if row.category in HOST_CALLS]
    own = [i for i in own if rows[i].correlation != ABSENT]
    calls = {}
    for i in sorted(own, key=lambda i: (rows[i].start, -rows[i].end, i)):
        calls.setdefault(rows[i].correlation, i)
    return calls


def _token(row):
    return row.name, row.copied_bytes, row.device


def _graphs(rows, launch_of):
    """Graphs: by what they run, the nodes of each replay by start."""
    replays = {}
    for node, call in launch_of.items():
        if rows[call].name == REPLAY:
            replays.setdefault(call, []).append(node)
    graphs = {}
    for call in sorted(replays, key=lambda i: (rows[i].start, i)):
        nodes = sorted(
            replays[call],
            key=lambda i: (rows[i].device, rows[i].stream, rows[i].start, rows[i].end, i),
        )
        lanes = [(rows[i].device, rows[i].stream) for i in nodes]
        is_ordered = len(set(lanes)) == 1
        nodes.sort(key=lambda i: rows[i].start)
        key = is_ordered, tuple(_token(rows[i]) for i in nodes)
        graphs.setdefault(key, []).append((call, nodes))
    return graphs


def _captured(rows, graphs):
    """For each replay the sequences of calls that it may have been captured from."""
    captures = _captures(rows)
    by_kinds = {}
    for key, replays in graphs.items():
        kinds = tuple(rows[i].category for i in replays[0][1])
        by_kinds.setdefault(kinds, []).append((key, replays))
    for kinds, alike in by_kinds.items():
        fitting = [one for one in captures if one[1] == kinds]
        if len(alike) > len(fitting):
            continue
        for (is_ordered, _), replays in alike:
            first = replays[0][0]
            if not is_ordered or all(ended > rows[first].start for ended, *_ in fitting):
                continue
            for launch, nodes in replays:
                by = rows[launch].start
                yield nodes, [calls for ended, _, calls in fitting if ended <= by]


def _captures(rows):
    """The captures by start: when they ended, the kinds of what was launched, and the calls."""
    pairs = []
    for thread in {row.thread for row in rows}:
        bounds = [
            i for i, row in enumerate(rows) if row.name in (BEGIN, END) and row.thread == thread
        ]
        bounds.sort(key=lambda i: (rows[i].start, rows[i].name == END, i))
        pairs += [
            (rows[a].start, rows[b].start)
            for a, b in pairwise(bounds)
            if rows[a].name == BEGIN and rows[b].name == END
        ]
    launched = {row.correlation for row in rows if row.category in GPU}
    captures = []
    for begin, end in sorted(pairs):
        others = [one for one in pairs if one != (begin, end)]
        if any(a < end and begin < b for a, b in others) or pairs.count((begin, end)) > 1:
            continue
        calls = [
            i
            for i, row in enumerate(rows)
            if row.name in ASKED_FOR
            and begin <= row.start < end
            and row.correlation not in launched
        ]
        calls.sort(key=lambda i: (rows[i].start, -rows[i].end, i))
        captures.append((end, tuple(ASKED_FOR[rows[i].name] for i in calls), calls))
    return captures
