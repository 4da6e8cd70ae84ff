"""First screen of a file or a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from tracelab.base.arrays import Record
from tracelab.base.safe_text import counted
from tracelab.findings.finding import ASIDE, MAX_SHORT_LETTERS, WARNING_SHARE, Finding
from tracelab.findings.places import place_text
from tracelab.findings.rules.exposed_time import PEER_WAIT
from tracelab.render.notes import Note, asides, notes_of, unread
from tracelab.render.ranks import RankShares, job_sentences, rank_shares
from tracelab.render.sections.files import left_out_steps, machines
from tracelab.render.sections.work import busy_answer, is_worth_compiling
from tracelab.render.text.hints import (
    FULL,
    PAGE,
    RECORD,
    RECORD_COMMAND,
    about_finding,
    analyze_command,
    steps_hint,
    typed_paths,
)
from tracelab.render.text.savings import (
    Price,
    interval_text,
    not_predicted,
    percent,
    price,
    price_of,
)
from tracelab.render.words import duration_text
from tracelab.report.finding_groups import FindingGroup, finding_groups
from tracelab.report.glossary import CAUSES
from tracelab.report.headline import PERCENTS, Headline, apportion, headline_of
from tracelab.report.schema import Report
from tracelab.report.views import RankView, Scope, ranks_of

MAX_ITEMS = 3
_MAX_NAMED_RANKS = 3
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z`])")
# Of a step; a healthy program's GPU is idle for less.
_MIN_IDLE_SHARE = 0.1
OTHER = "other"  # unnamed causes
RANKS, FIXES = "Ranks", "Fixes"  # labels
_MAX_NAMED_CAUSES = 3
# More share one line.
_MAX_OTHER_GPUS = 3
_MIN_NAMED_STEP_SHARE = 0.02
_MIN_BUSY_SHARE = 0.001
_MAX_LENGTH_RATIO = 1.1
_NO_ANSWER = "edge"  # the cause that says nothing about the program
_MANY = {"host_blocked": "blocking calls"}


class Fact(Record):
    """One line about a step."""

    label: str
    text: str


class SharePart(Record):
    """A part of a step, 0 to 1 in whole percents: ``SharePart("host_busy", "CPU-bound", 0.06)``."""

    key: str
    name: str
    share: float


class BusyShares(Record):
    """Busy share of each GPU: ``BusyShares("the steady steps", {0: "68 %"})``."""

    of: str
    by_gpu: Mapping[int, str]


class Item(Record):
    """A finding; its number is the same in all outputs.

    Attributes:
        finding: of a job the most expensive of its place.
        place, code: "" if unknown, or if the title says the place.
        on: ranks of a job.
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


class FirstScreen(Record):
    """First screen of a file or a job.

    Attributes:
        headline: of a job, of the rank whose savings are printed.
        items: at most three.
        others: all other findings, the minor ones last.
        more, minor: how many of them are worth a place, and are not.
        answer: the sentence printed without items; else "".
        steps: how steps were found, or could be, or "".
        next, commands: to type next, in short and complete.
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
        """The screen in one line."""
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
    """Make the first screen of one file or job."""
    ranks = [rank for rank in ranks_of(report) if rank.views]
    groups = finding_groups(report, ranks)
    worth = [group for group in groups if group.is_worth_showing]
    items = tuple(item_of(group, report, len(ranks)) for group in worth[:MAX_ITEMS])
    healthy = not items and _is_healthy(ranks, rank_shares(report))
    is_minor = [group for group in groups if group not in worth and group.finding.role != ASIDE]
    has_steps = any(rank.steps for rank in ranks)
    steps = (PAGE, *_about_first(items, "FILE")) if items else ()
    paths = report.provenance.paths or [trace.path for trace in report.traces]
    return FirstScreen(
        name=_name(ranks),
        paths=tuple(rank.trace.path for rank in ranks),
        about=tuple(_about(ranks)),
        facts=tuple(facts_of(report, ranks, with_savings=bool(items))),
        headline=headline_of(_deciding(ranks)),
        items=items,
        others=tuple(item_of(x, report, len(ranks)) for x in (*worth[MAX_ITEMS:], *is_minor)),
        more=len(worth) - len(items),
        minor=len(is_minor),
        answer="" if items else _answer(ranks, is_healthy=healthy),
        is_healthy=healthy,
        steps=next(filter(None, map(steps_hint, report.traces)), ""),
        notes=tuple(all_notes(report, ranks)),
        next=steps if has_steps else (RECORD,),
        commands=(
            *([] if has_steps else [RECORD_COMMAND]),
            *_about_first(items, typed_paths(paths)),
            f"{analyze_command(paths)} {FULL}",
        ),
    )


def all_notes(report: Report, ranks: Sequence[RankView]) -> list[Note]:
    """List what files lack, and what their analysis could not do."""
    findings = [finding for rank in ranks for finding in rank.main.findings]
    notes = [*unread(report.provenance), *notes_of(findings, report.traces), *asides(ranks)]
    notes += [
        Note(text, None, is_warning=False) for rank in ranks for text in _rank_notes(report, rank)
    ]
    return list(dict.fromkeys(notes))


def item_of(group: FindingGroup, report: Report, ranks: int) -> Item:
    """Make the item of one place."""
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
        on=_name_ranks(group.ranks, ranks) if report.job and ranks > 1 else "",
    )


def short_fix(finding: Finding) -> str:
    """Return the short fix, or no more of the fix's sentences."""
    if finding.fix_short:
        return finding.fix_short
    first, *others = _SENTENCE_END.split(finding.fix)
    for sentence in others:
        if len(first) + 1 + len(sentence) > MAX_SHORT_LETTERS:
            break
        first = f"{first} {sentence}"
    return first


