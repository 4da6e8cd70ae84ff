"""Options of an analysis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracelab.base.arrays import Record

PROFILER_STEP = r"^ProfilerStep#\d+$"


class Options(Record):
    """Options of an analysis.

    Attributes:
        comm_patterns: regular expressions of further communication kernels.
        step_pattern: regular expression of the host annotations that are the steps. By default
            they are the profiler's, and where it has marked none those of vLLM, SGLang or
            Lightning; `traces[].step_pattern` of the report says by which they were found.
        step: the only step to measure; None for the whole trace and every step.
        source_folders: where to look for the program's source, before where the trace says.
        source_within: folders, links followed, outside of which no source is read; () for none.
        cache: keep what was read of large files in the user's cache folder, and use that.
        processes: how many may read a huge file together. Where Python starts processes afresh, a
            script must ask for more than one under ``if __name__ == "__main__":`` only.
        all_pairs: report the overlap of every pair of streams, however many they are.
        job: the files are the ranks of one job, whatever they themselves say.
        prices: predict by replay what the fix of each finding saves.
        fixes: of which findings `whatif` predicts the fixes: their numbers in the report, from 1
            on, ids of rules, or "all".
        edits: further changes whose step is predicted: texts such as "unblock:train.py:40", or
            functions from a program of `tracelab.simulate` to the changed one.
        profile_by: what the causal profile lists: "finding", "line", "operator" or "kernel"; None
            for no profile.
    """

    comm_patterns: tuple[str, ...] = ()
    step_pattern: str = PROFILER_STEP
    step: int | None = None
    source_folders: tuple[str, ...] = ()
    source_within: tuple[str, ...] = ()
    cache: bool = True
    processes: int = 1
    all_pairs: bool = False
    job: bool = False
    prices: bool = True
    fixes: tuple[str, ...] = ()
    edits: tuple[str | Callable[[Any], Any], ...] = ()
    profile_by: str | None = None


DEFAULTS = Options()
