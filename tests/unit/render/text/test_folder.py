"""Files that are not one job: a line each, the most expensive first."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from tests.build.report_rows import (
    MS,
    make_finding,
    make_job_report,
    make_priced,
    make_report,
    make_savings,
    make_steady,
    make_steps,
    make_trace,
    make_window,
)
from tests.figures import figures
from tracelab.render.document import document_of
from tracelab.render.text.screen import screen
from tracelab.report.schema import JobDecision, Provenance, UnreadFile


def make_files(names, findings=(), savings=(), *, provenance=None):
    """Files with two steady steps of 10, 20, ... ms."""
    return replace(
        make_report(
            *(
                window
                for rank in range(len(names))
                for window in make_steps([10 * (rank + 1)] * 3, rank=rank)
            ),
            traces=tuple(make_trace(path=x, rank=i) for i, x in enumerate(names)),
            steady=tuple(make_steady(rank=i, step_ns=10 * (i + 1) * MS) for i in range(len(names))),
            findings=findings,
            provenance=provenance,
        ),
        savings=savings,
    )


def lines_of(report, recordings=None, width=80):
    shown = screen(document_of(report, recordings or [report]), width=width)
    lines = [line.text.rstrip() for line in shown]
    assert max(map(cell_len, lines)) <= width
    return lines


def rows_of(lines):
    """The lines of the table, below its titles."""
    first = next(i for i, line in enumerate(lines) if line.startswith("file"))
    return lines[first + 1 : lines.index("", first)]


def test_what_fixes_save_decides_the_order():
    # GIVEN the second of three saves 40 % of its step, the first 10 %, and the third nothing
    findings = (make_priced(1, 1, 1, rank=0), make_priced(8, 8, 8, rank=1))
    savings = (make_savings(1, 1, 1), make_savings(8, 8, 8, rank=1, step_ns=20 * MS))
    lines = lines_of(make_files(["a.json", "b.json", "c.json"], findings, savings))
    # THEN
    assert [(row[0], figures(row)) for row in rows_of(lines)] == [
        ("b", ["20.0 ms", "100 %", "40 %"]),
        ("a", ["10.0 ms", "100 %", "10 %"]),
        ("c", ["30.0 ms", "100 %"]),
    ]


def test_without_prices_it_is_what_the_first_finding_is_about():
    # GIVEN 4 of 20 ms, and 12 of 40 ms
    findings = (make_finding(rank=0), make_finding("TL202", rank=1, bound_ns=12 * MS))
    rows = rows_of(lines_of(make_files(["a.json", "b.json"], findings)))
    assert [row[0] for row in rows] == ["b", "a"]
    assert [figures(row)[-1] for row in rows] == ["30 %", "20 %"]


def test_a_file_without_steps_has_no_length_of_one():
    traces = [make_trace(path=f"{x}.json", rank=i) for i, x in enumerate("ab")]
    report = make_report(make_window(rank=0), make_window(rank=1), traces=traces)
    assert [row.split()[1] for row in rows_of(lines_of(report))] == ["-", "-"]


@pytest.mark.parametrize("decision", [JobDecision(False, "both are rank 0", ((0,), (1,))), None])
def test_why_they_are_no_job_is_said_where_it_is_known(decision):
    provenance = Provenance(("run",), (), "", (), decision)
    lines = lines_of(make_files(["a.json", "b.json"], provenance=provenance))
    assert any("both are rank 0" in line for line in lines) == (decision is not None)


def test_what_was_not_used_is_a_warning():
    failed = tuple(UnreadFile(f"{x}.json", "no trace") for x in "xyz")
    lines = lines_of(make_files(["a.json", "b.json"], provenance=Provenance((), (), "", failed)))
    assert any("x.json: no trace" in line for line in lines[:3])


def test_a_job_among_them_is_one_row():
    # GIVEN two jobs of two ranks each
    jobs = [make_job_report(2, [make_finding(rank=1)]) for _ in "ab"]
    whole = make_files(["run/r0.json", "run/r1.json"])
    lines = lines_of(whole, jobs)
    # THEN each has a row, with its number of ranks
    assert "ranks" in next(line for line in lines if line.startswith("file"))
    assert [row.split()[1] for row in rows_of(lines)] == ["2", "2"]
    assert figures(lines[0]) == ["4"]


@pytest.mark.parametrize("count", [16, 17, 200])
@pytest.mark.parametrize("width", [80, 120])
def test_any_number_of_files_fits(count, width):
    names = [f"{'very_long_name_of_a_file_' * 3}{i}.json" for i in range(count)]
    findings = [make_finding(rank=i, title="long title " * 20) for i in range(count)]
    lines = lines_of(make_files(names, findings), width=width)
    assert len(lines) <= 25
    rows = rows_of(lines)
    assert len(rows) == min(count, 17)
    assert (figures(rows[-1]) == [str(count - 16)]) == (count > 16)
