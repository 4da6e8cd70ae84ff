"""The bundled captures and their reports, each made once for all tests of a process."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from tracelab import Options, analyze
from tracelab.report.schema import Report

FOLDER = Path(__file__).parents[1] / "traces"
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())["traces"]
PATHS = sorted(FOLDER.glob("*.json.gz"))


@cache
def report_of(path: Path, step: int | None = None) -> Report:
    """The report of a file, bundled or not, or of one of its steps."""
    return analyze(path, Options(step=step))


def name_of(path: Path) -> str:
    """A capture's name without its ending.

    >>> name_of(Path("traces/events_item.pt.trace.json.gz"))
    'events_item'
    """
    return path.name.partition(".")[0]
