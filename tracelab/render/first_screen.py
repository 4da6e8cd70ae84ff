"""First screen of a file or a job: facts, findings with price, place and fix, next commands.

Text, Markdown, JSON in brief, notebooks and training logs draw the same `FirstScreen`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from tracelab.base.arrays import OneLine, dataclass
from tracelab.base.safe_text import counted
from tracelab.findings.finding import ASIDE, MAX_SHORT_LETTERS, WARNING_SHARE, Finding
from tracelab.findings.places import place_text
from tracelab.render.facts import FIXES, Fact, facts_of_file, facts_of_job
from tracelab.render.notes import Note, asides, notes_of, unread
from tracelab.render.ranks import RankShares, rank_shares
from tracelab.render.sections.files import left_out_steps, machines
from tracelab.render.sections.work import busy_answer, is_worth_compiling
from tracelab.render.text.hints import RECORD, RECORD_COMMAND, commands, next_steps, steps_hint
from tracelab.render.text.savings import Price, percent, price, price_of
from tracelab.report.finding_groups import FindingGroup, finding_groups
from tracelab.report.headline import Headline, headline_of
from tracelab.report.schema import Report
from tracelab.report.views import RankView, ranks_of

MAX_ITEMS = 3
_MAX_NAMED_RANKS = 3
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z`])")
# Of a step: the GPU of a healthy program is idle for less.
_MIN_IDLE_SHARE = 0.1


@dataclass(frozen=True, slots=True, repr=False)
class Item(OneLine):
    """A finding of the first screen.

    Example: ``Item(1, finding, "saves 23 % (10 to 35), 7.3 ms", Price("saves", 0.23, ...),
    "empty_cache() returns memory ...", "train_step.py:70 in train", "torch.cuda.empty_cache()",
    "Remove it from the loop.", "")``.

    Attributes:
        number: the same in everything that is made of the report.
        finding: the finding; of a job the most expensive of its place.
        price: what its fix saves.
        figures: the same as figures.
        title: what happens.
        place: where in the user's program; "" where the file does not say, or the title does.
        code: that line of the program; "" where it is not known.
        fix: what to write instead, in one or two sentences.
        on: which ranks of a job have it.
    """

    number: int
    finding: Finding
    price: str
    figures: Price
    title: str
    place: str
    code: str
    fix: str
    on: str


@dataclass(frozen=True, slots=True, repr=False)
class FirstScreen(OneLine):
    """First screen of a file or a job.

    Attributes:
        name: the file, or the folder of a job.
        paths: the files.
        about: what was recorded: GPUs, versions, steps.
        facts: what a step takes, how busy the GPU is, what the fixes save.
        headline: the figures of these; of a job those of the rank whose savings are printed.
        items: the findings that are worth a place, at most three.
        others: the other findings: those that are worth a place, and then the minor ones.
        more: how many of them are worth a place.
        minor: how many are not.
        answer: the sentence printed if no finding is worth a place; else "".
        is_healthy: whether nothing is to be done about it.
        steps: by which annotations steps were found, or could be; "" where there is nothing to say.
        notes: what is to be known about the files, warnings first.
        next: what to type next, in short.
        commands: the same as complete commands.
    """

    name: str
    paths: tuple[str, ...]
    about: tuple[str, ...]
    facts: tuple[Fact, ...]
    headline: Headline
    items: tuple[Item, ...]
    others: tuple[Item, ...]
    more: int
    minor: int
    answer: str
    is_healthy: bool
    steps: str
    notes: tuple[Note, ...]
    next: tuple[str, ...]
    commands: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """All of it in one line: what is wrong and what that costs, or that nothing is."""
        if not self.items:
            return self.answer
        first = self.items[0]
        title = first.title.rstrip(".")
        place = f" ({first.place})" if first.place and first.place not in title else ""
        for fact in self.facts:
            if fact.label == FIXES:
                return f"{FIXES}: {fact.text.rstrip('.')}. First: {title}{place}."
        return f"First: {title}{place}, {first.price}."


def first_screen(report: Report) -> FirstScreen:
    """Make the first screen of a report of one file, or of one job."""
    ranks = [rank for rank in ranks_of(report) if rank.views]
    groups = finding_groups(report, ranks)
    worth = [group for group in groups if group.is_worth_showing]
    items = tuple(_item(group, report, len(ranks)) for group in worth[:MAX_ITEMS])
    is_job = len(ranks) != 1
    facts = (
        facts_of_job(report, ranks, with_savings=bool(items))
        if is_job
        else facts_of_file(ranks[0], with_savings=bool(items))
    )
    findings = [finding for rank in ranks for finding in rank.main.findings]
    notes = [*unread(report.provenance), *notes_of(findings, report.traces), *asides(ranks)]
    notes += [
        Note(text, None, is_warning=False) for rank in ranks for text in _rank_notes(report, rank)
    ]
    healthy = not items and is_healthy(ranks, rank_shares(report))
    is_minor = [group for group in groups if group not in worth and group.finding.role != ASIDE]
    paths = report.provenance.paths or [trace.path for trace in report.traces]
    return FirstScreen(
        name=_name(ranks),
        paths=tuple(rank.trace.path for rank in ranks),
        about=tuple(_about(ranks)),
        facts=tuple(facts),
        headline=headline_of(_deciding(ranks)),
        items=items,
        others=tuple(_item(x, report, len(ranks)) for x in (*worth[MAX_ITEMS:], *is_minor)),
        more=len(worth) - len(items),
        minor=len(is_minor),
        answer="" if items else answer(ranks, is_healthy=healthy),
        is_healthy=healthy,
        steps=next(filter(None, map(steps_hint, report.traces)), ""),
        notes=tuple(dict.fromkeys(notes)),
        next=_next(items, ranks),
        commands=_commands(items, ranks, paths),
    )


def _item(group: FindingGroup, report: Report, ranks: int) -> Item:
    finding, scope = group.finding, group.scope
    title, place = finding.shown_title, place_text(finding.where)
    return Item(
        number=group.number_in(report),
        finding=finding,
        price=price(finding, scope),
        figures=price_of(finding, scope),
        title=title,
        place="" if place.removeprefix("in ") in title else place,
        code=finding.where.code or "",
        fix=short_fix(finding),
        on=_name_ranks(group.ranks, ranks) if ranks > 1 else "",
    )


def short_fix(finding: Finding) -> str:
    """Return the short fix of a finding, or as many whole sentences of the fix as are no longer."""
    if finding.fix_short:
        return finding.fix_short
    first, *others = _SENTENCE_END.split(finding.fix)
    for sentence in others:
        if len(first) + 1 + len(sentence) > MAX_SHORT_LETTERS:
            break
        first = f"{first} {sentence}"
    return first


def _next(items: Sequence[Item], ranks: Sequence[RankView]) -> tuple[str, ...]:
    """List what to type next: to record steps if there are none, else about the first finding."""
    if not any(rank.steps for rank in ranks):
        return (RECORD,)
    if not items:
        return ()
    finding = items[0].finding
    return next_steps(
        items[0].number, finding.remedy or finding.rule, is_priced=finding.saves_ns is not None
    )


def _commands(
    items: Sequence[Item], ranks: Sequence[RankView], paths: Sequence[str]
) -> tuple[str, ...]:
    """Return what to type next as complete commands, and what prints everything."""
    record = () if any(rank.steps for rank in ranks) else (RECORD_COMMAND,)
    if not items:
        return (*record, *commands(paths, None, "", is_priced=False))
    finding = items[0].finding
    name = finding.remedy or finding.rule
    is_priced = finding.saves_ns is not None
    return (*record, *commands(paths, items[0].number, name, is_priced=is_priced))


def _deciding(ranks: Sequence[RankView]) -> RankView:
    """Return the rank whose savings are printed, else the one whose step takes longest."""
    longest = max(ranks, key=lambda rank: rank.main.scope.printed_ns)
    return next((rank for rank in ranks if rank.main.scope.savings), longest)


def _name_ranks(numbers: Sequence[int], every: int) -> str:
    """Name the ranks that have a finding.

    >>> [_name_ranks(range(count), 8) for count in (1, 3, 5, 8)]
    ['rank 0', 'ranks 0, 1, 2', '5 of 8 ranks', 'all ranks']
    """
    if len(numbers) == every:
        return "all ranks"
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) <= _MAX_NAMED_RANKS:
        return f"ranks {', '.join(map(str, numbers))}"
    return f"{len(numbers)} of {every} ranks"


def _name(ranks: Sequence[RankView]) -> str:
    """The file's own name, or that of the folder with the files of a job."""
    paths = [PurePath(rank.trace.path) for rank in ranks]
    if len(paths) == 1:
        return paths[0].name
    folders = dict.fromkeys(str(path.parent) for path in paths)
    return next(iter(folders)) if len(folders) == 1 else counted(len(folders), "folder", "folders")


