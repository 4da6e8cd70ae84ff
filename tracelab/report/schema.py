"""The result of an analysis: plain data that is saved as JSON and rendered without the trace.

The fields are the keys of the JSON; ``make documents`` writes ``report.schema.json`` of them.
Times are integer nanoseconds since the first event of the trace that they belong to. All that is
measured per window is a table: rows that begin with ``rank`` and ``step``.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from dataclasses import replace
from html import escape
from numbers import Integral
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from msgspec.structs import force_setattr

from tracelab.base import printing
from tracelab.base.arrays import Record
from tracelab.base.options import require_types
from tracelab.base.printing import Shown
from tracelab.base.safe_text import json_bytes
from tracelab.findings.finding import Finding, Savings
from tracelab.job.clocks import Alignment as Alignment
from tracelab.job.collective_metrics import CollectiveMetrics as CollectiveMetrics
from tracelab.job.lateness import RECORDING_START as RECORDING_START, UNEVEN_WORK as UNEVEN_WORK
from tracelab.job.merge import Job as Job
from tracelab.job.operation_members import RankStep as RankStep
from tracelab.job.path import JobPath as JobPath
from tracelab.job.pipeline import (
    BubbleParts as BubbleParts,
    Pipeline as Pipeline,
    StageMetrics as StageMetrics,
)
from tracelab.job.stragglers import Straggler as Straggler
from tracelab.measures.blocking_calls import BlockingCallMetrics as BlockingCallMetrics
from tracelab.measures.critical_path import CriticalPathMetrics as CriticalPathMetrics
from tracelab.measures.graph_idle import GraphIdleMetrics as GraphIdleMetrics
from tracelab.measures.idle_culprits import CulpritMetrics as CulpritMetrics
from tracelab.measures.measure import (
    JOINT as JOINT,
    Figure as Figure,
    Table as Table,
    Tabled,
    constrained as constrained,
    csv_text as csv_text,
    flatten as flatten,
)
from tracelab.measures.memory import MemoryMetrics as MemoryMetrics
from tracelab.measures.overlap import OverlapMetrics as OverlapMetrics
from tracelab.measures.starts import LatencyMetrics as LatencyMetrics, StartMetrics as StartMetrics
from tracelab.measures.what_ran import OUTSIDE_FUNCTIONS as OUTSIDE_FUNCTIONS
from tracelab.measures.window_times import (
    PROFILED,
    UNPROFILED as UNPROFILED,
    DeviceMetrics as DeviceMetrics,
    ServedSteps as ServedSteps,
    SteadyMetrics,
    WindowMetrics,
)
from tracelab.measures.work import (
    RATES as RATES,
    KernelMetrics as KernelMetrics,
    KernelTotal,
    WorkMetrics as WorkMetrics,
)
from tracelab.model.arithmetic import Peak as Peak
from tracelab.model.graph import EventLinks
from tracelab.model.losses import FAILED, LossName as LossName
from tracelab.model.steps import RepeatedAnnotation, UnusedSteps, known_steps
from tracelab.simulate.causal_profile import CausalMetrics as CausalMetrics
from tracelab.simulate.predict import Prediction as Prediction
from tracelab.system.console import tell
from tracelab.system.files import identities, require_output, write_file

if TYPE_CHECKING:
    from tracelab.report.headline import Headline

_Row = TypeVar("_Row")

SCHEMA = "tracelab.report/1"
STATED = "the caller says so"  # why files are a job
_ADDED = {"added": True}  # missing in older reports


class UnreadFile(Record):
    """A file that was asked for and could not be analyzed."""

    path: str
    reason: str

    @property
    def text(self) -> str:
        """The reason with the file that it is about."""
        return self.reason if self.path in self.reason else f"{self.path}: {self.reason}"


class JobDecision(Record):
    """Decision if several files are the ranks of one job.

    Attributes:
        is_job: they are; where not, each file is a recording of its own.
        why: what says so, a clause.
        recordings: the values of ``rank`` of the files that were recorded together, by their first.
    """

    is_job: bool
    why: str
    recordings: tuple[tuple[int, ...], ...]


class Provenance(Record):
    """Inputs and options of the report.

    Attributes:
        step_pattern: of the steps that were looked for; a file's own says what they were found by.
        job: None where there is one file, or in a report of an earlier version.
    """

    paths: tuple[str, ...]
    comm_patterns: tuple[str, ...]
    step_pattern: str
    unread: tuple[UnreadFile, ...]
    job: Annotated[JobDecision | None, _ADDED] = None


class RecordedTime(Record):
    """Times of a file's steps, by its clock.

    Attributes:
        origin_ns: the first event, from which all times of the file count; ns since 1970 where the
            file says when its clock began.
        start_ns, end_ns: from the start of the first step to the end of the last, or the whole
            trace where it has no steps.
    """

    origin_ns: Annotated[int, constrained(minimum=-(2**63))]
    start_ns: int
    end_ns: int


class LaunchedOnly(Record):
    """The whole trace measured again without the activities whose launch is not in the file."""

    start_ns: int
    end_ns: int
    left_out: int
    devices: tuple[DeviceMetrics, ...]


class TraceInfo(Record):
    """One file.

    Attributes:
        rank_source: "metadata", "filename" or "position" (its place among the files).
        objects: events of all phases in the file; `events` are the complete ones that were used.
        software: versions as the file gives them.
        gpus: device number to name, of the devices that worked.
        peaks: of their names those of which the most that they can do is known.
        unrecognised: long kernels that no rule recognizes; they count as compute.
        launched_only: None where the launch of every activity is in the file.
        platform: the devices, where they are not those of CUDA or ROCm.
        world_size: how many ranks the job has, where the file says so.
        world_groups: how many process groups have all ranks in them, where the file lists them.
        recorded: None in a report of an earlier version.
        unused_steps: annotations that match the pattern of the steps and are not steps.
        loss_names: of what tracelab does not know the ten most frequent names of each loss.
        collector: "kineto" or "cuspy", where the file says who recorded the GPU; else "".
        step_pattern: regular expression of the annotations that are the steps; "" where there are
            none, or in a report of an earlier version.
        repeated_annotations: in a file without steps the annotations that repeat and launch work,
            those that launch most first.
    """

    path: str
    rank: int
    rank_source: Annotated[str, constrained(enum=["metadata", "filename", "position"])]
    objects: int
    events: int
    gpu_activities: int
    software: Mapping[str, str]
    gpus: Mapping[str, str]
    losses: Mapping[str, int]
    event_links: EventLinks
    unrecognised: tuple[KernelTotal, ...]
    launched_only: LaunchedOnly | None
    platform: str = ""
    world_size: Annotated[int | None, _ADDED] = None
    world_groups: Annotated[int | None, _ADDED] = None
    recorded: Annotated[RecordedTime | None, _ADDED] = None
    unused_steps: Annotated[tuple[UnusedSteps, ...], _ADDED] = ()
    collector: Annotated[str, _ADDED] = ""
    loss_names: Annotated[tuple[LossName, ...], _ADDED] = ()
    step_pattern: Annotated[str, _ADDED] = ""
    repeated_annotations: Annotated[tuple[RepeatedAnnotation, ...], _ADDED] = ()
    peaks: Annotated[Mapping[str, Peak], _ADDED] = MappingProxyType({})

    @property
    def framework(self) -> str:
        """Framework whose annotations are the steps; "" where they are the profiler's own."""
        known, _ = known_steps(self.step_pattern)
        return known.framework if known else ""

    @property
    def phase(self) -> str:
        """Phase of serving requests that all steps are in, such as "decode"; "" for no such."""
        return known_steps(self.step_pattern)[1]


