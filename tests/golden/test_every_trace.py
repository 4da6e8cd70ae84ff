"""Identities of every trace, in every window: figures that must add up, answers that must agree.

One analysis of a trace is looked at by all checks, and all that fail are in one message. No two
parts of a report contradict each other about what an activity waited for: the slow model of
`Binding` is the definition; its readers (idle by cause, critical path, overlap blockers) are held
against each other here.
"""

from __future__ import annotations

import lzma
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from tests.build.flat import flat
from tests.bundled_traces import FOLDER as BUNDLED, analysis_of
from tests.checks import failures
from tests.shared_traces import FOLDER, each_real_trace
from tracelab import load_report, whatif
from tracelab.analysis.parts import pack_part, unpack_part
from tracelab.analysis.reports import FileResult, drop_program
from tracelab.findings.places import file_name, place_text
from tracelab.measures.critical_path import PathKind, critical_paths
from tracelab.measures.exposed import exposed
from tracelab.measures.idle_causes import Cause, bubbles
from tracelab.measures.overlap_blockers import OverlapBlocker, OverlapBlockers, serialized_streams
from tracelab.model.binding import Constraint, Reason
from tracelab.model.graph import EdgeKind, window_graph
from tracelab.model.kernel_kinds import Kind
from tracelab.model.trace import ABSENT
from tracelab.simulate.edits import parse_edit

RANKS = sorted(FOLDER.glob("*/*.json.gz"))


def figures_hang_together(analysis):
    report = analysis.report
    for window in report.windows:
        for device in window.devices:
            assert device.busy_ns + device.idle_ns == window.end_ns - window.start_ns
            assert sum(device.bubbles.values()) == device.idle_ns
            assert sum(device.unknown_reasons.values()) == device.bubbles["unknown"]
            kinds = (device.compute_ns, device.comm_ns, device.copy_ns, device.memset_ns)
            assert max(kinds) <= device.busy_ns <= sum(kinds)
            assert device.comm_ns == device.exposed_comm_ns + device.comm_compute_overlap_ns
            assert device.exposed_copy_ns <= device.copy_ns - device.copy_compute_overlap_ns
            streams = [stream.busy_ns for stream in device.streams]
            assert max(streams) <= device.busy_ns <= sum(streams)
    for overlap in report.overlaps:
        assert 0 <= overlap.overlap_ns <= min(overlap.a_ns, overlap.b_ns)
    for measured in report.critical_path:
        assert sum(measured.by_kind.values()) == measured.total_ns


def causes_cover_the_idle_without_overlap(analysis):
    idle = flat(bubbles(analysis.graph, analysis.windows))
    for device in analysis.timeline.device_numbers:
        is_here = idle.device_number == device
        starts, ends = idle.start_ns[is_here], idle.end_ns[is_here]
        assert (starts < ends).all()
        assert (ends[:-1] <= starts[1:]).all()


def blocking_calls_cause_no_more_than_the_idle(analysis):
    report, calls = analysis.report, analysis.blocking_calls
    assert calls.caused_idle_ns.sum() <= sum(x.idle_ns for x in report.windows[0].devices)
    assert (calls.caused_idle_ns >= 0).all()
    totals = [x.caused_idle_ns for x in report.syncs if x.step is None]
    assert sum(totals) == calls.caused_idle_ns.sum()
    for window in report.windows:
        by_calls = [device.idle_by_calls_ns for device in window.devices]
        assert sum(x.caused_idle_ns for x in report.syncs if x.step == window.step) == sum(by_calls)
        assert all(0 <= device.idle_by_calls_ns <= device.idle_ns for device in window.devices)


def findings_say_where_they_are(analysis):
    for finding in analysis.report.findings:
        where = finding.where
        if finding.severity == "info" or finding.about != "program":
            continue
        if where.file is None:  # no function of the program called it, or none was recorded
            continue
        if analysis.lines.has_source(where.file):
            assert where.line is not None or where.lines or where.function_line, finding.title
            assert where.line is None or not where.lines, finding.title
        assert list(where.lines) == sorted(set(where.lines))
        assert len(where.lines) in (0, 2, 3, 4, 5)
        assert where.code is None or where.line is not None
        assert file_name(where.file) in place_text(where)


