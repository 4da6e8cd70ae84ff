"""The sections of the text report about starts: what activities waited for, typical latencies."""

from __future__ import annotations

from tracelab.base.text import counted
from tracelab.measures.starts import LatencyMetrics, StartMetrics
from tracelab.render.text.cells import (
    CONSTRAINT_MEANINGS,
    largest,
    meaning_of,
    percent_text,
    time_text,
)
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.report.views import View

_MOST_LATENCIES = 8
_SURE = 0.02  # of the window: with more in unexplained delays nothing can be predicted


def starts(view: View) -> list[Section]:
    """Per device: what its activities waited for, and how much is not explained."""
    return [_starts(view, row) for row in view.starts]


def _starts(view: View, row: StartMetrics) -> Section:
    gpu = f", GPU {row.device}" if view.several else ""
    columns = (
        Column("waited for", Fit.LABEL),
        Column("activities"),
        Column("of all"),
        Column("meaning", Fit.PROSE),
    )
    return Section(
        f"What activities waited for{gpu}",
        columns=columns,
        rows=tuple(
            (
                constraint,
                f"{count:,}",
                percent_text(count, row.activities),
                meaning_of(CONSTRAINT_MEANINGS, constraint),
            )
            for constraint, count in largest(row.by_constraint)
        ),
        notes=(_certainty(view, row),),
    )


def _certainty(view: View, row: StartMetrics) -> str:
    """How sure all that is."""
    inferred = f"Inferred from the times: {row.inferred:,} of {row.activities:,}."
    if not row.unexplained_ns:
        return f"{inferred} No delay of more than 20 µs is without an explanation."
    share = percent_text(row.unexplained_ns, view.length_ns)
    delays = counted(row.unexplained, "delay", "delays")
    too_much = "" if row.unexplained_share <= _SURE else ": too much to predict what a fix saves"
    return (
        f"{inferred} {time_text(row.unexplained_ns)} ({share} of the window) is in {delays} of "
        f"more than 20 µs that neither the file nor the times explain{too_much}."
    )


def latencies(view: View) -> list[Section]:
    """How long starts typically take, the most frequent first."""
    rows = sorted(view.latencies, key=lambda row: -row.starts)[:_MOST_LATENCIES]
    if not rows:
        return []
    return [
        Section(
            "Typical latencies",
            columns=(
                Column("from the end of → to", Fit.LABEL),
                Column("typical"),
                Column("starts"),
                Column("measured in", Fit.LABEL),
            ),
            rows=tuple(
                (
                    latency_name(row),
                    time_text(row.typical_ns),
                    f"{row.starts:,}",
                    "this trace" if row.own else "captures of H200s",
                )
                for row in rows
            ),
        )
    ]


def latency_name(row: LatencyMetrics) -> str:
    """What a latency lies between, in words.

    >>> latency_name(LatencyMetrics(0, None, "previous", "compute", "copy", 3_300, 12, False))
    'compute → copy'
    >>> latency_name(LatencyMetrics(0, None, "awaited", None, None, 5_000, 3, False))
    'awaited work → return of a blocking call'
    >>> latency_name(LatencyMetrics(0, None, "node", None, None, 128, 90, True))
    'node of a CUDA graph → the next in its stream'
    """
    ends = {
        "previous": (row.previous, row.kind),
        "launch": ("launch call", row.kind),
        "event": ("work of another stream", row.kind),
        "awaited": ("awaited work", "return of a blocking call"),
        "node": ("node of a CUDA graph", "the next in its stream"),
    }
    return " → ".join(map(str, ends[row.since]))