class StepTimes(Record):
    """One step of one rank, ns.

    Attributes:
        device: the GPU that is the busiest in it; None where none worked.
        unprofiled_ns: its length without the profiler, where that is at least a tenth less.
        bubbles_ns: the idle time by cause.
    """

    rank: int
    step: int
    device: int | None
    length_ns: int
    unprofiled_ns: int | None
    busy_ns: int
    idle_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    bubbles_ns: Mapping[str, int]


class Note(Record):
    """Note to the reader of a window's findings."""

    rank: int
    step: int | None
    text: str


class WhatIf(Tabled, Shown):
    """Length of the steady steps with changes, by replay; `print` shows it as a table.

    Attributes:
        basis: whether predictions are of a step with the profiler or without it.
        baseline_error: by which share of the step the replay without a change is off, 0.01 for
            1 % longer; None where nothing was replayed.
        predictions: in the order asked for; with several changes each alone, then all together.
        not_replayed: why there are none, a sentence; None where there are.
        is_of_trace: the trace has no steps: times are of all of it.
    """

    basis: Annotated[str, constrained(enum=[PROFILED, UNPROFILED])]
    baseline_error: float | None
    predictions: Table[Prediction]
    not_replayed: str | None = None
    is_of_trace: bool = False


class _Rows(Generic[_Row]):
    """Rows of the table named like the attribute, or none."""

    def __init__(self, row: type[_Row]) -> None:
        self._row = row

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = name

    def __get__(self, holder: Tables, owner: type) -> Table[_Row]:
        return (holder and holder.tables.get(self._key)) or Table((), self._row)


