"""The sections of the text report about what ran: kernels, operators, phases, lines, modules."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from tracelab.base.text import counted
from tracelab.measures.host_work import INFERRED, WorkMetrics
from tracelab.measures.kernels import KernelMetrics
from tracelab.model.kernel_kinds import work_of
from tracelab.model.phases import Phase
from tracelab.render.text.cells import PART, percent_text, time_text
from tracelab.render.text.hints import MORE_IN_JSON
from tracelab.render.text.savings import percent
from tracelab.render.text.sections import Column, Fit, Section
from tracelab.render.words import bare_name
from tracelab.report.glossary import ORIGINS
from tracelab.report.views import View

_NAMED_PHASES = [phase.name.lower() for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)]
_KIND_WORDS: Mapping[str, str] = MappingProxyType(
    {"comm": "communication", "copy": "copies", "memset": "memsets"}
)
_MOST_KINDS = 4  # of work that are named
_WORTH_A_WORD = 0.01  # of the GPU time
_WORTH_COMPILING = 0.25  # of it: a compiler fuses most of these

_NO_STACKS = (
    "The file has no Python stacks of the program: record with_stack=True to see the CPU's time "
    "by line and by module."
)
_INSTANCE = re.compile(r"_\d+(?= > |$)")  # the number of a module among those of its class
_ADDED_UP = (
    "names",
    "launches",
    "host_ns",
    "gpu_ns",
    "idle_ns",
    "host_share",
    "gpu_share",
    "replayed_ns",
)
_OF_GRAPHS = (
    "In all tables by phase, line, module and operator, the GPU time of CUDA graphs counts where "
    "their nodes were captured; what is not known to have been captured elsewhere, and all "
    "launches, where they are replayed."
)


def what_ran(
    view: View,
    top: int,
    order: Sequence[str] = ("phases", "kernels", "lines", "modules", "operators"),
) -> list[tuple[str, list[Section]]]:
    """The tables of what ran, by their names: a section each, or none without rows.

    Below the first one with nodes of CUDA graphs stands where those count.

    Args:
        view: of the whole trace, or of one step.
        top: how many kernels, lines, modules and operators to show.
        order: the names, in the order in which they are shown.
    """
    sections = {
        "phases": _phases(view),
        "kernels": _kernels(view, top),
        "lines": _lines(view, top),
        "modules": _modules(view, top),
        "operators": _operators(view, top),
    }
    work = {
        "phases": view.phases,
        "lines": view.lines,
        "modules": view.modules,
        "operators": view.operators,
    }
    of_graphs = [name for name in work if any(row.replay_basis for row in work[name])]
    first = next((name for name in order if sections[name] and name in of_graphs), None)
    return [
        (name, [_about_graphs(x) for x in sections[name]] if name == first else sections[name])
        for name in order
    ]


def busy_answer(view: View) -> str:
    """What keeps the GPUs busy: most of its kinds of work, and the kernel that takes longest.

    Example: ``GPU time: matrix products 61 %, attention 17 %; `gemm` (forward) 30 %.``

    Args:
        view: of the whole trace, or of one step.

    Returns:
        one sentence, and another one where a compiler has much to fuse; "" where the report has no
        kernels, or the window has no length.
    """
    shares = _shares_of_work(view)
    if not shares:
        return ""
    largest = sorted(shares.items(), key=lambda x: -x[1])[:_MOST_KINDS]
    works = ", ".join(
        f"{work} {percent(share)}" for work, share in largest if share >= _WORTH_A_WORD
    )
    top = next(row for row in view.kernels if row.kind is not None)
    phase = f" ({top.phase})" if top.phase in _NAMED_PHASES else ""
    answer = f"GPU time: {works}; `{bare_name(top.name)}`{phase} {percent(top.share)}."
    fuses = " `torch.compile(model)` fuses elementwise operations."
    return answer + (fuses if is_worth_compiling(view) else "")


def is_worth_compiling(view: View) -> bool:
    """True if elementwise operations take much of the GPU's time, and no compiler made them."""
    is_compiled = any(row.name.startswith("triton_") for row in view.kernels)
    elementwise = _shares_of_work(view).get("elementwise operations", 0)
    return not is_compiled and elementwise >= _WORTH_COMPILING


def _shares_of_work(view: View) -> dict[str, float]:
    """The share of the GPU's time by kind of work; none where the window has no length."""
    shares: dict[str, float] = defaultdict(float)
    if view.scope.length_ns > 0:
        for row in view.kernels:
            if row.kind is not None:
                work = work_of(row.name) if row.kind == "compute" else _KIND_WORDS.get(row.kind)
                shares[work or "other kernels"] += row.share
    return shares


