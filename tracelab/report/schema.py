"""The result of an analysis: plain data that is saved as JSON and rendered without the trace.

The fields are the keys of the JSON, whose schema is ``report.schema.json`` beside this file. Times
are integer nanoseconds since the first event of the trace that they belong to.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import orjson

from tracelab.errors import UnreadableInputError
from tracelab.findings.finding import Finding
from tracelab.findings.registry import about_of
from tracelab.measures.overlap import StreamTime
from tracelab.model.graph import EventLinks

SCHEMA = "tracelab.report/1"


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file that was asked for and could not be analysed."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """What the report was made from, and how."""

    paths: tuple[str, ...]
    comm_patterns: tuple[str, ...]
    step_pattern: str
    unread: tuple[UnreadFile, ...]


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """All activities of one name."""

    name: str
    count: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class DeviceMetrics:
    """One device in one window, ns.

    ``busy_ns + idle_ns`` is the window's length, and the bubbles add up to ``idle_ns``.

    Attributes:
        blocking_comm_ns, blocking_copy_ns: the exposed time that the next compute waited for.
        bubbles: idle by cause.
        unknown_reasons: the idle of cause "unknown", by why it is.
    """

    device: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    comm_ns: int
    copy_ns: int
    memset_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    blocking_comm_ns: int
    blocking_copy_ns: int
    comm_compute_overlap_ns: int
    copy_compute_overlap_ns: int
    streams: tuple[StreamTime, ...]
    bubbles: Mapping[str, int]
    unknown_reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LaunchedOnly:
    """The whole trace measured again without the activities whose launch is not in the file."""

    start_ns: int
    end_ns: int
    left_out: int
    devices: tuple[DeviceMetrics, ...]


@dataclass(frozen=True, slots=True)
class TraceInfo:
    """One file.

    Attributes:
        rank_source: "metadata", "filename" or "position" (its place among the files).
        objects: events of all phases in the file; `events` are the complete ones that were used.
        software: versions as the file gives them.
        gpus: device number to name, of the devices that worked.
        unrecognised: long kernels that no rule knows; they count as compute.
        launched_only: None where every activity has its launch.
    """

    path: str
    rank: int
    rank_source: str
    objects: int
    events: int
    gpu_activities: int
    software: Mapping[str, str]
    gpus: Mapping[str, str]
    losses: Mapping[str, int]
    event_links: EventLinks
    unrecognised: tuple[KernelTotal, ...]
    launched_only: LaunchedOnly | None


@dataclass(frozen=True, slots=True)
class WindowMetrics:
    """One step, or the whole trace where `step` is None.

    Attributes:
        unprofiled_ns: what it would take without the profiler, as the capture measured, where that
            is at least a tenth less; else None.
    """

    rank: int
    step: int | None
    start_ns: int
    end_ns: int
    devices: tuple[DeviceMetrics, ...]
    unprofiled_ns: int | None = None

    @property
    def length_ns(self) -> int:
        """Length, ns."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class OverlapMetrics:
    """Two selections of activities in one window, ns."""

    rank: int
    step: int | None
    a: str
    b: str
    a_ns: int
    b_ns: int
    overlap_ns: int


@dataclass(frozen=True, slots=True)
class BlockingCallMetrics:
    """The blocking calls of one API at one place, ns.

    Attributes:
        idle_after_ns: the part of the caused idle after the calls had returned.
        waited_for: the activity for which they blocked longest.
    """

    rank: int
    step: int | None
    api: str
    kind: str
    count: int
    blocked_ns: int
    caused_idle_ns: int
    idle_after_ns: int
    waited_for: str | None
    operator: str | None
    annotation: str | None
    function: str | None
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class CulpritMetrics:
    """The idle of one device and cause that one thing at one place held, ns.

    Attributes:
        name: the call, operator, region or activity that held it.
        operator, function, file, line: where it is in the program, of things on the host.
        count: how many bubbles.
        longest_start_ns, longest_ns: the longest of them.
        event: event id of what held the longest.
    """

    rank: int
    step: int | None
    device: int
    cause: str
    name: str
    operator: str | None
    function: str | None
    file: str | None
    line: int | None
    count: int
    idle_ns: int
    longest_start_ns: int
    longest_ns: int
    event: int


@dataclass(frozen=True, slots=True)
class CriticalPathMetrics:
    """The critical path of one window, ns per kind."""

    rank: int
    step: int | None
    total_ns: int
    by_kind: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured in one or several traces."""

    schema: str
    version: str
    provenance: Provenance
    traces: tuple[TraceInfo, ...]
    windows: tuple[WindowMetrics, ...]
    overlaps: tuple[OverlapMetrics, ...]
    syncs: tuple[BlockingCallMetrics, ...]
    holders: tuple[CulpritMetrics, ...]
    critical_path: tuple[CriticalPathMetrics, ...]
    findings: tuple[Finding, ...] = ()
    whatif: None = None
    job: None = None

    def to_json(self) -> bytes:
        """The report as one JSON object, indented."""
        return orjson.dumps(self, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def save(self, path: str | Path) -> None:
        """Write the JSON to a file."""
        Path(path).write_bytes(self.to_json())


def load_report(path: str | Path) -> Report:
    """Read a saved report.

    Raises:
        UnreadableInputError: the file is missing or is no report of this schema.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UnreadableInputError(f"{path}: {error}") from None
    return parse_report(content, str(path))


def parse_report(content: bytes, path: str) -> Report:
    """Read a report from the bytes of its file.

    Raises:
        UnreadableInputError: they are no report of this schema.
    """
    try:
        data = orjson.loads(content)
    except ValueError as error:
        raise UnreadableInputError(f"{path}: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise UnreadableInputError(f"{path}: this is no report of the schema {SCHEMA}")
    try:
        report: Report = _build(Report, _with_about(data))
    except (AttributeError, KeyError, TypeError) as error:
        raise UnreadableInputError(f"{path}: the report is damaged: {error}") from None
    return report


def _with_about(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same report, each finding of which says what it is about, as older ones do not.

    Raises:
        KeyError, TypeError: the findings are none.
    """
    findings = [{"about": about_of(finding["rule"]), **finding} for finding in data["findings"]]
    return {**data, "findings": findings}


def _build(kind: Any, value: Any) -> Any:
    """Turn decoded JSON into the dataclass, tuple, mapping or plain value that a type says.

    Raises:
        AttributeError, KeyError, TypeError: it is nothing of that type.
    """
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{x.name: _build(hints[x.name], value[x.name]) for x in fields(kind)})  # type: ignore[operator]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(_build(inner[0], item) for item in value) if inner else ()
    if origin is types.UnionType:
        return None if value is None else _build(inner[0], value)
    if origin is Mapping:
        return {key: _build(inner[1], item) for key, item in value.items()}
    if kind in (int, str) and type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
