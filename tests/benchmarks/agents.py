"""Follow ``tracelab analyze --brief`` alone, as an agent does, without a model.

    python -m tests.benchmarks.agents [--write] [NAME ...]    # all judged programs without a name
    python -m tests.benchmarks.agents --sizes                 # of text, brief and JSON of them

Of each recorded program whose defect is known (``tests/benchmarks/judgement``), and whose fix wins,
the script reads the brief: the place, the fix and the edit of the first finding. It compares them
with the marks in ``programs.toml``, runs the first command of ``next``, and makes the edit with
``tracelab whatif``. Then it compares the edit of each bundled pair of a defect and its fix
(``tests/build/pairs.py``). ``--write`` renews the tables of ``evidence/agents_measured.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.judgement.marks import functions_with, marked_lines, source_of
from tests.benchmarks.judgement.packed import unpack
from tests.build.pairs import PAIRS, Pair
from tests.bundled_traces import files_of, report_of
from tracelab.render.registry import render_as

ROOT = Path(__file__).parents[2]
JUDGEMENT = ROOT / "tests" / "benchmarks" / "judgement"
DOCUMENT = ROOT / "tracelab" / "docs" / "evidence" / "agents_measured.md"
HEAD = "| program | known line | brief's line | right line | known fix | brief's fix | right fix |"
PAIR_HEAD = "| capture | known edit | brief's edit | same |"
YES, SOME, FUNCTION, OTHER_WORDS, NO, UNMARKED = (
    "yes",
    "one of several",
    "its function",
    "in other words",
    "no",
    "-",
)
_MAX_FIX_LETTERS = 32


@dataclass(frozen=True)
class Followed:
    """One program, and where its brief leads.

    Attributes:
        program: its record in ``programs.toml``.
        brief: what ``tracelab analyze --brief`` printed.
        next_code: exit code of the first command of `next`.
        predicted_ms: what the edit saves by ``tracelab whatif --edit``; None without an edit.
    """

    program: dict[str, Any]
    brief: dict[str, Any]
    next_code: int
    predicted_ms: float | None

    @property
    def first(self) -> dict[str, Any]:
        """The first finding."""
        found: dict[str, Any] = self.brief["findings"][0]
        return found

    @property
    def right_line(self) -> str:
        """Whether the brief leads to a marked line."""
        known, place = marked_lines(self.program), self.first["place"]
        source = source_of(self.program)
        if not known:
            return UNMARKED
        if place["file"] is None or Path(place["file"]).name != source.name:
            return NO
        told = {*filter(None, [place["line"], *place["lines"]])}
        if told:
            return YES if told <= known else SOME if told & known else NO
        return FUNCTION if place["function"] in functions_with(known, source) else NO

    @property
    def right_fix(self) -> str:
        """Whether the brief's fix has a word of the known one."""
        fix = self.first["fix"].lower()
        if any(word.lower() in fix for word in self.program["fix"]):
            return YES
        return OTHER_WORDS if any(x.lower() in fix for x in self.program.get("said", ())) else NO

    @property
    def edit_agrees(self) -> bool | None:
        """Whether the edit saves what the brief says; None without an edit or a saving."""
        saves = self.first["saves"]
        if saves is None or self.predicted_ms is None:
            return None
        return abs(self.predicted_ms - saves["ms"]) <= 0.01 * self.brief["headline"]["step_ms"]

    @property
    def row(self) -> str:
        """The row of the table."""
        place, fix = self.first["place"], self.first["fix"].replace("|", "\\|")
        told = [place["line"]] if place["line"] else place["lines"]
        where = f"{place['function']}:{_ranges(told)}" if told else f"{place['function']}"
        cut = fix if len(fix) <= _MAX_FIX_LETTERS else f"{fix[:_MAX_FIX_LETTERS].rstrip('` ')}…"
        return _row(
            self.program["name"],
            _ranges(sorted(marked_lines(self.program))) or UNMARKED,
            where,
            self.right_line,
            f"`{self.program['fix'][0]}`",
            cut + "`" * (cut.count("`") % 2),
            self.right_fix,
        )


