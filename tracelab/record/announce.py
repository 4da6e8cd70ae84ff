"""Say what was recorded: the report, the picture, the files of all ranks."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from tracelab.analysis import analyze_file, merge_results
from tracelab.drawing import draw_beside
from tracelab.errors import MissingSupportError, TracelabError
from tracelab.options import DEFAULTS
from tracelab.read.sources import find_sources
from tracelab.record.recorder import Recorder
from tracelab.system.console import output_in_color, output_width, tell, write_result


def announce(recorder: Recorder, *, wait_s: float) -> int:
    """Print what was recorded and draw it; in a job, of all ranks of this machine, by the first.

    Args:
        recorder: what has written its trace.
        wait_s: how long to wait for the other ranks' files, in seconds.

    Returns:
        0, or as an exit code why there is no report.
    """
    from tracelab.render.text.report import render_text

    if recorder.rank not in {None, 0}:
        return 0
    if not recorder.has_gpu:
        tell(host_alone(recorder))
        return MissingSupportError.exit_code
    files = [str(file) for file in _files_of_all_ranks(recorder, wait_s)]
    picture = recorder.path.parent / "timeline.png"
    results = [
        analyze_file(
            source,
            DEFAULTS,
            then=partial(draw_beside, path=picture if source.path == str(recorder.path) else None),
        )
        for source in find_sources(files)
    ]
    try:
        report = merge_results(results, files, DEFAULTS)
    except TracelabError as error:
        tell(f"recorded {recorder.path}, but: {error}")
        return error.exit_code
    write_result(render_text(report, width=output_width(), color=output_in_color()))
    tell(f"traces: {', '.join(files)}")
    for result in results:
        if result.more is not None:
            drawn = result.more
            tell(str(drawn) if isinstance(drawn, TracelabError) else f"drew {drawn}")
    return 0


def host_alone(recorder: Recorder) -> str:
    """Say that a trace holds no GPU."""
    return (
        f"recorded {recorder.path}, but there is no GPU here: the file holds the host's side "
        "alone, and there is nothing to analyse"
    )


def _files_of_all_ranks(recorder: Recorder, wait_s: float) -> list[Path]:
    """The files that the ranks of this machine wrote in this run; waits for the late ones."""
    if recorder.rank is None or recorder.ranks_here == 1:
        return [recorder.path]
    pattern = recorder.path.name.replace(f"rank{recorder.rank}", "rank*")
    until = time.monotonic() + wait_s
    while True:
        files = sorted(recorder.path.parent.glob(pattern))
        files = [file for file in files if file.stat().st_mtime >= recorder.created_s]
        if len(files) >= recorder.ranks_here or time.monotonic() > until:
            return files
        time.sleep(0.2)
