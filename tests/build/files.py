"""For tests that begin with a file: hand-made events as a profiler writes them, in every layout.

Every maker here gives one event: ``kernel(10 * US, 20 * US, correlation=1)``. Its arguments are
those of `tests.build.rows`, with times in nanoseconds; the event has them in microseconds, as the
files do. It is a plain dict, so that a test can spoil it: ``kernel(0, 5 * US) | {"dur": -1}``.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.build.rows import H2D, US
from tracelab.model.trace import ABSENT, Trace
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources

Event = dict[str, Any]
HOST = 100  # process and main thread of the host's events


def _microseconds(ns: float) -> float:
    whole_us, rest_ns = divmod(round(ns), US)
    return round(ns) / US if rest_ns else whole_us


def complete_event(
    name: str,
    cat: str,
    start: float,
    end: float,
    *,
    pid: int | str = HOST,
    tid: int | str = HOST,
    **args: Any,
) -> Event:
    """A complete event of any category."""
    fields = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
    return {**fields, "ts": _microseconds(start), "dur": _microseconds(end - start), "args": args}


def kernel(
    start: float,
    end: float,
    name: str = "gemm",
    *,
    device: int = 0,
    stream: int = 7,
    correlation: int = 0,
    cat: str = "kernel",
    **args: Any,
) -> Event:
    """A kernel, or with another `cat` any other GPU activity."""
    lane = {"device": device, "stream": stream, "correlation": correlation}
    return complete_event(name, cat, start, end, pid=device, tid=stream, **lane, **args)


def copy(start: float, end: float, name: str = H2D, **lane_and_args: Any) -> Event:
    """A copy on the GPU; its name says between what."""
    return kernel(start, end, name, cat="gpu_memcpy", **lane_and_args)


def memset(start: float, end: float, **lane_and_args: Any) -> Event:
    """A memset on the GPU."""
    return kernel(start, end, "Memset (Device)", cat="gpu_memset", **lane_and_args)


def call(name: str, start: float, end: float, *, tid: int = HOST, **args: Any) -> Event:
    """A call of the CUDA runtime on the host."""
    return complete_event(name, "cuda_runtime", start, end, tid=tid, **args)


def launch(
    start: float,
    end: float,
    correlation: int,
    *,
    name: str = "cudaLaunchKernel",
    tid: int = HOST,
) -> Event:
    """A call that launches what has its correlation."""
    return call(name, start, end, tid=tid, correlation=correlation)


def operator(name: str, start: float, end: float, *, tid: int = HOST) -> Event:
    """A PyTorch operator on the host."""
    return complete_event(name, "cpu_op", start, end, tid=tid)


def python(name: str, start: float, end: float, *, tid: int = HOST) -> Event:
    """A Python function on the host, named like ``train.py(3): step``."""
    return complete_event(name, "python_function", start, end, tid=tid)


def annotation(name: str, start: float, end: float, *, tid: int = HOST) -> Event:
    """A region that the user named."""
    return complete_event(name, "user_annotation", start, end, tid=tid)


def step(number: int, start: float, end: float) -> Event:
    """A step of the profiler."""
    return annotation(f"ProfilerStep#{number}", start, end)


def sync_row(
    kind: str,
    start: float,
    end: float,
    *,
    correlation: int = 0,
    device: int = 0,
    stream: int = ABSENT,
    wait_stream: int = ABSENT,
    wait_correlation: int = ABSENT,
    event: int = ABSENT,
) -> Event:
    """CUPTI's row of a wait: "Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event"."""
    return complete_event(
        kind,
        "cuda_sync",
        start,
        end,
        pid=device,
        tid=1,
        cuda_sync_kind=kind,
        wait_on_stream=wait_stream,
        wait_on_cuda_event_record_corr_id=wait_correlation,
        wait_on_cuda_event_id=event,
        stream=stream,
        correlation=correlation,
        device=device,
    )


def event_row(
    start: float, *, correlation: int, event: int, device: int = 0, stream: int = 7
) -> Event:
    """CUPTI's record of a CUDA event that the GPU reached."""
    lane = {"device": device, "stream": stream}
    ids = {"event_id": event, "correlation": correlation}
    return complete_event(
        "cudaEvent", "cuda_event", start, start + 1, pid=device, tid=stream, **ids, **lane
    )