def _about_first(items: Sequence[Item], typed: str) -> tuple[str, ...]:
    if not items:
        return ()
    finding = items[0].finding
    rule, is_priced = finding.remedy or finding.rule, finding.saves_ns is not None
    return about_finding(typed, items[0].number, rule, is_priced=is_priced)


def _deciding(ranks: Sequence[RankView]) -> RankView:
    longest = max(ranks, key=lambda rank: rank.main.scope.printed_ns)
    return next((rank for rank in ranks if rank.main.scope.savings), longest)


def _name_ranks(numbers: Sequence[int], every: int) -> str:
    if len(numbers) == every:
        return "all ranks"
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) <= _MAX_NAMED_RANKS:
        return f"ranks {', '.join(map(str, numbers))}"
    return f"{len(numbers)} of {every} ranks"


def _name(ranks: Sequence[RankView]) -> str:
    paths = [PurePath(rank.trace.path) for rank in ranks]
    if len(paths) == 1:
        return paths[0].name
    folders = dict.fromkeys(str(path.parent) for path in paths)
    return next(iter(folders)) if len(folders) == 1 else counted(len(folders), "folder", "folders")


def _about(ranks: Sequence[RankView]) -> list[str]:
    steps = max((len(rank.steps) for rank in ranks), default=0)
    recorded = [counted(steps, "step", "steps")] if steps else []
    if len(ranks) > 1:
        return [counted(len(ranks), "rank", "ranks"), *machines(ranks), *recorded]
    [rank] = ranks
    known_rank = [f"rank {rank.trace.rank}"] if rank.trace.rank_source != "position" else []
    return [*known_rank, *machines(ranks), *recorded]


def _rank_notes(report: Report, rank: RankView) -> list[str]:
    notes = [
        note.text.rstrip(".")
        for note in report.notes
        if (note.rank, note.step) == (rank.trace.rank, rank.main.step)
    ]
    return [*notes, *(f"Left out: {text}" for text in left_out_steps(rank))]


def _answer(ranks: Sequence[RankView], *, is_healthy: bool) -> str:
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


def _is_healthy(ranks: Sequence[RankView], shares: Sequence[RankShares]) -> bool:
    computes = [x.compute_ns / max(1, x.length_ns) for x in shares]
    return min(computes or [headline_of(rank).busy_share for rank in ranks]) > 1 - _MIN_IDLE_SHARE


# --- facts ---


def facts_of(report: Report, ranks: Sequence[RankView], *, with_savings: bool = True) -> list[Fact]:
    """State the step, its GPUs or the ranks' waits, and the savings."""
    facts = [Fact(_label(ranks), length_of(ranks))]
    if len(ranks) == 1:
        facts += gpu_facts(ranks[0])
    else:
        facts += [Fact(RANKS, sentence) for sentence in job_sentences(report, rank_shares(report))]
    priced = next((x for x in ranks if x.main.scope.savings), None)
    if with_savings and priced is not None:
        facts += _fixes(headline_of(priced), priced.main.scope)
    return facts


def _label(ranks: Sequence[RankView]) -> str:
    step = ranks[0].main.step
    if step is not None:
        return f"Step {step}"
    return "Step" if any(rank.main.scope.steps for rank in ranks) else "Trace"


def length_of(ranks: Sequence[RankView]) -> str:
    """Say how long a step takes, with and without the profiler; of a job the longest."""
    by_length = sorted(ranks, key=lambda rank: rank.main.scope.printed_ns)
    first, last = by_length[0], by_length[-1]
    shortest_ns, longest_ns = first.main.scope.printed_ns, last.main.scope.printed_ns
    length, row = duration_text(longest_ns), last.steady
    if longest_ns > _MAX_LENGTH_RATIO * shortest_ns:
        length = (
            f"{duration_text(shortest_ns)} (rank {first.trace.rank}) to {length} "
            f"(rank {last.trace.rank})"
        )
    steps = max(rank.main.scope.steps for rank in ranks)
    if not steps and last.main.step is None:
        any_steps = any(rank.steps for rank in ranks)
        return f"{length} ({'no step is steady' if any_steps else 'no steps found'})"
    if not steps or row is None:
        usual = f" (a steady step: {duration_text(row.step_ns)})" if row else ""
        return f"{length} while profiled{usual}"
    several = f"median of {steps}" if steps > 1 else "one step"
    if row.steps == tuple(x.step for x in row.left_out):
        several = f"the only step; it {row.left_out[0].why}"
    if not all(rank.steady and rank.steady.unprofiled_step_ns for rank in ranks):
        return f"{length} while profiled ({several})"
    profiled_ns = max(rank.main.scope.step_ns for rank in ranks)
    return f"{length} ({_beside(profiled_ns, length)} while profiled; {several})"