def _phases(view: View) -> list[Section]:
    """Data loading, forward, backward, optimizer and the rest, in the order of a step."""
    rows = view.phases
    if not rows:
        return []
    notes = []
    names = {row.name for row in rows}
    if any(row.where == INFERRED for row in rows):
        notes.append(
            "The file does not mark the forward pass: the time of the main thread before each "
            "backward pass, back to the phase before, counts as forward."
        )
    elif names.isdisjoint(_NAMED_PHASES):
        notes.append(
            "The file does not mark the phases: record with_stack=True, or name them with "
            'torch.profiler.record_function("forward").'
        )
    return [
        Section(
            f"Phases{_per(rows[0].sums.steps)}",
            _about_times(rows),
            columns=(
                Column("phase", Fit.LABEL),
                *_work_columns(rows),
                Column("of CPU\ntime"),
                Column("of GPU\ntime"),
            ),
            rows=tuple(
                (
                    _label(row.name, _origin(row)),
                    *_work_cells(row),
                    _share_text(row.host_share),
                    _share_text(row.gpu_share),
                )
                for row in rows
            ),
            notes=tuple(notes),
        )
    ]


def _kernels(view: View, top: int) -> list[Section]:
    """The GPU activities by name, the longest total first."""
    rows = view.kernels
    if not rows:
        return []
    return [
        Section(
            f"Kernels{_per(rows[0].sums.steps)}",
            columns=(
                Column(f"name{PART}kind", Fit.LABEL),
                Column("count"),
                Column("time"),
                Column("mean"),
                Column("of GPU\ntime"),
                Column("phase", Fit.LABEL),
            ),
            rows=tuple(
                (
                    PART.join(part for part in (row.name, row.kind) if part),
                    _count_text(row.count),
                    time_text(row.total_ns),
                    time_text(row.mean_ns),
                    _share_text(row.share),
                    row.phase or "",
                )
                for row in rows[:top]
            ),
            notes=_left_out(rows, top, "kernel", "kernels"),
        )
    ]


def _operators(view: View, top: int) -> list[Section]:
    """The operators, that with the most time of the host or a GPU first."""
    rows = view.operators
    if not rows:
        return []
    return [
        Section(
            f"Operators{_per(rows[0].sums.steps)}",
            ("CPU and GPU time of the operator itself, without the operators it calls.",),
            (Column(f"operator{PART}phase", Fit.LABEL), Column("calls"), *_work_columns(rows)),
            tuple(
                (_label(row.name, row.where, _origin(row)), _calls_text(row), *_work_cells(row))
                for row in rows[:top]
            ),
            _left_out(rows, top, "operator", "operators"),
        )
    ]


def _lines(view: View, top: int) -> list[Section]:
    """The lines of the program, that with the most time of the host or a GPU first."""
    rows = view.lines
    if not view.operators or "lines" not in view.tables:
        return []
    title = f"Lines{_per(view.operators[0].sums.steps)}"
    if not rows:
        return [Section(title, (_NO_STACKS,))]
    return [
        Section(
            title,
            (
                "CPU time of a line with all that it calls outside the program's own code. A row "
                "without a line number is a call whose line is not known, or what the function did "
                "between its calls.",
            ),
            (Column(f"line{PART}function", Fit.LABEL), *_work_columns(rows)),
            tuple(
                (_label(row.where, row.name, _origin(row)), *_work_cells(row)) for row in rows[:top]
            ),
            _left_out(rows, top, "line", "lines"),
        )
    ]


def _modules(view: View, top: int) -> list[Section]:
    """The modules by class, that with the most time of the host or a GPU first."""
    if not view.modules:
        return []
    rows = _by_class(view.modules)
    return [
        Section(
            f"Modules{_per(rows[0].sums.steps)}",
            (
                "CPU time of the module itself, without the modules it calls. The backward pass "
                "runs outside of modules.",
            ),
            (Column(f"module{PART}inside", Fit.LABEL), Column("calls"), *_work_columns(rows)),
            tuple(
                (
                    _label(
                        f"{row.names} {row.name}" if row.names > 1 else row.name,
                        row.where,
                        _origin(row),
                    ),
                    _calls_text(row),
                    *_work_cells(row),
                )
                for row in rows[:top]
            ),
            _left_out(rows, top, "module", "modules"),
        )
    ]