def memory(at: float, allocated: int, reserved: int, device: int = 0) -> Event:
    """A reading of an allocator; that of the host is of device -1."""
    args = {"Total Allocated": allocated, "Total Reserved": reserved, "Device Id": device}
    fields = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]"}
    return {**fields, "pid": HOST, "tid": HOST, "ts": _microseconds(at), "args": args}


def thread_name(name: str, *, pid: int | str = HOST, tid: int | str = HOST) -> Event:
    """The metadata event that names a thread."""
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


# Texts of traces. A layout gets the texts around the array ("" for none) and the events.
Layout = Callable[[str, str, Sequence[Any]], str]


def _object(before: str, after: str, array: str) -> str:
    keys = (before, f'"traceEvents": {array}', after)
    return "{" + ", ".join(key for key in keys if key) + "}"


def _kineto_event(value: Any) -> str:
    """One event over several lines, as Kineto writes it."""
    if not isinstance(value, dict):
        return json.dumps(value)
    lines: list[str] = []
    for key, field in value.items():
        if key == "args" and isinstance(field, dict):
            arguments = json.dumps(field)[1:-1]
            lines.append(f'"args": {{\n      {arguments}\n    }}')
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(field)}")
    return "  {\n    " + ", ".join(lines) + "\n  }"


def _kineto(before: str, after: str, events: Sequence[Any]) -> str:
    texts = ",\n".join(map(_kineto_event, events))
    return "\n" + _object(before, after, f"[\n{texts}\n  ]")


def _field_a_line(before: str, after: str, events: Sequence[Any]) -> str:
    texts = (
        "    {\n"
        + ",\n".join(
            f"      {json.dumps(key)}: {json.dumps(field)}" for key, field in value.items()
        )
        + "\n    }"
        if isinstance(value, dict)
        else json.dumps(value)
        for value in events
    )
    return _object(before, after, "[\n" + ",\n".join(texts) + "\n  ]") + "\n"


def _dumped(**options: Any) -> Layout:
    def layout(before: str, after: str, events: Sequence[Any]) -> str:
        keys = {
            **json.loads(f"{{{before}}}"),
            "traceEvents": list(events),
            **json.loads(f"{{{after}}}"),
        }
        return json.dumps(keys, **options)

    return layout


def _bare(end: str) -> Layout:
    def layout(_before: str, _after: str, events: Sequence[Any]) -> str:
        return "[" + ",\n".join(map(json.dumps, events)) + end

    return layout


LAYOUTS: dict[str, Layout] = {
    "kineto": _kineto,
    "field_a_line": _field_a_line,
    "indent_0": _dumped(indent=0),
    "indent_1": _dumped(indent=1),
    "indent_4": _dumped(indent=4),
    "one_line": _dumped(),
    "minified": _dumped(separators=(",", ":")),
    "unescaped": _dumped(ensure_ascii=False),
    "bare": _bare("]"),
    "bare_open": _bare(""),
    "bare_open_comma": _bare(",\n"),
}


def text(
    events: Sequence[Any],
    *,
    layout: str = "kineto",
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> bytes:
    """The bytes of a trace file.

    Args:
        events: what its array holds.
        layout: a name in `LAYOUTS`.
        before: keys before the array; a bare list has none.
        after: keys after it.
    """
    around = [json.dumps(keys or {})[1:-1] for keys in (before, after)]
    return LAYOUTS[layout](*around, events).encode()


def write(path: Path, events: Sequence[Any], **layout: Any) -> str:
    """Write a trace file, compressed if its name ends with ".gz"; returns the path as text."""
    content = text(events, **layout)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def read(path: Path | str) -> Trace:
    """The trace in a file."""
    (source,) = find_sources([str(path)])
    return read_trace(source)


def trace(folder: Path, *events: Any, **layout: Any) -> Trace:
    """The trace of these events, by way of a file in the folder."""
    return read(write(folder / "hand.json", events, **layout))


def damaged(content: bytes, mutations: Sequence[tuple[str, int, int]]) -> bytes:
    """The bytes after mutations (what, where, a byte or a length)."""
    spoiled = bytearray(content)
    for what, place, number in mutations:
        at = place % max(1, len(spoiled))
        if what == "delete":
            del spoiled[at : at + 1]
        elif what == "insert":
            spoiled.insert(at, number)
        elif what == "flip":
            spoiled[at : at + 1] = bytes([number])
        elif what == "cut":
            del spoiled[at : at + number]
        elif what == "double":
            spoiled[at:at] = spoiled[at : at + number]
        else:
            raise ValueError(what)
    return bytes(spoiled)