def steps_tile_and_hold_what_they_launched(analysis):
    timeline = analysis.timeline
    _, *steps = timeline.windows
    for before, after in pairwise(steps):
        assert before.end_ns <= after.start_ns
    for index, window in enumerate(steps):
        is_here = timeline.step_index == index
        assert (timeline.end_ns[is_here] <= window.end_ns).all()


def critical_path_tiles_every_window(analysis):
    trace = analysis.timeline.trace
    paths = critical_paths(analysis.graph, analysis.windows)
    for window, path in zip(analysis.windows, paths, strict=True):
        assert (path.start_ns[0], path.end_ns[-1]) == (window.start_ns, window.end_ns)
        assert (path.end_ns[:-1] == path.start_ns[1:]).all()
        is_work = path.kind < 4
        assert (trace.start_ns[path.event_id[is_work]] <= path.start_ns[is_work]).all()
        assert (path.end_ns[is_work] <= trace.end_ns[path.event_id[is_work]]).all()


def graph_is_acyclic_and_runs_forward(analysis):
    trace = analysis.timeline.trace
    network = window_graph(analysis.graph, 0, int(trace.end_ns.max()) + 1)
    assert nx.is_directed_acyclic_graph(network)
    source, target = analysis.graph.source_id, analysis.graph.target_id
    assert (trace.start_ns[source] <= trace.end_ns[target]).all()


def streams_run_in_order(analysis):
    timeline = analysis.timeline
    assert timeline.overlapping_count == analysis.graph.against_time == 0
    early = np.flatnonzero(timeline.overlaps_previous)
    assert (timeline.end_ns[early - 1] > timeline.start_ns[early]).all()
    edges = np.count_nonzero(analysis.graph.kind == EdgeKind.STREAM)
    assert edges == len(timeline.event_id) - len(timeline.streams)


def what_ran_adds_up_to_what_there_is(analysis):
    report, timeline = analysis.report, analysis.timeline
    steady = timeline.steady
    is_chosen = np.ones(len(timeline.event_id), dtype=bool)
    windows = [report.windows[0]]
    if steady is not None:
        is_chosen = np.isin(timeline.step_index, steady.indices)
        windows = [report.windows[1 + index] for index in steady.indices]
    gpu_ns = int((timeline.end_ns - timeline.start_ns)[is_chosen].sum())
    idle_ns = sum(device.idle_ns for window in windows for device in window.devices)

    assert sum(row.sums.total_ns for row in report.kernels) == gpu_ns
    assert sum(row.sums.count for row in report.kernels) == is_chosen.sum()
    # Lines and modules have no rows without Python stacks.
    keys = ("operators", "phases", "lines", "modules")
    tables = [rows for key in keys if (rows := report.tables[key])]
    for rows in tables:
        assert sum(row.sums.gpu_ns for row in rows) == gpu_ns
        assert sum(row.sums.idle_ns for row in rows) == idle_ns
    [host_ns] = {sum(row.sums.host_ns for row in rows) for rows in tables}
    if steady is not None:
        steps = [timeline.steps[index].event_id for index in steady.indices]
        assert host_ns == int(timeline.trace.duration_ns[steps].sum())


# An overlap blocker of a row that is bound so; those that it led to come from another row.
ANSWERS = {
    Constraint.LAUNCH: {OverlapBlocker.HOST_SYNC, OverlapBlocker.LATE_LAUNCH},
    Constraint.NO_FREE_SM: {OverlapBlocker.NO_FREE_SM},
    Constraint.UNKNOWN: {OverlapBlocker.UNKNOWN},
    Constraint.QUEUE: set(OverlapBlocker) - {OverlapBlocker.SAME_STREAM, OverlapBlocker.EVENT_WAIT},
    Constraint.EVENT: set(OverlapBlocker) - {OverlapBlocker.SAME_STREAM},
    Constraint.PEER_COPY: set(OverlapBlocker) - {OverlapBlocker.SAME_STREAM},
    Constraint.STREAM: set(OverlapBlocker),
    Constraint.DEPENDENT_LAUNCH: set(OverlapBlocker),
    Constraint.CALLBACK: set(),
}


