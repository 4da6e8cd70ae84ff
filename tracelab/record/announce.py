"""Announce what was recorded: print the report, draw the picture, name the files of all ranks."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from tracelab.analysis.reports import analyze_file, merge_results
from tracelab.base.options import DEFAULTS
from tracelab.outputs.output import Request
from tracelab.outputs.registry import reduce_file, write_files
from tracelab.read.sources import find_sources
from tracelab.record.recorder import Recorder
from tracelab.system.console import output_in_color, output_width, tell, write_result

_POLL_S = 0.2


def announce(recorder: Recorder, *, wait_s: float) -> None:
    """Print what was recorded and draw it; in a job, of all ranks of this machine, by the first.

    Args:
        recorder: what has written its trace.
        wait_s: how long to wait for the other ranks' files, in seconds.

    Raises:
        TracelabError: the traces cannot be analyzed.
    """
    from tracelab.render.text.report import render_text

    if recorder.rank not in {None, 0}:
        return
    if not recorder.has_gpu:
        tell(why_no_gpu(recorder))
        return
    paths = [str(path) for path in _files_of_all_ranks(recorder, wait_s)]
    picture = recorder.path.parent / "timeline.png"
    requests = {"png": Request(picture, len(paths))}
    then = partial(reduce_file, requests=requests)
    results = [analyze_file(source, DEFAULTS, then=then) for source in find_sources(paths)]
    report = merge_results(results, paths, DEFAULTS)
    write_result(render_text(report, width=output_width(), color=output_in_color()))
    tell(f"traces: {', '.join(paths)}")
    for drawn in write_files(report, results, requests):
        tell(str(drawn))


def why_no_gpu(recorder: Recorder) -> str:
    """Say that a trace holds no GPU activity, because there is no GPU here."""
    return (
        f"recorded {recorder.path}, but there is no GPU here: the file contains only "
        "CPU events, so there is nothing to analyze"
    )


def why_kineto(recorder: Recorder) -> str:
    """Say why the trace is Kineto's, although this torch has a collector that says more."""
    return (
        "recorded with Kineto, not with Cuspy, PyTorch's own CUPTI collector: "
        f"{recorder.collector_reason}"
    )


def _files_of_all_ranks(recorder: Recorder, wait_s: float) -> list[Path]:
    """The files that the ranks of this machine wrote in this run; waits for the late ones."""
    if recorder.rank is None or recorder.local_world_size == 1:
        return [recorder.path]
    pattern = recorder.path.name.replace(f"rank{recorder.rank}", "rank*")
    deadline_s = time.monotonic() + wait_s
    while True:
        files = sorted(recorder.path.parent.glob(pattern))
        files = [file for file in files if file.stat().st_mtime >= recorder.created_s]
        if len(files) >= recorder.local_world_size or time.monotonic() > deadline_s:
            return files
        time.sleep(_POLL_S)
