"""Sections about what ran: kernels, operators, phases, lines, modules."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tracelab.base.arrays import Record
from tracelab.base.names import short_kernel_name
from tracelab.base.safe_text import counted
from tracelab.render.section import LABEL, PART, Section, figure_columns, table
from tracelab.render.text.hints import MORE_IN_JSON
from tracelab.render.text.savings import percent
from tracelab.render.words import count_text, exact_percent, rate_text, shorten, time_text
from tracelab.report.glossary import ORIGINS
from tracelab.report.schema import RATES, KernelMetrics, WorkMetrics
from tracelab.report.views import FIGURES, RankView, View

_NAMED_PHASES = ("forward", "backward", "optimizer")
_KIND_WORDS = {"comm": "communication", "copy": "copies", "memset": "memsets"}
_MAX_NAMED_KINDS = 4
_MIN_NAMED_GPU_SHARE = 0.01
# A compiler fuses most of such kernels.
_MIN_GPU_SHARE_TO_COMPILE = 0.25

_NO_STACKS = (
    "The file has no Python stacks of the program: record with_stack=True to see the CPU's time "
    "by line and by module."
)
_MAX_KERNEL_LETTERS = 60
_PRODUCTS = frozenset(("matrix products", "convolutions", "attention"))
_INSTANCE = re.compile(r"_\d+(?= > |$)")  # the number of a module among those of its class
_WORK = ("phases", "lines", "modules", "operators")
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


def note_graphs(view: View, sections: Sequence[tuple[str, list[Section]]]) -> None:
    """Note below the first table with CUDA graphs where their nodes count."""
    for key, made in sections:
        if made and key in _WORK and any(row.replay_basis for row in view.tables.get(key, ())):
            made[-1] = replace(made[-1], notes=(*made[-1].notes, _OF_GRAPHS))
            return


def busy_answer(view: View) -> str:
    """Say what keeps the GPUs busy; "" without kernels or length."""
    shares = _shares_of_work(view)
    if not shares:
        return ""
    largest = sorted(shares.items(), key=lambda x: -x[1])[:_MAX_NAMED_KINDS]
    works = ", ".join(
        f"{work} {percent(share)}" for work, share in largest if share >= _MIN_NAMED_GPU_SHARE
    )
    top = next(row for row in view.kernels if row.kind is not None)
    phase = f" ({top.phase})" if top.phase in _NAMED_PHASES else ""
    kernel = shorten(short_kernel_name(top.name).rpartition("::")[2], _MAX_KERNEL_LETTERS)
    answer = f"GPU time: {works}; `{kernel}`{phase} {percent(top.share)}."
    fuses = " `torch.compile(model)` fuses elementwise operations."
    return answer + (fuses if is_worth_compiling(view) else "")


def is_worth_compiling(view: View) -> bool:
    """True if elementwise operations, not made by a compiler, take much of the GPU's time."""
    is_compiled = any(row.name.startswith("triton_") for row in view.kernels)
    elementwise = _shares_of_work(view).get("elementwise operations", 0)
    return not is_compiled and elementwise >= _MIN_GPU_SHARE_TO_COMPILE


def _shares_of_work(view: View) -> dict[str, float]:
    shares: dict[str, float] = defaultdict(float)
    if view.scope.length_ns > 0:
        for row in view.kernels:
            if row.kind is not None:
                shares[_KIND_WORDS.get(row.kind, row.work)] += row.share
    return shares


def phases(view: View) -> Iterator[Section]:
    """Show the phases in the order of a step."""
    rows = view.phases
    notes = []
    if any(row.where for row in rows):
        notes.append(
            "The file does not mark the forward pass: the time of the main thread before each "
            "backward pass, back to the phase before, counts as forward."
        )
    elif {row.name for row in rows}.isdisjoint(_NAMED_PHASES):
        notes.append(
            "The file does not mark the phases: record with_stack=True, or name them with "
            'torch.profiler.record_function("forward").'
        )
    if rows:
        yield table(
            f"Phases{_per(rows[0].sums.steps)}",
            rows,
            ("phase", lambda row: _label(row.name, _origin(row)), LABEL),
            *figure_columns(rows, FIGURES["phases"]),
            lines=_about_times(rows),
            notes=notes,
        )


