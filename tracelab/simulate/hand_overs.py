"""Where one host thread goes on because another one stopped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelab.model.lookup import groups_of
from tracelab.model.trace import HOST_CALLS, Category, Trace

_ASLEEP_NS = 20_000


@dataclass
class HandOvers:
    index: np.ndarray      # calls, of the thread that goes on
    source: np.ndarray     # calls, of the thread that stopped
    latency_ns: np.ndarray
    asleep_ns: np.ndarray


def hand_overs(trace: Trace, calls) -> HandOvers:
    thread = trace.thread_index[calls]
    begin, end = trace.start_ns[calls], trace.end_ns[calls]
    threads = np.unique(thread)
    out = []
    if len(threads) > 1:
        by_end = np.argsort(end, kind="stable")
        host = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON)
        for t in threads.tolist():
            mine = np.flatnonzero(thread == t)
            others = by_end[thread[by_end] != t]
            others_end = end[others]
            ev = host[trace.thread_index[host] == t]
            bounds = np.unique(np.concatenate((trace.start_ns[ev], trace.end_ns[ev])))
            prev_end = np.concatenate(([bounds[0] if len(bounds) else 0], end[mine[:-1]]))
            first = np.concatenate(([True], np.zeros(len(mine) - 1, bool)))
            lo = np.searchsorted(others_end, prev_end)
            hi = np.searchsorted(others_end, begin[mine])
            cand = np.flatnonzero((hi > lo) | first)
            cand = cand[(begin[mine[cand]] - prev_end[cand] > _ASLEEP_NS) | first[cand]]
            for k in cand.tolist():
                p, b = prev_end[k], begin[mine[k]]
                i, j = np.searchsorted(bounds, p), np.searchsorted(bounds, b, side="right")
                marks = np.concatenate(([p], bounds[i:j], [b]))
                if first[k]:
                    wake, asleep = marks[1] if len(marks) > 2 else b, 0
                else:
                    silent = np.diff(marks)
                    g = int(silent.argmax())
                    if silent[g] < _ASLEEP_NS:
                        continue
                    wake, asleep = marks[g + 1], int(silent[g])
                o = np.searchsorted(others_end, wake, side="right") - 1
                if o < 0 or (not first[k] and others_end[o] <= marks[g]):
                    continue
                q = others[o]
                out.append((mine[k], q, b - end[q], asleep))
    a = np.array(out, dtype=np.int64).reshape(-1, 4).T
    return HandOvers(a[0], a[1], a[2], a[3])
