"""Hash what is made of bundled files, jobs and pairs: ``python -m tests.frozen``, ``make frozen``.

``frozen.tsv`` has a line for each output of each subject. A change that is to change no figure
leaves it alone; another one says which lines differ, and why. ``check`` compares, ``write`` renews
the lines; with ``--dump FOLDER`` either also writes the outputs, for ``diff -r`` of two trees.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import gzip
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

import tracelab
from tests import corpus
from tests.build import capture_tables, pairs
from tests.bundled_traces import files_of, name_of
from tests.golden.test_diff_truth import DIFFERENT, IMPROVED, SAME, UNCONFIRMED
from tracelab.analysis.analysis import analyze_source
from tracelab.base.errors import UsageError
from tracelab.base.options import Options
from tracelab.cli.main import main as command_line
from tracelab.outputs.picture import draw_whatif
from tracelab.render.registry import render_as

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".tsv")
OPTIONS = Options(cache=False)
TO = ".."  # from the first to the second capture of a pair
MAX_ANALYSES = 16  # that a process remembers: what-ifs of a job of four ranks take eight
TEXT = {"width": 100, "color": False}
# Each is a run of its own: where a capture has no steps, only the last two are refused.
BUDGETS = (
    "--max-idle 10 --max-exposed comm=2 --max-blocking-calls 1 --forbid TL2 --format github",
    "--min-overlap comm:compute=50 --max-exposed copy=2 --forbid TL1 --forbid TL3",
    "--max-step-ms 3",
    "--max-regression 1 --baseline before.json",
)

Outputs = dict[str, str]  # by the names of files
Table = dict[tuple[str, str], str]  # subject and output to hash


# --- subjects ---


def all_pairs() -> list[tuple[str, str]]:
    """List the captures that tests and documents compare, each pair once."""
    tables = (capture_tables.PAIRS, IMPROVED, UNCONFIRMED, DIFFERENT)
    known = [row[:2] for table in tables for row in table]
    known += [(pair.defect, pair.fix) for pair in pairs.PAIRS]
    known += [(name, re.sub(r"(_rank\d+)?$", r"_plain\1", name, count=1)) for name in SAME]
    return list(dict.fromkeys(known))


def all_tasks(which: str, only: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """List the subjects that are looked at one after the other: a job and its files, or a pair.

    Args:
        which: captures, "small" or "all"; a pair is chosen if one of its captures is.
        only: parts of the names of subjects, one of which must be there; empty for all subjects.
    """
    chosen = corpus.chosen(which)
    tasks = [tuple(dict.fromkeys((name, *map(name_of, files)))) for name, files in chosen.items()]
    names = {name for task in tasks for name in task}
    tasks += [(TO.join(pair),) for pair in all_pairs() if not names.isdisjoint(pair)]
    wanted = only or [""]
    kept = (tuple(x for x in task if any(part in x for part in wanted)) for task in tasks)
    return list(filter(None, kept))


# --- outputs ---


def outputs_of(subject: str) -> Outputs:
    """Make all outputs of a file, a job or a pair, without version, clock and folders."""
    before, _, after = subject.partition(TO)
    with TemporaryDirectory() as name, contextlib.chdir(ROOT):
        folder = Path(name)
        made = _of_pair(before, after, folder) if after else _of_capture(before, folder)
        return {key: _normal(text, folder) for key, text in made.items()}


def _normal(text: str, folder: Path) -> str:
    text = re.sub(rf"(?<![\d.]){re.escape(tracelab.__version__)}(?![\d.])", "VERSION", text)
    text = re.sub("(?s)<metadata>.*?</metadata>", "", text)  # of matplotlib, in a picture
    return text.replace(str(folder), "FOLDER").replace(str(ROOT), "ROOT")


def _of_capture(name: str, folder: Path) -> Outputs:
    paths = _paths(name)
    json_, page, picture = folder / "report.json", folder / "page.html", folder / "picture.svg"
    files = ("--json", json_, "--html", page, "--png", picture, "--perfetto", folder / "trace.json")
    full = _printed("analyze", *paths, "--full", *files, "--no-cache", "--executor", "serial")
    report = tracelab.load_report(json_)
    html = page.read_text(encoding="utf-8")
    return {
        "report.json": json_.read_text(encoding="utf-8"),
        "full.txt": full,
        "screen_80.txt": _text(report, "text", width=80, color=False),
        "screen_120.txt": _text(report, "text", width=120, color=False),
        "brief.json": _text(report, "brief"),
        "markdown.md": _text(report, "markdown"),
        "notebook.txt": _text(report, "notebook"),
        "page.html": _without_scripts(html),
        "timeline.txt": "\n".join(_timeline(html)),
        "perfetto.txt": "\n".join(_added(paths, folder)),
        "picture.svg": picture.read_text(encoding="utf-8"),
        "whatif.txt": _text(tracelab.whatif(paths, fixes="all", options=OPTIONS), "text", **TEXT),
        **({"whatif.svg": _picture_of_changes(paths[0])} if len(paths) == 1 else {}),
    }


def _of_pair(before: str, after: str, folder: Path) -> Outputs:
    paths = [*_paths(before), *_paths(after)]
    diff = tracelab.compare(_paths(before), _paths(after), OPTIONS)
    for side, name in (("before", before), ("after", after)):
        tracelab.analyze(_paths(name), OPTIONS).save(folder / f"{side}.json")
    with contextlib.chdir(folder):
        checks = [_printed("check", "after.json", *line.split()) for line in BUDGETS]
    return {
        "diff.txt": _text(diff, "text", **TEXT),
        "diff.json": diff.to_json().decode(),
        "diff.md": _text(diff, "markdown"),
        "picture.svg": _text(tracelab.draw(paths, options=OPTIONS), "svg"),
        "check.txt": "\n".join(checks),
    }


def _paths(name: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in files_of(name)]


def _text(result: Any, form: str, **options: Any) -> str:
    text = render_as(result, form, **options)
    return text if isinstance(text, str) else text.decode()


def _picture_of_changes(path: str) -> str:
    try:
        return _text(draw_whatif(path, fixes="all", options=OPTIONS), "svg")
    except UsageError as error:  # there is nothing to change
        return str(error)


def _printed(*arguments: object) -> str:
    """Run a command in this process; return its output, or why there is none."""
    printed, told = io.StringIO(), io.StringIO()
    with (
        mock.patch("sys.argv", ["tracelab", *map(str, arguments)]),
        mock.patch.dict(os.environ, {"COLUMNS": str(TEXT["width"])}),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(told),
        contextlib.suppress(SystemExit),
    ):
        command_line()
    return printed.getvalue() or told.getvalue()


def _without_scripts(html: str) -> str:
    """Leave out what is the same in all pages, and the data of the timeline."""
    return re.sub(r"(?s)<(script|style)\b.*?</\1>|<meta http-equiv.*?>", "", html)


def _timeline(html: str) -> Iterator[str]:
    """List what the page's timeline shows: all but the columns, then those of each lane."""
    data = dict(re.findall(r'(?s)id="timeline-(meta|columns)">(.*?)</script>', html))
    meta = json.loads(data["meta"])
    yield json.dumps(meta, indent=1)
    planes = io.BytesIO(gzip.decompress(base64.b64decode(data["columns"])))
    for group in meta["groups"]:
        for lane in group["lanes"]:
            bins = lane["bins"] or {"count": 0, "kinds": ()}
            columns = [(name, size, lane["count"]) for name, size, _ in lane["columns"]]
            columns += [(f"bins of {kind}", 4, bins["count"]) for kind in bins["kinds"]]
            for name, size, count in columns:
                values = np.zeros((count, 8), np.uint8)  # from planes of lowest to highest bytes
                read = np.frombuffer(planes.read(size * count), np.uint8)
                values[:, :size] = read.reshape(size, count).T
                yield f"{group['label']} {lane['id']} {name}: {values.view('<u8')[:, 0].tolist()}"