def _about(ranks: Sequence[RankView]) -> list[str]:
    """The GPUs and versions, and how many steps were recorded."""
    steps = max((len(rank.steps) for rank in ranks), default=0)
    recorded = [counted(steps, "step", "steps")] if steps else []
    if len(ranks) > 1:
        return [counted(len(ranks), "rank", "ranks"), *machines(ranks), *recorded]
    [rank] = ranks
    known_rank = [f"rank {rank.trace.rank}"] if rank.trace.rank_source != "position" else []
    return [*known_rank, *machines(ranks), *recorded]


def _rank_notes(report: Report, rank: RankView) -> list[str]:
    """Note what the analysis of a file could not do, and steps that do not count."""
    notes = [
        note.text.rstrip(".")
        for note in report.notes
        if (note.rank, note.step) == (rank.trace.rank, rank.main.step)
    ]
    return [*notes, *(f"Left out: {text}" for text in left_out_steps(rank))]


def answer(ranks: Sequence[RankView], *, is_healthy: bool) -> str:
    """Answer if no finding is worth a place: nothing is wrong, or nothing is known."""
    longest = max(ranks, key=lambda rank: rank.main.scope.step_ns)
    whole = "the step" if longest.main.scope.steps else "the trace"
    if headline_of(longest).causes.get("unknown", 0.0) >= _MIN_IDLE_SHARE:
        return "The file does not say why the GPU is idle: record the CPU's activities as well."
    least = percent(WARNING_SHARE)
    if not is_healthy:
        return f"No single change is known to save {least} of {whole}."
    nothing = "Nothing here is worth changing: no fix saves"
    if is_worth_compiling(longest.main):
        nothing = "No change of one place saves"
    return f"{nothing} {least} of {whole}. {busy_answer(longest.main)}".rstrip()


def is_healthy(ranks: Sequence[RankView], shares: Sequence[RankShares] = ()) -> bool:
    """True if GPUs are busy for most of a step, and of a job compute that long.

    Args:
        ranks: the files.
        shares: how the ranks of a job spend a step.
    """
    computes = [x.compute_ns / max(1, x.length_ns) for x in shares]
    return min(computes or [headline_of(rank).busy_share for rank in ranks]) > 1 - _MIN_IDLE_SHARE
