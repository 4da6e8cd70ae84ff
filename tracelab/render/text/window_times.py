"""The sections of the text report about how busy the GPUs and their streams were in a window."""

from __future__ import annotations

from collections.abc import Iterable

from tracelab.base.text import counted
from tracelab.measures.graph_streams import graph_streams_label
from tracelab.measures.window_times import DeviceMetrics
from tracelab.render.text.cells import (
    CAUSE_NAMES,
    largest,
    listed,
    meaning_of,
    percent_text,
    time_text,
)
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.text.sections import Column, Fit, Section, section_title
from tracelab.report.views import View

_MOST_STREAMS = 10
_CAUSES_IN_HEADLINE = 3
_WORTH_A_HEADLINE = 0.01  # of the window


def headlines(view: View) -> tuple[str, ...]:
    """A sentence per device: how busy it was, and why it was not."""
    return tuple(_headline(view, device) for device in view.window.devices)


def _headline(view: View, device: DeviceMetrics) -> str:
    length = view.length_ns
    window = "the whole trace" if view.step is None else f"step {view.step}"
    name = f"In {window}, GPU {device.device}"
    if length <= 0:
        return f"{name}: the window has no length."
    busy = f"{name} was busy {percent_text(device.busy_ns, length)} of {time_text(length)}"
    causes = largest(device.bubbles)
    shares = [
        f"{meaning_of(CAUSE_NAMES, cause)} {percent_text(cause_ns, device.idle_ns)}"
        for cause, cause_ns in causes[:_CAUSES_IN_HEADLINE]
    ]
    other_ns = sum(cause_ns for _, cause_ns in causes[_CAUSES_IN_HEADLINE:])
    if other_ns:
        shares.append(f"other causes {percent_text(other_ns, device.idle_ns)}")
    sentences = [
        f"{busy}; the {time_text(device.idle_ns)} idle: {', '.join(shares)}."
        if shares
        else f"{busy}."
    ]
    for exposed_ns, exposure in (
        (device.exposed_comm_ns, "of communication was not overlapped with compute"),
        (device.exposed_copy_ns, "of copies was not overlapped with other work"),
    ):
        if exposed_ns >= _WORTH_A_HEADLINE * length:
            sentences.append(
                f"{time_text(exposed_ns)} ({percent_text(exposed_ns, length)}) {exposure}."
            )
    return " ".join(sentences)


def times(view: View) -> list[Section]:
    """Per device: the window, busy, idle, and the kinds of work with what of them is exposed."""
    return [
        Section(
            title=section_title(view, view.name, device),
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
        yield row(
            "  exposed", device.exposed_comm_ns, f"{share} of comm: not overlapped with compute"
        )
        if device.blocking_comm_ns:
            yield row("  blocking", device.blocking_comm_ns, "of it: the next kernel waited")
    if device.copy_ns:
        share = percent_text(device.exposed_copy_ns, device.copy_ns)
        remark = f"{share} of copy: not overlapped with compute or comm"
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


def streams(view: View) -> list[Section]:
    """How busy each stream was, the busiest of many; those of CUDA graphs may be one row."""
    alone = [
        (device.device, stream)
        for device in view.window.devices
        for stream in device.streams
        if stream.activities and stream.stream not in _streams_in_one_row(device)
    ]
    as_one = [
        (device.device, device.graph_streams)
        for device in view.window.devices
        if device.graph_streams
    ]
    if not alone and not as_one:
        return []
    busiest = sorted(alone, key=lambda pair: -pair[1].busy_ns)[:_MOST_STREAMS]
    shown = [pair for pair in alone if pair in busiest]
    left_out = [pair for pair in alone if pair not in busiest]
    several = view.several

    def row(device: int, name: str, busy_ns: int, activities: int) -> tuple[str, ...]:
        share = percent_text(busy_ns, view.length_ns)
        of_gpu = [str(device)] if several else []
        return (*of_gpu, name, time_text(busy_ns), share, f"{activities:,}")

    notes = []
    if left_out:
        longest = time_text(max(stream.busy_ns for _, stream in left_out))
        count = counted(len(left_out), "stream", "streams")
        notes.append(f"… and {count} more, none busy longer than {longest} {ALL_IN_JSON}.")
    if as_one:
        notes.append(f"Nearly empty streams of CUDA graph replays are one row {ALL_IN_JSON}.")
    if len(alone) == 1 and not as_one:
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
            rows=(
                *(row(device, str(x.stream), x.busy_ns, x.activities) for device, x in shown),
                *(
                    row(device, graph_streams_label(len(x.streams)), x.busy_ns, x.activities)
                    for device, x in as_one
                ),
            ),
            notes=tuple(notes),
        )
    ]


def _streams_in_one_row(device: DeviceMetrics) -> frozenset[int]:
    return frozenset(device.graph_streams.streams if device.graph_streams else ())
