"""Reports show themselves in a notebook, as the text that a terminal would show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelab.render.registry import render_as

if TYPE_CHECKING:
    from tracelab.report.schema import Report


def show_reports() -> None:
    """Tell IPython how to show a `Report`; without a running IPython, do nothing."""
    from IPython import get_ipython

    shell: Any = get_ipython()
    if shell is None:
        return
    formatters = shell.display_formatter.formatters
    formatters["text/html"].for_type_by_name("tracelab.report.schema", "Report", _html)
    formatters["text/plain"].for_type_by_name("tracelab.report.schema", "Report", _plain)


def _html(report: Report) -> Any:
    return render_as(report, "notebook")


def _plain(report: Report, printer: Any, _: bool) -> None:
    printer.text(render_as(report, "text", width=100, color=False))