def _added(paths: Iterable[str], folder: Path) -> Iterator[str]:
    """List the events for Perfetto that are not those of the files."""
    written = sorted(folder.glob("trace*.json"))  # of several files with their numbers
    for path, copy in zip(paths, written, strict=True):
        own = json.loads(gzip.decompress(Path(path).read_bytes()))["traceEvents"]
        yield path
        yield from map(json.dumps, json.loads(copy.read_bytes())["traceEvents"][len(own) :])


# --- the table ---


def share_analyses() -> None:
    """Let all that this process makes of a file share one analysis of it."""
    original = analyze_source
    remembered = lru_cache(MAX_ANALYSES)(original)

    def shared(source: Any, options: Any, **_: Any) -> Any:  # all measures, rules and remedies
        return remembered(source, options)

    for module in tuple(sys.modules.values()):
        if vars(module).get("analyze_source") is original:
            module.analyze_source = shared


def make_rows(task: Sequence[str], dump: Path | None = None) -> Table:
    """Hash the outputs of some subjects; write them into a folder if one is given."""
    rows = {}
    for subject in task:
        try:
            outputs = outputs_of(subject)
        except Exception as error:
            error.add_note(f"making the outputs of {subject}")
            raise
        for output, text in outputs.items():
            rows[subject, output] = sha256(text.encode()).hexdigest()[:16]
            if dump is not None:
                path = dump / subject / output
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    return rows


