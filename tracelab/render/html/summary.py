"""What stands first in the page: sentences, four numbers, and a bar that is as long as the time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from tracelab.arrays import OneLine
from tracelab.glossary import CAUSES
from tracelab.measures.steady import UNPROFILED
from tracelab.measures.window_times import DeviceMetrics
from tracelab.read.file_names import short_names
from tracelab.render.text.cells import CAUSE_NAMES, meaning_of, split_text, time_text
from tracelab.render.text.job import RankShares, job_verdict, rank_shares
from tracelab.render.text.savings import all_save_in_full, not_predicted, of_what
from tracelab.render.text.screen_of_files import step_sentence
from tracelab.render.text.verdict import verdict
from tracelab.report.schema import Report
from tracelab.report.views import RankView, Scope

UNKNOWN = "—"
_MOST_BARS = 8  # ranks
_FEW_FILES, _FEW_SENTENCES = 4, 2  # of which all is said, and what of more files is


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

    Example: ``Bar("What GPU 0 did in ...", 900, (Part("compute", "compute", 700), ...), steps=5)``

    Attributes:
        name: what it is about.
        length_ns: the stretch, ns.
        parts: from left to right, each longer than nothing.
        steps: how many steps that is; 1 of what is no step.
    """

    name: str
    length_ns: int
    parts: tuple[Part, ...]
    steps: int = 1


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

    @property
    def legend(self) -> tuple[Part, ...]:
        """Each sort of part of the bars once."""
        return tuple({part.name: part for bar in self.bars for part in bar.parts}.values())

    @property
    def words(self) -> tuple[str, ...]:
        """What it says in words of the glossary."""
        parts = (part.name for bar in self.bars for part in bar.parts)
        return (*self.verdict, *(number.name for number in self.numbers), *parts)


def summaries_of(report: Report, ranks: Sequence[RankView]) -> list[Summary]:
    """The summary of the job, or of each file."""
    if report.job is not None and ranks:
        return [_of_job(report, ranks)]
    names = short_names([rank.trace.path for rank in ranks]) if len(ranks) > 1 else ("",)
    summaries = [summary_of(rank, name) for rank, name in zip(ranks, names, strict=False)]
    if len(summaries) <= _FEW_FILES:
        return summaries
    return [replace(x, verdict=x.verdict[:_FEW_SENTENCES]) for x in summaries]


def _of_job(report: Report, ranks: Sequence[RankView]) -> Summary:
    """Who makes others wait, the slowest rank's numbers, and how each rank spends its steps."""
    shares = rank_shares(report)
    longest = max(ranks, key=lambda rank: rank.main.scope.step_ns)
    on = f"rank {longest.trace.rank}"
    numbers = [
        x if x.value == UNKNOWN else replace(x, note=f"{x.note} · {on}")
        for x in numbers_of(longest)[:3]
    ]
    if len(numbers) == 3 and any(x.rank == longest.trace.rank and x.wait_ns for x in shares):
        numbers[2] = replace(numbers[2], name="GPU busy, waits included")
    able = [rank for rank in ranks if (x := rank.main.scope.savings) and x.saves_ns is not None]
    priced = longest if longest in able else next(iter(able), longest)
    predicted = _predicted(priced.main.scope)
    if able:
        replayed = report.job is not None and report.job.baseline is not None
        of = "mean step of the job" if replayed else f"rank {priced.trace.rank}"
        predicted = replace(predicted, note=f"{predicted.note} · {of}")
    return Summary(
        "",
        (*job_verdict(report, shares), *step_sentence(ranks)),
        (*numbers, predicted),
        tuple(
            _bar_of_rank(x)
            for x in _chosen(
                shares, {x.rank for x in report.job.stragglers} if report.job else set()
            )
        ),
    )


def _chosen(shares: Sequence[RankShares], first: Collection[int]) -> list[RankShares]:
    """Of very many ranks the stragglers, and those that wait longest."""
    order = sorted(shares, key=lambda x: (x.rank not in first, -x.wait_ns / max(1, x.length_ns)))
    return sorted(order[:_MOST_BARS], key=lambda x: x.rank)


def _bar_of_rank(shares: RankShares) -> Bar:
    parts = (
        Part("compute", "compute", shares.compute_ns),
        Part("wait", "wait for other ranks", shares.wait_ns),
        Part("transfer", "transfer", shares.transfer_ns),
        Part("comm", "unmatched communication", shares.unmatched_ns),
        Part("copy", "copies", shares.copy_ns),
        Part("unknown", "idle", shares.idle_ns),
    )
    return Bar(
        f"rank {shares.rank}", shares.length_ns, tuple(part for part in parts if part.time_ns)
    )


def summary_of(rank: RankView, title: str = "") -> Summary:
    """The summary of one file."""
    scope = rank.main.scope
    bars = [bar_of(scope)] if scope.deciding is not None and scope.length_ns > 0 else []
    return Summary(title, tuple(verdict(rank)), numbers_of(rank), tuple(filter(None, bars)))


def numbers_of(rank: RankView) -> tuple[Number, ...]:
    """A step, the step without the profiler, the GPU's work in it, and with all fixes."""
    scope, row = rank.main.scope, rank.steady
    busy, idle = split_text(scope.busy_ns, scope.idle_ns)
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
            "GPU busy",
            busy,
            f"GPU {scope.device} · idle {idle}" if scope.device is not None else "no GPU worked",
        ),
        _predicted(scope),
    )


def _predicted(scope: Scope) -> Number:
    name, savings = "predicted with the fixes", scope.savings
    if savings is None or savings.step_ns is None or savings.saves_ns is None:
        why = not_predicted(scope)
        return Number(name, UNKNOWN, "not predicted" if why else "no fix to predict")
    left_ns = savings.step_ns - savings.saves_ns
    whole = of_what(scope)
    without = " without the profiler" if savings.basis == UNPROFILED else ""
    return Number(name, time_text(left_ns), f"saves {all_save_in_full(scope)} of {whole}{without}")


def bar_of(scope: Scope) -> Bar | None:
    """The time that findings are about, on the GPU that decides; None without one."""
    device = scope.deciding
    if device is None:
        return None
    steps = max(1, scope.steps)
    mean = f"{steps} steady steps ({time_text(round(scope.length_ns / steps))})"
    what = f"a step, the mean of {mean}," if steps > 1 else scope.name
    name = f"What GPU {device.device} did in {what} and why it was idle"
    return Bar(name, scope.length_ns, tuple(parts_of(device)), steps)


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


def name_of(report: Report) -> str:
    """What a page of these files is called."""
    paths = [trace.path for trace in report.traces]
    if len(paths) == 1:
        return PurePath(paths[0]).name
    folders = {PurePath(path).parent.name for path in paths}
    folder = folders.pop() if len(folders) == 1 else ""
    count = f"Job of {len(paths):,} ranks" if report.job else f"{len(paths):,} files"
    return f"{count} in {folder}" if folder else count
