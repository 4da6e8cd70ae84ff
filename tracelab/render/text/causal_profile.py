"""The words of the causal profile: what a step would take without a line, operator or kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

from tracelab.base.text import counted
from tracelab.findings.savings import Savings
from tracelab.measures.program_lines import OUTSIDE_FUNCTIONS
from tracelab.measures.steady import UNPROFILED
from tracelab.render.text.cells import PART, percent_text, time_text
from tracelab.render.text.hints import MORE_IN_JSON
from tracelab.render.text.sections import Column, Fit, Section, Tone
from tracelab.render.words import bare_name
from tracelab.simulate.causal_profile import ALL, FINDING, KERNEL, LINE, OPERATOR, CausalMetrics

_MOST_ROWS, _MOST_WITHOUT_SAVING = 20, 5
_LITTLE = 0.001  # of a step: to save less is to save nothing
_ONE_AND_MANY = {
    FINDING: ("finding", "findings"),
    LINE: ("line", "lines"),
    OPERATOR: ("operator", "operators"),
    KERNEL: ("kernel", "kernels"),
}


def causal_section(rows: Sequence[CausalMetrics], savings: Savings | None) -> Section:
    """Whether the host or a GPU decides, then what each part would save.

    Args:
        rows: the profile of one file.
        savings: what is known of the file's replay; None of reports of before.
    """
    items = [row for row in rows if row.by != ALL]
    if not items:
        return Section("", (_why_empty(savings),), tone=Tone.WARNING)
    by, unit = items[0].by, "the trace" if savings is not None and savings.is_of_trace else "a step"
    useful = [row for row in items if _saves(row)]
    useless = [row for row in items if not _saves(row)]
    shown = [*useful, *useless[:_MOST_WITHOUT_SAVING]][:_MOST_ROWS]
    columns = (
        Column(_ONE_AND_MANY[by][0], Fit.LABEL),
        *map(Column, ("CPU", "GPU", f"{unit}\nwithout it", "saves", f"of\n{unit}")),
        *map(Column, ("saves\nif half", "saves if it\ndid not wait")),
    )
    cells = [_cells(row) for row in shown]
    is_filled = [any(column) for column in zip(*cells, strict=True)]
    return Section(
        f"Causal profile by {by}",
        tuple(_summary(rows, unit, savings)),
        tuple(compress(columns, is_filled)),
        tuple(tuple(compress(row, is_filled)) for row in cells),
        tuple(_notes(items, useless, len(items) - len(shown))),
    )


def _saves(row: CausalMetrics) -> bool:
    return abs(row.saves_ns) >= _LITTLE * row.step_ns


def _why_empty(savings: Savings | None) -> str:
    if savings is not None and savings.not_replayed is not None:
        return f"No causal profile: {savings.not_replayed[:1].lower()}{savings.not_replayed[1:]}"
    return "No causal profile: nothing in these steps has a change that can be replayed."


def _summary(rows: Sequence[CausalMetrics], unit: str, savings: Savings | None) -> Iterator[str]:
    """Whether the host or a GPU decides; by finding only what a step takes."""
    step_ns = rows[0].step_ns
    is_unprofiled = savings is not None and savings.basis == UNPROFILED
    step = f"{unit} of {time_text(step_ns)}{' without the profiler' if is_unprofiled else ''}"
    whole = [row for row in rows if row.by == ALL]
    if len(whole) != 2:
        yield f"Of {step}."
        return
    on_host, on_gpu = whole
    host_ns, gpu_ns = on_host.critical_ns or 0, on_gpu.critical_ns or 0
    parts = [f"the CPU decides {time_text(host_ns)}", f"the GPU {time_text(gpu_ns)}"]
    if host_ns < gpu_ns:
        parts = [f"the GPU decides {time_text(gpu_ns)}", f"the CPU {time_text(host_ns)}"]
    between_ns = step_ns - host_ns - gpu_ns
    if between_ns > 0.01 * step_ns:
        parts.append(f"launches and waking up take {time_text(between_ns)}")
    yield (
        f"Of {step}, {', '.join(parts)}. It would take {time_text(on_gpu.free_ns)} if GPU "
        f"activities took no time, and {time_text(on_host.free_ns)} if the CPU's work took none."
    )


def _cells(row: CausalMetrics) -> tuple[str, ...]:
    """What stands in each column; "" where the row has nothing to say."""
    names = [bare_name(row.name) if row.by == KERNEL else row.name, row.where]
    if row.names > 1:
        names[0] = f"{row.names:,} {row.name}"
    if row.by == LINE:
        names.reverse()
    return (
        PART.join(name for name in names if name),
        time_text(row.host_ns) if row.host_ns is not None and row.by != KERNEL else "",
        time_text(row.gpu_ns) if row.gpu_ns is not None else "",
        time_text(row.free_ns),
        _signed(row.saves_ns),
        f"{'-' if row.saves_ns < 0 else ''}{percent_text(abs(row.saves_ns), row.step_ns)}",
        _signed(row.step_ns - row.half_ns) if row.half_ns is not None else "",
        _signed(row.step_ns - row.no_wait_ns) if row.no_wait_ns is not None else "",
    )


def _signed(time_ns: int) -> str:
    return f"-{time_text(-time_ns)}" if time_ns < 0 else time_text(time_ns)


def _notes(
    items: Sequence[CausalMetrics], useless: Sequence[CausalMetrics], left: int
) -> Iterator[str]:
    """What the table leaves out, and what it means."""
    by = items[0].by
    one, many = _ONE_AND_MANY[by]
    if left:
        yield f"… and {counted(left, 'row', 'rows')} more ({MORE_IN_JSON})."
    if useless and by != FINDING:
        count = sum(row.names for row in useless)
        of = counted(sum(row.names for row in items), one, many)
        yield f"{count:,} of {of} could take no time without making the step shorter."
    if by == LINE and all(row.name == OUTSIDE_FUNCTIONS for row in items):
        yield "The trace has no Python functions: record with_stack=True, or profile by operator."
    yield "Savings do not add up: each is that of a replay in which nothing else changes."
