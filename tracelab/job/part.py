"""Part of a job that one rank's file gives: small columns in place of its events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from tracelab.base.arrays import Arrays, BoolArray, IndexArray, Int64Array, Record
from tracelab.base.intervals import Intervals, join, measure_within, subtract, union
from tracelab.job.part_path import PathPart, path_part
from tracelab.measures.exposed import Exposed
from tracelab.measures.idle_causes import Bubbles, Cause
from tracelab.measures.idle_culprits import IdleCulprits
from tracelab.measures.measure import summed
from tracelab.model.collectives import Collectives, Group, Operation
from tracelab.model.frames import event_as_shown
from tracelab.model.graph import Graph
from tracelab.model.host import NOTHING_RECORDED
from tracelab.model.kernel_kinds import Kind
from tracelab.model.lookup import groups_of
from tracelab.model.phases import Phase, Phases
from tracelab.model.program.call_sites import CallSite, call_sites
from tracelab.model.program.source_lines import SourceLines
from tracelab.model.steps import Window, known_steps
from tracelab.model.timeline import Timeline
from tracelab.model.trace import ABSENT
from tracelab.simulate.baseline import Baseline, StepBasis
from tracelab.simulate.program import Edited, Program

_Value = TypeVar("_Value")


class Passes(Arrays):
    """The passes of the s steps of one rank, and the host at its c communication operations.

    Attributes:
        start_ns, end_ns: int64[s], ns, first to last kernel of the passes on the device that
            decides, else ABSENT.
        launched_ns: int64[c], ns, or ABSENT.
        waited_ns, computes: int64[c], ns that the launching thread was blocked, loading data or in
            the profiler by then, and compute kernels launched by then.
        phase: int8[c], the `Phase` of the last of these.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    launched_ns: Int64Array
    waited_ns: Int64Array
    computes: Int64Array
    phase: NDArray[np.int8]


_NONE = np.zeros(0, dtype=np.int64)
NO_PASSES = Passes(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE.astype(np.int8))


def find_passes(graph: Graph, phases: Phases, row: IndexArray, device: int) -> Passes:
    """Find the passes of every step, and what the host had done by each communication operation."""
    timeline = graph.host.timeline
    trace, launch_id = timeline.trace, timeline.launch_id
    is_compute = timeline.select(device=device, kind=Kind.COMPUTE)
    computes = np.flatnonzero(is_compute & (launch_id != ABSENT))
    computes = computes[np.argsort(trace.start_ns[launch_id[computes]], kind="stable")]
    phase = phases.phases_of(launch_id[computes])
    start_ns, end_ns = _spans(timeline, computes, phase)

    computes_ns, launch_id = trace.start_ns[launch_id[computes]], launch_id[row]
    is_launched = launch_id != ABSENT
    launched_ns = np.where(is_launched, trace.start_ns[launch_id], ABSENT)
    count = np.searchsorted(computes_ns, launched_ns)
    phase_before = np.append(np.int8(Phase.UNKNOWN), phase)[np.where(is_launched, count, 0)]
    waited_ns, count = _waited_ns(graph, launch_id), np.where(is_launched, count, ABSENT)
    return Passes(start_ns, end_ns, launched_ns, waited_ns, count, phase_before.astype(np.int8))


def _spans(
    timeline: Timeline, computes: IndexArray, phase: NDArray[np.int8]
) -> tuple[Int64Array, Int64Array]:
    start_ns, end_ns = np.full((2, len(timeline.steps)), ABSENT, dtype=np.int64)
    in_pass = np.isin(phase, (Phase.FORWARD, Phase.BACKWARD))
    for step_index, of_step in groups_of(timeline.step_index[computes]):
        chosen = of_step[in_pass[of_step]]
        rows = computes[chosen if len(chosen) else of_step]
        start_ns[step_index] = timeline.start_ns[rows].min()
        end_ns[step_index] = timeline.end_ns[rows].max()
    return start_ns, end_ns


