"""For tests of what is written for Perfetto: the tracks of ours in a file, and a report's figures.

Both are dictionaries of the same form, so that a test compares them as a whole.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from tracelab.base.options import Options
from tracelab.outputs.perfetto import write_perfetto
from tracelab.render.perfetto import perfetto_ns
from tracelab.report.finding_groups import finding_groups
from tracelab.report.glossary import CAUSES, PATH_KINDS
from tracelab.report.schema import Report
from tracelab.report.views import ranks_of

Event = dict[str, Any]
Slices = list[tuple[int, int, str]]  # start and end in ns, name


def written(path: Path | str, out: Path, **options: Any) -> Report:
    """Write a trace with our tracks, in one process, and give the report of it."""
    return write_perfetto(path, out, options=Options(cache=False, **options))


def events_of(path: Path | str) -> list[Event]:
    """All events of a written file; times as the texts in it."""
    content = Path(path).read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    value = json.loads(content, parse_float=str)
    return value["traceEvents"] if isinstance(value, dict) else value


def is_ours(event: Event) -> bool:
    """Whether an event is a slice or an arrow of ours."""
    return str(event.get("cat", "")).startswith("tracelab.")


def nanoseconds(text: str) -> int:
    """A time of a file, exactly."""
    return int(Decimal(str(text)) * 1000)


def names_of_threads(events: list[Event]) -> dict[tuple[Any, Any], str]:
    """What each thread is called."""
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }


def tracks_in(events: list[Event]) -> dict[str, Slices]:
    """The slices of each track of ours, by what the track is called, as Perfetto reads times."""
    names, tracks = names_of_threads(events), defaultdict(list)
    for event in events:
        if is_ours(event) and event["ph"] == "X":
            start_ns = perfetto_ns(str(event["ts"]))
            end_ns = start_ns + perfetto_ns(str(event["dur"]))
            tracks[names[event["pid"], event["tid"]]].append((start_ns, end_ns, event["name"]))
    return dict(tracks)


def within(slices: Slices, start_ns: int, end_ns: int) -> Counter[str]:
    """How long slices are in a window, by name, ns."""
    times: Counter[str] = Counter()
    for start, end, name in slices:
        times[name] += max(0, min(end, end_ns) - max(start, start_ns))
    return +times


def require_figures(tracks: dict[str, Slices], report: Report, origin_ns: int, rank: int) -> None:
    """Hold the tracks of one file against its figures in the report, every nanosecond.

    Args:
        tracks: the slices by track, in the file's own time.
        report: of the file, or of its job.
        origin_ns: the file's own time of 0.
        rank: the file's rank in the report.
    """
    windows = [window for window in report.windows if window.rank == rank]
    for window in windows:
        span = window.start_ns + origin_ns, window.end_ns + origin_ns
        for device in window.devices:
            gpu = f"GPU {device.device}"
            assert within(tracks.get(f"{gpu} idle by cause", []), *span) == Counter(
                {CAUSES.names[cause]: ns for cause, ns in device.bubbles.items() if ns}
            )
            for what, exposed_ns in (
                ("communication", device.exposed_comm_ns),
                ("copies", device.exposed_copy_ns),
            ):
                slices = tracks.get(f"{gpu} exposed {what}", [])
                assert within(slices, *span).total() == exposed_ns
        if window.step is not None:
            label = f"step {window.step}"
            assert [
                x[:2] for x in tracks["Steps"] if x[2].removesuffix(" (left out)") == label
            ] == [span]
    path = next(row for row in report.critical_path if row.rank == rank)
    assert within(tracks["Critical path"], 0, 2**62) == Counter(
        {PATH_KINDS.names[kind]: ns for kind, ns in path.by_kind.items() if ns}
    )
    calls = [row for row in report.syncs if (row.rank, row.step) == (rank, windows[0].step)]
    blocked = [x for name, y in tracks.items() if name.startswith("Blocking calls") for x in y]
    counts, times = Counter[str](), Counter[str]()
    for row in calls:
        counts[row.api] += row.count
        times[row.api] += row.blocked_ns
    if windows[0].step is None:
        assert Counter(name for _, _, name in blocked) == +counts
        assert within(blocked, 0, 2**62) == +times
    steady = next((row for row in report.steady if row.rank == rank), None)
    left_out = {f"step {one.step} (left out)" for one in steady.left_out} if steady else set()
    assert {name for _, _, name in tracks.get("Steps", []) if "left out" in name} == left_out
    findings = [
        group.number_in(report)
        for group in finding_groups(report, ranks_of(report))
        for finding, _ in group.members
        if finding.rank == rank
    ]
    shown = sorted(int(name.split()[0]) for name in tracks if name[0].isdigit())
    assert shown == sorted(findings)
