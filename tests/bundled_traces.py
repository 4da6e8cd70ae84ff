"""The bundled captures, and what several tests ask of them.

What a function marked `shared` returns is made once in a run of the tests: the workers of a run
keep it in one folder.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import astuple, replace
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any

from tracelab.analysis.analysis import Analysis, analyze_source
from tracelab.analysis.reports import FileResult, analyze_file, merge_results
from tracelab.base.options import DEFAULTS, Options
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.measures.registry import MEASURES
from tracelab.read.sources import find_sources
from tracelab.read.streams import Source
from tracelab.report.schema import Report

FOLDER = Path(__file__).parents[1] / "traces"
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())["traces"]
PATHS = sorted(FOLDER.glob("*.json.gz"))
# Where the reports of a run of the tests are kept; conftest.py says so.
KEPT = "TRACELAB_TESTS_REPORTS"


def shared(make: Callable[..., Any]) -> Callable[..., Any]:
    """Let the workers of a run share what a function returns; its arguments must have a repr."""

    @cache
    def kept(*arguments: object) -> Any:
        place = _place_of(make, arguments)
        if place is not None and place.exists():
            return pickle.loads(place.read_bytes())
        made = make(*arguments)
        _keep(made, place)
        return made

    return wraps(make)(kept)


def report_of(*paths: Path, options: Options = DEFAULTS) -> Report:
    """The report of a file or of a job's files, bundled or not."""
    return _report_of(paths, options)


@cache
def _report_of(paths: tuple[Path, ...], options: Options) -> Report:
    results = [_result_of(path, astuple(options)) for path in paths]
    return merge_results(results, [str(path) for path in paths], options)


def analysis_of(path: Path, options: Options = DEFAULTS) -> Analysis:
    """The analysis of a file, for more than its report."""
    [source] = find_sources([str(path)])
    return analyze_source(source, options)


_open = Analysis.open


def open_once(analysis: Analysis) -> Analysis:
    """`Analysis.open`; a worker asks it once about a bundled trace with the same options.

    The report is kept for all workers: `report_of` finds it.
    """
    source, options = analysis.source, analysis.options
    how = analysis.measures, analysis.rules, analysis.remedies
    if Path(source.path).parent != FOLDER or how != (MEASURES, RULES, REMEDIES):
        return _open(analysis)
    programs = Path("workloads").resolve()  # their source is looked for here
    is_here = programs.exists()
    return _opened(source, astuple(replace(options, cache=True)), programs if is_here else None)


@cache
def _opened(source: Source, options: tuple[object, ...], programs: Path | None) -> Analysis:
    analysis = _open(Analysis(source, Options(*options)))
    if programs is not None:
        result = FileResult(source, analysis.report, part=analysis.part)
        _keep(result, _place_of(_result_of, (Path(source.path), options)))
    return analysis


def files_of(name: str) -> tuple[Path, ...]:
    """The bundled files of a capture: one, or those of a job in the order of their ranks."""
    alone = FOLDER / f"{name}.pt.trace.json.gz"
    ranks = sorted(FOLDER.glob(f"{name}_rank[0-9].pt.trace.json.gz"))
    return (alone,) if alone.exists() else tuple(ranks)


def name_of(path: Path) -> str:
    """A capture's name without its ending.

    >>> name_of(Path("traces/events_item.pt.trace.json.gz"))
    'events_item'
    """
    return path.name.partition(".")[0]


@shared
def _result_of(path: Path, options: tuple[object, ...]) -> FileResult:
    """What became of a file, alone or as a rank of its job: the same in both.

    Options are a tuple: their own repr is cut to a line.
    """
    [source] = find_sources([str(path)])
    return analyze_file(source, Options(*options))


def _place_of(make: Callable[..., Any], arguments: tuple[object, ...]) -> Path | None:
    """Where this run of the tests keeps what a function made of its arguments."""
    folder = os.environ.get(KEPT)
    if folder is None:
        return None
    which = f"{make.__module__}.{make.__qualname__}{arguments!r}"
    return Path(folder) / f"{sha256(which.encode()).hexdigest()}.pickle"


def _keep(made: object, place: Path | None) -> None:
    if place is not None:
        own = place.with_suffix(f".{os.getpid()}")  # another worker may write the same now
        own.write_bytes(pickle.dumps(made))
        own.replace(place)
