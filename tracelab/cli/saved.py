"""Files that are saved reports (``analyze --json``), where a command takes traces as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tracelab.base.errors import UsageError

if TYPE_CHECKING:
    from tracelab.analysis.reports import FileResult
    from tracelab.base.options import Options
    from tracelab.report.schema import Report


def merge_with_saved(
    results: Sequence[FileResult], paths: Sequence[str], options: Options
) -> Report:
    """Return one report of all files, or the saved one that is the only file.

    Raises:
        UsageError: a saved report is not the only file.
        TracelabError: none could be analyzed.
    """
    from tracelab.analysis.reports import merge_results

    saved = [result for result in results if result.is_saved]
    if saved and len(results) > 1:
        raise UsageError(
            f"{saved[0].source.path} is a saved report: it cannot be combined with other files"
        )
    if saved and saved[0].report is not None:
        return saved[0].report
    return merge_results(results, paths, options)


def require_same_options(report: Report, options: Options, step_on: str | None) -> None:
    """Refuse to measure a saved report anew: it no longer has what that would need.

    Raises:
        UsageError: an option asks for something other than the report was made with.
    """
    made = report.provenance
    path = report.traces[0].path if report.traces else "the report"
    if options.comm_patterns and options.comm_patterns != made.comm_patterns:
        raise UsageError(
            f"--comm-pattern applies only to traces; the saved report of {path} was made with "
            f"{', '.join(made.comm_patterns) or 'none'}"
        )
    if step_on and (step_on,) != report.step_patterns:
        raise UsageError(
            f"--step-on applies only to traces; in the saved report of {path} the steps are "
            f"{' or '.join(report.step_patterns)}"
        )


def require_without_trace(asked: Mapping[str, object]) -> None:
    """Refuse what cannot be made of a saved report, without the trace.

    Args:
        asked: flags that need the trace, with their values; None where one is not given.

    Raises:
        UsageError: one of them is given.
    """
    for flag, value in asked.items():
        if value is not None:
            raise UsageError(f"{flag} needs the trace: this is a saved report")