def programs(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The programs with a defect whose fix wins; by default all."""
    known = tomllib.loads((JUDGEMENT / "programs.toml").read_text())["program"]
    return [x for x in known if "fix" in x and (not names or x["name"] in names)]


def follow(program: dict[str, Any], folder: Path) -> Followed:
    """Follow the brief of a program."""
    trace = recording(program, folder)
    brief = json.loads(_tracelab(folder, "analyze", trace, "--brief").stdout)
    command = shlex.split(brief["next"][0])
    assert command[0] == "tracelab"
    edit, predicted_ms = brief["findings"][0]["edit"], None
    if edit is not None:
        changed = _tracelab(folder, "whatif", trace, "--edit", edit, "--json", "-")
        if changed.returncode == 0:
            for prediction in json.loads(changed.stdout)["whatif"]["predictions"][-1:]:
                predicted_ms = (prediction["step_ns"] - prediction["predicted_ns"]) / 1e6
    return Followed(program, brief, _tracelab(folder, *command[1:]).returncode, predicted_ms)


def recording(program: dict[str, Any], folder: Path) -> str:
    """Unpack the trace of a program; returns its name in the folder."""
    name = f"{program['name']}.pt.trace.json"
    packed = (JUDGEMENT / "traces" / f"{program['name']}-as-it-is.packed").read_bytes()
    (folder / name).write_text(unpack(packed))
    return name


def _tracelab(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tracelab", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def summary(rows: Iterable[Followed]) -> list[str]:
    """The counts, one a line."""
    found = list(rows)
    marked = [x for x in found if x.right_line != UNMARKED]
    lines = [x.right_line for x in marked]
    fixes = [x.right_fix for x in found]
    edits = [x for x in found if x.first["edit"] is not None]
    agrees = [x.edit_agrees for x in edits if x.edit_agrees is not None]
    both = [x for x in marked if x.right_line != NO and x.right_fix != NO]
    return [
        f"- Right line: {lines.count(YES)} of {len(marked)} programs with a known line; one of "
        f"several lines in {lines.count(SOME)} more, no line but the right function in "
        f"{lines.count(FUNCTION)}.",
        f"- Right fix: {fixes.count(YES)} of {len(found)}, and {fixes.count(OTHER_WORDS)} in other "
        "words.",
        f"- Right line or function, and right fix: {len(both)} of {len(marked)}.",
        f"- The first command of `next` runs: {sum(x.next_code == 0 for x in found)} of "
        f"{len(found)}.",
        f"- The edit is one that `tracelab whatif` takes: "
        f"{sum(x.predicted_ms is not None for x in edits)} of {len(edits)}; it saves what the "
        f"brief says, within 1 % of the step: {sum(agrees)} of {len(agrees)}.",
    ]


def pair_row(pair: Pair) -> str:
    """The row of a bundled pair: is its edit the first that the brief names?"""
    brief = json.loads(render_as(report_of(*files_of(pair.defect)), "brief"))
    edit = next((x["edit"] for x in brief["findings"]), None) or "none"
    same = _kinds(pair.edits) <= _kinds(edit.split(" + "))
    return _row(pair.defect, " + ".join(pair.edits), edit, YES if same else NO)


def pair_summary(rows: Sequence[str]) -> str:
    """The count of a table of pairs."""
    same = sum(row.endswith(f"| {YES} |") for row in rows)
    return f"- Same edit: {same} of {len(rows)} pairs."


def _kinds(edits: Iterable[str]) -> set[str]:
    return {re.split("[:=]", edit)[0] for edit in edits}


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in ascending order, neighbors as a range.

    >>> _ranges([7, 8, 9, 12])
    '7-9, 12'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{x[0]}-{x[-1]}" if len(x) > 1 else f"{x[0]}" for x in parts)


def sizes(program: dict[str, Any], folder: Path) -> tuple[int, int, int]:
    """Tokens of the text, the brief and the JSON of a program's report."""
    import tiktoken

    count = tiktoken.get_encoding("o200k_base").encode_ordinary
    trace = recording(program, folder)
    saved = _tracelab(folder, "analyze", trace, "--json", "report.json")
    forms = [saved.stdout]
    forms += [
        _tracelab(folder, "analyze", "report.json", *x).stdout
        for x in (["--brief"], ["--json", "-"])
    ]
    return tuple(len(count(text)) for text in forms)  # type: ignore[return-value]


def size_rows(found: Sequence[tuple[int, int, int]]) -> Iterator[str]:
    """The rows of the table of sizes."""
    for name, counts in zip(
        ("text", "`--brief`", "`--json -`"), zip(*found, strict=True), strict=True
    ):
        yield _row(name, f"{median(counts):,.0f}", f"{max(counts):,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    chosen = programs(options.names)

    def each(look: Any) -> list[Any]:
        def alone(program: dict[str, Any]) -> Any:
            with TemporaryDirectory() as folder:
                return look(program, Path(folder))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(alone, chosen))

    if options.sizes:
        print(*size_rows(each(sizes)), sep="\n")
        return
    found = each(follow)
    rows, pair_rows = [x.row for x in found], [*map(pair_row, PAIRS)]
    counts = [*summary(found), pair_summary(pair_rows)]
    if not options.write:
        print(HEAD, *rows, "", PAIR_HEAD, *pair_rows, "", *counts, sep="\n")
        return
    from tests.documents import with_lines, with_table

    text = with_table(with_table(DOCUMENT.read_text(), HEAD, rows), PAIR_HEAD, pair_rows)
    DOCUMENT.write_text(with_lines(text, counts))


if __name__ == "__main__":
    main()
