"""The ways into the package that bytes of others take, and what must hold whatever the bytes are.

Each target refuses an input with a `TracelabError`, or reads it, and then its figures hang
together. Any other error is a defect, as are a part of the analysis that failed, a report that its
own schema refuses, an exit code that says "bug", and more time or memory than `MAX_SECONDS` and
`MAX_BYTES`.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import lzma
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.bundled_traces import FOLDER
from tests.fuzz.mutation import mutate_bytes, mutate_document
from tests.golden.test_every_trace import (
    critical_path_tiles_every_window,
    figures_hang_together,
)
from tracelab import load_report
from tracelab.analysis.analysis import analyze_source
from tracelab.analysis.parts import merge_parts, pack_parts
from tracelab.analysis.reports import FileResult, analyze_file, merge_results
from tracelab.base.errors import TracelabError
from tracelab.base.options import Options
from tracelab.cli.main import main
from tracelab.comparison.budget_check import check
from tracelab.comparison.budgets import parse_toml
from tracelab.read.reader import read_trace
from tracelab.read.sources import find_sources
from tracelab.render.registry import render_as
from tracelab.report.schema import Report

MAX_SECONDS = 20
MAX_BYTES = 3 * 2**30  # of all that a target's process may take
CORPUS = Path(__file__).parent / "corpus"
DATA = Path(__file__).parents[1] / "data"
_OPTIONS = Options(cache=False)
_SMALL = 40_000  # bytes of a packed capture that is read in a moment
_EXIT_CODES = {0, 1, 2, 3, 4}
_BUDGETS = b"""\
max-idle = 5
max-exposed = { comm = 3.5, copy = 1 }
max-step-ms = 12.5
forbid = ["TL101"]
"""


@dataclass(frozen=True)
class Target:
    """A way into the package.

    Attributes:
        name: what the command calls it.
        seeds: makes the inputs from which others are made.
        mutate: makes another input of one.
        run: reads an input; raises `TracelabError` to refuse it, and anything else for a defect.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, Random], bytes]
    run: Callable[[bytes], None]


def read(data: bytes) -> None:
    """Read a trace, plain and packed: both must say the same."""
    columns = []
    for suffix, written in ((".json", data), (".json.gz", gzip.compress(data, 1))):
        with _file(written, suffix) as path:
            columns.append(read_trace(find_sources([path])[0]))
    plain, packed = columns
    assert plain.strings == packed.strings
    for name in ("start_ns", "end_ns", "category", "name_index", "thread_index"):
        assert np.array_equal(getattr(plain, name), getattr(packed, name)), name
    assert (plain.end_ns >= plain.start_ns).all()
    assert len(plain.start_ns) == 0 or plain.start_ns.min() >= 0
    assert (plain.name_index < len(plain.strings)).all()


def read_packets(data: bytes) -> None:
    """Read a file of Perfetto's packets."""
    with _file(data, ".pftrace") as path:
        trace = read_trace(find_sources([path])[0])
    assert (trace.end_ns >= trace.start_ns).all()


def report(data: bytes) -> None:
    """Analyze a trace, and draw its report in every form."""
    with _file(data, ".json") as path:
        [source] = find_sources([path])
        analysis = analyze_source(source, _OPTIONS)
        result = FileResult(source, analysis.report, part=analysis.part)
        merged = merge_results([result], [path], _OPTIONS)
    failed = [x.name for trace in merged.traces for x in trace.loss_names if "Error at" in x.name]
    assert not failed, failed
    figures_hang_together(analysis)
    if all(window.end_ns > window.start_ns for window in analysis.windows):
        critical_path_tiles_every_window(analysis)
    _draw(merged)
    _validator().validate(json.loads(merged.to_json()))


def saved_report(data: bytes) -> None:
    """Load a saved report, and draw it in every form."""
    _draw(load_report(data))


def parts(data: bytes) -> None:
    """Merge the parts of two ranks."""
    with _file(gzip.compress(data, 1), ".parts") as path:
        merged, _, _ = merge_parts([path])
    merged.to_json()


def budgets(data: bytes) -> None:
    """Read the budgets of a file, and hold a report to them."""
    limits = parse_toml(data.decode(errors="replace"), "budgets.toml", at_top=True)
    assert limits is not None
    for result in check(limits, _reports()[-1:]):
        assert result.passed in (True, False)


def command(data: bytes) -> None:
    """Run a command on a file that may be anything."""
    suffix = ".json.gz" if data[:2] == b"\x1f\x8b" else ".json"
    with _file(data, suffix) as path:
        for line in _LINES:
            code, errors = _run([x.format(path, folder=Path(path).parent) for x in line])
            assert code in _EXIT_CODES, (line[0], code, errors[-2000:])
            assert "Traceback" not in errors
            assert code in (0, 1) or errors.strip(), f"{line[0]} ends with {code} and says nothing"


