"""No two parts of a report contradict each other about what an activity waited for.

The slow model of `Binding` is the definition; here its readers are held against each other, on
every trace at hand: idle by cause, critical path, overlap blockers.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.shared_traces import FOLDER, PATHS
from tracelab import build_graph, build_timeline, find_sources, observe_host, read_trace
from tracelab.measures.bubbles import Cause, bubbles
from tracelab.measures.critical_path import PathKind, critical_paths
from tracelab.measures.exposed import exposed
from tracelab.measures.overlap_blockers import OverlapBlocker, OverlapBlockers
from tracelab.measures.serialized_streams import serialized_streams
from tracelab.model.constraints import Constraint, Reason
from tracelab.model.trace import ABSENT

BUNDLED = sorted((Path(__file__).parents[2] / "traces").glob("*.json.gz"))
RANKS = sorted(FOLDER.glob("*/*.json.gz"))

# What an overlap blocker may say of a row that is bound so; what it led to comes from another row.
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


@pytest.fixture(scope="module", params=[*BUNDLED, *PATHS, *RANKS], ids=lambda path: path.name[:-8])
def graph(request):
    [source] = find_sources([str(request.param)])
    return build_graph(observe_host(build_timeline(read_trace(source))))


@pytest.fixture(scope="module")
def idle(graph):
    return bubbles(graph, graph.host.timeline.windows[:1])


@pytest.fixture(scope="module")
def row_of(graph):
    """int64[n]: event id to row."""
    timeline = graph.host.timeline
    row = np.full(len(timeline.trace), ABSENT)
    row[timeline.event_id] = np.arange(len(timeline.event_id))
    return row


def test_idle_is_unknown_where_what_ended_it_waited_for_something_unknown(graph, idle, row_of):
    is_ended = idle.next_id != ABSENT
    row, cause, reason = row_of[idle.next_id], idle.cause, idle.reason
    by_activity = is_ended & (cause == Cause.UNKNOWN) & (reason != Reason.HOST_NOT_RECORDED)

    assert (graph.binding.reason[row[by_activity]] == reason[by_activity]).all()
    is_known = is_ended & np.isin(cause, (Cause.LAUNCH, Cause.GRAPH))
    assert (graph.binding.constraint[row[is_known]] != Constraint.UNKNOWN).all()


def test_idle_of_a_dependency_is_bound_by_another_device(graph, idle, row_of):
    device, binding = graph.host.timeline.device_number, graph.binding
    row = row_of[idle.next_id[idle.cause == Cause.DEPENDENCY]]

    assert (binding.source_row[row] != ABSENT).all()
    assert (device[binding.source_row[row]] != device[row]).all()


def test_critical_path_goes_where_the_binding_leads(graph, row_of):
    constraint = graph.binding.constraint
    for path in critical_paths(graph):
        is_waiting = np.isin(path.kind, (PathKind.LAUNCH, PathKind.QUEUE, PathKind.UNKNOWN))
        is_waiting &= path.event_id != ABSENT
        row, kind = row_of[path.event_id[is_waiting]], path.kind[is_waiting]

        assert ((kind == PathKind.LAUNCH) == (constraint[row] == Constraint.LAUNCH)).all()
        assert ((kind == PathKind.UNKNOWN) == (constraint[row] == Constraint.UNKNOWN)).all()


def test_idle_and_critical_path_agree_about_each_moment(graph, idle):
    whole = graph.host.timeline.windows[:1]
    [path] = critical_paths(graph, whole)
    piece = np.searchsorted(path.end_ns, idle.start_ns, side="right")
    last = np.searchsorted(path.start_ns, idle.end_ns, side="left") - 1
    for cause, reason, next_id, first_piece, last_piece in zip(
        idle.cause, idle.reason, idle.next_id, piece, last, strict=True
    ):
        for index in range(first_piece, last_piece + 1):
            if next_id == ABSENT or path.event_id[index] != next_id:
                continue
            of_activity = reason not in (Reason.NONE, Reason.HOST_NOT_RECORDED)
            is_unknown = path.kind[index] == PathKind.UNKNOWN
            if cause == Cause.LAUNCH or of_activity:
                assert is_unknown == of_activity


def test_overlap_blockers_say_what_the_binding_says(graph):
    timeline, constraint = graph.host.timeline, graph.binding.constraint
    pieces = [exposed(graph), serialized_streams(graph)]
    rows = np.unique(np.concatenate([pieces[0].blocked_row, pieces[1].row]))
    rows = rows[rows != ABSENT]
    if not len(rows):
        return
    other = np.repeat(rows, len(timeline.streams))
    firsts = np.tile([stream.first_row for stream in timeline.streams], len(rows))
    for since_ns in (timeline.start_ns[other] - 1, timeline.start_ns[firsts]):
        blocker, _ = OverlapBlockers(graph).between(other, firsts, since_ns)
        for row, answer in set(zip(other.tolist(), blocker.tolist(), strict=True)):
            allowed = ANSWERS[Constraint(constraint[row])] | {OverlapBlocker.TRUE_DEPENDENCY}
            assert OverlapBlocker(answer) in allowed
