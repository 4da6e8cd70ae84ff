"""TL901 to TL911: what the file lacks, and what that does to the figures. They cost no time."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracelab.base.intervals import measure
from tracelab.base.safe_text import counted
from tracelab.findings.candidates import Candidate
from tracelab.findings.context import Context
from tracelab.findings.finding import INFO, WARNING, Where
from tracelab.findings.rule import load_rule
from tracelab.measures.idle_causes import Cause
from tracelab.model.blocking_calls import Blocking
from tracelab.model.driver_api import is_stream_wait
from tracelab.model.kernel_kinds import Kind, copy_direction
from tracelab.model.lookup import match_names
from tracelab.model.losses import LOSSES, LossName, find_loss_names, listed_names
from tracelab.model.trace import ABSENT, HOST_CALLS, Category
from tracelab.model.wording import capitalize_start

NO_STACKS = "no_Python_stacks"  # a cause of TL903
OTHER_RANKS, UNKNOWN_EVENTS = "TL909", "TL911"
INFLATED = "inflated_host_times"  # the cause of TL910 where the overhead is not known

# Of the activities' time: with more, causes are doubtful.
_MIN_SHARE_WITHOUT_LAUNCH = 0.05
_MIN_HOST_WAIT_WINDOW_SHARE = 0.02
# Of a device's busy time: with more, busy and idle time are wrong.
_MIN_UNKNOWN_SHARE = 0.01
# Of the copy time: rules miss little of a smaller share.
_MIN_SHARE_OF_COPIES = 0.1
_MAX_NAMES_IN_TITLE = 3
_SYNCHRONIZES = (Blocking.DEVICE, Blocking.STREAM, Blocking.EVENT)


def _lack(cause: str, count: int, severity: str = INFO, **values: object) -> list[Candidate]:
    """Make the candidate of something that a file lacks; none if the count is 0.

    >>> [candidate] = _lack("other_ranks", 8, size=8)
    >>> candidate.title, candidate.severity_override
    ('This is one rank of 8', 'info')
    >>> _lack("unresolved_waits", 0, waits="0 waits")
    []
    """
    if not count:
        return []
    return [_CASES[cause].candidate(Where(count), values, severity_override=severity)]


def _losses(context: Context, group: str, cause: str) -> list[Candidate]:
    """Make one candidate of all losses of a group; warnings come first and make it a warning."""
    losses = [
        loss
        for loss in LOSSES.values()
        if loss.group == group and context.trace.losses.get(loss.name)
    ]
    losses.sort(key=lambda loss: loss.severity != WARNING)
    return _lack(
        cause,
        sum(context.trace.losses[loss.name] for loss in losses),
        losses[0].severity if losses else INFO,
        losses=capitalize_start("; ".join(loss.text for loss in losses)),
    )


def _damage(context: Context) -> list[Candidate]:
    """Report what the reader left out or repaired, and calls whose GPU work is not in the file."""
    lost = context.timeline.lost_work
    missing, is_much = context.timeline.missing_work
    calls = int(lost.is_lost.sum())
    return [
        *_losses(context, "damage", "damaged_file"),
        *_lack(
            "lost_work",
            calls or context.trace.losses.get("arrows_without_end", 0),
            WARNING if is_much else INFO,
            missing=missing or f"{counted(calls, 'call', 'calls')} of the steps that are left out",
            effect=": the GPU was busy for longer than these figures say" if is_much else "",
        ),
    ]


def _waits_without_rows(context: Context) -> list[Candidate]:
    """Count waits and synchronizes of a file without CUPTI's synchronization records."""
    trace = context.trace
    if len(trace.of_category(Category.SYNC)):
        return []
    blocking = context.graph.host.blocking_calls  # without the profiler's own and NCCL's watchdog's
    stream_waits = match_names(trace, trace.of_category(*HOST_CALLS), is_stream_wait)
    count = int(stream_waits.sum() + np.isin(blocking.kind, _SYNCHRONIZES).sum())
    waits = "1 wait" if count == 1 else f"{count} waits"
    return _lack("no_synchronisation_rows", count, waits=waits)


def _stacks(context: Context) -> list[Candidate]:
    """Report a file without Python functions, or the blamed call sites without their source."""
    lacks_stacks = not len(context.trace.of_category(Category.PYTHON))
    host_id = context.idle_culprits[context.is_idle_by(Cause.HOST_BUSY)]
    sites = {*context.blocking_calls.call_sites, *context.call_sites(np.unique(host_id))}
    files = [
        site.file
        for site in sites
        if site.file and site.call and site.line is None
        if not context.lines.has_source(site.file)
    ]
    names = sorted({file.rpartition("/")[2] for file in files})
    source = " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more"
    have = counted(len(files), "call site has", "call sites have")
    return [
        *_lack(NO_STACKS, int(lacks_stacks)),
        *_lack("no_source", len(files), sites_have=have, source=source),
    ]


def _unresolved_waits(context: Context) -> list[Candidate]:
    count = context.graph.links.unresolved
    waits = "1 stream wait waits" if count == 1 else f"{count} stream waits wait"
    return _lack("unresolved_waits", count, waits=waits)


def _missing_launches(context: Context) -> list[Candidate]:
    """Count the GPU activities without a launch; they are a warning by their share of the time."""
    timeline = context.timeline
    has_no_launch = timeline.launch_id == ABSENT
    count = int(has_no_launch.sum())
    length_ns = (timeline.end_ns - timeline.start_ns).astype(float)
    share = float(length_ns[has_no_launch].sum() / max(1.0, length_ns.sum()))
    severity = WARNING if share >= _MIN_SHARE_WITHOUT_LAUNCH else INFO
    cause = "launches_before_the_recording"
    return _lack(cause, count, severity, activities=count, percent=100 * share)


