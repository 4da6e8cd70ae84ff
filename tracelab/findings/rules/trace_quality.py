"""TL901 to TL911: what the file lacks, and what that does to the figures. They cost no time."""

from __future__ import annotations

import statistics
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
from tracelab.model.kernel_kinds import Kind, is_stream_wait
from tracelab.model.lookup import match_names
from tracelab.model.losses import LOSSES, find_loss_names, listed_names
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
    if not count:
        return []
    case = _CASES[cause]
    values |= {"count": count, "counted": counted(count, *case.counted)}
    return [case.candidate(Where(count), values, severity_override=severity)]


def _losses(context: Context, group: str, cause: str) -> list[Candidate]:
    losses = [x for x in LOSSES.values() if x.group == group and context.trace.losses.get(x.name)]
    losses.sort(key=lambda loss: loss.severity != WARNING)
    count = sum(context.trace.losses[loss.name] for loss in losses)
    texts = capitalize_start("; ".join(loss.text for loss in losses))
    return _lack(cause, count, losses[0].severity if losses else INFO, losses=texts)


def _damage(context: Context) -> list[Candidate]:
    lost = context.timeline.lost_work
    missing, is_much = context.timeline.missing_work
    calls = int(lost.is_lost.sum())
    count = calls or context.trace.losses.get("arrows_without_end", 0)
    missing = missing or f"{counted(calls, 'call', 'calls')} of the steps that are left out"
    effect = ": the GPU was busy for longer than these figures say" if is_much else ""
    severity = WARNING if is_much else INFO
    lost_work = _lack("lost_work", count, severity, missing=missing, effect=effect)
    return _losses(context, "damage", "damaged_file") + lost_work


def _waits_without_rows(context: Context) -> list[Candidate]:
    trace = context.trace
    if len(trace.of_category(Category.SYNC)):
        return []
    blocking = context.graph.host.blocking_calls  # without the profiler's own and NCCL's watchdog's
    stream_waits = match_names(trace, trace.of_category(*HOST_CALLS), is_stream_wait)
    count = int(stream_waits.sum() + np.isin(blocking.kind, _SYNCHRONIZES).sum())
    return _lack("no_synchronisation_rows", count)


def _stacks(context: Context) -> list[Candidate]:
    lacks_stacks = not len(context.trace.of_category(Category.PYTHON))
    is_busy = context.is_idle_by(Cause.HOST_BUSY)
    host_id = context.idle_culprits.distinct(context.bubbles, is_busy)
    sites = {*context.blocking_calls.call_sites, *context.call_sites(host_id)}
    files = [
        site.file
        for site in sites
        if site.file and site.call and site.line is None
        if not context.lines.has_source(site.file)
    ]
    names = sorted({file.rpartition("/")[2] for file in files})
    source = " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more"
    return _lack(NO_STACKS, int(lacks_stacks)) + _lack("no_source", len(files), source=source)


def _missing_launches(context: Context) -> list[Candidate]:
    timeline = context.timeline
    has_no_launch = timeline.launch_id == ABSENT
    count = int(has_no_launch.sum())
    length_ns = (timeline.end_ns - timeline.start_ns).astype(float)
    share = float(length_ns[has_no_launch].sum() / max(1.0, length_ns.sum()))
    severity = WARNING if share >= _MIN_SHARE_WITHOUT_LAUNCH else INFO
    return _lack("launches_before_the_recording", count, severity, percent=100 * share)


def _early_kernels(context: Context) -> list[Candidate]:
    timeline = context.timeline
    is_launched = timeline.launch_id != ABSENT
    launch_ns = context.trace.start_ns[timeline.launch_id[is_launched]]
    count = int((timeline.start_ns[is_launched] < launch_ns).sum())
    return _lack("kernels_before_their_launch", count, WARNING)


def _other_ranks(context: Context) -> list[Candidate]:
    size = context.trace.info.world_size or 0
    return _lack("other_ranks", size if size > 1 else 0)


def _profiler_overhead(context: Context) -> list[Candidate]:
    unprofiled_ns = context.trace.info.unprofiled_step_ns
    if unprofiled_ns is None:  # stacks say that the host was slowed
        has_stacks = len(context.trace.of_category(Category.PYTHON)) > 0
        is_waiting = context.is_idle_by(Cause.HOST_BUSY, Cause.LAUNCH)
        waits = context.idle_by_device(context.bubbles.select(is_waiting))
        wait_ns = max(map(measure, waits.values()), default=0)
        is_much = wait_ns >= _MIN_HOST_WAIT_WINDOW_SHARE * context.window.length_ns
        return _lack(INFLATED, int(has_stacks and is_much))
    if context.window_without_profiler_ns is None or not context.timeline.steps:
        return []
    step_ns = statistics.median(context.timeline.typical_lengths_ns)
    return _lack("profiler_overhead", 1, step_ms=step_ns / 1e6, unprofiled_ms=unprofiled_ns / 1e6)


def _unknown_events(context: Context) -> list[Candidate]:
    timeline, names = context.timeline, find_loss_names(context.trace)
    length_ns = timeline.end_ns - timeline.start_ns
    copies_ns = int(length_ns[timeline.kind == Kind.COPY].sum())
    busy_ns = sum(
        measure(timeline.busy(timeline.select(device=device))) for device in timeline.device_numbers
    )
    candidates = []
    # Loss: of how much time, the share of a warning, the severity of less.
    for loss, of_ns, least, otherwise in (
        ("unknown_categories", busy_ns, _MIN_UNKNOWN_SHARE, INFO),
        ("copies_without_direction", copies_ns, _MIN_SHARE_OF_COPIES, None),
        ("unknown_memories", copies_ns, _MIN_SHARE_OF_COPIES, None),
        ("unknown_waits", busy_ns, _MIN_UNKNOWN_SHARE, INFO),
    ):
        of_loss = [x for x in names if x.loss == loss]
        if loss == "unknown_categories":  # on the host they are no loss
            of_loss = [x for x in of_loss if x.devices]
        count = sum(x.count for x in of_loss)
        share = sum(x.gpu_ns for x in of_loss) / max(1, of_ns)
        severity = WARNING if share > least else otherwise
        if severity is not None:
            top = [replace(x, devices=()) for x in of_loss[:_MAX_NAMES_IN_TITLE]]
            listed = listed_names(top, count)
            candidates += _lack(loss, count, severity, percent=100 * share, names=listed)
    return candidates


RULES = (
    load_rule("TL901", _damage),
    load_rule("TL902", _waits_without_rows),
    load_rule("TL903", _stacks),
    load_rule("TL904", lambda x: _lack("unresolved_waits", x.graph.links.unresolved)),
    load_rule("TL905", _missing_launches),
    load_rule("TL906", lambda x: _lack("overlapping_activities", x.timeline.overlapping_count)),
    load_rule("TL907", _early_kernels),
    load_rule("TL908", lambda x: _losses(x, "times", "impossible_times")),
    load_rule(OTHER_RANKS, _other_ranks),
    load_rule("TL910", _profiler_overhead),
    load_rule(UNKNOWN_EVENTS, _unknown_events),
)
_CASES = {cause: case for rule in RULES for cause, case in rule.cases.items()}
