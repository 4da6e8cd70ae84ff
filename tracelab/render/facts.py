"""Facts about a step: how long it takes, how busy its GPUs are and why not, what the fixes save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tracelab.base.arrays import OneLine, dataclass
from tracelab.findings.rules.exposed_time import PEER_WAIT
from tracelab.render.ranks import job_sentences, rank_shares
from tracelab.render.text.savings import interval_text, not_predicted, percent
from tracelab.render.words import CAUSE_NAMES, duration_text, meaning_of
from tracelab.report.headline import PERCENTS, Headline, apportion, headline_of
from tracelab.report.schema import Report
from tracelab.report.views import RankView, Scope

OTHER = "other"  # causes of idle time that are not named
RANKS, FIXES = "Ranks", "Fixes"  # labels of who waits for whom, and of what all fixes save
_MAX_NAMED_CAUSES = 3
# Besides the GPU that decides; with more they share one line.
_MAX_OTHER_GPUS = 3
_MIN_NAMED_STEP_SHARE = 0.02
# Of a step, if a GPU worked at all.
_MIN_BUSY_SHARE = 0.001
_MAX_LENGTH_RATIO = 1.1
_NO_ANSWER = "edge"  # the cause that says nothing about the program
_MANY = {"host_blocked": "blocking calls"}


@dataclass(frozen=True, slots=True, repr=False)
class Fact(OneLine):
    """One line about a step.

    Example: ``Fact("GPU 0", "busy 68 %, idle 32 %: blocking calls 24 %, CPU-bound 8 %")``.
    """

    label: str
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class SharePart(OneLine):
    """A part of a step, in whole percents: ``SharePart("host_busy", "CPU-bound", 0.06)``.

    Attributes:
        key: of the cause or the kind of work; `OTHER` of several together.
        name: what it is called.
        share: 0 to 1.
    """

    key: str
    name: str
    share: float


@dataclass(frozen=True, slots=True, repr=False)
class BusyShares(OneLine):
    """Busy share of each GPU, as printed: ``BusyShares("the steady steps", {0: "68 %"})``."""

    of: str
    by_gpu: Mapping[int, str]


def facts_of_file(rank: RankView, *, with_savings: bool = True) -> list[Fact]:
    """The step, its GPUs, and unless it has no finding what the fixes save."""
    scope = rank.main.scope
    facts = [Fact(_label([rank]), length_of(rank)), *gpu_facts(rank)]
    return [*facts, *(_fixes(headline_of(rank), scope) if with_savings else [])]


def facts_of_job(
    report: Report, ranks: Sequence[RankView], *, with_savings: bool = True
) -> list[Fact]:
    """The step of a job, who makes the others wait and why, and what the fixes save."""
    facts = [Fact(_label(ranks), _length_of_job(ranks))]
    facts += [Fact(RANKS, sentence) for sentence in job_sentences(report, rank_shares(report))]
    priced = next((x for x in ranks if x.main.scope.savings), None)
    if with_savings and priced is not None:
        facts += _fixes(headline_of(priced), priced.main.scope)
    return facts


def _label(ranks: Sequence[RankView]) -> str:
    """Label the lengths and shares: "Step", "Step 3" or "Trace"."""
    step = ranks[0].main.step
    if step is not None:
        return f"Step {step}"
    return "Step" if any(rank.main.scope.steps for rank in ranks) else "Trace"


def length_of(rank: RankView) -> str:
    """Say how long a step takes, with the profiler and without it."""
    scope, row = rank.main.scope, rank.steady
    length = duration_text(scope.printed_ns)
    if row is None or not scope.steps:
        if rank.main.step is None:
            steps = "no step is steady" if rank.steps else "no steps found"
            return f"{length} ({steps})"
        return f"{length} while profiled" + (
            f" (a steady step: {duration_text(row.step_ns)})" if row else ""
        )
    marked = row.left_out[0].why if row.steps == tuple(x.step for x in row.left_out) else ""
    several = (
        f"median of {len(row.steps)}"
        if len(row.steps) > 1
        else f"the only step; it {marked}"
        if marked
        else "one step"
    )
    if row.unprofiled_step_ns is None:
        return f"{length} while profiled ({several})"
    return f"{length} ({_beside(scope.step_ns, length)} while profiled; {several})"


def _beside(length_ns: int, other: str) -> str:
    """A length of time, without its unit where another one has the same.

    >>> _beside(32_400_000, "31.6 ms"), _beside(1_240_000_000, "980 ms")
    ('32.4', '1.24 s')
    """
    number, _, unit = duration_text(length_ns).partition(" ")
    return number if other.endswith(f" {unit}") else f"{number} {unit}"


def busy_shares(rank: RankView) -> BusyShares:
    """Return the busy share of each GPU in a step, the one that decides first."""
    scope, headline = rank.main.scope, headline_of(rank)
    if headline.device is None:
        return BusyShares(scope.name, {})
    shares = {headline.device: headline.busy_share or (_MIN_BUSY_SHARE if scope.busy_ns else 0.0)}
    for x in scope.devices:
        shares.setdefault(x.device, min(1.0, x.busy_ns / max(1, scope.base_ns)))
    return BusyShares(scope.name, {gpu: percent(share) for gpu, share in shares.items()})


def gpu_facts(rank: RankView) -> list[Fact]:
    """Say how busy each GPU is; of the one that decides also why it is not."""
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
    """The largest causes of idle time, which add up to it; none where none of them has a name."""
    named = [
        SharePart(cause, _MANY.get(cause) or meaning_of(CAUSE_NAMES, cause), share)
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
    """Say what a step takes with all fixes, or why that is not predicted."""
    unknown = not_predicted(scope)
    if unknown:
        return [Fact(FIXES, unknown[0])]
    savings, share = scope.savings, headline.saves_share
    if savings is None or not savings.edits or not share or headline.predicted_step_ns is None:
        return []
    before, after = duration_text(headline.step_ns), duration_text(headline.predicted_step_ns)
    number, _, unit = before.partition(" ")
    steps = f"{number} -> {after}" if after.endswith(f" {unit}") else f"{before} -> {after}"
    range_ = interval_text(headline.saves_low_share or 0.0, headline.saves_high_share or 0.0)
    saves = "together they save" if len(savings.edits) > 1 else "one fix saves"
    return [Fact(FIXES, " ".join(filter(None, [f"{steps}: {saves} {percent(share)}", range_])))]


def _length_of_job(ranks: Sequence[RankView]) -> str:
    """Say how long a step of a job takes, from its fastest to its slowest rank if they differ."""
    by_length = sorted(ranks, key=lambda rank: rank.main.scope.printed_ns)
    shortest, longest = by_length[0].main.scope, by_length[-1].main.scope
    length = duration_text(longest.printed_ns)
    if longest.printed_ns > _MAX_LENGTH_RATIO * shortest.printed_ns:
        length = (
            f"{duration_text(shortest.printed_ns)} (rank {by_length[0].trace.rank}) to {length} "
            f"(rank {by_length[-1].trace.rank})"
        )
    steps = max(rank.main.scope.steps for rank in ranks)
    median = f"median of {steps}" if steps > 1 else "one step"
    if not steps:
        is_whole = ranks[0].main.step is None
        return f"{length} (no steps found)" if is_whole else f"{length} while profiled"
    timed = [rank for rank in ranks if rank.steady and rank.steady.unprofiled_step_ns]
    if len(timed) < len(ranks):
        return f"{length} while profiled ({median})"
    profiled_ns = max(rank.main.scope.step_ns for rank in ranks)
    return f"{length} ({_beside(profiled_ns, length)} while profiled; {median})"
