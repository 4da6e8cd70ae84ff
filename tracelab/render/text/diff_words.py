"""Words and cells of a difference: changes, what they are judged to be, whose figures they are."""

from __future__ import annotations

from collections.abc import Iterator

from tracelab.comparison.diff import (
    FIGURES,
    NUMBER,
    ORDER,
    DeviceDiff,
    FindingDiff,
    GraphStreamsDiff,
    RankDiff,
    StreamDiff,
)
from tracelab.comparison.noise import Change
from tracelab.measures.graph_streams import graph_streams_label
from tracelab.render.text.cells import CAUSE_NAMES, percent_text, time_text

ARROW = " → "
NOISE = "noise"
UNCLEAR = "unclear"


def difference_text(change: Change) -> str:
    """By how much a time changed: +1.20 ms."""
    return signed(change.difference_ns, time_text(abs(change.difference_ns)))


def signed(difference: int, text: str) -> str:
    """A text with the sign of the difference; without one where there is none.

    >>> signed(-3, "3 ns"), signed(0, "0")
    ('-3 ns', '0')
    """
    return f"{'-' if difference < 0 else '+'}{text}" if difference else text


def percent_change(change: Change) -> str:
    """By how much a time changed, in percent of the time before: +12.5 %."""
    return f"{change.percent:+.1f} %"


def before_after(change: Change) -> str:
    """A time before and after: 1.20 ms → 1.35 ms."""
    return f"{time_text(change.before_ns)}{ARROW}{time_text(change.after_ns)}"


def counts_text(before: int, after: int) -> str:
    """A number before and after.

    >>> counts_text(3, 3), counts_text(3, 1200)
    ('3', '3 → 1,200')
    """
    return f"{before:,}" if before == after else f"{before:,}{ARROW}{after:,}"


def loss_share(share: float) -> str:
    """A share of a window, 0 to 1, in percent."""
    return percent_text(round(share * 1_000_000), 1_000_000)


def finding_counts(finding: FindingDiff) -> str:
    """How many findings stand together in one row, before its title; "" for one."""
    most = max(finding.before_count, finding.after_count)
    counts = [count for count in (finding.before_count, finding.after_count) if count]
    return f"{counts_text(counts[0], counts[-1])} findings: " if most > 1 else ""


def judgment(change: Change) -> str:
    """What a change is: "same", "noise", "more" or "less"; "unclear" where noise is not known."""
    if not change.difference_ns:
        return "same"
    if not change.beyond_noise:
        return NOISE if None not in (change.before_spread_ns, change.after_spread_ns) else UNCLEAR
    return "more" if change.difference_ns > 0 else "less"


def needs_device_names(rank: RankDiff) -> bool:
    """Whether it is a question which device a figure is of."""
    return len(rank.devices) > 1 or any(device.matched != NUMBER for device in rank.devices)


def device_changes(device: DeviceDiff) -> Iterator[tuple[str, Change]]:
    """The times of a device with their names: its own, its idle time by cause, its streams'."""
    for name in FIGURES:
        yield figure_name(name), device.figures[name]
        if name == "idle_ns":
            for cause, bubble in device.bubbles.items():
                yield f"  idle: {CAUSE_NAMES.get(cause, cause)}", bubble
    for stream in device.streams:
        yield stream_name(stream), stream.busy
    if device.graph_streams:
        yield graph_streams_name(device.graph_streams), device.graph_streams.busy


def gpu_name(device: DeviceDiff) -> str:
    """What a pair of devices is called: GPU 0, or GPU 0 → 1 where the numbers differ."""
    return f"GPU {_pair(device.before, device.after, device.matched)}"


def stream_name(stream: StreamDiff) -> str:
    """What a pair of streams is called, likewise."""
    return f"stream {_pair(stream.before, stream.after, stream.matched)}"


def graph_streams_name(streams: GraphStreamsDiff) -> str:
    """What the streams that are shown as one are called.

    Example: ``300 → 120 streams of CUDA graphs``.
    """
    label = graph_streams_label(streams.after or streams.before)
    if not streams.before:
        return f"{label} (new)"
    if not streams.after:
        return f"{label} (gone)"
    return label if streams.before == streams.after else f"{streams.before:,}{ARROW}{label}"


def _pair(before: int | None, after: int | None, matched: str) -> str:
    if matched == NUMBER:
        return str(before)
    if matched == ORDER:
        return f"{before}{ARROW}{after}"
    return f"{after} (new)" if before is None else f"{before} (gone)"


def figure_name(figure: str) -> str:
    """What a figure of the report is called.

    >>> figure_name("exposed_comm_ns")
    'exposed comm'
    """
    return figure.removesuffix("_ns").replace("_", " ")
