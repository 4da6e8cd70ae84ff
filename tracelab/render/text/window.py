"""The sections of the text report that speak of one window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tracelab.measures.blocking_calls import BlockingCallMetrics
from tracelab.measures.idle_culprits import CulpritMetrics
from tracelab.measures.overlap import OverlapMetrics
from tracelab.measures.window_times import DeviceMetrics
from tracelab.render.text.cells import (
    CAUSE_MEANINGS,
    PART,
    PATH_MEANINGS,
    REASON_MEANINGS,
    counted,
    listed,
    percent_text,
    time_text,
)
from tracelab.render.text.sections import NONE, Column, Fit, Section
from tracelab.render.text.tables import other_tables
from tracelab.report.views import View

_MOST_ROWS = 10
_MOST_HOLDERS = 6
_IN_JSON = "(all of them in --json)"
_WORTH_SHOWING = 0.001  # of the window: an overlap with less on one side is no news
_CAUSES_IN_HEADLINE = 3
_WORTH_A_HEADLINE = 0.01  # of the window


def window_sections(view: View) -> list[Section]:
    """What the report says of a window, from how busy it was to its critical path."""
    return [
        *times(view),
        *idle(view),
        *held(view),
        *streams(view),
        overlap(view),
        blocking(view),
        *critical_path(view),
        *other_tables(view),
    ]


def headlines(view: View) -> tuple[str, ...]:
    """A sentence per device: how busy it was, and why it was not."""
    return tuple(_headline(view, x) for x in view.window.devices)


def _headline(view: View, device: DeviceMetrics) -> str:
    length = view.length_ns
    name = f"GPU {device.device}"
    if view.window.step is not None:
        name = f"In step {view.window.step}, {name}"
    if length <= 0:
        return f"{name}: the window has no length."
    busy = f"{name} was busy {percent_text(device.busy_ns, length)} of {time_text(length)}"
    causes = _largest(device.bubbles)
    shown = [f"{x} {percent_text(ns, device.idle_ns)}" for x, ns in causes[:_CAUSES_IN_HEADLINE]]
    rest = sum(ns for _, ns in causes[_CAUSES_IN_HEADLINE:])
    if rest:
        shown.append(f"other causes {percent_text(rest, device.idle_ns)}")
    sentences = [
        f"{busy}; the {time_text(device.idle_ns)} idle: {', '.join(shown)}."
        if shown
        else f"{busy}."
    ]
    for exposed_ns, what in (
        (device.exposed_comm_ns, "was communication that no compute hid"),
        (device.exposed_copy_ns, "was copies that neither compute nor communication hid"),
    ):
        if exposed_ns >= _WORTH_A_HEADLINE * length:
            sentences.append(
                f"{time_text(exposed_ns)} ({percent_text(exposed_ns, length)}) {what}."
            )
    return " ".join(sentences)


def times(view: View) -> list[Section]:
    """Per device: the window, busy, idle, and the kinds of work with what of them is exposed."""
    return [
        Section(
            title=_titled(view, view.name, device),
            columns=(
                Column("", Fit.LABEL),
                Column("time"),
                Column("of window"),
                Column("", Fit.PROSE),
            ),
            rows=tuple(_time_rows(view.length_ns, device)),
            notes=tuple(_time_notes(device)),
        )
        for device in view.window.devices
    ]


def _time_rows(length: int, device: DeviceMetrics) -> Iterable[tuple[str, ...]]:
    def row(label: str, time_ns: int, remark: str = "") -> tuple[str, ...]:
        return label, time_text(time_ns), percent_text(time_ns, length), remark

    yield row("window", length)
    yield row("busy", device.busy_ns, "at least one activity ran")
    yield row("idle", device.idle_ns, "none ran")
    if device.compute_ns:
        yield row("compute", device.compute_ns)
    if device.comm_ns:
        share = percent_text(device.exposed_comm_ns, device.comm_ns)
        yield row("comm", device.comm_ns)
        yield row("  exposed", device.exposed_comm_ns, f"{share} of comm: no compute hid it")
        if device.blocking_comm_ns:
            yield row("  blocking", device.blocking_comm_ns, "of it: the next kernel waited")
    if device.copy_ns:
        share = percent_text(device.exposed_copy_ns, device.copy_ns)
        remark = f"{share} of copy: no compute or comm hid it"
        yield row("copy", device.copy_ns)
        yield row("  exposed", device.exposed_copy_ns, remark)
        if device.blocking_copy_ns:
            yield row("  blocking", device.blocking_copy_ns, "of it: the next kernel waited")
    if device.memset_ns:
        yield row("memset", device.memset_ns)


def _time_notes(device: DeviceMetrics) -> Iterable[str]:
    kinds = {
        "compute kernels": device.compute_ns,
        "communication kernels": device.comm_ns,
        "copies": device.copy_ns,
    }
    absent = [name for name, time_ns in kinds.items() if not time_ns]
    if absent:
        yield f"There were no {listed(absent, 'and no')}."
    if sum(kinds.values()) + device.memset_ns > device.busy_ns:
        yield "The kinds add up to more than busy because some of them ran at the same time."


def idle(view: View) -> list[Section]:
    """Per device: what it waited for."""
    return [_idle(view, device) for device in view.window.devices]


def _idle(view: View, device: DeviceMetrics) -> Section:
    title = _titled(view, "Idle by cause", device)
    if not device.idle_ns:
        return Section(title, (f"GPU {device.device} was never idle.",))
    rows: list[tuple[str, ...]] = []

    def add(label: str, time_ns: int, meaning: str) -> None:
        shares = percent_text(time_ns, device.idle_ns), percent_text(time_ns, view.length_ns)
        rows.append((label, time_text(time_ns), *shares, meaning))

    reasons = _largest(device.unknown_reasons)
    for cause, time_ns in _largest(device.bubbles):
        if cause == "unknown" and len(reasons) == 1:
            add(cause, time_ns, _meaning(REASON_MEANINGS, reasons[0][0]))
            continue
        add(cause, time_ns, _meaning(CAUSE_MEANINGS, cause))
        for reason, part_ns in reasons if cause == "unknown" else ():
            add("  of it", part_ns, _meaning(REASON_MEANINGS, reason))
    columns = (
        Column("cause", Fit.LABEL),
        Column("time"),
        Column("of idle"),
        Column("of window"),
        Column("meaning", Fit.PROSE),
    )
    return Section(title, columns=columns, rows=tuple(rows))


def held(view: View) -> list[Section]:
    """What held the GPUs up, the dearest first."""
    found = sorted(view.holders, key=lambda x: (-x.idle_ns, x.device, x.longest_start_ns))
    least = _WORTH_SHOWING * view.length_ns
    shown = [x for x in found if x.idle_ns >= least][:_MOST_HOLDERS]
    if not shown:
        return []
    left = len(found) - len(shown)
    rows = [
        (
            *([str(x.device)] if view.several else []),
            x.cause,
            time_text(x.idle_ns),
            f"{x.count:,}",
            time_text(x.longest_ns),
            PART.join(part for part in (x.name, _function(x)) if part),
        )
        for x in shown
    ]
    gpu = [Column("GPU")] if view.several else []
    return [
        Section(
            "Idle by what held it",
            columns=(
                *gpu,
                Column("cause", Fit.LABEL),
                Column("time"),
                Column("times"),
                Column("longest"),
                Column("what and where", Fit.LABEL),
            ),
            rows=tuple(rows),
            notes=(f"… and {counted(left, 'row', 'rows')} more {_IN_JSON}.",) if left else (),
        )
    ]


def _function(holder: CulpritMetrics) -> str:
    """The function and line of what held a bubble, else its operator."""
    if holder.function is None:
        return holder.operator or ""
    line = "" if holder.line is None else f":{holder.line}"
    return f"{holder.function} {holder.file}{line}"


def streams(view: View) -> list[Section]:
    """How busy each stream was, the busiest first where there are many."""
    used = [
        (device.device, stream)
        for device in view.window.devices
        for stream in device.streams
        if stream.activities
    ]
    if not used:
        return []
    busiest = sorted(used, key=lambda x: -x[1].busy_ns)[:_MOST_ROWS]
    shown = [x for x in used if x in busiest]
    left_out = [x for x in used if x not in busiest]
    several = view.several
    notes = []
    if left_out:
        longest = max(stream.busy_ns for _, stream in left_out)
        count = counted(len(left_out), "stream", "streams")
        notes.append(f"… and {count} more, none busy longer than {time_text(longest)} {_IN_JSON}.")
    if len(used) == 1:
        notes.append("All work is on one stream: none of it can overlap.")
    return [
        Section(
            "Streams",
            columns=(
                Column("GPU" if several else "stream"),
                *([Column("stream")] if several else []),
                Column("busy"),
                Column("of window"),
                Column("activities"),
            ),
            rows=tuple(
                (
                    *([str(device)] if several else []),
                    str(stream.stream),
                    time_text(stream.busy_ns),
                    percent_text(stream.busy_ns, view.length_ns),
                    f"{stream.activities:,}",
                )
                for device, stream in shown
            ),
            notes=tuple(notes),
        )
    ]


def overlap(view: View) -> Section:
    """What ran at the same time: kinds first, then streams and devices."""
    if not any(device.busy_ns for device in view.window.devices):
        return Section("Overlap", ("There was no GPU work.",))
    if not view.overlaps:
        return Section("Overlap", ("One kind of work on one stream: nothing can overlap.",))
    kinds = [x for x in view.overlaps if x.a.startswith("kind:")]
    others = [x for x in view.overlaps if not x.a.startswith("kind:")]
    shown = [_largest_pairs(view, kinds), _largest_pairs(view, others)]
    hidden = len(view.overlaps) - sum(len(group) for group in shown)
    if not any(shown):
        count = counted(hidden, "pair", "pairs")
        tiny = f"one side of {'it' if hidden == 1 else 'each'} is below 0.1 % of the window"
        return Section("Overlap", (f"Nothing to overlap: {count}, and {tiny} {_IN_JSON}.",))
    rows = [[_overlap_row(view, pair) for pair in group] for group in shown]
    between = [("",) * 7] if all(shown) else []
    more = f"… and {counted(hidden, 'pair', 'pairs')} more {_IN_JSON}."
    return Section(
        "Overlap",
        columns=(
            Column("first", Fit.LABEL),
            Column("time"),
            Column("second", Fit.LABEL),
            Column("time"),
            Column("together"),
            Column("of\nfirst"),
            Column("of\nsecond"),
        ),
        rows=(*rows[0], *between, *rows[1]),
        notes=(more,) if hidden else (),
    )


def _largest_pairs(view: View, pairs: Iterable[OverlapMetrics]) -> list[OverlapMetrics]:
    worth = [x for x in pairs if min(x.a_ns, x.b_ns) >= _WORTH_SHOWING * view.length_ns]
    return sorted(worth, key=lambda x: -min(x.a_ns, x.b_ns))[:_MOST_ROWS]


def _overlap_row(view: View, pair: OverlapMetrics) -> tuple[str, ...]:
    return (
        selection_name(pair.a, several=view.several),
        time_text(pair.a_ns),
        selection_name(pair.b, several=view.several),
        time_text(pair.b_ns),
        time_text(pair.overlap_ns) if pair.overlap_ns else NONE,
        percent_text(pair.overlap_ns, pair.a_ns),
        percent_text(pair.overlap_ns, pair.b_ns),
    )


def selection_name(selection: str, *, several: bool) -> str:
    """What people call ``kind:0/comm``: comm, or GPU 0 comm where there are several."""
    sort, _, place = selection.partition(":")
    device, _, inner = place.partition("/")
    names = [f"GPU {device}"] if several or not inner else []
    if inner:
        names.append(f"stream {inner}" if sort == "stream" else inner)
    return " ".join(names)


def blocking(view: View) -> Section:
    """The host calls that blocked, where, and what each cost."""
    if not view.syncs:
        return Section("Blocking calls", ("No blocking calls.",))
    caused = sum(x.caused_idle_ns for x in view.syncs)
    idle_ns = sum(x.idle_ns for x in view.window.devices)
    total = f"All together: {time_text(caused)}" if caused else "None of them caused any"
    if 0 < caused <= idle_ns:  # a call may cost idle time beyond the end of its step
        total += f", {percent_text(caused, idle_ns)} of the idle time"
    lines = (
        "Caused idle is what a call costs: the GPU's idle time while the call blocked and until "
        "new work arrived. Blocking beside a busy GPU costs nothing.",
        f"{total}.",
    )
    notes = []
    hidden = view.syncs[_MOST_ROWS:]
    if hidden:
        rest = sum(x.caused_idle_ns for x in hidden)
        count = counted(len(hidden), "place", "places")
        notes.append(f"… and {count} more that caused {time_text(rest)} idle {_IN_JSON}.")
    if all(x.function is None for x in view.syncs):
        notes.append("The file has no Python functions: record with_stack=True to see them.")
    return Section(
        "Blocking calls",
        lines,
        (
            Column(f"call{PART}kind", Fit.LABEL),
            Column("count"),
            Column("blocked"),
            Column("caused\nidle"),
            Column("where", Fit.LABEL),
        ),
        tuple(_blocking_row(x) for x in view.syncs[:_MOST_ROWS]),
        tuple(notes),
    )


def _blocking_row(sync: BlockingCallMetrics) -> tuple[str, ...]:
    file = sync.file if sync.line is None else f"{sync.file}:{sync.line}"
    where = [part for part in (sync.operator, sync.function, file) if part]
    if sync.waited_for:
        where.append(f"for {sync.waited_for}")
    return (
        f"{sync.api}{PART}{sync.kind}",
        f"{sync.count:,}",
        time_text(sync.blocked_ns),
        time_text(sync.caused_idle_ns),
        PART.join(where) or "the file does not say",
    )


def critical_path(view: View) -> list[Section]:
    """What the window's length was spent on, by kind."""
    path = view.path
    if path is None or not path.total_ns:
        return []
    return [
        Section(
            "Critical path",
            columns=(
                Column("kind", Fit.LABEL),
                Column("time"),
                Column("of window"),
                Column("meaning", Fit.PROSE),
            ),
            rows=tuple(
                (
                    kind,
                    time_text(time_ns),
                    percent_text(time_ns, path.total_ns),
                    _meaning(PATH_MEANINGS, kind),
                )
                for kind, time_ns in _largest(path.by_kind)
            ),
        )
    ]


def biggest_cause(device: DeviceMetrics) -> str:
    """The cause of most of a device's idle time, with its share."""
    causes: Sequence[tuple[str, int]] = _largest(device.bubbles)[:1]
    return "".join(f"{x}{PART}{percent_text(ns, device.idle_ns)}" for x, ns in causes)


def _largest(times_ns: Mapping[str, int]) -> list[tuple[str, int]]:
    """What takes any time, the largest first."""
    return sorted(((x, ns) for x, ns in times_ns.items() if ns), key=lambda x: -x[1])


def _meaning(meanings: Mapping[str, str], key: str) -> str:
    return meanings.get(key) or key


def _titled(view: View, title: str, device: DeviceMetrics) -> str:
    return f"{title}{PART}GPU {device.device}" if view.several else title