def _waited_ns(graph: Graph, launch_id: Int64Array) -> Int64Array:
    trace = graph.host.timeline.trace
    waited_ns = np.zeros(len(launch_id), dtype=np.int64)
    first_ns = trace.start_ns.min(initial=0)
    threads = np.where(launch_id != ABSENT, trace.thread_index[launch_id], ABSENT)
    for thread, index in groups_of(threads):
        state = graph.host.states.get(thread, NOTHING_RECORDED)
        away = join(join(state.blocked, state.input), state.profiler)
        until_ns = trace.start_ns[launch_id[index]]
        waited_ns[index] = measure_within(away, np.full(len(index), first_ns), until_ns)
    return waited_ns


class Work(IntEnum):
    """Sorts of work of the device that decides: each moment counts for the first that applies."""

    COMPUTE = 0
    COMM = 1
    COPY = 2  # memsets, too
    HOST_BLOCKED = 3
    INPUT = 4
    HOST_BUSY = 5
    LAUNCH = 6
    OTHER_IDLE = 7


_WORK_OF_KIND = {
    Kind.COMPUTE: Work.COMPUTE,
    Kind.COMM: Work.COMM,
    Kind.COPY: Work.COPY,
    Kind.MEMSET: Work.COPY,
}
_WORK_OF_IDLE = {cause: Work.__members__.get(cause.name, Work.OTHER_IDLE) for cause in Cause}
_MAX_LOCATED_KERNELS = 5_000
_SHOWN = ("compute", "forward", "backward", "other_compute", "comm", "copy", "memset")
_NEVER = union([], [])
_OF_HOST = (Cause.HOST_BLOCKED, Cause.INPUT, Cause.HOST_BUSY)
SITE_FIELDS = ("operator", "function", "file", "line", "call")  # of a `CallSite`, in a job's rows


class Culprit(Record):
    """Cause on the host that kept the device idle: a call, an operator or a region."""

    work: Work
    call: str
    site: CallSite


class PartSteps(Arrays):
    """The steps of one file, in order; windows in ns since the file's origin.

    A batch is phase and number of the requests that a step serves: "decode 8".
    """

    number: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    is_steady: BoolArray
    batch: tuple[str, ...] = ()


class RankProgram(Arrays):
    """The steady steps of one rank as they are replayed, and as they are with named changes."""

    program: Program
    steps: tuple[int, ...]
    step_ns: int
    basis: str
    printed: StepBasis
    changes: Mapping[str, Edited]


