"""The first screen of several files: one verdict, one table, the ranks that differ, findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from statistics import median

from tracelab.arrays import OneLine
from tracelab.findings.finding import INFO, Finding, call_site_key, order_of
from tracelab.read.file_names import short_names
from tracelab.render.text.cells import PART, counted, percent_text, time_text
from tracelab.render.text.files import hardware
from tracelab.render.text.finding_lines import TONES, amount, caption, finding_lines, worth_showing
from tracelab.render.text.hints import JOB, of_steps
from tracelab.render.text.job import RankShares, is_unmatched, job_verdict, rank_shares
from tracelab.render.text.savings import all_save
from tracelab.render.text.screen import (
    MOST_FINDINGS,
    MOST_LINES,
    foot_lines,
    lacking,
    smaller,
    text_lines,
    title_line,
    unread_lines,
    verdict_lines,
)
from tracelab.render.text.sections import Line, Span, Tone
from tracelab.render.text.verdict import is_large, left_out_steps, none_is_large, peer_wait_ns
from tracelab.render.text.wrapping import shorten_middle
from tracelab.report.schema import STATED, Report
from tracelab.report.views import RankView, Scope
from tracelab.safe_text import clean

_BLANK = Line()
_FEW_FINDINGS, _FEW_ROWS = 2, 3  # that have their place before more of the other
_SEVERAL = 3  # ranks to one that differs: of fewer none is the usual one
_OTHER = 0.1  # of the usual length, or of a step: so much makes a rank another
_FEW_RANKS = 2  # that are named at the side of a finding
_WORTH_A_WORD = 0.02  # of a step
_SAME = 0.01  # of the larger figure
_NEARLY = 0.8  # of the larger figure
_FILE_WIDTH = 16  # at least
_SPARED = ("copies", "transfer", "waits for")  # columns, where there is no room for all

_Column = tuple[str, list[str]]  # its title and cells


@dataclass(frozen=True, slots=True, repr=False)
class _Row(OneLine):
    """A file as the table has it: times and shares are those recorded, with the profiler.

    Only so do ranks compare: the profiler may slow down some of them and others not.

    Attributes:
        rank: the file.
        scope: what its findings are about.
        busy_share, exposed_share: of the GPU that decides, 0 to 1.
        top: its largest finding.
        shares: how it spends a step as a rank of a job; None where the report does not say.
    """

    rank: RankView
    scope: Scope
    busy_share: float
    exposed_share: float
    top: Finding | None
    shares: RankShares | None = None

    @property
    def number(self) -> int:
        return self.rank.trace.rank

    @property
    def works_share(self) -> float:
        """How much of a step its GPU works; in a job a GPU that waits for others does not."""
        if self.shares is None:
            return self.busy_share
        return self.shares.compute_ns / max(1, self.shares.length_ns)

    @property
    def step_ns(self) -> int:
        """What a step takes, as it was recorded."""
        return self.scope.step_ns


@dataclass(frozen=True, slots=True, repr=False)
class _Group(OneLine):
    """The findings of one call site: the largest of them, and how small it is elsewhere.

    Attributes:
        finding, scope: of the rank where its share is the largest.
        ranks: where it is worth a place.
        least_share: the share of the rank where it is the smallest of those, 0 to 1.
        first: the one of them that comes first in the report, whose number they have.
    """

    finding: Finding
    scope: Scope
    ranks: tuple[int, ...]
    least_share: float
    first: Finding

    @property
    def where(self) -> str:
        if len(self.ranks) == 1:
            return f"rank {self.ranks[0]}"
        if len(self.ranks) <= _FEW_RANKS:
            return f"ranks {', '.join(map(str, self.ranks))}"
        return f"{len(self.ranks)} ranks"

    @property
    def amount(self) -> str:
        """Its share, or from which to which where it differs much between ranks."""
        most = self.scope.share_of(self.finding)
        differs = self.least_share <= min(most - _WORTH_A_WORD, _NEARLY * most)
        if self.finding.saves_ns is not None or not differs:
            return amount(self.finding, self.scope)
        return f"{_percent(self.least_share).removesuffix(' %')} to {_percent(most)}"


def screen_of_files(report: Report, ranks: Sequence[RankView], width: int) -> list[Line]:
    """The first screen of several files.

    Args:
        report: what was measured.
        ranks: the files.
        width: columns of the terminal.
    """
    is_job, decision = report.job is not None, report.provenance.job
    # Its ranks may be places among the files, which say something else.
    is_named = decision is not None and decision.why == STATED
    shares = rank_shares(report)
    by_rank = {x.rank: x for x in shares}
    rows = [_row(rank, by_rank.get(rank.trace.rank)) for rank in ranks if rank.views]
    groups = _groups(rows) if is_job else []
    minor = sum(
        not worth_showing(finding, row.scope)
        for row in rows
        for finding in row.rank.main.findings
        if is_job and finding.about != "trace"
    )
    differing = _differing(rows) if is_job else {}
    stragglers = [x.rank for x in report.job.stragglers] if report.job else []
    paths = [rank.trace.path for rank in ranks]
    names = dict(zip(paths, short_names(paths), strict=True))
    all_findings = [finding for row in rows for finding in row.rank.main.findings]
    lacks = lacking(all_findings, report.traces)
    verdict = _verdict(report, rows, shares) if is_job else [_why_no_job(report)]
    head = _head(report, ranks, verdict, width)
    different = [f"rank {number} ({why})" for number, why in differing.items()]
    ranks_that_differ = (
        text_lines(f"Unlike the others: {', '.join(different)}.", width, 2, Tone.WARNING)
        if different
        else []
    )
    if is_job:  # one program: its ranks are annotated alike
        steps = next(filter(None, map(of_steps, report.traces)), "")
        ranks_that_differ += text_lines(steps, width, 2, Tone.DIM)
    of_all = next(filter(None, (all_save(row.scope) for row in rows)), "")
    lines: list[Line] = []
    for count, row_count, fix_lines in _sizes(len(groups), len(rows)):
        pairs = [(group.finding, group.scope) for group in groups[:count]]
        shown = [caption(pairs, _shares_of(groups[:count]), of_all)] if count else []
        for group in groups[:count]:
            shown += finding_lines(
                report.findings.index(group.first) + 1,
                group.finding,
                group.scope,
                group.amount,
                width=width,
                where=(group.where,),
                fix_lines=fix_lines,
            )
        lines = [
            *head,
            *_table(
                _chosen(rows, row_count, [*stragglers, *differing]),
                len(rows),
                names,
                width,
                is_job=is_job,
                is_named=is_named,
            ),
            *ranks_that_differ,
            _BLANK,
            *shown,
            *([_BLANK] if shown else []),
            *foot_lines(
                [*_left_out_steps(rows), *smaller(len(groups) - count + minor)],
                lacks,
                [group.finding for group in groups[:count]],
                width,
                most=1,
            ),
        ]
        if len(lines) <= MOST_LINES:
            break
    return lines


def _sizes(findings: int, rows: int) -> Iterator[tuple[int, int, int]]:
    """How many findings, rows and lines of a fix are tried to fit, in this order."""
    most = min(findings, MOST_FINDINGS)
    few, rows = min(most, _FEW_FINDINGS), min(rows, MOST_LINES)
    yield from ((most, rows, fix_lines) for fix_lines in (3, 2))
    yield from ((count, rows, 1) for count in range(most, 0, -1))
    for count in range(few, -1, -1):
        yield from ((count, shown, 1) for shown in range(rows, min(rows, _FEW_ROWS) - 1, -1))


def _row(rank: RankView, shares: RankShares | None) -> _Row:
    scope = rank.main.scope
    length_ns = max(1, scope.length_ns)
    device = scope.deciding
    alarms = [x for x in rank.main.findings if x.about != "trace" and x.severity != INFO]
    return _Row(
        rank=rank,
        scope=scope,
        busy_share=min(1.0, device.busy_ns / length_ns) if device else 0.0,
        exposed_share=min(1.0, device.exposed_comm_ns / length_ns) if device else 0.0,
        top=alarms[0] if alarms else None,
        shares=shares,
    )


def _head(
    report: Report, ranks: Sequence[RankView], verdict: Sequence[str], width: int
) -> list[Line]:
    """What was analyzed, and one verdict on all of it."""
    folders = {str(PurePath(rank.trace.path).parent) for rank in ranks}
    folder = folders.pop() if len(folders) == 1 else counted(len(folders), "folder", "folders")
    files = counted(len(ranks), "file", "files")
    return [
        title_line(f"tracelab {report.version}{PART}{files}{PART}", folder, width),
        *text_lines(machines(ranks), width, 1, Tone.DIM),
        *unread_lines(report.provenance, width),
        _BLANK,
        *verdict_lines(verdict, width),
        _BLANK,
    ]


def machines(ranks: Sequence[RankView]) -> str:
    """The GPUs and versions of all files, each once."""
    return PART.join(dict.fromkeys(part for rank in ranks for part in _without_numbers(rank)))


def step_sentence(ranks: Sequence[RankView]) -> list[str]:
    """How long a step of a job takes on its ranks; nothing without any."""
    rows = [_row(rank, None) for rank in ranks if rank.views]
    return [_length(rows)] if rows else []


def _why_no_job(report: Report) -> str:
    decision = report.provenance.job
    if decision is None:  # of an earlier version
        return "Whether these files are one job is not known: each stands for itself."
    return f"Not one job: {decision.why} ({JOB})."


def _without_numbers(rank: RankView) -> list[str]:
    """The GPUs of a file by their names alone, and its versions."""
    names = [name for name in rank.trace.gpus.values() if name]
    return [*dict.fromkeys(names), *hardware(rank.trace, ())]


def _verdict(report: Report, rows: Sequence[_Row], shares: Sequence[RankShares]) -> list[str]:
    """Who makes the others wait; how long a step takes, and how much of it the GPUs work."""
    if not rows:
        return []
    sentences = [*job_verdict(report, shares), _length(rows)]
    if not shares:
        sentences.append(_busy(rows))
    longest = max(rows, key=lambda row: row.step_ns)
    if not any(is_large(x, row.scope) for row in rows for x in row.rank.main.findings):
        sentences.append(none_is_large(longest.scope))
    return sentences


def _length(rows: Sequence[_Row]) -> str:
    """How long a step takes on the ranks, with the profiler and without it."""
    lengths = _range([(row.step_ns, time_text(row.step_ns), row.number) for row in rows])
    names = {"a steady step" if row.scope.steps else row.scope.name for row in rows}
    what = names.pop() if len(names) == 1 else "a step or trace"
    without = [
        (ns, time_text(ns), row.number)
        for row in rows
        if row.rank.steady and (ns := row.rank.steady.unprofiled_step_ns) is not None
    ]
    unprofiled = f"; without the profiler, {_range(without)}" if len(without) == len(rows) else ""
    return f"{what.capitalize()} takes {lengths}{unprofiled}."


def _busy(rows: Sequence[_Row]) -> str:
    """How much of a step the GPUs are busy."""
    busy = _range([(row.busy_share, _percent(row.busy_share), row.number) for row in rows])
    waits = ""
    if any(peer_wait_ns(row.rank, row.scope) for row in rows):
        waits = ", in part because they wait for each other in collectives"
    return f"The GPUs are busy {busy} of it{waits}."


def _range(figures: Sequence[tuple[float, str, int]]) -> str:
    """From the least to the most, with their ranks: ``"24.2 % (rank 7) to 65.7 % (rank 1)"``.

    Of figures that are nearly the same it is the most.
    """
    least, least_text, least_rank = min(figures)
    most, most_text, most_rank = max(figures)
    if most - least <= _SAME * most:
        return most_text
    return f"{least_text} (rank {least_rank}) to {most_text} (rank {most_rank})"


def _groups(rows: Sequence[_Row]) -> list[_Group]:
    """The findings about time of all ranks, each call site once, in the order of `order_of`."""
    by_site: dict[tuple[object, ...], list[tuple[Finding, Scope]]] = defaultdict(list)
    for row in rows:
        for finding in row.rank.main.findings:
            if worth_showing(finding, row.scope):
                by_site[call_site_key(finding)].append((finding, row.scope))
    groups = []
    for found in by_site.values():
        ordered = sorted(found, key=lambda x: order_of(x[0], x[1].share_of(x[0])))
        finding, scope = ordered[0]
        by_rank = {x.rank: scope.share_of(x) for x, scope in reversed(ordered)}  # the first of each
        groups.append(
            _Group(finding, scope, tuple(sorted(by_rank)), min(by_rank.values()), found[0][0])
        )
    return sorted(groups, key=lambda x: order_of(x.finding, x.scope.share_of(x.finding)))


def _shares_of(groups: Sequence[_Group]) -> str:
    """What the shares of findings are of; ranks that the profiler slowed down are named apart."""
    names = {group.scope.name for group in groups}
    slowed = sorted({group.finding.rank for group in groups if group.scope.is_slowed})
    if len(names) == 1 or not slowed:
        return groups[0].scope.name
    ranks = f"rank {slowed[0]}" if len(slowed) == 1 else "some ranks"
    return f"the steady steps (of {ranks}, without the profiler)"


def _differing(rows: Sequence[_Row]) -> dict[int, str]:
    """The ranks that are unlike most others, and by what; none where no length is usual."""
    usual_ns = median(row.step_ns for row in rows)
    usual_share = median(row.works_share for row in rows)
    differing = {}
    for row in rows:
        why = []
        if abs(row.step_ns - usual_ns) > _OTHER * usual_ns:
            why.append(f"a step takes {time_text(row.step_ns)}, usually {time_text(int(usual_ns))}")
        if abs(row.works_share - usual_share) > _OTHER:
            works = "computes" if row.shares else "busy"
            why.append(f"{works} {_percent(row.works_share)}, usually {_percent(usual_share)}")
        if why:
            differing[row.number] = "; ".join(why)
    return differing if _SEVERAL * len(differing) <= len(rows) else {}


def _chosen(rows: Sequence[_Row], count: int, first: Sequence[int]) -> list[_Row]:
    """So many rows: some ranks before the others, then those that work least."""
    order = sorted(
        range(len(rows)), key=lambda i: (rows[i].number not in first, rows[i].works_share)
    )
    return [rows[i] for i in sorted(order[:count])]


def _table(
    shown: Sequence[_Row],
    count: int,
    names: Mapping[str, str],
    width: int,
    *,
    is_job: bool,
    is_named: bool,
) -> list[Line]:
    """A line per file; the files of a job are named where there is room, or where they must be."""
    columns = [("rank", [str(row.number) for row in shown])] if is_job else []
    columns.append(("step", [time_text(row.step_ns) for row in shown]))
    columns += _shares(shown)
    tops = [
        Span(f"{x.rule} {amount(x, row.scope)}", TONES[x.severity]) if (x := row.top) else Span("-")
        for row in shown
    ]
    top_width = max([len("largest finding"), *(len(top.text) for top in tops)])
    columns = _fitting(columns, width - top_width - (_FILE_WIDTH + 2 if is_named else 0))
    titles = [title for title, _ in columns]
    widths = _widths(columns)
    files = [clean(names[row.rank.trace.path]) for row in shown]
    room = width - sum(widths) - top_width - 2 * len(widths) - 2
    name_width = max(map(len, [*files, "file"]))
    file_width = min(name_width, max(room, _FILE_WIDTH))
    # The ranks of a job have numbers; how they spend a step needs the room more than their names.
    with_file = is_named or shown[0].shares is None or name_width <= room

    def line(name: str, numbers: Sequence[str], top: Span, tone: Tone) -> Line:
        padded = [f"{cell:>{size}}" for cell, size in zip(numbers, widths, strict=True)]
        if with_file:
            padded.insert(1 if is_job else 0, f"{shorten_middle(name, file_width):{file_width}}")
        return Line((Span("  ".join(padded) + "  ", tone), top))

    lines = [line("file", titles, Span("largest finding", Tone.DIM), Tone.DIM)]
    by_row = zip(*(cells for _, cells in columns), strict=True)
    lines += [
        line(name, numbers, top, Tone.PLAIN)
        for name, numbers, top in zip(files, by_row, tops, strict=True)
    ]
    if len(shown) < count:
        lines.append(Line((Span(f"… and {count - len(shown)} more", Tone.DIM),)))
    return lines


def _widths(columns: Sequence[_Column]) -> list[int]:
    return [max(map(len, [title, *cells])) for title, cells in columns]


def _fitting(columns: Sequence[_Column], room: int) -> list[_Column]:
    """The columns without those that can be spared, where they need more room."""
    kept = list(columns)
    for spared in _SPARED:
        if sum(_widths(kept)) + 2 * len(kept) > room:
            kept = [(title, cells) for title, cells in kept if title != spared]
    return kept


def _shares(rows: Sequence[_Row]) -> list[_Column]:
    """The columns that say how the files spend a step."""
    shares = [row.shares for row in rows if row.shares is not None]
    if len(shares) < len(rows):
        columns = [("GPU busy", [_percent(row.busy_share) for row in rows])]
        if any(row.exposed_share >= _WORTH_A_WORD for row in rows):
            columns.append(("exposed comm", [_percent(row.exposed_share) for row in rows]))
        return columns
    columns = [
        ("compute", [x.share(x.compute_ns) for x in shares]),
        ("wait", [x.share(x.wait_ns) for x in shares]),
        ("transfer", [x.share(x.transfer_ns) for x in shares]),
        ("copies", [x.share(x.copy_ns) for x in shares]),
        ("idle", [x.share(x.idle_ns) for x in shares]),
        ("waits for", [x.waits_for_text for x in shares]),
    ]
    if all(x.copy_ns < _WORTH_A_WORD * x.length_ns for x in shares):
        del columns[3]
    if is_unmatched(shares):
        columns.insert(3, ("unmatched", [x.share(x.unmatched_ns) for x in shares]))
    return columns


def _percent(share: float) -> str:
    return percent_text(round(1_000_000 * share), 1_000_000)


def _of_ranks(numbers: Sequence[int], every: int) -> str:
    if len(numbers) == every:
        return "all ranks"
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} ranks"


def _left_out_steps(rows: Sequence[_Row]) -> list[str]:
    """The steps that are not steady, of all ranks."""
    texts: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        for text in left_out_steps(row.rank):
            texts[text].append(row.number)
    every = len(rows)
    return [f"{text} on {_of_ranks(numbers, every)}" for text, numbers in texts.items()]
