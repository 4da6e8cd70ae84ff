"""All sections about a file, in order."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from tracelab.render.section import Section, keyed, table_of_rows
from tracelab.render.sections.files import steps, unrecognised
from tracelab.render.sections.times import (
    blocking_calls,
    critical_path,
    culprits,
    graph_idle,
    idle,
    latencies,
    memory,
    overlap,
    served_steps,
    starts,
    streams,
    times,
)
from tracelab.render.sections.work import note_graphs, phases, rates, work
from tracelab.report.views import RankView, View


def text_sections(rank: RankView, view: View, top: int, pattern: str = "") -> list[Section]:
    """Make the sections about a window."""
    sections: list[tuple[str, Iterable[Section]]] = [
        ("times", times(view)),
        ("bubbles", idle(view)),
        ("bubbles", culprits(view)),
        ("bubbles", graph_idle(view)),
        ("phases", phases(view)),
        *(
            (key, chain(work(view, key, top), rates(rank, view, key, top)))
            for key in ("kernels", "lines", "modules", "operators")
        ),
        ("times", streams(view)),
        ("overlap", [overlap(view)]),
        ("blocking-calls", [blocking_calls(view)]),
        ("critical-path", critical_path(view)),
        ("starts", starts(view)),
        ("starts", latencies(view)),
        ("other", (table_of_rows(key, rows) for key, rows in view.other_tables.items() if rows)),
    ]
    if view is rank.main:
        sections += [
            ("unrecognized", unrecognised(rank.trace)),
            ("bubbles", steps(rank, pattern)),
            ("times", served_steps(rank)),
            ("memory", memory(rank)),
        ]
    made = [(key, list(some)) for key, some in sections]
    note_graphs(view, made)
    return [section for key, some in made for section in keyed(key, some)]
