"""Ways to read one trace: ``python tests/benchmarks/trace_readers.py WAY FILE``.

Prints one JSON object: how many events the way keeps, and what it left out. `compare_tools.py`
runs each way in a process of its own, with the Python that has the package the way needs, so
nothing but the standard library is imported above a function.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

_CHUNK = 512 * 1024
_BETWEEN = b"\n  },\n  {"  # between two events, as the profiler writes them
_COLUMNS = ("ts", "dur", "cat", "name", "pid", "tid", "stream", "correlation", "device")
HTA_PARSERS = ("json", "ijson", "ijson_batched", "ijson_batch_and_compress")
_HTA_REPORTS = (
    "get_temporal_breakdown",
    "get_idle_time_breakdown",
    "get_comm_comp_overlap",
    "get_gpu_kernel_breakdown",
    "get_cuda_kernel_launch_stats",
)


def tracelab(path: str) -> dict[str, Any]:
    """tracelab's reader, in one process."""
    from tracelab.read.reader import read_trace

    return _told_of(read_trace(_source(path)))


def tracelab_in_parts(path: str) -> dict[str, Any]:
    """The same by as many processes as the command line takes for one file."""
    from tracelab.cli.many_files import processes_for_one
    from tracelab.read.reader import read_trace_in_chunks

    return _told_of(read_trace_in_chunks(_source(path), processes_for_one(1)))


def tracelab_again(path: str) -> dict[str, Any]:
    """What a second look at the same file takes: its columns are in the cache."""
    from tracelab.read.cache import load_trace

    return _told_of(load_trace(_source(path)))


def _source(path: str) -> Any:
    from tracelab.read.streams import Source

    return Source(path, rank=None, named=True)


def _told_of(trace: Any) -> dict[str, Any]:
    steps = sum(x.startswith("ProfilerStep#") for x in trace.strings)
    return {"events": len(trace), "steps": steps}


def whole_file(path: str) -> dict[str, Any]:
    """The reader that anybody would write: decode the file, then a loop over its events."""
    import orjson

    columns = _columns_of(orjson.loads(Path(path).read_bytes())["traceEvents"], {})
    return {"events": len(columns["ts"])}


def in_chunks(path: str) -> dict[str, Any]:
    """The same with one chunk of events in memory at a time, and no garbage collection."""
    import numpy as np
    import orjson

    gc.disable()
    codes: dict[Any, int] = {}
    parts = [_columns_of(orjson.loads(x), codes) for x in _chunks(path)]
    columns = {key: np.concatenate([part[key] for part in parts]) for key in _COLUMNS}
    return {"events": len(columns["ts"])}


def hta(path: str, parser: str = "") -> dict[str, Any]:
    """HTA's loading of one file as rank 0, by its default parser or another one of its own."""
    return {"events": len(_hta_analysis(path, parser).t.get_trace(0))}


def hta_table(path: str) -> dict[str, Any]:
    """HTA's first half of that: a table of the events, not linked nor assigned to steps yet."""
    from hta.common.trace_parser import parse_trace_dataframe
    from hta.configs.parser_config import ParserConfig

    return {"events": len(parse_trace_dataframe(path, ParserConfig.get_default_cfg())[1])}


def hta_reports(path: str) -> dict[str, Any]:
    """HTA's usual reports of one file: loading it, then `_HTA_REPORTS`, none of them drawn."""
    analysis = _hta_analysis(path)
    notes = []
    for name in _HTA_REPORTS:
        try:
            getattr(analysis, name)(visualize=False)
        except Exception as error:  # a peer's failure is a result here, whatever its type
            notes.append(f"{name} left out: {type(error).__name__}: {error}")
    return {"events": len(analysis.t.get_trace(0)), "notes": notes}


def _columns_of(events: list[dict[str, Any]], codes: dict[Any, int]) -> dict[str, Any]:
    """A column per field of the complete events; what may be text becomes a code."""
    import numpy as np

    columns: dict[str, list[float]] = {key: [] for key in _COLUMNS}
    ts, dur, cat, name, pid, tid, stream, correlation, device = columns.values()
    for event in events:
        if event["ph"] != "X":
            continue
        ts.append(event["ts"])
        dur.append(event["dur"])
        for column, key in ((cat, "cat"), (name, "name"), (pid, "pid"), (tid, "tid")):
            column.append(codes.setdefault(event[key], len(codes)))
        arguments = event.get("args", {})
        stream.append(arguments.get("stream", -1))
        correlation.append(arguments.get("correlation", -1))
        device.append(arguments.get("device", -1))
    return {key: np.array(column) for key, column in columns.items()}


def _chunks(path: str) -> Iterator[bytes]:
    """The array of events in lists of whole events, each about as large as a chunk."""
    with open(path, "rb") as file:
        rest = b""
        while b'"traceEvents": [' not in rest:
            rest += file.read(_CHUNK)
        rest = rest.partition(b'"traceEvents": [')[2]
        while chunk := file.read(_CHUNK):
            whole, between, begun = (rest + chunk).rpartition(_BETWEEN)
            if between:
                yield b"[" + whole + b"}]"
                begun = b"{" + begun
            rest = begun
    yield b"[" + rest.rpartition(b"\n  }")[0] + b"}]"


def _hta_analysis(path: str, parser: str = "") -> Any:
    from hta.trace_analysis import TraceAnalysis

    if parser:
        from hta.configs.parser_config import ParserBackend, ParserConfig

        config = ParserConfig.get_default_cfg()
        config.set_parser_backend(ParserBackend(parser))
        ParserConfig.set_default_cfg(config)
    return TraceAnalysis(trace_files={0: path})


WAYS: dict[str, Callable[[str], dict[str, Any]]] = {
    "tracelab": tracelab,
    "tracelab_in_parts": tracelab_in_parts,
    "tracelab_again": tracelab_again,
    "whole_file": whole_file,
    "in_chunks": in_chunks,
    "hta": hta,
    "hta_table": hta_table,
    "hta_reports": hta_reports,
    **{f"hta_{parser}": partial(hta, parser=parser) for parser in HTA_PARSERS},
}


if __name__ == "__main__":
    print(json.dumps(WAYS[sys.argv[1]](sys.argv[2])))