def work(view: View, key: str, top: int) -> Iterator[Section]:
    """Show the table of kernels, operators, lines or modules."""
    kind, rows = _TABLES[key], list(view.tables.get(key, ()))
    if key == "modules":
        rows = _merge_classes(rows)
    if key == "lines" and not rows and view.operators and key in view.tables:
        yield Section(f"Lines{_per(view.operators[0].sums.steps)}", (_NO_STACKS,))
    if rows and (key != "lines" or view.operators):
        yield table(
            f"{kind.title}{_per(rows[0].sums.steps)}",
            rows[:top],
            (kind.heading, kind.label, LABEL),
            kind.has_calls and ("calls", lambda row: count_text(row.calls) if row.calls else ""),
            *figure_columns(rows, FIGURES[key]),
            kind.has_phase and ("phase", lambda row: row.phase or "", LABEL),
            lines=kind.about,
            notes=_left_out(rows, top, kind),
        )


def rates(rank: RankView, view: View, key: str, top: int) -> Iterator[Section]:
    """Show rates of kernels, operators, lines or modules."""
    rows = list(view.tables.get(key, ()))
    if key == "modules":
        rows = _merge_classes(rows)
    of_kernels = key == "kernels"
    kind, per = _TABLES[key], _per(rows[0].sums.steps) if rows else ""
    known = [x.name for x in RATES] if of_kernels else ["flops"]
    shown = [row for row in rows if any(getattr(row, name) is not None for name in known)]
    if shown:
        yield table(
            f"Rates of {kind.many}{per}",
            shown[:top],
            (kind.heading, kind.label, LABEL),
            *figure_columns(shown[:top], RATES),
            lines=_about_utilization(view) if of_kernels else (),
            notes=_about_peaks(rank, rows) if of_kernels else (),
        )


def _about_utilization(view: View) -> Iterator[str]:
    steady = view.steady_row
    if steady is None or steady.flops is None:
        return
    step = time_text(round(steady.unprofiled_step_ns or steady.step_ns))
    flops = f"{rate_text(steady.flops)}FLOP in a step of {step}"
    if steady.mfu is not None:
        flops = f"MFU {exact_percent(steady.mfu)}: {flops}"
    rest = 1 - (steady.flops_known_share or 0)
    missing = f", without products of {exact_percent(rest)} of their time" if rest > 0.0005 else ""
    yield f"{flops}{missing}."


def _about_peaks(rank: RankView, rows: Sequence[KernelMetrics]) -> Iterator[str]:
    if not any(row.flops for row in rows):
        if not _PRODUCTS.isdisjoint(row.work for row in rows):
            yield "FLOP/s need the shapes of inputs: record with record_shapes=True."
        return
    if not rank.trace.gpus:
        yield "The file does not name its GPUs: their peak is not known."
    for name in dict.fromkeys(rank.trace.gpus.values()):
        peak = rank.trace.peaks.get(name)
        if peak is None:
            yield f"The peak of {name} is not known."
            continue
        formats = {x: getattr(peak, x) for x in ("bf16", "fp16", "fp8", "tf32", "fp32", "fp64")}
        most = ", ".join(f"{x} {rate:,}" for x, rate in formats.items() if rate)
        memory = rate_text(1e9 * peak.memory)
        yield f"Peak of {name}, by its maker: {most} TFLOP/s; memory {memory}B/s."


class _Table(Record):
    title: str
    one: str
    many: str
    heading: str
    label: Callable[[Any], str]
    about: tuple[str, ...] = ()
    has_calls: bool = False
    has_phase: bool = False


