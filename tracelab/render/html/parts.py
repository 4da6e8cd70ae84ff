"""The parts of the page below its first screen: charts and the tables of the text report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracelab.base.arrays import OneLine
from tracelab.read.file_names import short_names
from tracelab.render.html.charts import HeatChart, StepChart, job_charts, overlap_charts, step_chart
from tracelab.render.text.causal_profile import causal_section
from tracelab.render.text.cells import PART, time_text
from tracelab.render.text.files import (
    all_losses,
    for_details,
    launched_only,
    left_out_steps,
    losses,
    ranks as table_of_ranks,
    steps,
    unrecognised,
)
from tracelab.render.text.hints import ALL_IN_JSON
from tracelab.render.text.job import rank_shares
from tracelab.render.text.job_tables import job_sections
from tracelab.render.text.report import MOST_RANKS
from tracelab.render.text.sections import Column, Section
from tracelab.render.text.tables import other_tables
from tracelab.render.text.whatif import sections as whatif_sections
from tracelab.render.text.window_blocking_calls import blocking_calls
from tracelab.render.text.window_critical_path import critical_path
from tracelab.render.text.window_graph_idle import graph_idle
from tracelab.render.text.window_idle import culprits, idle
from tracelab.render.text.window_kernels import what_ran
from tracelab.render.text.window_overlap import overlap
from tracelab.render.text.window_starts import latencies, starts
from tracelab.render.text.window_times import streams, times
from tracelab.report.glossary import CAUSES
from tracelab.report.schema import Report, WhatIf
from tracelab.report.views import RankView, views_of
from tracelab.simulate.causal_profile import CausalMetrics

if TYPE_CHECKING:
    from tracelab.render.html.file_part import FilePart

TOP = 30  # kernels, lines, modules and operators
_ORDER = ("phases", "kernels", "operators", "lines", "modules")
_MOST_HEAT_ROWS, _MOST_STEPS = 64, 100


@dataclass(frozen=True, slots=True, repr=False)
class Part(OneLine):
    """A part of the page under a heading.

    Attributes:
        key: what it is about.
        suffix: which file it is about, where there are several.
        title: its heading.
        sections: sentences, tables and notes.
        heat: heat maps above them.
        columns: a chart above them.
        of: which stretch of time they are about, where their titles do not say it.
    """

    key: str
    suffix: str
    title: str
    sections: tuple[Section, ...]
    heat: tuple[HeatChart, ...] = ()
    columns: StepChart | None = None
    of: str = ""

    @property
    def id(self) -> str:
        """By which a link finds it."""
        return self.key + self.suffix

    @property
    def label(self) -> str:
        """What a link to it says: ``"Kernels"`` for "Kernels, per steady step (mean of 5)"."""
        return self.title.partition(",")[0].partition(PART)[0]


@dataclass(frozen=True, slots=True, repr=False)
class PartGroup(OneLine):
    """The parts about one file, or about all of them.

    Attributes:
        id: by which a link finds it.
        name: what a link to it says.
        title: its heading; "" where there is one file.
        parts: in order.
    """

    id: str
    name: str
    title: str
    parts: tuple[Part, ...]


def part_groups(
    report: Report, ranks: Sequence[RankView], files: Sequence[FilePart]
) -> list[PartGroup]:
    """Everything below the first screen but where it comes from, in order.

    Args:
        report: the report.
        ranks: its files that have windows.
        files: what else is known of each file while it is analyzed; empty of a saved report.
    """
    several = len(report.traces) > 1
    told_apart = len({trace.rank for trace in report.traces}) == len(report.traces)
    has_details = told_apart and len(report.traces) <= MOST_RANKS
    of_all = tuple(_of_all(report, has_details=has_details)) if several else ()
    groups = [PartGroup("all", "", "", of_all)] if of_all else []
    if not has_details:
        return groups
    by_path = {part.path: part for part in files}
    names = short_names([rank.trace.path for rank in ranks])
    for index, (rank, file) in enumerate(zip(ranks, names, strict=True)):
        suffix = f"-{index}" if several else ""
        parts = tuple(_of_file(report, rank, by_path.get(rank.trace.path), suffix))
        name = f"Rank {rank.trace.rank}" if report.job else file
        path = f"{name}{PART}{rank.trace.path}" if report.job else rank.trace.path
        groups.append(PartGroup(f"file{suffix}", name, path if several else "", parts))
    return groups


def _of_all(report: Report, *, has_details: bool) -> Iterator[Part]:
    """What the files say together."""
    sections = job_sections(report)
    heat: list[HeatChart] = []
    if report.job is not None:
        waits = {x.rank: x.wait_ns / max(1, x.length_ns) for x in rank_shares(report)}
        late = {x.rank for x in report.job.stragglers}
        ordered = sorted(waits, key=lambda rank: (rank not in late, -waits[rank]))
        heat = job_charts(report.job, sorted(ordered[:_MOST_HEAT_ROWS]))
    sections.append(table_of_ranks(report, views_of(report)))
    if not has_details:
        sections.append(for_details(report))
    yield Part("ranks", "", "Ranks" if report.job else "Files", tuple(sections), heat=tuple(heat))
    if report.job and (predictions := _predictions(report.whatif)):
        yield Part("whatif", "", "What if", tuple(predictions))
    lost = all_losses(report.traces)
    if lost:
        yield Part("losses", "", lost[0].title, tuple(lost))


def _of_file(report: Report, rank: RankView, part: FilePart | None, suffix: str) -> Iterator[Part]:
    """All tables of a file, those about what to do before those about what was measured."""
    view = rank.main
    of = view.name.lower()

    def made(
        key: str, sections: Sequence[Section], title: str = "", **options: Any
    ) -> Iterator[Part]:
        if sections:
            yield Part(key, suffix, title or sections[0].title, tuple(sections), **options)

    yield from made("causal", _causal(report, rank, part), "Causal profile")
    yield from made("whatif", _whatif(report, part), "What if")
    chart = step_chart(rank)
    yield from made(
        "bubbles",
        [*idle(view), *culprits(view), *graph_idle(view), *_steps(rank)],
        "Idle by cause and step",
        of=of,
        columns=chart,
    )
    yield from made("times", [*times(view), *streams(view)], "Busy and idle")
    yield from made(
        "overlap",
        [overlap(view)],
        heat=tuple(overlap_charts(view.overlaps, several=view.several)),
        of=of,
    )
    yield from made("blocking-calls", [blocking_calls(view)], of=of)
    yield from made("critical-path", critical_path(view), of=of)
    for key, sections in what_ran(view, TOP, _ORDER):
        yield from made(key, sections)
    yield from made("starts", [*starts(view), *latencies(view)], of=of)
    yield from made("other", other_tables(view), "Other tables", of=of)
    if report.job is None:
        yield from made("losses", losses(rank.trace))
    yield from made("unrecognized", [*unrecognised(rank.trace), *launched_only(rank.trace, view)])


def _causal(report: Report, rank: RankView, part: FilePart | None) -> list[Section]:
    rows: Sequence[CausalMetrics] = [x for x in report.causal if x.rank == rank.trace.rank]
    if part is not None and part.causal:
        rows = part.causal
    return [causal_section(rows, rank.main.savings)] if rows else []


def _whatif(report: Report, part: FilePart | None) -> list[Section]:
    whatif: WhatIf | None = None if report.job else report.whatif
    if part is not None and part.whatif is not None:
        whatif = part.whatif
    return _predictions(whatif)


def _predictions(whatif: WhatIf | None) -> list[Section]:
    """What the fixes save; nothing where that is not known, which is said with the findings."""
    return [] if whatif is None or whatif.not_replayed else whatif_sections(whatif)


def _steps(rank: RankView) -> list[Section]:
    """The steps in lines: how long and how busy, then the causes of idle time in each."""
    if rank.whole is None or not rank.steps:
        return []
    not_steady = [f"Not steady: {text}." for text in left_out_steps(rank)]
    return [steps(rank.steps, "", not_steady), *_causes_by_step(rank)]


def _causes_by_step(rank: RankView) -> list[Section]:
    """Idle by cause in each step, on the GPU that decides."""
    number = rank.main.scope.device
    rows = [
        (view.step, device)
        for view in rank.steps[:_MOST_STEPS]
        for device in view.window.devices
        if device.device == number
    ]
    causes = [x for x in CAUSES.terms if any(device.bubbles.get(x.key) for _, device in rows)]
    if not causes:
        return []
    left = len(rank.steps) - _MOST_STEPS
    return [
        Section(
            "Idle by step and cause",
            columns=(Column("step"), *(Column(x.name) for x in causes), Column("idle")),
            rows=tuple(
                (
                    str(step),
                    *(time_text(device.bubbles.get(x.key, 0)) for x in causes),
                    time_text(device.idle_ns),
                )
                for step, device in rows
            ),
            notes=(f"… and {left:,} more steps {ALL_IN_JSON}.",) if left > 0 else (),
        )
    ]