class RankPart(Arrays):
    """The communication of one rank, and how it spent the time in between; c operations, by start.

    An operation is a collective, or one of the sends and receives of a kernel, which share its
    times. Times are ns since the file's first event.

    Attributes:
        origin_ns: the file's first event by its own clock, ns since 1970 or the machine's start.
        device: the device that decides.
        sites: where in the program operations were called.
        culprits: causes of the device's idle time.
        work_sites: where most compute of the middle steady step was launched.
        work_site_ns: int64[w], ns, how long that took.
        start_ns, end_ns, kernel_id: int64[c], ns and event id of the operation's kernel.
        operation: int8[c], an `Operation`.
        kernel_name_index, group_index, site_index: int32[c], into the tuples of these.
        sequence: int64[c], within the group, else ABSENT.
        peer_rank: int64[c], the other rank of a send or receive, else ABSENT.
        in_bytes, out_bytes: int64[c], of this rank, else ABSENT.
        step_index: int32[c], into `steps`, by launch, else ABSENT.
        exposed_index: int64[e], operation (the first of its kernel) of each exposed piece.
        exposed_blocker: int8[e], the `OverlapBlocker`.
        work: by `Work`, when the device did it; disjoint.
        culprit_index: int32[c], into `culprits`, the longest since the operation before, for
            `culprit_ns`; else ABSENT.
        passes: its forward and backward passes, of a rank that sends or receives.
        ways: the ways back for the critical path; None without operations or launches.
        program: its steady steps, or why they are not replayed; None if not requested.
        is_rank_known: False if the number is the file's place among the files.
        first_ns, last_ns: ns, all that is measured.
        shown: when the device did each kind of work, compute by phase; kinds may overlap.
    """

    rank: int
    path: str
    origin_ns: int
    device: int
    groups: tuple[Group, ...]
    sites: tuple[CallSite, ...]
    culprits: tuple[Culprit, ...]
    kernel_names: tuple[str, ...]
    work_sites: tuple[CallSite, ...]
    steps: PartSteps
    work_site_ns: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    kernel_id: Int64Array
    kernel_name_index: NDArray[np.int32]
    operation: NDArray[np.int8]
    group_index: NDArray[np.int32]
    sequence: Int64Array
    peer_rank: Int64Array
    in_bytes: Int64Array
    out_bytes: Int64Array
    step_index: NDArray[np.int32]
    site_index: NDArray[np.int32]
    exposed_index: Int64Array
    exposed_start_ns: Int64Array
    exposed_end_ns: Int64Array
    exposed_blocker: NDArray[np.int8]
    work: tuple[Intervals, ...]
    culprit_index: NDArray[np.int32]
    culprit_ns: Int64Array
    passes: Passes = NO_PASSES
    ways: PathPart | None = None
    program: RankProgram | str | None = None
    is_rank_known: bool = True
    first_ns: int = 0
    last_ns: int = 0
    shown: Mapping[str, Intervals] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def kernel_index(self) -> IndexArray:
        """intp[c], the kernel of each operation, among those of all operations."""
        return np.asarray(np.unique(self.kernel_id, return_inverse=True)[1])

    @property
    def is_shared(self) -> BoolArray:
        """bool[c], the kernel of each operation carries out others as well."""
        kernel_index = self.kernel_index
        return np.asarray(np.bincount(kernel_index)[kernel_index] > 1)

    @property
    def is_exchange(self) -> BoolArray:
        """bool[c], the kernel of each operation both sends and receives."""
        kernel_index = self.kernel_index
        sends, receives = (
            np.bincount(kernel_index, self.operation == operation, len(self)) > 0
            for operation in (Operation.SEND, Operation.RECV)
        )
        return np.asarray((sends & receives)[kernel_index])

    def work_before(self, times_ns: Int64Array) -> Int64Array:
        """int64[times, len(Work)], ns, of each sort of work that the device had done by then."""
        first_ns = np.zeros_like(times_ns)
        return np.stack([measure_within(time, first_ns, times_ns) for time in self.work], axis=1)