class Tables:
    """Base of classes that hold tables by key: the package's tables, by name."""

    __slots__ = ()
    if TYPE_CHECKING:  # every subclass has this field
        tables: Mapping[str, Table[Any]]

    overlaps = _Rows(OverlapMetrics)
    syncs = _Rows(BlockingCallMetrics)
    holders = _Rows(CulpritMetrics)
    graph_idle = _Rows(GraphIdleMetrics)  # in replays
    starts = _Rows(StartMetrics)
    latencies = _Rows(LatencyMetrics)
    critical_path = _Rows(CriticalPathMetrics)
    steady = _Rows(SteadyMetrics)  # empty without steady steps
    served_steps = _Rows(ServedSteps)  # empty for other programs
    memory = _Rows(MemoryMetrics)  # empty without readings of allocators
    # Per steady step, the largest first.
    kernels = _Rows(KernelMetrics)
    operators = _Rows(WorkMetrics)
    phases = _Rows(WorkMetrics)
    lines = _Rows(WorkMetrics)  # empty without Python stacks
    modules = _Rows(WorkMetrics)  # likewise


class PageFrame(Record):
    """A report's page in a cell of a notebook, in an isolated frame."""

    report: Report
    height: int

    def _repr_html_(self) -> str:
        page = escape(printing.render(self.report, "page"))
        return (
            '<iframe sandbox="allow-scripts allow-popups allow-popups-to-escape-sandbox" '
            f'srcdoc="{page}" width="100%" height="{self.height}" style="border:0"></iframe>'
        )


