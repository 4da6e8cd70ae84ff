"""The section of the text report about the critical path of a window."""

from __future__ import annotations

from tracelab.render.text.cells import (
    PATH_MEANINGS,
    PATH_NAMES,
    largest,
    meaning_of,
    percent_text,
    time_text,
)
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.report.views import View


def critical_path(view: View) -> list[Section]:
    """What the window's length was spent on, by kind."""
    path = view.path
    if path is None or not path.total_ns:
        return []
    return [
        Section(
            "Critical path",
            columns=(
                Column("kind", Fit.LABEL),
                Column("time"),
                Column("of window"),
                Column("meaning", Fit.PROSE),
            ),
            rows=tuple(
                (
                    meaning_of(PATH_NAMES, kind),
                    time_text(time_ns),
                    percent_text(time_ns, path.total_ns),
                    meaning_of(PATH_MEANINGS, kind),
                )
                for kind, time_ns in largest(path.by_kind)
            ),
        )
    ]