def rank_part(
    graph: Graph,
    phases: Phases,
    collectives: Collectives,
    bubbles: Bubbles,
    idle_culprits: IdleCulprits,
    exposed: Exposed,
    lines: SourceLines,
    rank: int,
    windows: Sequence[Window],
    baseline: Baseline,
    changes: Mapping[str, Edited],
) -> RankPart:
    """Reduce one analyzed file to what its job needs of it."""
    timeline, row = graph.host.timeline, collectives.row
    device = timeline.busiest_device(timeline.windows[0])
    start_ns, end_ns = timeline.start_ns[row], timeline.end_ns[row]
    sites, site_index = _numbered(call_sites(timeline, timeline.launch_id[row], lines))
    culprits, culprit_index, culprit_ns = _culprits(
        graph, bubbles, idle_culprits, lines, device, start_ns
    )
    operation_index = np.full(len(timeline.start_ns), ABSENT, dtype=np.int64)
    operation_index[row[::-1]] = np.arange(len(row))[::-1]
    is_operation = operation_index[exposed.row] != ABSENT
    piece_index = np.flatnonzero(is_operation & (timeline.device_number[exposed.row] == device))
    exposed_index = operation_index[exposed.row[piece_index]]
    trace, whole = timeline.trace, timeline.windows[0]
    name_index, kernel_name_index = np.unique(
        trace.name_index[timeline.event_id[row]], return_inverse=True
    )
    work_sites, work_site_ns = _work_sites(timeline, device, lines)
    has_messages = (collectives.peer_rank != ABSENT).any()
    return RankPart(
        rank=rank,
        path=trace.path,
        origin_ns=trace.info.clock_base_ns + trace.origin_ns,
        device=device,
        groups=collectives.groups,
        sites=sites,
        culprits=culprits,
        kernel_names=tuple(trace.strings[index] for index in name_index.tolist()),
        work_sites=work_sites,
        steps=_part_steps(graph, windows),
        work_site_ns=work_site_ns,
        start_ns=start_ns,
        end_ns=end_ns,
        kernel_id=timeline.event_id[row],
        kernel_name_index=kernel_name_index.reshape(-1).astype(np.int32),
        operation=collectives.operation,
        group_index=collectives.group_index,
        sequence=collectives.sequence,
        peer_rank=collectives.peer_rank,
        in_bytes=collectives.in_bytes,
        out_bytes=collectives.out_bytes,
        step_index=timeline.step_index[row],
        site_index=site_index,
        exposed_index=exposed_index,
        exposed_start_ns=exposed.start_ns[piece_index],
        exposed_end_ns=exposed.end_ns[piece_index],
        exposed_blocker=exposed.blocker[piece_index],
        work=_times_of_work(timeline, bubbles, device),
        culprit_index=culprit_index,
        culprit_ns=culprit_ns,
        passes=find_passes(graph, phases, row, device) if has_messages else NO_PASSES,
        ways=path_part(graph, row, lines),
        program=_rank_program(baseline, changes),
        first_ns=whole.start_ns,
        last_ns=whole.end_ns,
        shown=_shown_work(timeline, phases, device),
    )