def _overlaps(context: Context) -> list[Candidate]:
    count = context.timeline.overlapping_count
    return _lack("overlapping_activities", count, activities_start=_activities_start(count))


def _early_kernels(context: Context) -> list[Candidate]:
    """Count the activities that start before the call that launched them."""
    timeline = context.timeline
    is_launched = timeline.launch_id != ABSENT
    launch_ns = context.trace.start_ns[timeline.launch_id[is_launched]]
    count = int((timeline.start_ns[is_launched] < launch_ns).sum())
    cause = "kernels_before_their_launch"
    return _lack(cause, count, WARNING, activities_start=_activities_start(count))


def _activities_start(count: int) -> str:
    return counted(count, "activity starts", "activities start")


def _impossible_times(context: Context) -> list[Candidate]:
    return _losses(context, "times", "impossible_times")


def _other_ranks(context: Context) -> list[Candidate]:
    """Report the number of ranks; merging the files of a job checks that all are given."""
    size = context.trace.info.world_size or 0
    return _lack("other_ranks", size if size > 1 else 0, size=size)


def _profiler_overhead(context: Context) -> list[Candidate]:
    """Compare the median step with its length without the profiler.

    If the capture did not measure that, Python's stacks in the file say that the host was slowed.
    """
    unprofiled_ns = context.trace.info.unprofiled_step_ns
    if unprofiled_ns is None:
        has_stacks = len(context.trace.of_category(Category.PYTHON)) > 0
        waits = context.idle_by_device(context.is_idle_by(Cause.HOST_BUSY, Cause.LAUNCH))
        wait_ns = max(map(measure, waits.values()), default=0)
        is_much = wait_ns >= _MIN_HOST_WAIT_WINDOW_SHARE * context.window.length_ns
        return _lack(INFLATED, int(has_stacks and is_much))
    if context.window_without_profiler_ns is None:
        return []
    step_ns = statistics.median(context.timeline.typical_lengths_ns)
    return _lack("profiler_overhead", 1, step_ms=step_ns / 1e6, unprofiled_ms=unprofiled_ns / 1e6)


def _unknown_events(context: Context) -> list[Candidate]:
    """Report events, copies and waits of unknown kinds, if that matters."""
    names = defaultdict(list)
    for name in find_loss_names(context.trace):
        names[name.loss].append(name)
    waits = context.trace.losses.get("unknown_waits", 0)
    tests: Mapping[str, Callable[[str], bool]] = {
        "copies_without_direction": lambda name: copy_direction(name) == "",
        "unknown_memories": context.trace.loss_names.get("unknown_memories", {}).__contains__,
    }
    return [
        *_unknown_categories(context, names["unknown_categories"]),
        *(
            candidate
            for loss, is_unknown in tests.items()
            for candidate in _unknown_copies(context, loss, names[loss], is_unknown)
        ),
        *_lack(
            "unknown_waits",
            waits,
            waits_are=counted(waits, "wait of an unknown kind is", "waits of unknown kinds are"),
            names=_top_names(names["unknown_waits"], waits),
        ),
    ]


def _unknown_categories(context: Context, names: Iterable[LossName]) -> list[Candidate]:
    """Report events of unknown categories in the rows of a GPU."""
    on_gpu = [x for x in names if x.devices]
    count = sum(x.count for x in on_gpu)
    unknown_ns: Counter[int] = Counter()
    for of_name in context.trace.unknown_gpu_ns.values():
        unknown_ns.update(of_name)
    timeline = context.timeline
    is_much = any(
        length_ns > _MIN_UNKNOWN_SHARE * measure(timeline.busy(timeline.select(device=device)))
        for device, length_ns in unknown_ns.items()
    )
    return _lack(
        "unknown_categories",
        count,
        WARNING if is_much else INFO,
        events_are=counted(
            count,
            "event of an unknown category on GPUs is",
            "events of unknown categories on GPUs are",
        ),
        names=_top_names(on_gpu, count),
    )


def _unknown_copies(
    context: Context, loss: str, names: Sequence[LossName], is_unknown: Callable[[str], bool]
) -> list[Candidate]:
    """Report copies that no rule can judge, if they are much of the copy time."""
    timeline = context.timeline
    length_ns = timeline.end_ns - timeline.start_ns
    is_copy = timeline.kind == Kind.COPY
    unknown = is_copy & match_names(context.trace, timeline.event_id, is_unknown)
    share = int(length_ns[unknown].sum()) / max(1, int(length_ns[is_copy].sum()))
    if share < _MIN_SHARE_OF_COPIES:
        return []
    listed = _top_names(names, context.trace.losses.get(loss, 0))
    return _lack(loss, int(unknown.sum()), WARNING, percent=100 * share, names=listed)


def _top_names(names: Sequence[LossName], total: int) -> str:
    """Name the most frequent ones, few enough for a title."""
    return listed_names([replace(x, devices=()) for x in names[:_MAX_NAMES_IN_TITLE]], total)


RULES = (
    load_rule("TL901", _damage),
    load_rule("TL902", _waits_without_rows),
    load_rule("TL903", _stacks),
    load_rule("TL904", _unresolved_waits),
    load_rule("TL905", _missing_launches),
    load_rule("TL906", _overlaps),
    load_rule("TL907", _early_kernels),
    load_rule("TL908", _impossible_times),
    load_rule(OTHER_RANKS, _other_ranks),
    load_rule("TL910", _profiler_overhead),
    load_rule(UNKNOWN_EVENTS, _unknown_events),
)
_CASES = {cause: case for rule in RULES for cause, case in rule.cases.items()}
