"""The section of the text report about idle time inside replays of CUDA graphs."""

from __future__ import annotations

from tracelab.base.text import counted
from tracelab.measures.graph_idle import GraphIdleMetrics
from tracelab.render.text.cells import PART, time_text
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.report.views import View

_MOST_ROWS = 6
_WORTH_SHOWING = 0.001  # of the window


def graph_idle(view: View) -> list[Section]:
    """Before which nodes the GPUs idled inside replays, the most expensive first."""
    ordered = sorted(view.graph_idle, key=lambda row: (-row.idle_ns, row.device, row.event))
    least_ns = _WORTH_SHOWING * view.length_ns
    shown = [row for row in ordered if row.name and row.idle_ns >= least_ns][:_MOST_ROWS]
    if not shown:
        return []
    rows = [
        (
            *([str(row.device)] if view.several else []),
            time_text(row.idle_ns),
            time_text(row.idle_ns // row.replays),
            f"{row.count:,}",
            time_text(row.latency_ns),
            PART.join(
                part for part in (f"{row.name} (stream {row.stream})", _awaited(row)) if part
            ),
        )
        for row in shown
    ]
    gpu = [Column("GPU")] if view.several else []
    return [
        Section(
            "Idle inside CUDA graphs",
            columns=(
                *gpu,
                Column("time"),
                Column("per replay"),
                Column("times"),
                Column("start after"),
                Column("before the node, and what it waits for", Fit.LABEL),
            ),
            rows=tuple(rows),
            notes=_notes(ordered, len(ordered) - len(shown)),
        )
    ]


def _awaited(row: GraphIdleMetrics) -> str:
    """What a node waited for, in words.

    >>> row = GraphIdleMetrics(0, None, 0, "queue", "gemm", 7, "add", 7, 1, 1, 9, 0, 9, 0, 9, 4, 3)
    >>> _awaited(row)
    'after add (stream 7), on which it does not depend'
    """
    if row.awaited is None:
        return ""
    if row.wait == "callback":
        return f"waits for the host function {row.awaited.removeprefix('HostNode: ')}"
    node = f"{row.awaited} (stream {row.awaited_stream})"
    return {
        "node": f"waits for {node}",
        "queue": f"after {node}, on which it does not depend",
    }.get(row.wait, f"after {node}")


def _notes(rows: list[GraphIdleMetrics], left_out: int) -> tuple[str, ...]:
    """What is not shown, and what the file does not say."""
    notes = []
    if left_out:
        notes.append(f"… and {counted(left_out, 'row', 'rows')} more {ALL_IN_JSON}.")
    unknown_ns = sum(row.idle_ns for row in rows if row.wait == "not_in_file")
    if unknown_ns:
        notes.append(
            f"Before nodes whose dependencies the file does not have, the GPU idled "
            f"{time_text(unknown_ns)}: there the node before it in its stream is shown. On NVIDIA "
            "GPUs PyTorch's own CUPTI collector records the dependencies "
            "(enable_graph_dependencies=True)."
        )
    callback_ns = sum(row.idle_ns for row in rows if row.wait == "callback")
    if callback_ns:
        notes.append(
            f"Host functions that run as nodes cost {time_text(callback_ns)}: nodes that depend "
            "on them wait until they return. Call them outside the graph, or on a branch on "
            "which no kernel depends."
        )
    return tuple(notes)