def make_table(tasks: Sequence[Sequence[str]], processes: int, dump: Path | None) -> Table:
    """Hash the outputs of all subjects of some tasks."""
    table: Table = {}
    with ProcessPoolExecutor(processes, initializer=share_analyses) as pool:
        for done, rows in enumerate(pool.map(make_rows, tasks, repeat(dump)), 1):
            table |= rows
            if sys.stderr.isatty():
                end = "\n" if done == len(tasks) else "\r"
                print(f"{done} of {len(tasks)}", end=end, file=sys.stderr, flush=True)
    return table


def read_table() -> Table:
    lines = TABLE.read_text().splitlines() if TABLE.exists() else ()
    rows = (line.split("\t") for line in lines)
    return {(subject, output): hash_ for subject, output, hash_ in rows}


def write_table(table: Table) -> None:
    lines = (f"{subject}\t{output}\t{hash_}\n" for (subject, output), hash_ in table.items())
    TABLE.write_text("".join(sorted(lines)))


def differences(before: Table, after: Table) -> list[str]:
    """List the subjects that differ, each with its outputs.

    >>> differences({("a", "x"): "1", ("a", "y"): "2"}, {("a", "x"): "3", ("b", "x"): "4"})
    ['a: x, y', 'b: x']
    """
    found: dict[str, list[str]] = {}
    for subject, output in sorted(before.keys() | after.keys()):
        if before.get((subject, output)) != after.get((subject, output)):
            found.setdefault(subject, []).append(output)
    return [f"{subject}: {', '.join(outputs)}" for subject, outputs in found.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("command", choices=("check", "write"))
    parser.add_argument("--corpus", choices=("small", "all"), default="all")
    parser.add_argument("--only", nargs="+", default=(), help="parts of the names of subjects")
    parser.add_argument("-j", type=int, default=os.cpu_count(), dest="processes")
    parser.add_argument("--dump", type=Path, help="a folder to write the outputs to")
    asked = parser.parse_args(arguments)
    tasks = all_tasks(asked.corpus, asked.only)
    made = make_table(tasks, asked.processes, asked.dump and asked.dump.resolve())
    known = read_table()
    subjects = {subject for subject, _ in made}
    is_whole = asked.corpus == "all" and not asked.only
    here = {row: hash_ for row, hash_ in known.items() if is_whole or row[0] in subjects}
    found = differences(here, made)
    print("\n".join(found) or "nothing differs")
    print(f"{len(found)} of {len(subjects)} subjects differ from {TABLE.name}")
    if asked.command == "check":
        return min(1, len(found))
    others = {row: hash_ for row, hash_ in known.items() if row not in here}
    write_table(others | made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
