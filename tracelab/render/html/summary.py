"""First screen of the page: sentences, numbers, and a bar of the shares of a step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from types import MappingProxyType

from tracelab.base.arrays import OneLine, dataclass
from tracelab.base.file_names import short_names
from tracelab.render.facts import busy_parts, gpu_facts, idle_parts, length_of
from tracelab.render.first_screen import answer, is_healthy
from tracelab.render.ranks import RankShares, job_sentences, rank_shares
from tracelab.render.text.savings import interval_text, not_predicted, percent
from tracelab.render.words import CAUSE_NAMES, duration_text, meaning_of
from tracelab.report.glossary import CAUSES
from tracelab.report.headline import PERCENTS, Headline, headline_of
from tracelab.report.schema import DeviceMetrics, Report
from tracelab.report.views import RankView, Scope

UNKNOWN = "—"
_MAX_RANK_BARS = 8
_OF_RANKS = MappingProxyType(  # color and name of each part of `RankShares.percents`
    {
        "compute": ("compute", "compute"),
        "wait": ("wait", "wait for other ranks"),
        "transfer": ("transfer", "transfer"),
        "unmatched": ("comm", "unmatched communication"),
        "copies": ("copy", "copies"),
        "idle": ("unknown", "idle"),
    }
)
# With more files, each summary has so few sentences.
_MAX_FILES_IN_FULL, _MAX_SENTENCES = 4, 2


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

    Example row: ``Part(kind="host_blocked", name="idle: blocking calls", size=25)``

    Attributes:
        kind: the name of its color.
        name: what it is called.
        size: whole percents; in the column of a step its length, ns.
    """

    kind: str
    name: str
    size: int


@dataclass(frozen=True, slots=True, repr=False)
class Bar(OneLine):
    """A step in parts that add up to 100 %: ``Bar("rank 0", (Part("compute", "compute", 97),))``.

    Attributes:
        name: what it is about.
        parts: from left to right, each larger than nothing.
    """

    name: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Summary(OneLine):
    """Summary of a file or a job.

    Attributes:
        title: its name, where there are several.
        verdict: sentences, the most important first.
        numbers: a few.
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
        """Words that the glossary may explain."""
        parts = (part.name for bar in self.bars for part in bar.parts)
        return (*self.verdict, *(number.name for number in self.numbers), *parts)


def summaries_of(report: Report, ranks: Sequence[RankView]) -> list[Summary]:
    """The summary of the job, or of each file."""
    if report.job is not None and ranks:
        return [_summary_of_job(report, ranks)]
    names = short_names([rank.trace.path for rank in ranks]) if len(ranks) > 1 else ("",)
    summaries = [summary_of(rank, name) for rank, name in zip(ranks, names, strict=False)]
    if len(summaries) <= _MAX_FILES_IN_FULL:
        return summaries
    return [replace(x, verdict=x.verdict[:_MAX_SENTENCES]) for x in summaries]


def _summary_of_job(report: Report, ranks: Sequence[RankView]) -> Summary:
    """Say who makes others wait, the slowest rank's numbers, and how each rank spends its steps."""
    shares = rank_shares(report)
    longest = max(ranks, key=lambda rank: rank.main.scope.step_ns)
    on = f"rank {longest.trace.rank}"
    *numbers, predicted = numbers_of(longest)
    numbers = [x if x.value == UNKNOWN else replace(x, note=f"{x.note} · {on}") for x in numbers]
    for idle in (x.percents["idle"] for x in shares if x.rank == longest.trace.rank):
        busy, note = f"{PERCENTS - idle} %", f"idle {idle} % · {on}"
        numbers[-1] = Number("GPU busy, waits included", busy, note)
    priced = next((x for x in ranks if headline_of(x).saves_ns is not None), longest)
    predicted = _predicted(headline_of(priced), priced.main.scope)
    return Summary(
        "",
        tuple(job_sentences(report, shares)),
        (*numbers, predicted),
        tuple(
            _bar_of_rank(x)
            for x in _chosen(
                shares, {x.rank for x in report.job.stragglers} if report.job else set()
            )
        ),
    )


