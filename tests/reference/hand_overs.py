"""The definition of a hand-over, one call and one moment at a time."""

from itertools import pairwise

from tracelab.model.trace import HOST_CALLS, Category

ASLEEP_NS = 20_000


def slow_hand_overs(trace, calls):
    """The call that goes on, that of another thread it waited for, ns since then, ns asleep."""
    rows = []
    every = range(len(calls))
    threads = {int(thread) for thread in calls.thread_index}
    recorded = trace.of_category(*HOST_CALLS, Category.OPERATOR, Category.PYTHON).tolist()
    for call in every if len(threads) > 1 else ():
        own = calls.thread_index[call]
        events = [x for x in recorded if trace.thread_index[x] == own]
        marks = sorted(int(ns[x]) for x in events for ns in (trace.start_ns, trace.end_ns))
        begins = call == 0 or calls.thread_index[call - 1] != own
        since = marks[0] if begins else int(calls.end_ns[call - 1])
        until = int(calls.begin_ns[call])
        slept, woke = (0, since) if begins else longest_silence(since, until, marks)
        others = [x for x in every if calls.thread_index[x] != own]
        if not begins:
            if woke - slept < ASLEEP_NS:
                continue
            if not any(since <= calls.end_ns[x] < until for x in others):
                continue
        returned = [(int(calls.end_ns[x]), x) for x in others if slept < calls.end_ns[x] <= woke]
        if returned:
            end, other = max(returned)
            rows.append((call, other, until - end, 0 if begins else woke - slept))
    return rows


def longest_silence(since, until, marks):
    """The first of the longest times between two moments in which nothing begins or ends."""
    moments = [since, *(x for x in marks if since < x <= until), until]
    pairs = pairwise(moments)
    return max(pairs, key=lambda pair: pair[1] - pair[0])