def _about_times(rows: Sequence[WorkMetrics]) -> tuple[str, ...]:
    """What the columns of the figures mean."""
    meaning = "CPU times add up to a step; idle: the GPU had nothing to do while the CPU was in it."
    if rows[0].host_unprofiled_ns is None:
        return (meaning,)
    return (
        f"{meaning} Without the profiler: estimated for each row by a replay; the sum agrees with "
        "what was measured.",
    )


def _work_columns(rows: Sequence[WorkMetrics]) -> list[Column]:
    """The columns of the figures; that without the profiler only where it is known."""
    is_calibrated = rows[0].host_unprofiled_ns is not None
    return [
        Column("launches"),
        Column("CPU"),
        *([Column("without\nprofiler")] if is_calibrated else []),
        Column("GPU"),
        Column("idle"),
    ]


def _work_cells(row: WorkMetrics) -> list[str]:
    """The figures of a row, in the order of `_work_columns`."""
    unprofiled_ns = row.host_unprofiled_ns
    return [
        _count_text(row.launches),
        time_text(row.host_ns),
        *([] if unprofiled_ns is None else [time_text(unprofiled_ns)]),
        time_text(row.gpu_ns),
        time_text(row.idle_ns),
    ]


def _origin(row: WorkMetrics) -> str | None:
    """How it is known that nodes of graphs were captured in it, in words; None without any."""
    return row.replay_basis and ORIGINS.names[row.replay_basis]


def _about_graphs(section: Section) -> Section:
    """The section with what tables say of CUDA graphs."""
    return replace(section, notes=(*section.notes, _OF_GRAPHS))


def _label(*parts: str | None) -> str:
    return PART.join(filter(None, parts))


def _calls_text(row: WorkMetrics) -> str:
    return _count_text(row.calls) if row.calls else ""


def _by_class(rows: Sequence[WorkMetrics]) -> list[WorkMetrics]:
    """The modules of one class that were called in the same classes as one row each."""
    groups: dict[tuple[str, str], list[WorkMetrics]] = {}
    for row in rows:
        names = (row.name, row.where or "")
        name, where = (_INSTANCE.sub("", text) for text in names)
        groups.setdefault((name, where), []).append(row)
    merged = [
        replace(
            group[0],
            name=name,
            where=where or None,
            **{key: sum(getattr(row, key) for row in group) for key in _ADDED_UP},
            calls=sum(row.calls or 0 for row in group),
            replay_basis=_least_sure(row.replay_basis for row in group),
            host_unprofiled_ns=(
                None
                if group[0].host_unprofiled_ns is None
                else sum(row.host_unprofiled_ns or 0 for row in group)
            ),
        )
        for (name, where), group in groups.items()
    ]
    return sorted(merged, key=lambda row: -max(row.host_ns, row.gpu_ns))


def _least_sure(bases: Iterable[str | None]) -> str | None:
    """The least sure one of how several things are known; None without any."""
    in_order = list(ORIGINS.names)
    return max(filter(None, bases), key=in_order.index, default=None)


def _per(steps: int | None) -> str:
    """What the figures of a table are of."""
    if steps is None:
        return ", whole trace"
    return f", per steady step (mean of {steps})" if steps > 1 else ", of one step"


def _count_text(count: float) -> str:
    """A count per step, with a decimal where it is none of whole things.

    >>> _count_text(40.0), _count_text(15.4), _count_text(0.04)
    ('40', '15.4', '<0.1')
    """
    if 0 < count < 0.05:
        return "<0.1"
    return f"{count:,.0f}" if count == int(count) else f"{count:,.1f}"


def _share_text(share: float) -> str:
    return percent_text(round(1_000_000 * share), 1_000_000)


def _left_out(
    rows: Sequence[KernelMetrics | WorkMetrics], top: int, one: str, many: str
) -> tuple[str, ...]:
    """How many more there are, and how much time they took."""
    rest = rows[top:]
    if not rest:
        return ()
    count = counted(sum(row.names for row in rest), one, many)
    shares = [row.share if isinstance(row, KernelMetrics) else row.gpu_share for row in rest]
    of_host = [row.host_share for row in rest if isinstance(row, WorkMetrics)]
    host = f"{_share_text(sum(of_host))} of the CPU time and " if of_host else ""
    gpu = f"{_share_text(sum(shares))} of the GPU time"
    return (f"… and {count} more, {host}{gpu} ({MORE_IN_JSON}).",)