def _chosen(shares: Sequence[RankShares], first: Collection[int]) -> list[RankShares]:
    """Choose the stragglers of very many ranks, and those that wait longest."""
    order = sorted(shares, key=lambda x: (x.rank not in first, -x.wait_ns / max(1, x.length_ns)))
    return sorted(order[:_MAX_RANK_BARS], key=lambda x: x.rank)


def _bar_of_rank(shares: RankShares) -> Bar:
    parts = (Part(*_OF_RANKS[name], size) for name, size in shares.percents.items() if size)
    return Bar(f"rank {shares.rank}", tuple(parts))


def summary_of(rank: RankView, title: str = "") -> Summary:
    """The summary of one file."""
    scope = rank.main.scope
    bar = bar_of(rank)
    is_quiet = not any(scope.is_worth_showing(finding) for finding in rank.main.findings)
    said = [
        *(f"{x.label} {x.text}." for x in gpu_facts(rank)),
        *([answer([rank], is_healthy=is_healthy([rank]))] if is_quiet else []),
    ]
    return Summary(title, tuple(said), numbers_of(rank), (bar,) if bar.parts else ())


def numbers_of(rank: RankView) -> tuple[Number, ...]:
    """A step, the GPU's work in it, and a step with all fixes."""
    headline = headline_of(rank)
    length, _, note = length_of(rank).partition(" (")
    return (
        Number(
            "step" if rank.main.scope.steps else rank.main.name.lower(), length, note.rstrip(")")
        ),
        Number(
            "GPU busy",
            percent(headline.busy_share),
            "no GPU worked"
            if headline.device is None
            else f"GPU {headline.device} · idle {percent(headline.idle_share)}",
        ),
        _predicted(headline, rank.main.scope),
    )


def _predicted(headline: Headline, scope: Scope) -> Number:
    name = "predicted with the fixes"
    if headline.predicted_step_ns is None:
        return Number(
            name, UNKNOWN, "not predicted" if not_predicted(scope) else "no fix to predict"
        )
    range_ = interval_text(headline.saves_low_share or 0.0, headline.saves_high_share or 0.0)
    saves = " ".join(filter(None, [percent(headline.saves_share or 0.0), range_]))
    return Number(name, duration_text(headline.predicted_step_ns), f"saves {saves}")


def bar_of(rank: RankView) -> Bar:
    """Divide a step into the work and the idle time of the GPU that decides."""
    headline = headline_of(rank)
    if headline.device is None:
        return Bar("", ())
    idle = [(_color_of(x.key), f"idle: {x.name}", x.share) for x in idle_parts(headline)]
    busy = [(x.key, x.name, x.share) for x in busy_parts(rank)]
    shares = [*busy, *(idle or [("unknown", "idle", headline.idle_share)])]
    parts = (Part(kind, name, round(share * PERCENTS)) for kind, name, share in shares)
    name = f"GPU {headline.device} in {rank.main.scope.name}: work, and causes of idle time"
    return Bar(name, tuple(part for part in parts if part.size))


def parts_of(device: DeviceMetrics) -> Iterable[Part]:
    """Divide a step into the work and the idle time of a GPU, ns."""
    order = [term.key for term in CAUSES.terms]
    causes = [*order, *(cause for cause in device.bubbles if cause not in order)]
    busy = (
        Part("compute", "compute", device.compute_ns),
        Part("exposed_comm", "exposed communication", device.exposed_comm_ns),
        Part("exposed_copy", "exposed copies", device.exposed_copy_ns),
        Part("memset", "memsets", device.alone_memset_ns),
    )
    idle = (
        Part(
            _color_of(cause),
            f"idle: {meaning_of(CAUSE_NAMES, cause)}",
            device.bubbles.get(cause, 0),
        )
        for cause in causes
    )
    return (part for part in (*busy, *idle) if part.size)


def _color_of(cause: str) -> str:
    """The color of a cause; that of "unknown" where it has none of its own."""
    return cause if cause in CAUSE_NAMES else "unknown"


def name_of(report: Report) -> str:
    """Title a page of these files."""
    paths = [trace.path for trace in report.traces]
    if len(paths) == 1:
        return PurePath(paths[0]).name
    folders = {PurePath(path).parent.name for path in paths}
    folder = folders.pop() if len(folders) == 1 else ""
    count = f"Job of {len(paths):,} ranks" if report.job else f"{len(paths):,} files"
    return f"{count} in {folder}" if folder else count
