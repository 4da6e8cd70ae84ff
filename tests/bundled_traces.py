"""The bundled captures, and the reports that several tests share.

A report is made once in a run of the tests: the workers of a run keep them in one folder.
"""

from __future__ import annotations

import copyreg
import json
import os
import pickle
from dataclasses import astuple
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from tracelab import Options, analyze
from tracelab.options import DEFAULTS
from tracelab.report.schema import Report

FOLDER = Path(__file__).parents[1] / "traces"
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())["traces"]
PATHS = sorted(FOLDER.glob("*.json.gz"))
# Where the reports of a run of the tests are kept; conftest.py says so.
KEPT = "TRACELAB_TESTS_REPORTS"

copyreg.pickle(MappingProxyType, lambda mapping: (MappingProxyType, (dict(mapping),)))


@cache
def report_of(*paths: Path, options: Options = DEFAULTS) -> Report:
    """The report of a file or of a job's files, bundled or not."""
    folder = os.environ.get(KEPT)
    if folder is None:
        return _analyze(paths, options)
    which = repr((paths, astuple(options)))  # the repr of options is cut to a line
    kept = Path(folder) / f"{sha256(which.encode()).hexdigest()}.pickle"
    if kept.exists():
        return pickle.loads(kept.read_bytes())
    report = _analyze(paths, options)
    own = kept.with_suffix(f".{os.getpid()}")  # another worker may write the same now
    own.write_bytes(pickle.dumps(report))
    own.replace(kept)
    return report


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


def _analyze(paths: tuple[Path, ...], options: Options) -> Report:
    return analyze(paths[0] if len(paths) == 1 else paths, options)
