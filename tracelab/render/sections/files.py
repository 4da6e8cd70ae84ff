"""Sections about files: contents, losses, steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tracelab.base.names import short_names
from tracelab.base.safe_text import brief, counted
from tracelab.render.section import BRIEF, LABEL, PART, PROSE, Cell, Section, Tone, table
from tracelab.render.sections.times import biggest_cause
from tracelab.render.text.hints import COMM_PATTERN, JOB, OF_LOSSES, steps_hint
from tracelab.render.words import listed, percent_text, time_text
from tracelab.report.glossary import CAUSES
from tracelab.report.schema import DeviceMetrics, Report, TraceInfo
from tracelab.report.views import RankView, View, losses_of

_MAX_STEPS, _MAX_STEPS_BY_CAUSE = 20, 100
_MAX_NAMED_STEPS = 4
_MAX_NAMED_ANNOTATIONS = 5
_OTHER_PLATFORM = (
    "The rules, latencies and fixes were developed on CUDA and ROCm: here the times are exact, the "
    "causes and fixes only hints."
)
_INFERRED = "stream waits whose event record was inferred from the order of the calls"
_SOFTWARE = {"torch": "PyTorch", "cuda": "CUDA", "hip": "HIP"}
_RANK_SOURCES = {
    "filename": " (from the file's name)",
    "position": " (by position: the file names no rank, or one that another file has)",
}

_Row = tuple[View, DeviceMetrics]


def file_facts(trace: TraceInfo, views: Sequence[View], *, in_job: bool) -> Section:
    """Describe a recording."""
    # Other files have only a place, which would puzzle.
    rank = f"rank {trace.rank}{_RANK_SOURCES.get(trace.rank_source, '')}"
    known_rank = [rank] if in_job or trace.rank_source != "position" else []
    return Section(
        "",
        (
            *known_rank,
            PART.join(hardware(trace, views)),
            f"{counted(trace.events, 'event', 'events')}{PART}"
            f"{counted(trace.gpu_activities, 'GPU activity', 'GPU activities')}{PART}"
            f"{recorded(views)}",
            *([_OTHER_PLATFORM] if trace.platform else []),
        ),
    )


def hardware(trace: TraceInfo, views: Sequence[View]) -> list[str]:
    """List the GPUs that worked, and the versions."""
    devices = sorted({device.device for view in views for device in view.window.devices})
    names: dict[str, list[str]] = defaultdict(list)
    for device in devices:
        names[trace.gpus.get(str(device), "")].append(str(device))
    gpus = [f"GPU {', '.join(numbers)} {name}".strip() for name, numbers in names.items()]
    software = [f"{_SOFTWARE.get(name, name)} {number}" for name, number in trace.software.items()]
    collector = ["recorded with Cuspy"] if trace.collector == "cuspy" else []
    return [*([trace.platform] if trace.platform else []), *gpus, *software, *collector]


def machines(ranks: Sequence[RankView]) -> list[str]:
    """List the GPUs and versions of files, each once."""
    return list(dict.fromkeys(part for rank in ranks for part in _machine(rank)))


def _machine(rank: RankView) -> list[str]:
    names = Counter(name for name in rank.trace.gpus.values() if name)
    gpus = [f"{count} x {name}" if count > 1 else name for name, count in names.items()]
    return [*gpus, *hardware(rank.trace, ())]


def left_out_steps(rank: RankView) -> list[str]:
    """List steps that are not steady: ``["step 2 (holds ...)"]``."""
    if rank.steady is None or rank.main.step is not None:
        return []
    by_reason: dict[str, list[str]] = {}
    for step in rank.steady.left_out:
        if step.step not in rank.steady.steps:  # the only one is marked, and stays
            by_reason.setdefault(step.why, []).append(str(step.step))
    return [
        f"step {numbers[0]} ({why})" if len(numbers) == 1 else f"{_some_steps(numbers)} ({why})"
        for why, numbers in by_reason.items()
    ]


def _some_steps(numbers: Sequence[str]) -> str:
    if len(numbers) <= _MAX_NAMED_STEPS:
        return f"steps {listed(numbers)}"
    return counted(len(numbers), "step", "steps")


def recorded(views: Sequence[View]) -> str:
    """Count and number the steps."""
    numbers = [view.window.step for view in views if view.window.step is not None]
    if len(numbers) == len(views) == 1:
        return f"step {numbers[0]} only"
    steps = counted(len(numbers), "step", "steps")
    return f"{steps} ({numbers[0]} to {numbers[-1]})" if len(numbers) > 1 else steps


def losses(traces: Sequence[TraceInfo]) -> Iterator[Section]:
    """Show the losses of files."""
    several = len(traces) > 1
    rows = []
    for x in losses_of(traces):
        loss = x.loss
        hint = f" ({OF_LOSSES[loss.name]})" if loss.name in OF_LOSSES else ""
        steps = "" if several else _unused_steps(traces[0], loss.name)
        names = f": {x.names}" if x.names else ""
        count = f"{x.count:,}" if loss.counted else ""
        where = f"in {x.files} of {len(traces)} files"
        rows.append((count, f"{loss.text}{hint}{steps}{names}", where))
    inferred = traces[0].event_links.inferred
    if inferred and not several:
        rows.append((f"{inferred:,}", _INFERRED, ""))
    if rows:
        yield table(
            "Losses",
            rows,
            ("", lambda row: row[0]),
            ("", lambda row: row[1], PROSE),
            several and ("", lambda row: row[2]),
            tone=Tone.WARNING,
        )


def _unused_steps(trace: TraceInfo, loss: str) -> str:
    unused = sorted((x for x in trace.unused_steps if x.loss == loss), key=lambda x: -x.count)
    named = [f"{x.count:,} x {brief(x.name)}" for x in unused[:_MAX_NAMED_ANNOTATIONS]]
    rest = len(unused) - len(named)
    listed = ", ".join(named) + (f" and {rest:,} more names" if rest > 0 else "")
    return f": {listed}" if listed else ""


def details_hint(report: Report) -> Section:
    """Say how to see the details of one of many files."""
    if len({trace.rank for trace in report.traces}) < len(report.traces):
        warning = "Several files say that they are the same rank: analyze them one by one."
        return Section("", (warning,), tone=Tone.WARNING)
    whose = "rank, analyze its file" if report.job else "file, analyze it"
    return Section("", (f"For the details of one {whose} alone.",))


def ranks(report: Report, views: Sequence[View]) -> Section:
    """Show a line a rank or file, and device."""
    main = [view for view in views if view.window.step is None] or list(views)
    names_of = defaultdict[int, list[str]](list)
    names = short_names([trace.path for trace in report.traces])
    for trace, name in zip(report.traces, names, strict=True):
        names_of[trace.rank].append(name)
    is_job, decision = report.job is not None, report.provenance.job
    of_job = main if is_job else []
    return _device_table(
        "Ranks" if is_job else "Files",
        main,
        is_job and ("rank", lambda row: str(row[0].window.rank)),
        ("file", lambda row: " or ".join(names_of[row[0].window.rank]), PROSE),
        *_busy(main, "window"),
        _time(of_job, "comm", "comm_ns"),
        _time(of_job, "exposed\ncomm", "exposed_comm_ns", if_any="comm_ns"),
        _time(of_job, "copy", "copy_ns"),
        notes=[f"Not one job: {decision.why} ({JOB})."] if decision and not decision.is_job else [],
    )


def steps(rank: RankView, pattern: str) -> Iterator[Section]:
    """Show a line a step and device; of many the slowest."""
    views = rank.steps
    if rank.whole is None:
        return
    further = [f"Not steady: {text}." for text in left_out_steps(rank)]
    further += filter(None, [steps_hint(rank.trace)])
    if not views:
        yield Section("Steps", (f"No step in the file: nothing is named like {pattern}", *further))
        return
    slowest = sorted(views, key=lambda view: -view.length_ns)[:_MAX_STEPS]
    shown = [view for view in views if view in slowest]
    lengths_ns = [view.length_ns for view in views]
    notes = [
        f"The shortest takes {time_text(min(lengths_ns))}, the longest "
        f"{time_text(max(lengths_ns))}."
    ]
    if len(shown) < len(views):
        notes.insert(0, f"Shown are the slowest {len(shown)} of {len(views):,} steps.")
    yield _device_table(
        "Steps",
        shown,
        ("step", lambda row: str(row[0].window.step)),
        *_busy(shown, "length"),
        _time(shown, "exposed\ncomm", "exposed_comm_ns", if_any="comm_ns"),
        _time(shown, "exposed\ncopy", "exposed_copy_ns", if_any="copy_ns"),
        _time(shown, "idle by\nblocking", "idle_by_calls_ns"),
        notes=[*(notes if len(views) > 1 else []), *further],
    )


def _busy(views: Sequence[View], length: str) -> list[Cell[_Row] | bool]:
    return [
        any(view.several for view in views) and ("GPU", lambda row: str(row[1].device)),
        (length, lambda row: time_text(row[0].length_ns)),
        ("busy", lambda row: percent_text(row[1].busy_ns, row[0].length_ns)),
        ("idle", lambda row: time_text(row[1].idle_ns)),
    ]


def _time(views: Iterable[View], title: str, key: str, *, if_any: str = "") -> Cell[_Row] | bool:
    """Return the column of a time; False if no device has any, or of `if_any`."""
    devices = (device for view in views for device in view.window.devices)
    is_shown = any(getattr(device, if_any or key) for device in devices)
    return is_shown and (title, lambda row: time_text(getattr(row[1], key)))


def _device_table(
    title: str, views: Iterable[View], *columns: Cell[_Row] | bool, notes: Iterable[str]
) -> Section:
    rows = [(view, device) for view in views for device in view.window.devices]
    cause: Cell[_Row] = ("biggest\nidle cause", lambda row: biggest_cause(row[1]), BRIEF)
    return table(title, rows, *columns, cause, notes=notes)


def causes_by_step(rank: RankView) -> Iterator[Section]:
    """Show idle time by cause in each step of the GPU that decides."""
    number = rank.main.scope.device
    rows = [
        (view.step, device)
        for view in rank.steps
        for device in view.window.devices
        if device.device == number
    ]
    causes = [x for x in CAUSES.terms if any(device.bubbles.get(x.key) for _, device in rows)]
    if rank.whole is not None and causes:
        yield table(
            "Idle by step and cause",
            rows,
            ("step", lambda row: str(row[0])),
            *(
                (x.name, lambda row, cause=x.key: time_text(row[1].bubbles.get(cause, 0)))
                for x in causes
            ),
            ("idle", lambda row: time_text(row[1].idle_ns)),
            most=_MAX_STEPS_BY_CAUSE,
            noun="step",
        )


def unrecognised(trace: TraceInfo) -> Iterator[Section]:
    """Show long kernels that no rule knows."""
    if trace.unrecognised:
        yield table(
            "Unrecognized kernels",
            trace.unrecognised,
            ("time", "total_ns"),
            ("count", "count"),
            ("kernel", "name", LABEL),
            lines=(f"They are counted as compute; {COMM_PATTERN}.",),
        )
