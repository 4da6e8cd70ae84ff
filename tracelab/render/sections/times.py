"""Sections about busy and idle time, overlap, starts and blocking calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelab.base.names import threads_of
from tracelab.base.safe_text import counted
from tracelab.render.section import LABEL, NONE, PART, PROSE, Section, table
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.words import (
    graph_streams_label,
    largest,
    listed,
    percent_text,
    time_text,
)
from tracelab.report.glossary import CAUSES, CONSTRAINTS, PATH_KINDS, REASONS_UNKNOWN
from tracelab.report.schema import (
    BlockingCallMetrics,
    CulpritMetrics,
    DeviceMetrics,
    GraphIdleMetrics,
    LatencyMetrics,
    MemoryMetrics,
    StartMetrics,
)
from tracelab.report.views import RankView, View

_MAX_STREAMS, _MAX_PAIRS, _MAX_LATENCIES, _MAX_MEMORY_ROWS = 10, 10, 8, 20
_MIN_OVERLAP_WINDOW_SHARE = 0.001
# Beyond it nothing can be predicted.
_MAX_UNEXPLAINED_WINDOW_SHARE = 0.02
_MAX_CULPRITS, _MAX_NODES, _MAX_CALLS = 6, 6, 10
_MIN_SHARE = 0.001


def section_title(view: View, title: str, device: DeviceMetrics) -> str:
    """Title a section about a device, named if there are several."""
    return f"{title}{PART}GPU {device.device}" if view.several else title


def times(view: View) -> Iterator[Section]:
    """Show busy and idle time of each device, and the kinds of work."""
    for device in view.window.devices:
        yield table(
            section_title(view, view.name, device),
            _time_rows(view.length_ns, device),
            ("", lambda row: row[0], LABEL),
            ("time", lambda row: time_text(row[1])),
            ("of window", lambda row: percent_text(row[1], view.length_ns)),
            ("", lambda row: row[2], PROSE),
            notes=_time_notes(device),
        )


def _time_rows(length_ns: int, device: DeviceMetrics) -> Iterator[tuple[str, int, str]]:
    yield "window", length_ns, ""
    yield "busy", device.busy_ns, "at least one activity ran"
    yield "idle", device.idle_ns, "none ran"
    if device.compute_ns:
        yield "compute", device.compute_ns, ""
    for kind, others in (("comm", "compute"), ("copy", "compute or comm")):
        kind_ns, exposed_ns = getattr(device, f"{kind}_ns"), getattr(device, f"exposed_{kind}_ns")
        if kind_ns:
            share = percent_text(exposed_ns, kind_ns)
            yield kind, kind_ns, ""
            yield "  exposed", exposed_ns, f"{share} of {kind}: not overlapped with {others}"
            if blocking_ns := getattr(device, f"blocking_{kind}_ns"):
                yield "  blocking", blocking_ns, "of it: the next kernel waited"
    if device.memset_ns:
        yield "memset", device.memset_ns, ""


def _time_notes(device: DeviceMetrics) -> Iterator[str]:
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


def streams(view: View) -> Iterator[Section]:
    """Show how busy streams were, the busiest of many."""
    as_one = [(x.device, x.graph_streams) for x in view.window.devices if x.graph_streams]
    in_one_row = {(device, number) for device, x in as_one for number in x.streams}
    alone = [
        (device.device, x)
        for device in view.window.devices
        for x in device.streams
        if x.activities and (device.device, x.stream) not in in_one_row
    ]
    busiest = sorted(alone, key=lambda pair: -pair[1].busy_ns)[:_MAX_STREAMS]
    left_out = [x for device, x in alone if (device, x) not in busiest]
    notes = []
    if left_out:
        longest = time_text(max(x.busy_ns for x in left_out))
        count = counted(len(left_out), "stream", "streams")
        notes.append(f"… and {count} more, none busy longer than {longest} {ALL_IN_JSON}.")
    if as_one:
        notes.append(f"Nearly empty streams of CUDA graph replays are one row {ALL_IN_JSON}.")
    if len(alone) == 1 and not as_one:
        notes.append("All work is on one stream: none of it can overlap.")
    rows = [
        (gpu, str(x.stream), x.busy_ns, x.activities) for gpu, x in alone if (gpu, x) in busiest
    ]
    rows += [
        (gpu, graph_streams_label(len(x.streams)), x.busy_ns, x.activities) for gpu, x in as_one
    ]
    if rows:
        yield table(
            "Streams",
            rows,
            view.several and ("GPU", lambda row: str(row[0])),
            ("stream", lambda row: row[1]),
            ("busy", lambda row: time_text(row[2])),
            ("of window", lambda row: percent_text(row[2], view.length_ns)),
            ("activities", lambda row: f"{row[3]:,}"),
            notes=notes,
        )


def overlap(view: View) -> Section:
    """Show simultaneous work: of kinds, then streams and devices."""
    min_ns = _MIN_OVERLAP_WINDOW_SHARE * view.length_ns
    large = [x for x in view.overlaps if min(x.a_ns, x.b_ns) >= min_ns]
    large.sort(key=lambda x: -min(x.a_ns, x.b_ns))
    of_kinds = [x for x in large if x.a.startswith("kind:")][:_MAX_PAIRS]
    others = [x for x in large if not x.a.startswith("kind:")][:_MAX_PAIRS]
    left_out = len(view.overlaps) - len(of_kinds) - len(others)
    if not any(device.busy_ns for device in view.window.devices):
        return Section("Overlap", ("There was no GPU work.",))
    if not view.overlaps:
        return Section("Overlap", ("One kind of work on one stream: nothing can overlap.",))
    if not large:
        count = counted(left_out, "pair", "pairs")
        tiny = f"one side of {'it' if left_out == 1 else 'each'} is below 0.1 % of the window"
        return Section("Overlap", (f"Nothing to overlap: {count}, and {tiny} {ALL_IN_JSON}.",))
    more = f"… and {counted(left_out, 'pair', 'pairs')} more {ALL_IN_JSON}."
    between = [None] if of_kinds and others else []

    def name(selection: str) -> str:
        return selection_name(selection, several=view.several)

    return table(
        "Overlap",
        [*of_kinds, *between, *others],
        ("first", lambda x: name(x.a) if x else "", LABEL),
        ("time", lambda x: time_text(x.a_ns) if x else ""),
        ("second", lambda x: name(x.b) if x else "", LABEL),
        ("time", lambda x: time_text(x.b_ns) if x else ""),
        ("together", lambda x: (time_text(x.overlap_ns) if x.overlap_ns else NONE) if x else ""),
        ("of\nfirst", lambda x: percent_text(x.overlap_ns, x.a_ns) if x else ""),
        ("of\nsecond", lambda x: percent_text(x.overlap_ns, x.b_ns) if x else ""),
        notes=[more] if left_out else [],
    )


def selection_name(selection: str, *, several: bool) -> str:
    """Name a selection of activities."""
    sort, _, path = selection.partition(":")
    device, _, part = path.partition("/")
    names = [f"GPU {device}"] if several or not part else []
    if part == "graphs":
        names.append("streams of CUDA graphs")
    elif part:
        names.append(f"stream {part}" if sort == "stream" else part)
    return " ".join(names)


def critical_path(view: View) -> Iterator[Section]:
    """Show the critical path by kind."""
    path = next(iter(view.critical_path), None)
    if path is not None and path.total_ns:
        yield table(
            "Critical path",
            largest(path.by_kind),
            ("kind", lambda row: PATH_KINDS.name_of(row[0]), LABEL),
            ("time", lambda row: time_text(row[1])),
            ("of window", lambda row: percent_text(row[1], path.total_ns)),
            ("meaning", lambda row: PATH_KINDS.meaning_of(row[0]), PROSE),
        )


def starts(view: View) -> Iterator[Section]:
    """Show what the activities of each device waited for."""
    for x in view.starts:
        yield table(
            f"What activities waited for{f', GPU {x.device}' if view.several else ''}",
            largest(x.by_constraint),
            ("waited for", lambda row: row[0], LABEL),
            ("activities", lambda row: f"{row[1]:,}"),
            ("of all", lambda row, of=x.activities: percent_text(row[1], of)),
            ("meaning", lambda row: CONSTRAINTS.meaning_of(row[0]), PROSE),
            notes=(_certainty(view, x),),
        )


def _certainty(view: View, row: StartMetrics) -> str:
    inferred = f"Inferred from the times: {row.inferred:,} of {row.activities:,}."
    if not row.unexplained_ns:
        return f"{inferred} No delay of more than 20 µs is without an explanation."
    share = percent_text(row.unexplained_ns, view.length_ns)
    delays = counted(row.unexplained, "delay", "delays")
    is_much = row.unexplained_share > _MAX_UNEXPLAINED_WINDOW_SHARE
    too_much = ": too much to predict what a fix saves" if is_much else ""
    return (
        f"{inferred} {time_text(row.unexplained_ns)} ({share} of the window) is in {delays} of "
        f"more than 20 µs that neither the file nor the times explain{too_much}."
    )


def latencies(view: View) -> Iterator[Section]:
    """Show latencies of starts, the most frequent first."""
    if view.latencies:
        yield table(
            "Typical latencies",
            sorted(view.latencies, key=lambda row: -row.starts)[:_MAX_LATENCIES],
            ("from the end of → to", latency_name, LABEL),
            ("typical", "typical_ns"),
            ("starts", "starts"),
            ("measured in", lambda row: "this trace" if row.own else "captures of H200s", LABEL),
        )


def latency_name(row: LatencyMetrics) -> str:
    """Name both ends of a latency.

    >>> latency_name(LatencyMetrics(0, None, "node", None, None, 128, 90, True))
    'node of a CUDA graph → the next in its stream'
    """
    ends = {
        "previous": (row.previous, row.kind),
        "launch": ("launch call", row.kind),
        "event": ("work of another stream", row.kind),
        "awaited": ("awaited work", "return of a blocking call"),
        "node": ("node of a CUDA graph", "the next in its stream"),
    }
    return " → ".join(map(str, ends[row.since]))


def served_steps(rank: RankView) -> Iterator[Section]:
    """Show the steps that serve requests."""
    if rows := rank.views[0].served_steps:
        yield table(
            "Steps that serve requests",
            rows,
            ("phase", lambda row: row.phase or "other", LABEL),
            ("requests", "sequences"),
            ("steps", "count"),
            ("a step\ntakes", "length_ns"),
            ("longest", "longest_ns"),
            ("busy", lambda row: percent_text(row.busy_ns, row.length_ns)),
            notes=("A step and busy are medians, of all steps of the file.",),
        )


def memory(rank: RankView) -> Iterator[Section]:
    """Show the peak memory of the GPUs."""
    rows = [row for view in rank.views for row in view.memory]
    if rows:
        yield table(
            "Memory",
            rows,
            ("step", lambda row: "all" if row.step is None else str(row.step)),
            rank.main.several and ("GPU", lambda row: str(row.device)),
            ("allocated\nat most", "peak_allocated_bytes"),
            ("reserved\nat most", "peak_reserved_bytes"),
            ("grown by", "grown_bytes"),
            ("tried\nagain", "retries"),
            ("most was allocated in", _memory_place, LABEL),
            most=_MAX_MEMORY_ROWS,
            noun="step",
            notes=_memory_notes(rows),
        )


def _memory_place(row: MemoryMetrics) -> str:
    return PART.join(filter(None, (row.operator, row.function, row.where))) or "before the step"


def _memory_notes(rows: Sequence[MemoryMetrics]) -> Iterator[str]:
    if any(row.retries for row in rows):
        yield (
            "Tried again: the GPU was full, so the allocator waited for it, gave back all that it "
            "kept, and allocated once more. Smaller batches, or "
            "`PYTORCH_ALLOC_CONF=expandable_segments:True` against fragments, avoid that."
        )


def idle(view: View) -> Iterator[Section]:
    """Show what each device waited for."""
    for device in view.window.devices:
        yield table(
            section_title(view, "Idle by cause", device),
            _causes(device),
            ("cause", lambda row: CAUSES.name_of(row[0]), LABEL),
            ("time", lambda row: time_text(row[1])),
            ("of idle", lambda row, of=device.idle_ns: percent_text(row[1], of)),
            ("of window", lambda row: percent_text(row[1], view.length_ns)),
            ("meaning", lambda row: row[2], PROSE),
            lines=[] if device.idle_ns else [f"GPU {device.device} was never idle."],
            notes=_call_notes(device),
        )


def _causes(device: DeviceMetrics) -> Iterator[tuple[str, int, str]]:
    reasons = largest(device.unknown_reasons)
    for cause, time_ns in largest(device.bubbles):
        if cause == "unknown" and len(reasons) == 1:
            yield cause, time_ns, REASONS_UNKNOWN.meaning_of(reasons[0][0])
            continue
        yield cause, time_ns, CAUSES.meaning_of(cause)
        for reason, part_ns in reasons if cause == "unknown" else ():
            yield "  of it", part_ns, REASONS_UNKNOWN.meaning_of(reason)


def _call_notes(device: DeviceMetrics) -> Iterator[str]:
    if device.idle_by_calls_ns:
        yield (
            "Only time inside the calls counts as blocking call here. With what they delayed after "
            f"it, blocking calls cause {time_text(device.idle_by_calls_ns)} of the "
            f"{time_text(device.idle_ns)} idle."
        )


def culprits(view: View) -> Iterator[Section]:
    """Show what blocked the GPUs, the most expensive first."""
    rows = sorted(view.holders, key=lambda x: (-x.idle_ns, x.device, x.longest_start_ns))
    shown = [x for x in rows if x.idle_ns >= _MIN_SHARE * view.length_ns][:_MAX_CULPRITS]
    if shown:
        yield table(
            "Idle by culprit",
            rows,
            view.several and ("GPU", lambda x: str(x.device)),
            ("cause", lambda x: CAUSES.name_of(x.cause), LABEL),
            ("time", "idle_ns"),
            ("times", "count"),
            ("longest", "longest_ns"),
            ("what and where", lambda x: PART.join(filter(None, (x.name, _code(x)))), LABEL),
            most=len(shown),
        )


def _code(culprit: CulpritMetrics) -> str:
    line = "" if culprit.line is None else f":{culprit.line}"
    code = culprit.operator or ""
    if culprit.function is not None:
        code = f"{culprit.function} {culprit.file}{line}"
    by = "" if culprit.waited_in is None else f"in {threads_of(culprit.waited_in)}"
    return ", ".join(part for part in (code, by) if part)


def biggest_cause(device: DeviceMetrics) -> str:
    """Name the largest cause of idle time, with its share."""
    return "".join(
        f"{CAUSES.name_of(cause)}{PART}{percent_text(cause_ns, device.idle_ns)}"
        for cause, cause_ns in largest(device.bubbles)[:1]
    )


def graph_idle(view: View) -> Iterator[Section]:
    """Show before which nodes GPUs idled in replays."""
    rows = sorted(view.graph_idle, key=lambda row: (not row.name, -row.idle_ns, row.device))
    shown = [x for x in rows if x.name and x.idle_ns >= _MIN_SHARE * view.length_ns][:_MAX_NODES]
    if shown:
        yield table(
            "Idle inside CUDA graphs",
            rows,
            view.several and ("GPU", lambda x: str(x.device)),
            ("time", "idle_ns"),
            ("per replay", lambda x: time_text(x.idle_ns // x.replays)),
            ("times", "count"),
            ("start after", "latency_ns"),
            (
                "before the node, and what it waits for",
                lambda x: PART.join(filter(None, (f"{x.name} (stream {x.stream})", _awaited(x)))),
                LABEL,
            ),
            most=len(shown),
            notes=_graph_notes(rows),
        )


def _awaited(row: GraphIdleMetrics) -> str:
    if row.awaited is None:
        return ""
    apart = ", on which it does not depend" if row.wait == "queue" else ""
    return f"after {row.awaited} (stream {row.awaited_stream}){apart}"


def _graph_notes(rows: Sequence[GraphIdleMetrics]) -> Iterator[str]:
    unknown_ns = sum(row.idle_ns for row in rows if row.wait == "not_in_file")
    if unknown_ns:
        yield (
            "Before nodes whose dependencies are not known, the GPU idled "
            f"{time_text(unknown_ns)}: there the node before it in its stream is shown."
        )


def blocking_calls(view: View) -> Section:
    """Show blocking host calls with place and cost."""
    title = "Blocking calls"
    if not view.syncs:
        return Section(title, ("No blocking calls.",))
    notes = []
    if all(call.function is None for call in view.syncs):
        notes.append("The file has no Python functions: record with_stack=True to see them.")
    return table(
        title,
        view.syncs,
        (f"call{PART}kind", lambda x: f"{x.api}{PART}{x.kind}", LABEL),
        ("count", "count"),
        ("blocked", "blocked_ns"),
        ("caused\nidle", "caused_idle_ns"),
        ("where", _place, LABEL),
        most=_MAX_CALLS,
        noun="place",
        lines=(
            _total(view),
            "Caused idle is the GPU's idle time while a call blocks, and after it as far as "
            "the call delayed the CPU. Blocking costs nothing while the GPU is busy.",
        ),
        notes=notes,
    )


def _total(view: View) -> str:
    caused_ns = sum(call.caused_idle_ns for call in view.syncs)
    if not caused_ns:
        return "Blocking calls cause no idle time."
    after_ns = sum(call.idle_after_ns for call in view.syncs)
    idle_ns = sum(device.idle_ns for device in view.window.devices)
    of_idle = f" of the {time_text(idle_ns)}" if caused_ns <= idle_ns else ""
    gpus = " on all GPUs" if view.several else ""
    return (
        f"Blocking calls cause {time_text(caused_ns)}{of_idle} idle{gpus}: "
        f"{time_text(caused_ns - after_ns)} while they block, {time_text(after_ns)} after them, "
        "until new work arrives."
    )


def _place(call: BlockingCallMetrics) -> str:
    file = call.file if call.line is None else f"{call.file}:{call.line}"
    waited_for = f"for {call.waited_for}" if call.waited_for else ""
    where = (call.operator, call.function, file, waited_for)
    return PART.join(filter(None, where)) or "the file does not say"