def row_of(analysis):
    """int64[n]: event id to row."""
    timeline = analysis.timeline
    row = np.full(len(timeline.trace), ABSENT)
    row[timeline.event_id] = np.arange(len(timeline.event_id))
    return row


def idle_of(analysis):
    return flat(bubbles(analysis.graph, analysis.timeline.windows[:1]))


def idle_is_unknown_where_what_ended_it_waited_for_something_unknown(analysis):
    idle, binding = idle_of(analysis), analysis.graph.binding
    is_ended = idle.next_id != ABSENT
    row, cause, reason = row_of(analysis)[idle.next_id], idle.cause, idle.reason
    by_activity = is_ended & (cause == Cause.UNKNOWN) & (reason != Reason.HOST_NOT_RECORDED)
    assert (binding.reason[row[by_activity]] == reason[by_activity]).all()
    is_known = is_ended & np.isin(cause, (Cause.LAUNCH, Cause.GRAPH))
    assert (binding.constraint[row[is_known]] != Constraint.UNKNOWN).all()


def idle_of_a_dependency_is_bound_by_another_device(analysis):
    idle, binding = idle_of(analysis), analysis.graph.binding
    device = analysis.timeline.device_number
    row = row_of(analysis)[idle.next_id[idle.cause == Cause.DEPENDENCY]]
    assert (binding.source_row[row] != ABSENT).all()
    assert (device[binding.source_row[row]] != device[row]).all()


def critical_path_goes_where_the_binding_leads(analysis):
    constraint, rows = analysis.graph.binding.constraint, row_of(analysis)
    for path in critical_paths(analysis.graph):
        is_waiting = np.isin(path.kind, (PathKind.LAUNCH, PathKind.QUEUE, PathKind.UNKNOWN))
        is_waiting &= path.event_id != ABSENT
        row, kind = rows[path.event_id[is_waiting]], path.kind[is_waiting]
        assert ((kind == PathKind.LAUNCH) == (constraint[row] == Constraint.LAUNCH)).all()
        assert ((kind == PathKind.UNKNOWN) == (constraint[row] == Constraint.UNKNOWN)).all()


def idle_and_critical_path_agree_about_each_moment(analysis):
    idle = idle_of(analysis)
    [path] = critical_paths(analysis.graph, analysis.timeline.windows[:1])
    first = np.searchsorted(path.end_ns, idle.start_ns, side="right")
    last = np.searchsorted(path.start_ns, idle.end_ns, side="left") - 1
    for cause, reason, next_id, first_piece, last_piece in zip(
        idle.cause, idle.reason, idle.next_id, first, last, strict=True
    ):
        for index in range(first_piece, last_piece + 1):
            if next_id == ABSENT or path.event_id[index] != next_id:
                continue
            of_activity = reason not in (Reason.NONE, Reason.HOST_NOT_RECORDED)
            if cause == Cause.LAUNCH or of_activity:
                assert (path.kind[index] == PathKind.UNKNOWN) == of_activity


def overlap_blockers_say_what_the_binding_says(analysis):
    graph, timeline = analysis.graph, analysis.timeline
    rows = np.unique(np.concatenate([exposed(graph).blocked_row, serialized_streams(graph).row]))
    rows = rows[rows != ABSENT]
    if not len(rows):
        return
    other = np.repeat(rows, len(timeline.streams))
    firsts = np.tile([stream.first_row for stream in timeline.streams], len(rows))
    for since_ns in (timeline.start_ns[other] - 1, timeline.start_ns[firsts]):
        blocker, _ = OverlapBlockers(graph).between(other, firsts, since_ns)
        for row, answer in set(zip(other.tolist(), blocker.tolist(), strict=True)):
            allowed = ANSWERS[Constraint(graph.binding.constraint[row])]
            assert OverlapBlocker(answer) in allowed | {OverlapBlocker.TRUE_DEPENDENCY}


