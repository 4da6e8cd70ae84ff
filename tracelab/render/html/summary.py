"""What stands first in the page: sentences, four numbers, and a bar that is as long as the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from tracelab.arrays import OneLine
from tracelab.glossary import CAUSES
from tracelab.measures.steady import UNPROFILED
from tracelab.measures.window_times import DeviceMetrics
from tracelab.render.text.cells import CAUSE_NAMES, meaning_of, percent_text, time_text
from tracelab.render.text.savings import all_save_in_full, not_predicted
from tracelab.render.text.verdict import verdict
from tracelab.report.views import RankView, Scope

UNKNOWN = "—"


@dataclass(frozen=True, slots=True, repr=False)
class Number(OneLine):
    """A number with what it is.

    Example row: ``Number("steady step", "32.4 ms", "median of 5")``
    """

    name: str
    value: str
    note: str


@dataclass(frozen=True, slots=True, repr=False)
class Part(OneLine):
    """A part of a bar.

    Example row: ``Part(kind="host_blocked", name="host_blocked", time_ns=150)``

    Attributes:
        kind: the name of its color.
        name: what it is called.
        time_ns: its length, ns.
    """

    kind: str
    name: str
    time_ns: int


@dataclass(frozen=True, slots=True, repr=False)
class Bar(OneLine):
    """A stretch of time in parts without gaps: they add up to it.

    Example: ``Bar("the 5 steady steps of GPU 0", 900, (Part("compute", "compute", 700), ...))``

    Attributes:
        name: what it is about.
        length_ns: the stretch, ns.
        parts: from left to right, each longer than nothing.
    """

    name: str
    length_ns: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Summary(OneLine):
    """What is said first of a file or a job.

    Attributes:
        title: its name, where there are several.
        verdict: sentences, the most important first.
        numbers: four.
        bars: one of a file; of a job one for each rank.
    """

    title: str
    verdict: tuple[str, ...]
    numbers: tuple[Number, ...]
    bars: tuple[Bar, ...]


def summary_of(rank: RankView, title: str = "") -> Summary:
    """The summary of one file."""
    scope = rank.main.scope
    bars = [bar_of(scope)] if scope.deciding is not None and scope.length_ns > 0 else []
    return Summary(title, tuple(verdict(rank)), numbers_of(rank), tuple(filter(None, bars)))


def numbers_of(rank: RankView) -> tuple[Number, ...]:
    """A step, the step without the profiler, the GPU's work in it, and with all fixes."""
    scope, row = rank.main.scope, rank.steady
    unprofiled_ns = rank.main.window.unprofiled_ns
    if scope.steps:
        unprofiled_ns = row.unprofiled_step_ns if row else None
    name = "steady step" if scope.steps else "whole trace" if rank.main.step is None else scope.name
    median = f"median of {scope.steps}" if scope.steps > 1 else "with the profiler"
    return (
        Number(name, time_text(scope.step_ns), median),
        Number(
            "without the profiler",
            UNKNOWN if unprofiled_ns is None else time_text(unprofiled_ns),
            "not measured" if unprofiled_ns is None else "timed apart" if scope.steps else "",
        ),
        Number(
            "GPU work in it",
            time_text(scope.floor_ns),
            f"GPU {scope.device}{'' if not scope.step_ns else _share(scope)}"
            if scope.device is not None
            else "no GPU worked",
        ),
        _predicted(scope),
    )


def _share(scope: Scope) -> str:
    return f" · {percent_text(min(scope.floor_ns, scope.step_ns), scope.step_ns)}"


def _predicted(scope: Scope) -> Number:
    name, savings = "predicted with the fixes", scope.savings
    if savings is None or savings.step_ns is None or savings.saves_ns is None:
        why = not_predicted(scope)
        return Number(name, UNKNOWN, "not predicted" if why else "no fix to predict")
    left_ns = savings.step_ns - savings.saves_ns
    without = ", without the profiler" if savings.basis == UNPROFILED else ""
    return Number(name, time_text(left_ns), f"saves {all_save_in_full(scope)}{without}")


def bar_of(scope: Scope) -> Bar | None:
    """The time that findings are about, on the GPU that decides; None without one."""
    device = scope.deciding
    if device is None:
        return None
    steps = f"the {scope.steps} steady steps" if scope.steps > 1 else scope.name
    return Bar(f"{steps} on GPU {device.device}", scope.length_ns, tuple(parts_of(device)))


def parts_of(device: DeviceMetrics) -> Iterable[Part]:
    """What a GPU did and why it was idle; the times add up to busy and idle."""
    rest_ns = device.busy_ns - device.compute_ns - device.exposed_comm_ns - device.exposed_copy_ns
    order = [term.key for term in CAUSES.terms]
    causes = [*order, *(cause for cause in device.bubbles if cause not in order)]
    busy = (
        Part("compute", "compute", device.compute_ns),
        Part("exposed_comm", "exposed communication", device.exposed_comm_ns),
        Part("exposed_copy", "exposed copies", device.exposed_copy_ns),
        Part("memset", "memsets alone", rest_ns),
    )
    idle = (
        Part(
            cause if cause in order else "unknown",
            f"idle: {meaning_of(CAUSE_NAMES, cause)}",
            device.bubbles.get(cause, 0),
        )
        for cause in causes
    )
    return (part for part in (*busy, *idle) if part.time_ns)


def short_name(paths: Sequence[str]) -> str:
    """What a page of these files is called."""
    if len(paths) == 1:
        return PurePath(paths[0]).name
    folders = {PurePath(path).parent.name for path in paths}
    folder = folders.pop() if len(folders) == 1 else ""
    return f"{len(paths)} files{f' in {folder}' if folder else ''}"
