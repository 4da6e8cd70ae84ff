"""Read a Chrome trace of `torch.profiler`, in whichever of Kineto's layouts, into a `Trace`."""

from __future__ import annotations

import gc
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from tracelab.model.trace import Trace
from tracelab.read.columns import Columns, InexactTimesError
from tracelab.read.events import (
    Event,
    decode,
    decode_texts,
    decode_with_times_as_text,
    is_event,
    is_text_of_event,
    mapping,
)
from tracelab.read.json_array import ArrayReader
from tracelab.read.streams import Source, open_source

EVENTS = "traceEvents"  # the key of the array of events


def read_trace(source: Source) -> Trace:
    """Read one file.

    Raises:
        UnreadableInputError: it cannot be opened, is no trace, or holds no complete event.
        MissingSupportError: its URL needs a package that is not installed.
    """
    try:
        return _read_trace(source, decode)
    except InexactTimesError:
        return _read_trace(source, decode_with_times_as_text)


def _read_trace(source: Source, decode: Callable[[bytes], list[Event]]) -> Trace:
    with open_source(source) as stream:
        columns, metadata, losses = read_columns(stream, source.path, decode)
    return columns.finish(source, metadata, losses)


def read_columns(
    stream: io.BufferedIOBase, path: str, decode: Callable[[bytes], list[Event]] = decode
) -> tuple[Columns, dict[str, Any], Counter[str]]:
    """The columns of the events in a stream, what stands beside them, and what was lost.

    Raises:
        UnreadableInputError: it is no trace.
    """
    columns = Columns()
    reader = ArrayReader(stream, path, EVENTS, decode, is_event)
    with _collector_paused():
        for events in reader:
            columns.add(events)
    return columns, reader.metadata, reader.losses


def read_arguments(source: Source, positions: Iterable[int]) -> dict[int, dict[str, Any]]:
    """The arguments of a few events, which are not kept when a trace is read.

    Args:
        source: the file that the trace came from.
        positions: values of `Trace.position`.

    Returns:
        the event's "args" object by position; empty where the event has none, or none that can
        be read.

    Raises:
        UnreadableInputError: the file can no longer be read.
        MissingSupportError: its URL needs a package that is not installed.
    """
    wanted = set(positions)
    found: dict[int, dict[str, Any]] = {}
    with open_source(source) as stream, _collector_paused():
        first = 0
        # As much is read, and as much is lost, as when the events were numbered.
        reader = ArrayReader(stream, source.path, EVENTS, decode_texts, is_text_of_event)
        for texts in reader:
            for position in wanted.intersection(range(first, first + len(texts))):
                found[position] = _arguments_in(texts[position - first])
            if len(found) == len(wanted):
                break
            first += len(texts)
    return found


def _arguments_in(text: bytes) -> dict[str, Any]:
    """All arguments of an event; none where they cannot be read."""
    try:
        return mapping(mapping(orjson.loads(text)).get("args"))
    except orjson.JSONDecodeError:
        return {}


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection while millions of small objects come and go without a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
