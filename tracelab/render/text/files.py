"""The sections of the text report that speak of files: what they are, what is missing, steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from tracelab.base.text import brief, counted
from tracelab.measures.window_times import DeviceMetrics
from tracelab.model.loss_names import LossName, listed_names, merged_loss_names
from tracelab.model.losses import LOSSES_BY_NAME
from tracelab.read.file_names import short_names
from tracelab.render.text.cells import PART, listed, percent_text, time_text
from tracelab.render.text.hints import COMM_PATTERN, JOB, OF_LOSSES
from tracelab.render.text.sections import Column, Fit, Section, Tone
from tracelab.render.text.window_idle import biggest_cause
from tracelab.report.schema import Report, TraceInfo
from tracelab.report.views import RankView, View

_MOST_STEPS = 20
_FEW_STEPS = 4  # that are named one by one
_MOST_NAMES = 5  # of annotations that are not steps
_MOST_GPUS = 16  # of one name; no machine of today has more
_OF_EACH_SORT = 5  # where there are more: from the beginning, from the end, and of the slowest
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

_COMPARED: tuple[tuple[str, Callable[[DeviceMetrics], int]], ...] = (
    ("busy", lambda device: device.busy_ns),
    ("idle", lambda device: device.idle_ns),
    ("compute", lambda device: device.compute_ns),
    ("comm", lambda device: device.comm_ns),
    ("copy", lambda device: device.copy_ns),
)

_Row = tuple[str, ...]
_Metric = tuple[Column, Callable[[View, DeviceMetrics], str]]

_CAUSE: _Metric = (
    Column("biggest\nidle cause", Fit.BRIEF),
    lambda _, device: biggest_cause(device),
)


def file_facts(trace: TraceInfo, views: Sequence[View], *, in_job: bool) -> Section:
    """What was recorded, where, and how much of it."""
    # A file of no job has no rank: its place among the files would only puzzle.
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
    """The GPUs that worked, and the versions of what was recorded."""
    devices = sorted({device.device for view in views for device in view.window.devices})
    names: dict[str, list[str]] = defaultdict(list)
    for device in devices:
        names[trace.gpus.get(str(device), "")].append(str(device))
    gpus = [f"GPU {_numbers(numbers)} {name}".strip() for name, numbers in names.items()]
    software = [f"{_SOFTWARE.get(name, name)} {number}" for name, number in trace.software.items()]
    collector = ["recorded with Cuspy"] if trace.collector == "cuspy" else []
    return [*([trace.platform] if trace.platform else []), *gpus, *software, *collector]


def machines(ranks: Sequence[RankView]) -> list[str]:
    """The GPUs by their names and the versions of some files, each once."""
    return list(dict.fromkeys(part for rank in ranks for part in _machine(rank)))


def _machine(rank: RankView) -> list[str]:
    names = Counter(name for name in rank.trace.gpus.values() if name)
    gpus = [f"{count} x {name}" if count > 1 else name for name, count in names.items()]
    return [*gpus, *hardware(rank.trace, ())]


def left_out_steps(rank: RankView) -> list[str]:
    """The steps that are not steady, and why: ``["step 2 (holds ...)"]``."""
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
    if len(numbers) <= _FEW_STEPS:
        return f"steps {listed(numbers)}"
    return counted(len(numbers), "step", "steps")


def recorded(views: Sequence[View]) -> str:
    """How many steps there are, and their numbers."""
    numbers = [view.window.step for view in views if view.window.step is not None]
    if len(numbers) == len(views) == 1:
        return f"step {numbers[0]} only"
    steps = counted(len(numbers), "step", "steps")
    return f"{steps} ({numbers[0]} to {numbers[-1]})" if len(numbers) > 1 else steps


def _numbers(numbers: Sequence[str]) -> str:
    """The numbers of GPUs of one name; of very many the first."""
    rest = len(numbers) - _MOST_GPUS
    return ", ".join(numbers[:_MOST_GPUS]) + (f" and {rest:,} more" if rest > 0 else "")


def losses(trace: TraceInfo) -> list[Section]:
    """What of a file is missing from its numbers."""
    counts = dict(trace.losses)
    rows = [
        (count, text + _unused_steps(trace, name) + _names_of(trace.loss_names, name, counts))
        for name, (count, text) in ((name, _loss_row(name, n)) for name, n in counts.items())
    ]
    if trace.event_links.inferred:
        rows.append((f"{trace.event_links.inferred:,}", _INFERRED))
    if not rows:
        return []
    columns = (Column(""), Column("", Fit.PROSE))
    return [Section("Losses", columns=columns, rows=tuple(rows), tone=Tone.WARNING)]


def _unused_steps(trace: TraceInfo, loss: str) -> str:
    """Which annotations a loss of steps is about, the most frequent first."""
    unused = sorted((x for x in trace.unused_steps if x.loss == loss), key=lambda x: -x.count)
    named = [f"{x.count:,} x {brief(x.name)}" for x in unused[:_MOST_NAMES]]
    rest = len(unused) - len(named)
    listed = ", ".join(named) + (f" and {rest:,} more names" if rest > 0 else "")
    return f": {listed}" if listed else ""


def _names_of(names: Sequence[LossName], loss: str, counts: Mapping[str, int]) -> str:
    """What the file calls that which was lost, after a colon; "" where it has no names."""
    of_loss = [x for x in names if x.loss == loss]
    return f": {listed_names(of_loss, counts[loss])}" if of_loss else ""


def all_losses(traces: Sequence[TraceInfo]) -> list[Section]:
    """What of many files is missing from their numbers, together."""
    counts, files = Counter[str](), Counter[str]()
    for trace in traces:
        counts.update(trace.losses)
        files.update(trace.losses.keys())
    if not counts:
        return []
    names = merged_loss_names(x for trace in traces for x in trace.loss_names)
    rows = tuple(
        (number, text + _names_of(names, loss, counts), f"in {files[loss]} of {len(traces)} files")
        for loss, count in counts.items()
        for number, text in [_loss_row(loss, count)]
    )
    columns = (Column(""), Column("", Fit.PROSE), Column(""))
    return [Section("Losses", columns=columns, rows=rows, tone=Tone.WARNING)]


def for_details(report: Report) -> Section:
    """How to see the details of one of many files."""
    if len({trace.rank for trace in report.traces}) < len(report.traces):
        warning = "Several files say that they are the same rank: analyze them one by one."
        return Section("", (warning,), tone=Tone.WARNING)
    whose = "rank, analyze its file" if report.job else "file, analyze it"
    return Section("", (f"For the details of one {whose} alone.",))


def _loss_row(name: str, count: int) -> tuple[str, str]:
    loss = LOSSES_BY_NAME.get(name)
    if loss is None:  # of another version's report
        return f"{count:,}", name
    hint = f" ({OF_LOSSES[name]})" if name in OF_LOSSES else ""
    return f"{count:,}" if loss.counted else "", loss.text + hint


def ranks(report: Report, views: Sequence[View]) -> Section:
    """A line per rank and device: the whole trace, or the one step that was asked for.

    Files that are not one job have no rank in it, and room for their names.
    """
    main = [view for view in views if view.window.step is None] or list(views)
    devices = [device for view in main for device in view.window.devices]
    names = short_names([trace.path for trace in report.traces])
    names_of = defaultdict[int, list[str]](list)
    for trace, name in zip(report.traces, names, strict=True):
        names_of[trace.rank].append(name)
    metrics: list[_Metric] = [
        *([(Column("rank"), lambda view, _: str(view.window.rank))] if report.job else []),
        (Column("file", Fit.PROSE), lambda view, _: " or ".join(names_of[view.window.rank])),
        *_busy(main, "window"),
    ]
    if report.job and any(device.comm_ns for device in devices):
        metrics.append((Column("comm"), lambda _, device: time_text(device.comm_ns)))
        metrics.append((Column("exposed\ncomm"), _exposed_comm))
    if report.job and any(device.copy_ns for device in devices):
        metrics.append((Column("copy"), lambda _, device: time_text(device.copy_ns)))
    decision = report.provenance.job
    notes = (f"Not one job: {decision.why} ({JOB}).",) if decision and not decision.is_job else ()
    return _table("Ranks" if report.job else "Files", [*metrics, _CAUSE], main, notes)


def steps(views: Sequence[View], pattern: str, further: Sequence[str] = ()) -> Section:
    """A line per step and device; of many steps the first, the slowest and the last."""
    if not views:
        return Section("Steps", (f"No step in the file: nothing is named like {pattern}", *further))
    shown = _chosen(views)
    devices = [device for view in shown for device in view.window.devices]
    metrics = [(Column("step"), lambda view, _: str(view.window.step)), *_busy(shown, "length")]
    if any(device.comm_ns for device in devices):
        metrics.append((Column("exposed\ncomm"), _exposed_comm))
    if any(device.copy_ns for device in devices):
        metrics.append(
            (Column("exposed\ncopy"), lambda _, device: time_text(device.exposed_copy_ns))
        )
    if any(device.idle_by_calls_ns for device in devices):
        metrics.append(
            (Column("idle by\nblocking"), lambda _, device: time_text(device.idle_by_calls_ns))
        )
    notes = [*_step_notes(views, shown), *further]
    return _table("Steps", [*metrics, _CAUSE], shown, notes=notes)


def _chosen(views: Sequence[View]) -> list[View]:
    """All steps, or of many the first, the slowest and the last, in order."""
    if len(views) <= _MOST_STEPS:
        return list(views)
    numbers = range(len(views))
    slowest = sorted(numbers, key=lambda i: -views[i].length_ns)[:_OF_EACH_SORT]
    chosen = {*numbers[:_OF_EACH_SORT], *slowest, *numbers[-_OF_EACH_SORT:]}
    return [views[i] for i in sorted(chosen)]


def _step_notes(views: Sequence[View], shown: Sequence[View]) -> Iterable[str]:
    if len(shown) < len(views):
        yield (
            f"Shown are the first {_OF_EACH_SORT}, the slowest {_OF_EACH_SORT} and the last "
            f"{_OF_EACH_SORT} of {len(views):,} steps; {len(views) - len(shown):,} are left out."
        )
    if len(views) > 1:
        lengths = [view.length_ns for view in views]
        yield (
            f"The shortest takes {time_text(min(lengths))}, the longest {time_text(max(lengths))}."
        )


def _busy(views: Sequence[View], length: str) -> list[_Metric]:
    """The columns that every line about a device begins with."""
    several = any(view.several for view in views)
    return [
        *([(Column("GPU"), lambda _, device: str(device.device))] if several else []),
        (Column(length), lambda view, _: time_text(view.length_ns)),
        (Column("busy"), lambda view, device: percent_text(device.busy_ns, view.length_ns)),
        (Column("idle"), lambda _, device: time_text(device.idle_ns)),
    ]


def _table(
    title: str, metrics: Sequence[_Metric], views: Iterable[View], notes: Iterable[str] = ()
) -> Section:
    """A line per window and device."""
    rows = tuple(
        tuple(text(view, device) for _, text in metrics)
        for view in views
        for device in view.window.devices
    )
    return Section(title, (), tuple(column for column, _ in metrics), rows, tuple(notes))


def _exposed_comm(_: View, device: DeviceMetrics) -> str:
    return time_text(device.exposed_comm_ns)


def unrecognised(trace: TraceInfo) -> list[Section]:
    """Long kernels that no rule knows."""
    if not trace.unrecognised:
        return []
    return [
        Section(
            "Unrecognized kernels",
            (f"They are counted as compute; {COMM_PATTERN}.",),
            (Column("time"), Column("count"), Column("kernel", Fit.LABEL)),
            tuple(
                (time_text(kernel.total_ns), f"{kernel.count:,}", kernel.name)
                for kernel in trace.unrecognised
            ),
        )
    ]


def launched_only(trace: TraceInfo, view: View) -> list[Section]:
    """The whole trace beside what is left of it without activities of unknown launch."""
    launched = trace.launched_only
    if launched is None or view.window.step is not None:
        return []
    launched_by_device = {device.device: device for device in launched.devices}
    launched_ns = launched.end_ns - launched.start_ns
    rows: list[_Row] = []
    for device in view.window.devices:
        name = f"GPU {device.device} " if view.several else ""
        without = launched_by_device.get(device.device)
        for label, measure in _COMPARED:
            all_ns, without_ns = measure(device), measure(without) if without else 0
            if all_ns or without_ns or label in ("busy", "idle"):
                rows.append(
                    (
                        name + label,
                        time_text(all_ns),
                        percent_text(all_ns, view.length_ns),
                        time_text(without_ns),
                        percent_text(without_ns, launched_ns),
                    )
                )
    return [
        Section(
            "Without activities of unknown launch",
            (
                f"{launched.left_out:,} of {trace.gpu_activities:,} GPU activities were launched "
                "before the recording began, or the file lacks their launch.",
            ),
            (
                Column("", Fit.LABEL),
                Column("all\nactivities"),
                Column("of window"),
                Column("launch\nis in file"),
                Column("of window"),
            ),
            (
                ("window", time_text(view.length_ns), "", time_text(launched_ns), ""),
                *rows,
            ),
        )
    ]