# Edits that leave all kernels as they are.
KEEPS_KERNELS = {"host", "load", "workers", "graph", "fuse", "pin", "prefetch"}


def nothing_saves_more_than_the_gpu_leaves_of_a_step(analysis):
    program, report = analysis.baseline.program, analysis.report
    if program is None or not report.savings:
        return
    [savings] = report.savings
    kernels = program.activity_kind == Kind.COMPUTE
    of_streams_ns = np.bincount(program.stream_index[kernels], program.cost_ns[kernels])
    left_ns = max(0, savings.step_ns - max(of_streams_ns, default=0) // program.steps)
    priced = [row for row in (savings, *report.findings) if row.saves_ns is not None]
    for row in priced:
        assert 0 <= row.saves_low_ns <= row.saves_ns <= row.saves_high_ns <= savings.step_ns
        edits = row.edits if row is savings else row.edit.split(" + ")
        if all(parse_edit(edit).kind in KEEPS_KERNELS for edit in edits):
            assert row.saves_high_ns <= left_ns


def whatif_saves_what_the_report_says(analysis):
    report = analysis.report
    if not report.savings or report.savings[0].saves_ns is None:
        return
    *alone, last = whatif(analysis, fixes="all").predictions
    predicted = {x.findings: x for x in (*alone, last) if len(x.findings) == 1}
    for index, finding in enumerate(report.findings):
        if finding.saves_ns is not None:
            one = predicted[(index,)]
            assert max(0, one.step_ns - one.predicted_ns) == finding.saves_ns
    assert last.step_ns == report.savings[0].step_ns
    assert max(0, last.step_ns - last.predicted_ns) == report.savings[0].saves_ns


def part_of_a_job_is_small(analysis):
    """At most 4 KB per step; of steps with more than 151 activities of the GPU 27 bytes of each."""
    part = drop_program(FileResult(analysis.source, analysis.report, part=analysis.part)).part
    packed = pack_part(part)
    assert pack_part(unpack_part(packed)) == packed
    [trace], steps = analysis.report.traces, max(1, len(part.steps.number))
    is_here = analysis.source.path.startswith(str(BUNDLED))
    most = 4_096 * steps if is_here else max(4_096 * steps, 27 * trace.gpu_activities)
    assert len(lzma.compress(packed)) <= most


IDENTITIES = (
    figures_hang_together,
    causes_cover_the_idle_without_overlap,
    blocking_calls_cause_no_more_than_the_idle,
    findings_say_where_they_are,
    steps_tile_and_hold_what_they_launched,
    critical_path_tiles_every_window,
    graph_is_acyclic_and_runs_forward,
    streams_run_in_order,
    what_ran_adds_up_to_what_there_is,
    idle_is_unknown_where_what_ended_it_waited_for_something_unknown,
    idle_of_a_dependency_is_bound_by_another_device,
    critical_path_goes_where_the_binding_leads,
    idle_and_critical_path_agree_about_each_moment,
    overlap_blockers_say_what_the_binding_says,
    nothing_saves_more_than_the_gpu_leaves_of_a_step,
    whatif_saves_what_the_report_says,
    part_of_a_job_is_small,
)


def check(path, folder):
    analysis = analysis_of(path)
    assert failures(IDENTITIES, analysis) == []
    analysis.report.save(folder / "report.json")
    assert load_report(folder / "report.json") == analysis.report


def test_identities_hold(bundled_path, tmp_path):
    check(bundled_path, tmp_path)


@each_real_trace
def test_so_they_do_in_traces_of_other_people(real_trace, tmp_path):
    check(real_trace, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("path", RANKS, ids=lambda path: path.name[:-8])
def test_so_they_do_in_a_job_of_other_people(path, tmp_path):
    check(path, tmp_path)