def _beside(length_ns: int, other: str) -> str:
    number, _, unit = duration_text(length_ns).partition(" ")
    return number if other.endswith(f" {unit}") else f"{number} {unit}"


def busy_shares(rank: RankView) -> BusyShares:
    """Return the busy share of each GPU, the one that decides first."""
    scope, headline = rank.main.scope, headline_of(rank)
    if headline.device is None:
        return BusyShares(scope.name, {})
    shares = {headline.device: headline.busy_share or (_MIN_BUSY_SHARE if scope.busy_ns else 0.0)}
    for x in scope.devices:
        shares.setdefault(x.device, min(1.0, x.busy_ns / max(1, scope.base_ns)))
    return BusyShares(scope.name, {gpu: percent(share) for gpu, share in shares.items()})


def gpu_facts(rank: RankView) -> list[Fact]:
    """Say how busy each GPU is, and why the one that decides is not."""
    scope, headline = rank.main.scope, headline_of(rank)
    if headline.device is None or not scope.busy_ns:
        return [Fact("GPU", "no GPU was busy")]
    exposed = _listed(x for x in busy_parts(rank)[1:] if x.share >= _MIN_NAMED_STEP_SHARE)
    beside = f" ({exposed})" if exposed else ""
    causes = _listed(idle_parts(headline))
    why = f": {causes}" if causes else ""
    (_, busy), *others = busy_shares(rank).by_gpu.items()
    idle = percent(headline.idle_share)
    facts = [Fact(f"GPU {headline.device}", f"busy {busy}{beside}, idle {idle}{why}")]
    if len(others) > _MAX_OTHER_GPUS:
        return [*facts, Fact("Others", f"the other {len(others)} GPUs are less busy")]
    return [*facts, *(Fact(f"GPU {device}", f"busy {share}") for device, share in others)]


def idle_parts(headline: Headline) -> list[SharePart]:
    """The largest causes of idle time, which add up to it; none without names."""
    named = [
        SharePart(cause, _MANY.get(cause) or CAUSES.name_of(cause), share)
        for cause, share in headline.causes.items()
        if share >= _MIN_NAMED_STEP_SHARE and cause != _NO_ANSWER
    ][:_MAX_NAMED_CAUSES]
    if not named:
        return []
    rest = sum(headline.causes.values()) - sum(part.share for part in named)
    percents = round(rest * PERCENTS)
    return [*named, *([SharePart(OTHER, "other", percents / PERCENTS)] if percents else [])]


def busy_parts(rank: RankView) -> list[SharePart]:
    """Return the work of the GPU that decides, in whole percents that add up to busy."""
    device, headline = rank.main.scope.deciding, headline_of(rank)
    if device is None:
        return []
    waits_ns = sum(x.cost_ns for x in rank.main.findings if x.cause == PEER_WAIT)
    waits_ns = min(waits_ns, device.exposed_comm_ns)
    parts_ns = [
        ("compute", "compute", device.compute_ns),
        ("wait", "waiting for a peer", waits_ns),
        ("exposed_comm", "exposed communication", device.exposed_comm_ns - waits_ns),
        ("exposed_copy", "exposed copies", device.exposed_copy_ns),
        ("memset", "memsets", device.alone_memset_ns),
    ]
    shares = apportion([time_ns for *_, time_ns in parts_ns], round(headline.busy_share * PERCENTS))
    return [
        SharePart(key, name, share / PERCENTS)
        for (key, name, _), share in zip(parts_ns, shares, strict=True)
    ]


def _listed(parts: Iterable[SharePart]) -> str:
    return ", ".join(f"{x.name} {percent(x.share)}" for x in parts)


def _fixes(headline: Headline, scope: Scope) -> list[Fact]:
    unknown = not_predicted(scope)
    if unknown:
        return [Fact(FIXES, unknown)]
    savings, share = scope.savings, headline.saves_share
    if savings is None or not savings.edits or not share or headline.predicted_step_ns is None:
        return []
    after = duration_text(headline.predicted_step_ns)
    steps = f"{_beside(headline.step_ns, after)} -> {after}"
    range_ = interval_text(headline.saves_low_share or 0.0, headline.saves_high_share or 0.0)
    saves = "together they save" if len(savings.edits) > 1 else "one fix saves"
    return [Fact(FIXES, " ".join(filter(None, [f"{steps}: {saves} {percent(share)}", range_])))]