_LINES = (
    ("analyze", "{}", "--no-cache", "--full"),
    ("analyze", "{}", "--no-cache", "--html", "{folder}/x.html", "--perfetto", "{folder}/x.json"),
    ("timeline", "{}", "--output", "{folder}/x.svg"),
    ("whatif", "{}", "--no-cache", "--fix", "all"),
    ("diff", "{}", "{}", "--no-cache"),
    ("check", "{}", "--no-cache", "--max-idle", "5"),
)


def _run(line: list[str]) -> tuple[int, str]:
    """Run the command line in this process: its exit code, and what it wrote to stderr."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = sys.argv
    sys.argv = ["tracelab", *line]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = before
    errors.seek(0)
    return code if isinstance(code, int) else 0, errors.read()


def _draw(drawn: Report) -> None:
    """Draw a report in every form; what it is saved as must load, and say the same."""
    for form in ("text", "markdown", "brief"):
        look = {"full": True} if form == "text" else {}
        width = {"width": 80, "color": False} if form == "text" else {}
        render_as(drawn, form, **look, **width)
    saved = drawn.to_json()
    assert load_report(saved).to_json() == saved


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    schema = Path(sys.modules["tracelab"].__file__ or "").parent / "report" / "report.schema.json"
    return Draft202012Validator(json.loads(schema.read_text()))


@contextlib.contextmanager
def _file(data: bytes, suffix: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="tracelab-fuzz-") as folder:
        path = Path(folder, f"input{suffix}")
        path.write_bytes(data)
        yield str(path)


# Seeds.


@cache
def _captures() -> list[bytes]:
    """Small captures, of two steps each: figures of thousands of events are no stranger."""
    files = sorted(FOLDER.glob("*.json.gz"), key=lambda x: x.stat().st_size)
    small = [x for x in files if x.stat().st_size < _SMALL]
    return [_two_steps(gzip.decompress(x.read_bytes())) for x in small[::2]]


def _two_steps(data: bytes) -> bytes:
    """Keep what happens in the second and third step of a trace, and all that has no time."""
    document = json.loads(data)
    events = document["traceEvents"]
    is_step = [str(x.get("name")).startswith("ProfilerStep") for x in events]
    starts = sorted({x["ts"] for x, step in zip(events, is_step, strict=True) if step})
    if len(starts) > 3:
        first, last = starts[1], starts[3]
        document["traceEvents"] = [x for x in events if first <= x.get("ts", first) < last]
    return json.dumps(document).encode()


@cache
def _reports() -> list[Report]:
    reports = []
    for data in _captures()[::6]:
        with contextlib.suppress(TracelabError), _file(data, ".json") as path:
            reports.append(analyze_source(find_sources([path])[0], _OPTIONS).report)
    assert reports
    return reports


def _kept(name: str) -> list[bytes]:
    """The inputs of a target that were defects once."""
    return [x.read_bytes() for x in sorted((CORPUS / name).glob("*")) if x.is_file()]


def _packets() -> list[bytes]:
    return [gzip.decompress(x.read_bytes()) for x in sorted(DATA.glob("*/*.pftrace.gz"))]


def _parts() -> list[bytes]:
    paths = [str(path) for path in sorted(FOLDER.glob("straggler_even_rank?.pt.trace.json.gz"))]
    results = [analyze_file(source, _OPTIONS) for source in find_sources(paths)]
    return [lzma.decompress(pack_parts(results, paths, _OPTIONS))]


def _saved() -> list[bytes]:
    return [x.to_json() for x in _reports()]


def _some() -> list[bytes]:
    few = [*_captures()[::8], *_saved()[:2]]
    return [*few, *(gzip.compress(x) for x in few[:3])]


TARGETS = {
    target.name: target
    for target in (
        Target("reader", _captures, mutate_document, read),
        Target("report", _captures, mutate_document, report),
        Target("saved", _saved, mutate_document, saved_report),
        Target("parts", _parts, mutate_bytes, parts),
        Target("budgets", lambda: [_BUDGETS], mutate_bytes, budgets),
        Target("packets", _packets, mutate_bytes, read_packets),
        Target("command", _some, mutate_document, command),
    )
}


def inputs(target: Target) -> list[bytes]:
    """From what inputs of a target are made: the kept ones, and its seeds."""
    return list(itertools.chain(_kept(target.name), target.seeds()))
