"""From a file's dependencies to the program that a replay runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracelab.intervals import Int64Array
from tracelab.model.blocking_calls import RETURNS_WHEN_DONE, Blocking
from tracelab.model.constraints import Constraint
from tracelab.model.graph import EdgeKind, Graph
from tracelab.model.host import Host
from tracelab.model.latencies import (
    AWAITED, LEAST_STARTS, event_index, launch_index, lower_median, previous_index,
)
from tracelab.model.lookup import groups_of
from tracelab.model.nesting import is_nested
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT, HOST_CALLS, Category, Trace
from tracelab.simulate.program import NodeKind, Program, Via
from tracelab.simulate.hand_overs import hand_overs

_OWN_CALL_NS = 4_000  # of a blocking call that has nothing to wait for


def _calls(host: Host):
    """Outermost calls that launch or block, by thread and begin: event ids."""
    timeline = host.timeline
    trace = timeline.trace
    launch_id = np.unique(timeline.launch_id[timeline.launch_id != ABSENT])
    wanted = np.union1d(launch_id, host.blocking_calls.event_id)
    return wanted[np.lexsort((-trace.end_ns[wanted], trace.start_ns[wanted], trace.thread_index[wanted]))]


def build_program(graph: Graph) -> Program:
    """The steady steps of a file (its first step is left out where nothing was recorded before it)."""
    [first, *_, last] = (graph.host.timeline.steady.indices * 2)[: 2 * len(graph.host.timeline.steady.indices)]
    if first == 0 and last > 0:
        first = 1
    return tile(graph, whole_program(graph), first, last)


def whole_program(graph: Graph):
    host = graph.host
    timeline, trace, binding = host.timeline, host.timeline.trace, graph.binding
    calls = _calls(host)
    threads = host.launching_threads
    calls = calls[np.isin(trace.thread_index[calls], list(threads))]
    nested = is_nested(trace, calls)
    outer = calls[~nested]
    # nested launches count as the call around them
    outer_of = np.full(len(trace), ABSENT, dtype=np.int64)
    outer_of[calls] = outer[np.cumsum(~nested) - 1]
    calls = outer
    m, c = len(timeline.event_id), len(calls)
    begin_ns, end_ns = trace.start_ns[calls], trace.end_ns[calls]
    call_index = np.full(len(trace), ABSENT, dtype=np.int64)
    call_index[calls] = np.arange(c)
    blocking = np.full(c, ABSENT)
    bc = host.blocking_calls
    of = call_index[bc.event_id]
    blocking[of[of != ABSENT]] = bc.kind[of != ABSENT]

    launch = np.where(timeline.launch_id != ABSENT, outer_of[timeline.launch_id], ABSENT)
    launch_call = np.where(launch != ABSENT, call_index[launch], ABSENT)
    launched = launch_call != ABSENT
    in_call = launched & (timeline.start_ns < end_ns[launch_call])
    has_begin = np.zeros(c, dtype=np.bool_)
    has_begin[launch_call[in_call]] = True
    # --- nodes: calls 0..c, begins, activities ---
    begin_call = np.flatnonzero(has_begin)
    begin_node = np.full(c, ABSENT)
    begin_node[begin_call] = c + np.arange(len(begin_call))
    b = len(begin_call)
    act = c + b + np.arange(m)
    kind = np.repeat([NodeKind.CALL, NodeKind.BEGIN, NodeKind.ACTIVITY], [c, b, m]).astype(np.int8)
    event_id = np.concatenate((calls, calls[begin_call], timeline.event_id))
    row = np.concatenate((np.full(c + b, ABSENT), np.arange(m)))
    moment = np.concatenate((end_ns, begin_ns[begin_call], timeline.end_ns))
    key = np.concatenate((end_ns, begin_ns[begin_call], timeline.start_ns))
    rank = np.concatenate((np.full(c, 1), np.zeros(b), np.full(m, 2)))
    own = np.concatenate((end_ns - begin_ns, np.zeros(b, np.int64), timeline.end_ns - timeline.start_ns))
    sequence = np.concatenate((trace.thread_index[calls], trace.thread_index[calls[begin_call]], len(trace.threads) + timeline.stream_index))
    sources, targets, vias, lats = [], [], [], []

    def add(s, t, via, lat):
        sources.append(np.asarray(s, np.int64)); targets.append(np.asarray(t, np.int64))
        vias.append(np.full(len(s), via)); lats.append(np.broadcast_to(np.asarray(lat, np.int64), (len(s),)))

    # host chain
    same = trace.thread_index[calls[1:]] == trace.thread_index[calls[:-1]]
    prev, nxt = np.flatnonzero(same), np.flatnonzero(same) + 1
    work = begin_ns[nxt] - end_ns[prev]
    over = hand_overs(trace, calls)
    asleep = np.zeros(c, np.int64)
    asleep[over.index] = over.asleep_ns
    work = work - asleep[nxt]
    entry = np.where(has_begin, begin_node, np.arange(c))
    add(prev, entry[nxt], Via.HOST, work)
    add(begin_node[begin_call], begin_call, Via.HOST, 0)
    add(over.source, entry[over.index], Via.THREAD, over.latency_ns)
    # launch
    typical = binding.latencies.typical_ns
    after = np.flatnonzero(launched & ~has_begin[np.where(launched, launch_call, 0)])
    add(launch_call[after], act[after], Via.LAUNCH, typical[launch_index(timeline.kind[after])])
    inside = np.flatnonzero(launched & has_begin[np.where(launched, launch_call, 0)])
    delay = timeline.start_ns[inside] - begin_ns[launch_call[inside]]
    group = timeline.kind[inside].astype(np.int64) * 2 + host.is_staged[inside]
    is_launch = binding.constraint[inside] == Constraint.LAUNCH
    for g, idx in groups_of(group):
        shown = idx[is_launch[idx]]
        delay[idx] = np.minimum(lower_median(delay[shown]) if len(shown) else lower_median(delay[idx]), 10**7)
    add(begin_node[launch_call[inside]], act[inside], Via.LAUNCH, delay)
    # stream
    same = np.flatnonzero(timeline.stream_index[1:] == timeline.stream_index[:-1]) + 1
    gap = typical[previous_index(timeline.kind[same - 1], timeline.kind[same])]
    early = np.flatnonzero(timeline.overlaps_previous[same])
    if len(early):
        lead = timeline.start_ns[same[early]] - timeline.end_ns[same[early] - 1]
        gap = gap.copy(); gap[early] = lower_median(lead)
    in_graph = (timeline.launch_id[same] == timeline.launch_id[same - 1]) & (timeline.launch_id[same] != ABSENT)
    if in_graph.any():
        g = timeline.start_ns[same] - timeline.end_ns[same - 1]
        gap = np.where(in_graph, lower_median(g[in_graph]), gap)
    add(act[same - 1], act[same], Via.STREAM, gap)
    # events, queues
    row_of = np.full(len(trace), ABSENT, np.int64)
    row_of[timeline.event_id] = np.arange(m)
    for edge_kind, via in ((EdgeKind.EVENT, Via.EVENT), (EdgeKind.QUEUE, Via.QUEUE)):
        e = np.flatnonzero(graph.kind == edge_kind)
        s, t = row_of[graph.source_id[e]], row_of[graph.target_id[e]]
        lat = typical[event_index(timeline.kind[t])] if via == Via.EVENT else typical[previous_index(timeline.kind[s], timeline.kind[t])]
        add(act[s], act[t], via, lat)
    # waits
    e = np.flatnonzero(graph.kind == EdgeKind.SYNC)
    tc = call_index[graph.target_id[e]]
    is_pure = (tc != ABSENT) & np.isin(blocking[np.maximum(tc, 0)], RETURNS_WHEN_DONE)
    s, t = row_of[graph.source_id[e[is_pure]]], tc[is_pure]
    add(act[s], t, Via.WAIT, typical[AWAITED])
    pure = np.flatnonzero(np.isin(blocking, RETURNS_WHEN_DONE))
    awaited_end = np.full(c, ABSENT, np.int64)
    np.maximum.at(awaited_end, t, timeline.end_ns[s])
    idle_calls = pure[(awaited_end[pure] != ABSENT) & (awaited_end[pure] < begin_ns[pure])]
    own_call = lower_median((end_ns - begin_ns)[idle_calls]) if len(idle_calls) >= 5 else _OWN_CALL_NS
    known = pure[awaited_end[pure] != ABSENT]
    own[known] = np.minimum(own[known], own_call)
    unknown_wait_ns = int((end_ns - begin_ns)[pure[awaited_end[pure] == ABSENT]].sum())
    # blocking copies
    is_copy = np.flatnonzero(launched & (blocking[np.where(launched, launch_call, 0)] == Blocking.COPY))
    waits = is_copy[timeline.start_ns[is_copy] < end_ns[launch_call[is_copy]]]
    after_ns = end_ns[launch_call[waits]] - timeline.end_ns[waits]
    lat = np.zeros(len(waits), np.int64)
    for g, idx in groups_of(trace.name_index[timeline.event_id[waits]].astype(np.int64)):
        lat[idx] = lower_median(after_ns[idx])
    add(act[waits], launch_call[waits], Via.WAIT, lat)
    own[launch_call[waits]] = np.minimum(own[launch_call[waits]], 10_000)

    source, target = np.concatenate(sources), np.concatenate(targets)
    via, latency = np.concatenate(vias).astype(np.int8), np.concatenate(lats).astype(np.int64)
    order = np.lexsort((np.arange(len(key)), rank, key))
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    return dict(kind=kind[order], event_id=event_id[order], row=row[order], cost_ns=own[order],
                moment_ns=moment[order], key=key[order], sequence=sequence[order],
                source=position[source], target=position[target], via=via, latency_ns=latency,
                thread_index=np.concatenate((trace.thread_index[calls], trace.thread_index[calls[begin_call]], np.full(m, ABSENT)))[order].astype(np.int32),
                stream_index=np.concatenate((np.full(c + b, ABSENT), timeline.stream_index))[order],
                activity_kind=np.concatenate((np.full(c + b, ABSENT), timeline.kind))[order].astype(np.int8),
                launch_node=np.concatenate((np.full(c + b, ABSENT), np.where(launched, position[launch_call], ABSENT)))[order],
                unknown_wait_ns=unknown_wait_ns)


def tile(graph: Graph, whole, first_step: int, last_step: int) -> Program:
    """The steps first..last (indices) as what is repeated."""
    timeline = graph.host.timeline
    trace = timeline.trace
    steps = timeline.steps
    host_start = trace.start_ns[steps[first_step].event_id]
    host_end = trace.end_ns[steps[last_step].event_id]
    call_of = np.where(whole["row"] != ABSENT, timeline.launch_id[whole["row"]], whole["event_id"])
    at = np.where(call_of != ABSENT, trace.start_ns[call_of], -1)
    inside = (at >= host_start) & (at < host_end)
    return _slice(whole, inside, graph, first_step, last_step)


def _slice(whole, inside, graph, first_step, last_step):
    timeline = graph.host.timeline
    trace, steps = timeline.trace, timeline.steps
    n = int(inside.sum())
    new = np.full(len(inside), ABSENT)
    new[inside] = np.arange(n)
    # place in its sequence
    order = np.argsort(whole["sequence"], kind="stable")
    seq = whole["sequence"]
    wrap = np.full(len(inside), ABSENT)  # the node of the tile that stands for one before it
    for s, members in groups_of(seq):
        if whole["row"][members[0]] != ABSENT:
            members = members[np.argsort(whole["row"][members], kind="stable")]
        ins = np.flatnonzero(inside[members])
        if not len(ins):
            continue
        f, l = ins[0], ins[-1]
        j = f - np.arange(f)          # 1 = just before
        target = l + 1 - j
        ok = target >= f
        wrap[members[: f][ok]] = members[target[ok]]
    s, t = whole["source"], whole["target"]
    keep = inside[t]
    s, t, via, lat = s[keep], t[keep], whole["via"][keep], whole["latency_ns"][keep]
    lag = (~inside[s]).astype(np.int8)
    ws = np.where(inside[s], s, wrap[s])
    ok = (ws != ABSENT) & inside[np.maximum(ws, 0)]
    # no wrap onto later: against order
    ok &= (lag == 1) | (ws < t)
    host_wrap = (lag == 1) & (via == Via.HOST)
    # host wrap: from the annotations
    step_threads = trace.thread_index[[st.event_id for st in steps]]
    main = int(step_threads[0])
    start_ns = int(trace.start_ns[steps[first_step].event_id]); end_ns = int(trace.end_ns[steps[last_step].event_id])
    between = [int(trace.start_ns[b.event_id] - trace.end_ns[a.event_id]) for a, b in zip(steps, steps[1:])]
    gap = int(np.median(between)) if between else 0
    src, tgt, vv, ll, lg = list(new[ws[ok]]), list(new[t[ok]]), list(via[ok]), list(lat[ok]), list(lag[ok])
    src, tgt, vv, ll, lg = (np.array(x, dtype=np.int64) for x in (src, tgt, vv, ll, lg))
    # remove main's wrapped host edge, put the annotations'
    nodes_main = np.flatnonzero(inside & (seq == main) & (whole["kind"] != NodeKind.ACTIVITY))
    drop = (lg == 1) & (vv == Via.HOST) & np.isin(tgt, new[nodes_main])
    if len(nodes_main):
        firstn, lastn = nodes_main[0], nodes_main[-1]
        first_begin = trace.start_ns[whole["event_id"][firstn]]
        w = int(first_begin - start_ns + gap + end_ns - whole["moment_ns"][lastn])
        src = np.append(src[~drop], new[lastn]); tgt = np.append(tgt[~drop], new[firstn]); vv = np.append(vv[~drop], Via.HOST); ll = np.append(ll[~drop], w); lg = np.append(lg[~drop], 1)
    # every stream goes on after its last activity
    for q, members in groups_of(seq):
        if q < len(trace.threads): continue
        mem = members[inside[members]]
        if not len(mem): continue
        mem = mem[np.argsort(whole["row"][mem], kind="stable")]
        f, l = new[mem[0]], new[mem[-1]]
        if not ((tgt == f) & (vv == Via.STREAM)).any():
            ks, kt = timeline.kind[whole["row"][mem[[-1]]]], timeline.kind[whole["row"][mem[[0]]]]
            g = int(graph.binding.latencies.typical_ns[previous_index(ks, kt)][0])
            src, tgt, vv, ll, lg = np.append(src, l), np.append(tgt, f), np.append(vv, Via.STREAM), np.append(ll, g), np.append(lg, 1)
    return Program(kind=whole["kind"][inside], event_id=whole["event_id"][inside], row=whole["row"][inside],
        cost_ns=whole["cost_ns"][inside], thread_index=whole["thread_index"][inside], stream_index=whole["stream_index"][inside],
        activity_kind=whole["activity_kind"][inside],
        launch_node=np.where(whole["launch_node"] != ABSENT, new[whole["launch_node"]], ABSENT)[inside], moment_ns=whole["moment_ns"][inside], source=src, target=tgt,
        via=vv.astype(np.int8), lag=lg.astype(np.int8), latency_ns=ll, steps=last_step - first_step + 1,
        length_ns=steps[last_step].end_ns - steps[first_step].start_ns)