def _work_sites(
    timeline: Timeline, device: int, lines: SourceLines
) -> tuple[tuple[CallSite, ...], Int64Array]:
    is_chosen = timeline.select(device=device, kind=Kind.COMPUTE) & (timeline.launch_id != ABSENT)
    if timeline.steady is not None:
        indices = timeline.steady.indices
        is_chosen &= timeline.step_index == indices[len(indices) // 2]
    row = np.flatnonzero(is_chosen)
    length_ns = (timeline.end_ns - timeline.start_ns)[row]
    longest = np.argsort(-length_ns, kind="stable")[:_MAX_LOCATED_KERNELS]
    sites, index = _numbered(call_sites(timeline, timeline.launch_id[row[longest]], lines))
    return sites, summed(index, length_ns[longest], len(sites))


def _part_steps(graph: Graph, windows: Sequence[Window]) -> PartSteps:
    timeline = graph.host.timeline
    steps, steady = timeline.steps, timeline.steady
    number = np.array([step.number for step in steps], dtype=np.int64)
    is_steady = np.isin(np.arange(len(steps)), steady.indices if steady else ())
    if windows[0].step is not None:
        is_steady = number == windows[0].step
    known, _ = known_steps(timeline.step_pattern)
    names = [timeline.trace.name_of(step.event_id) for step in steps if known and known.phases]
    batch = tuple(f"{known.phase_of(x)} {known.sequences_of(x)}" for x in names if known)
    start_ns, end_ns = (
        np.array([getattr(window, name) for window in timeline.windows[1:]], dtype=np.int64)
        for name in ("start_ns", "end_ns")
    )
    return PartSteps(number, start_ns, end_ns, is_steady, batch)


def _times_of_work(timeline: Timeline, bubbles: Bubbles, device: int) -> tuple[Intervals, ...]:
    times, earlier = [_NEVER] * len(Work), _NEVER
    for kind, work in _WORK_OF_KIND.items():
        busy = timeline.busy(timeline.select(device=device, kind=kind))
        times[work] = join(times[work], subtract(busy, earlier))
        earlier = join(earlier, busy)
    for cause, work in _WORK_OF_IDLE.items():
        idle = bubbles.idle(bubbles.select(bubbles.cause == cause))
        times[work] = join(times[work], idle.intervals(device))
    return tuple(times)


def _shown_work(timeline: Timeline, phases: Phases, device: int) -> dict[str, Intervals]:
    is_here, launch_id = timeline.device_number == device, timeline.launch_id
    is_compute = is_here & (timeline.kind == Kind.COMPUTE)
    launched = np.flatnonzero(is_compute & (launch_id != ABSENT))
    phase = np.full(len(launch_id), Phase.UNKNOWN, dtype=np.int8)
    phase[launched] = phases.phases_of(launch_id[launched])
    shown = np.array([kind.name.lower() for kind in Kind], dtype="U16")[timeline.kind]
    if (phase == Phase.BACKWARD).any():
        shown[is_compute] = "other_compute"
        for one in (Phase.FORWARD, Phase.BACKWARD):
            shown[phase == one] = one.name.lower()
    return {kind: timeline.busy(is_here & (shown == kind)) for kind in _SHOWN}


def _culprits(
    graph: Graph,
    bubbles: Bubbles,
    idle_culprits: IdleCulprits,
    lines: SourceLines,
    device: int,
    start_ns: Int64Array,
) -> tuple[tuple[Culprit, ...], NDArray[np.int32], Int64Array]:
    """Find the culprits of idle; int32[c], that before each operation, or ABSENT; int64[c], ns."""
    timeline = graph.host.timeline
    index, culprit_ns = np.full(len(start_ns), ABSENT, np.int32), np.zeros(len(start_ns), np.int64)
    of_operation = np.searchsorted(start_ns, bubbles.end_ns)
    is_chosen = np.isin(bubbles.cause, _OF_HOST) & (of_operation < len(start_ns))
    chosen = bubbles.pieces_of(bubbles.rows_of(device), is_chosen)
    culprit_id, piece = idle_culprits.look_up(chosen), chosen[1]
    is_known = culprit_id != ABSENT
    culprit_id, piece = culprit_id[is_known], piece[is_known]
    pairs, of_pair = np.unique(
        np.stack((bubbles.cause[piece], culprit_id)), axis=1, return_inverse=True
    )
    names = [event_as_shown(timeline.trace.name_of(event)) for event in pairs[1].tolist()]
    sites = call_sites(timeline, pairs[1], lines)
    culprits, culprit_of_pair = _numbered(
        Culprit(_WORK_OF_IDLE[Cause(cause)], name, site)
        for cause, name, site in zip(pairs[0].tolist(), names, sites, strict=True)
    )
    culprit_of = culprit_of_pair[of_pair.reshape(-1)]
    keys = of_operation[piece] * np.int64(max(1, len(culprits))) + culprit_of
    key, of_key = np.unique(keys, return_inverse=True)
    total_ns = summed(of_key, (bubbles.end_ns - bubbles.start_ns)[piece], len(key))
    by_length = np.argsort(total_ns, kind="stable")
    operation_index, longest = np.divmod(key[by_length], max(1, len(culprits)))
    index[operation_index], culprit_ns[operation_index] = longest, total_ns[by_length]
    return culprits, index, culprit_ns


def _numbered(values: Iterable[_Value]) -> tuple[tuple[_Value, ...], NDArray[np.int32]]:
    """Different values in order of appearance, and the index of each one among them.

    >>> _numbered("abac")
    (('a', 'b', 'c'), array([0, 1, 0, 2], dtype=int32))
    """
    numbers: dict[_Value, int] = {}
    index = [numbers.setdefault(value, len(numbers)) for value in values]
    return tuple(numbers), np.array(index, dtype=np.int32)


def _rank_program(baseline: Baseline, changes: Mapping[str, Edited]) -> RankProgram | str | None:
    program, step_ns = baseline.program, baseline.step_ns
    if program is None or step_ns is None:
        return baseline.not_replayed
    if not baseline.steps:
        return "The file has no steps. Call `profiler.step()` after each."
    return RankProgram(program, baseline.steps, step_ns, baseline.basis, baseline.printed, changes)
