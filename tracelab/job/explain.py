"""Why a rank is late, in words, and where in its program the cause is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracelab.base.arrays import OneLine
from tracelab.base.names import short_kernel_name
from tracelab.job.lateness import BEFORE_RECORDING, Lateness, culprit_of
from tracelab.job.members import Members
from tracelab.job.rank_part import Culprit, Work
from tracelab.job.work_compared import MoreWork
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite
from tracelab.model.wording import called

MORE_WORK, SLOWER_GPU, UNEVEN_WORK = "more_work", "slower_gpu", "uneven_work"
LATE_LAUNCH, OTHER_COLLECTIVE, RECORDING_START = (
    "late_launch",
    "other_collective",
    "recording_start",
)
_CAUSES = {
    Work.COMPUTE: MORE_WORK,
    Work.COMM: OTHER_COLLECTIVE,
    Work.COPY: "copies",
    Work.HOST_BLOCKED: "blocked",
    Work.INPUT: "data_loading",
    Work.HOST_BUSY: LATE_LAUNCH,
    Work.OTHER_IDLE: "unknown",
}
_MS = 1_000_000
_OF_THE_EXCESS = 0.5  # an operator or a call with less does not explain it


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(OneLine):
    """Why a rank is late.

    Example: ``Explanation(cause="data_loading", what="loads data in `next()`",
    figures="6.2 ms", site=CallSite(function="train", file="train.py", line=33))``.

    Attributes:
        cause: one word.
        what: a clause that follows "rank N", without figures and without its place.
        figures: how much; "" where there is nothing to add.
        site: where in its program; nowhere where that is not known.
    """

    cause: str
    what: str
    figures: str
    site: CallSite

    @property
    def why(self) -> str:
        """The clause with its place and the figures."""
        file, line = self.site.file, self.site.line
        place = f"{file}:{line}" if file and line is not None else file
        more = ", ".join(filter(None, (place, self.figures)))
        return f"{self.what} ({more})" if more else self.what


def explain(
    members: Members,
    more_of: Sequence[MoreWork | None],
    lateness: Lateness,
    chosen: Sequence[int],
) -> Explanation:
    """Explain why one rank was the last in some matches, all by the same sort of work.

    Args:
        members: the matched operations.
        more_of: what the GPU of each rank does more than those of the others.
        lateness: what the last rank spent more time on.
        chosen: the matches, at least one, the one that matters most first.
    """
    sources = list(dict.fromkeys(int(lateness.source_match[match]) for match in chosen))
    late = int(members.last_member[sources[0]])
    work = int(lateness.excess_ns[late].argmax())
    if work == BEFORE_RECORDING:
        return Explanation(RECORDING_START, "was late when the recording began", "", NO_CALL_SITE)
    if work == Work.COMPUTE:
        reference = int(lateness.reference_member[sources[0]])
        own_ns, usual_ns = lateness.spent_ns[[late, reference], Work.COMPUTE].tolist()
        return of_compute(more_of[members.part_index[late]], own_ns, usual_ns)
    late_ns = int(lateness.excess_ns[late, work])
    if work in (Work.HOST_BLOCKED, Work.INPUT, Work.HOST_BUSY):
        found = [culprit_of(members, lateness, source) for source in sources]
        known = [(culprit, idle_ns) for culprit, idle_ns in found if culprit is not None]
        culprit, idle_ns = known[0] if known else (None, 0)
        return of_host(Work(work), culprit, idle_ns, late_ns)
    what = {
        Work.COMM: "is kept by other communication",
        Work.COPY: "spends more time on copies that are not overlapped",
        Work.OTHER_IDLE: "has an idle GPU for reasons that its file does not tell",
    }[Work(work)]
    return Explanation(_CAUSES[Work(work)], what, _length(late_ns), NO_CALL_SITE)


def of_compute(more: MoreWork | None, own_ns: float, usual_ns: float) -> Explanation:
    """Explain a rank that computes for longer than the others, ns each."""
    longer = f"{_length(own_ns)} before it, the others {_length(usual_ns)}"
    if more is None:
        return Explanation(_CAUSES[Work.COMPUTE], "computes for longer", longer, NO_CALL_SITE)
    if more.is_slower:
        figures = f"{more.ratio:.3g} times as long"
        return Explanation(SLOWER_GPU, "runs the same kernels more slowly", figures, NO_CALL_SITE)
    name = short_kernel_name(more.name) if more.is_kernel else more.name
    if more.site.function is not None:
        site, place, of_name = more.site, called(more.site, name), f" `{name}`"
    else:
        site, place, of_name = CallSite(operator=None if more.is_kernel else name), f"`{name}`", ""
    place += f" in the {more.phase} pass" if more.phase in ("forward", "backward") else ""
    if more.excess_ns < _OF_THE_EXCESS * (own_ns - usual_ns):
        what, figures = f"computes for longer, mostly in {place}", longer
    elif more.ratio == float("inf"):
        what, figures = f"alone runs {place}", f"{_length(more.excess_ns)} a step"
    else:
        what, figures = f"has more work in {place}", f"{more.ratio:.3g} times as much{of_name}"
        if round(more.calls, 1) != round(more.usual_calls, 1):
            figures += f": {more.calls:.4g} calls a step, the others {more.usual_calls:.4g}"
    return Explanation(_CAUSES[Work.COMPUTE], what, figures, site)


def of_host(work: Work, culprit: Culprit | None, idle_ns: int, late_ns: int) -> Explanation:
    """Explain a rank whose host made it late: most of all in one place, if that is known."""
    what = {
        Work.HOST_BLOCKED: "is blocked",
        Work.INPUT: "loads data",
        Work.HOST_BUSY: "launches late",
    }[work]
    if culprit is None:
        return Explanation(_CAUSES[work], what, _length(late_ns), NO_CALL_SITE)
    joint = "because of" if work == Work.HOST_BUSY else "in"
    if idle_ns < _OF_THE_EXCESS * late_ns:
        idle_ns, joint = late_ns, f"in many places, mostly {joint}"
    where = f"{what} {joint} {called(culprit.site, culprit.call)}"
    return Explanation(_CAUSES[work], where, _length(idle_ns), culprit.site)


def _length(length_ns: float) -> str:
    """A length of time in words.

    >>> _length(6_190_000), _length(90_400)
    ('6.2 ms', '90 µs')
    """
    return f"{length_ns / 1e6:,.1f} ms" if length_ns >= _MS else f"{length_ns / 1e3:.0f} µs"
