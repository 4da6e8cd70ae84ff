"""For tests that begin with a report: the tables that a test is about, and nothing else."""

from __future__ import annotations

from tracelab.report.schema import SCHEMA, Provenance, Report


def report(*, traces, windows, findings=(), provenance=None, job=None, **tables):
    """A report of these files; each further keyword is a table, by its key."""
    return Report(
        schema=SCHEMA,
        version="1.2.3",
        provenance=provenance or Provenance(("run",), (), r"^Step#\d+$", ()),
        traces=tuple(traces),
        tables={"windows": tuple(windows), **{key: tuple(rows) for key, rows in tables.items()}},
        findings=tuple(findings),
        job=job,
    )