class Report(Tabled, Tables, Shown):
    """Measurements of one or several traces; `print` shows it as a terminal does.

    Attributes:
        traces: the files.
        tables: what was measured, by the key in the JSON: rows whose first fields are ``rank`` and
            ``step``, in the order of ranks and then of windows. The tables of the package are
            properties, too.
        findings: what to do, what saves most first; ranks one after another.
        notes: what to know beside the findings.
        savings: what the fixes of the findings save together, a row per file.
        whatif: what steps would take with changes; None if not requested.
        job: what the ranks of one job do together; None for one file, and for several that are not
            one job (`provenance.job` says why).
        causal: the causal profile, in the order of what would be saved; empty if not requested.

    Example:
        >>> report = tracelab.analyze("traces/events_item.pt.trace.json.gz")
        >>> report
        <Report of 1 file, 6 windows, 2 findings>
        >>> report.windows[0].devices[0].idle_ns
        600184
    """

    schema: str
    version: str
    provenance: Provenance
    traces: Table[TraceInfo]
    tables: Mapping[str, Table[Any]]
    findings: Table[Finding] = Table()
    notes: Table[Note] = Table()
    whatif: WhatIf | None = None
    job: Job | None = None
    savings: Table[Savings] = Table()
    causal: Table[CausalMetrics] = Table()

    def __post_init__(self) -> None:
        super().__post_init__()
        tables = {key: Table(rows) for key, rows in self.tables.items()}
        force_setattr(self, "tables", MappingProxyType(tables))

    def __reduce__(self) -> Any:  # read-only mappings cannot be pickled
        values = (getattr(self, name) for name in self.__struct_fields__)
        return Report, tuple(dict(x) if isinstance(x, MappingProxyType) else x for x in values)

    def __repr__(self) -> str:
        counts = (
            (len(self.traces), "file"),
            (len(self.windows), "window"),
            (len(self.findings), "finding"),
        )
        listed = ", ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in counts)
        return f"<Report of {listed}>"

    def show(self, *, height: int = 800) -> PageFrame:
        """Show the page in a cell of a notebook, with the timelines of files that are still there.

        The files are read anew for that. Outside of a notebook it says what to call instead.

        Args:
            height: of the frame, in pixels.
        """
        require_types(height=(height, Integral))
        shell = getattr(builtins, "get_ipython", lambda: None)()
        if not hasattr(shell, "kernel"):
            paths = [trace.path for trace in self.traces]
            files = repr(paths[0] if len(paths) == 1 else paths)
            tell(f"only a notebook shows a page: use tracelab.write_page({files}, 'page.html')")
        return PageFrame(self, height)

    @property
    def headline(self) -> tuple[Headline, ...]:
        """The first figures of each rank, as printed."""
        from tracelab.report.headline import headline_of
        from tracelab.report.views import ranks_of

        return tuple(headline_of(rank) for rank in ranks_of(self) if rank.views)

    @property
    def windows(self) -> Table[WindowMetrics]:
        """The whole trace and then each step, of each rank."""
        return self.tables["windows"]

    @property
    def steps(self) -> Table[StepTimes]:
        """Each step of each rank, on its busiest GPU."""
        from tracelab.report.views import step_times_of

        return Table(step_times_of(self), StepTimes)

    @property
    def has_failed_parts(self) -> bool:
        """True if a bug cost a part of it: the loss `failed_parts` says which."""
        return any(FAILED in trace.losses for trace in self.traces)

    @property
    def step_patterns(self) -> tuple[str, ...]:
        """Patterns of the files' step annotations: as found, else as requested."""
        return tuple(
            dict.fromkeys(x.step_pattern or self.provenance.step_pattern for x in self.traces)
        )

    def assign_rank(self, rank: int, rank_source: str) -> Report:
        """The report of one file as that of another rank."""
        return replace(
            self,
            traces=Table(replace(x, rank=rank, rank_source=rank_source) for x in self.traces),
            tables={key: set_rank(rows, rank) for key, rows in self.tables.items()},
            findings=set_rank(self.findings, rank),
            notes=set_rank(self.notes, rank),
            savings=set_rank(self.savings, rank),
            causal=set_rank(self.causal, rank),
        )

    def to_json(self) -> bytes:
        """The report as one JSON object, indented."""
        content = {
            "schema": self.schema,
            "version": self.version,
            "provenance": self.provenance,
            "traces": self.traces,
            **self.tables,
            "findings": self.findings,
            "notes": self.notes,
            "savings": self.savings,
            "headline": self.headline,
            "whatif": self.whatif,
            "causal": self.causal,
            "job": self.job,
        }
        return json_bytes(content)

    def save(self, path: str | Path) -> None:
        """Write the JSON to a file.

        Raises:
            OutputError: it cannot be written, or is one of the traces.
        """
        require_types(path=(path, str | PathLike))
        require_output(path, identities(trace.path for trace in self.traces))
        write_file(path, self.to_json())


def set_rank(rows: Iterable[Any], rank: int) -> Table[Any]:
    """The same rows, of another rank."""
    return Table(row if row.rank == rank else replace(row, rank=rank) for row in rows)