def _about_times(rows: Sequence[WorkMetrics]) -> tuple[str, ...]:
    meaning = "CPU times add up to a step; idle: the GPU had nothing to do while the CPU was in it."
    if rows[0].host_unprofiled_ns is None:
        return (meaning,)
    return (
        f"{meaning} Without the profiler: estimated for each row by a replay; the sum agrees with "
        "what was measured.",
    )


def _origin(row: WorkMetrics) -> str | None:
    return row.replay_basis and ORIGINS.names[row.replay_basis]


def _label(*parts: str | None) -> str:
    return PART.join(filter(None, parts))


def _merge_classes(rows: Sequence[WorkMetrics]) -> list[WorkMetrics]:
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
            **_merged_rates(group),
            host_unprofiled_ns=(
                None
                if group[0].host_unprofiled_ns is None
                else sum(row.host_unprofiled_ns or 0 for row in group)
            ),
        )
        for (name, where), group in groups.items()
    ]
    return sorted(merged, key=lambda row: -max(row.host_ns, row.gpu_ns))


def _merged_rates(rows: Sequence[WorkMetrics]) -> dict[str, Any]:
    known = [(row, row.flops / row.flop_rate) for row in rows if row.flops and row.flop_rate]
    flops, seconds = sum(row.flops or 0 for row, _ in known), sum(time for _, time in known)

    def mean(name: str, weights: Iterable[tuple[WorkMetrics, float]]) -> float | None:
        weighted = [(x, time) for row, time in weights if (x := getattr(row, name)) is not None]
        total = sum(time for _, time in weighted)
        return sum(x * time for x, time in weighted) / total if total else None

    return {
        "flops": flops or None,
        "flop_rate": flops / seconds if known else None,
        "peak_share": mean("peak_share", known),
        "byte_rate": mean("byte_rate", known),
        "occupancy": mean("occupancy", ((row, row.gpu_ns) for row in rows)),
    }


def _least_sure(bases: Iterable[str | None]) -> str | None:
    in_order = list(ORIGINS.names)
    return max(filter(None, bases), key=in_order.index, default=None)


def _per(steps: int | None) -> str:
    if steps is None:
        return ", whole trace"
    return f", per steady step (mean of {steps})" if steps > 1 else ", of one step"


def _left_out(rows: Sequence[Any], top: int, kind: _Table) -> tuple[str, ...]:
    rest = rows[top:]
    if not rest:
        return ()
    count = counted(sum(row.names for row in rest), kind.one, kind.many)
    shares = [row.share if isinstance(row, KernelMetrics) else row.gpu_share for row in rest]
    of_host = [row.host_share for row in rest if isinstance(row, WorkMetrics)]
    host = f"{exact_percent(sum(of_host))} of the CPU time and " if of_host else ""
    gpu = f"{exact_percent(sum(shares))} of the GPU time"
    return (f"… and {count} more, {host}{gpu} ({MORE_IN_JSON}).",)


def _module(row: WorkMetrics) -> str:
    own = f"{row.names} {row.name}" if row.names > 1 else row.name
    return _label(own, row.where, _origin(row))


_TABLES = {
    "kernels": _Table(
        "Kernels",
        "kernel",
        "kernels",
        f"name{PART}kind",
        lambda row: _label(row.name, row.kind),
        has_phase=True,
    ),
    "operators": _Table(
        "Operators",
        "operator",
        "operators",
        f"operator{PART}phase",
        lambda row: _label(row.name, row.where, _origin(row)),
        ("CPU and GPU time of the operator itself, without the operators it calls.",),
        has_calls=True,
    ),
    "lines": _Table(
        "Lines",
        "line",
        "lines",
        f"line{PART}function",
        lambda row: _label(row.where, row.name, _origin(row)),
        (
            "CPU time of a line with all that it calls outside the program's own code. A row "
            "without a line number is a call whose line is not known, or what the function did "
            "between its calls.",
        ),
    ),
    "modules": _Table(
        "Modules",
        "module",
        "modules",
        f"module{PART}inside",
        _module,
        (
            "CPU time of the module itself, without the modules it calls. The backward pass "
            "runs outside of modules.",
        ),
        has_calls=True,
    ),
}
