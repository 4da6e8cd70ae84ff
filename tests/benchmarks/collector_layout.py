"""Whether both layouts give one report: ``python -m tests.benchmarks.collector_layout``.

Every bundled capture is rewritten into the layout of PyTorch's own CUPTI collector
(`tests.build.cupti_collector`), and both files are analyzed. What differs is printed. Arguments
are names of captures, or paths of other files.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.build.cupti_collector import DEFAULT, Collector, load, rewritten, write
from tests.bundled_traces import PATHS, files_of, name_of, report_of
from tracelab import analyze
from tracelab.base.options import Options
from tracelab.measures.measure import Table
from tracelab.model.trace import Trace
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources
from tracelab.report.schema import Report

# What the layout cannot say, or says with other rows.
EXPECTED = {
    r"tables\.\w+\[\]\.occupancy": "the collector does not estimate it",
    r"provenance\.paths\[\]|traces\[\]\.path": "another file",
    r"traces\[\]\.(events|objects)": "no cuda_event rows, other flows",
    r"traces\[\]\.event_links\.\w+": "no wait names the stream of its record",
    r"traces\[\]\.losses\.waits_without_record": "nor does the host's order tell all streams",
    r"tables\.starts\[\]\.inferred": "so what a stream waited for is inferred",
}
_EVENT = re.compile(r"(?:\.evidence\[\]|[._]event)$")
_UNRESOLVED = "unresolved_waits"  # the cause of what is found of them
_SPAN = "Trace"  # the category of the profiler's mark of what it recorded


def differences(
    paths: Sequence[Path], collector: Collector = DEFAULT
) -> dict[str, list[tuple[Any, Any]]]:
    """What differs between the reports of captures and of the same in the other layout.

    Args:
        paths: one file, or those of a job.
        collector: how the collector was configured.

    Returns:
        the unequal values by their place in the report, whose indexes are left out.
    """
    with TemporaryDirectory() as folder:
        others = [Path(folder) / path.name for path in paths]
        for path, other in zip(paths, others, strict=True):
            capture = load(path)
            write(_with_span_of(rewritten(capture, collector), capture), other)
        return compare(paths, others)


def compare(paths: Sequence[Path], others: Sequence[Path]) -> dict[str, list[tuple[Any, Any]]]:
    """What differs between the reports of two files, or of two jobs' files; as of `differences`."""
    names = [str(path) for path in others]
    report = analyze(names[0] if len(names) == 1 else names, Options(cache=False))
    before, after = _values(paths, report_of(*paths)), _values(others, report)
    differing: dict[str, list[tuple[Any, Any]]] = {}
    for place in sorted(before.keys() | after.keys()):
        values = before.get(place), after.get(place)
        if values[0] != values[1]:
            differing.setdefault(_without_indexes(place), []).append(values)
    return differing


def unexpected(differing: Mapping[str, list[tuple[Any, Any]]]) -> dict[str, list[tuple[Any, Any]]]:
    """Those of some differences that no reason in `EXPECTED` explains."""
    return {
        place: values
        for place, values in differing.items()
        if not any(re.fullmatch(pattern, place) for pattern in EXPECTED)
    }


def _with_span_of(trace: Mapping[str, Any], capture: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with the capture's own mark of what was recorded, from which all times count."""
    shift_us = (trace["baseTimeNanoseconds"] - capture.get("baseTimeNanoseconds", 0)) // 1000
    spans = [
        event | {"ts": event["ts"] - shift_us}
        for event in capture["traceEvents"]
        if event.get("cat") == _SPAN
    ]
    events = [event for event in trace["traceEvents"] if event.get("cat") != _SPAN]
    return {**trace, "traceEvents": [*events, *spans]}


def _values(paths: Sequence[Path], report: Report) -> dict[str, Any]:
    """Every value of the report of some files; of an event its name and time, not its number.

    What it says of unresolved waits is left out.
    """
    values: dict[str, Any] = {}
    findings = tuple(x for x in report.findings if x.cause != _UNRESOLVED)
    traces = [read_trace(source) for source in find_sources([str(path) for path in paths])]
    for place, value in _leaves(replace(report, findings=findings), ""):
        is_event = isinstance(value, int) and _EVENT.search(_without_indexes(place))
        # Which of a job's files an event is of, only the text around the number says.
        event = _name_and_time(traces[0], value) if is_event and len(traces) == 1 else None
        values[place] = event if is_event else value
    return values


def _name_and_time(trace: Trace, event_id: int) -> tuple[str, int]:
    return trace.name_of(event_id), int(trace.start_ns[event_id])


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Every value in a report and its place, like ``findings[0].cost_ns``."""
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple | Table):
        yield f"{place}.length", len(value)
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{place}[{index}]")
    else:
        yield place, value


def _without_indexes(place: str) -> str:
    return re.sub(r"\[\d+\]", "[]", place)


def main() -> None:
    names = sys.argv[1:] or sorted({re.sub(r"_rank\d+$", "", name_of(path)) for path in PATHS})
    same = 0
    seen: Counter[str] = Counter()
    for name in names:
        paths = (Path(name),) if Path(name).exists() else files_of(name)
        differing = unexpected(differences(paths))
        same += not differing
        for place, values in differing.items():
            seen[place] += 1
            print(
                f"{name}: {len(values)} x {place}, e.g. {values[0][0]!r} -> {values[0][1]!r}",
                flush=True,
            )
    print(f"{same} of {len(names)} programs give the same report in both layouts")
    for place, count in seen.most_common():
        print(f"{count:5} {place}")


if __name__ == "__main__":
    main()
