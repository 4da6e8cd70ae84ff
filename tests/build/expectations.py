"""Golden checks: a capture's report against what ``traces/manifest.json`` expects of it.

An expectation is a JSON object; each of its keys is one check of the whole trace (of one rank):

- ``overlap``: a list of ``{a, b, least, most}``, the share of `a` that ran while `b` ran
- ``streams``: ``[least, most]``, the same of the two busiest streams, as a share of the lesser
- ``busy``: ``[least, most]``, the first device's share of the trace
- ``exposed_comm``: ``[least, most]``, the exposed share of communication
- ``comm``: ``[least, most]``, communication's share of the trace
- ``blocking``: blocking calls by API, all and no others
- ``blocking_least``: blocking calls by API, at least so many
- ``caused_idle_us``: the idle that the blocking calls caused, at least
- ``causes``: cause of idle to its least share of all idle
- ``waits_named``: whether the file resolves every stream wait, or none
- ``findings``: rules with a finding that is a warning or worse, each with its cause; no others
- ``reported``: rules with a finding of any severity, by the function that it names (null: any)
- ``remedies``: remedies that findings of any severity name; no others
- ``tells``: a remedy, or a rule, that a finding of any severity has: what the variant is about

What is expected of a job, of all its ranks together, has keys of its own:

- ``matched``: communication operations of several ranks that belong together, so many
- ``residual_us``: the alignment's residual, at most
- ``offset_us``: by how much a rank's clock is off, at most: ranks of one host share a clock
- ``stragglers``: ``{rank, causes, share}`` of each and of no others: the rank, one of these causes,
  ``[least, most]`` share of a step that it costs; where it matters also the ``function``
- ``pipeline``: ``{stages, microbatches, schedule, bubble}``, the last ``[least, most]``; null: none
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracelab.findings.finding import INFO
from tracelab.job.merge import Job
from tracelab.measures.overlap import OverlapMetrics
from tracelab.measures.window_times import DeviceMetrics
from tracelab.report.schema import Report
from tracelab.report.views import ranks_of


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was expected, and what the report says of it.

    Attributes:
        quantity: what is compared, in words.
        measured: its value in the report.
        expected: the values that pass.
        passed: whether the measured value is one of them.

    Example row: ``Check(quantity="GPU busy", measured="95.8 %", expected="90 to 100 %",
    passed=True)``
    """

    quantity: str
    measured: str
    expected: str
    passed: bool


def check_report(report: Report, expect: Mapping[str, Any]) -> list[Check]:
    """Compare the report of one trace with what is expected of it.

    Args:
        report: of one trace.
        expect: values by the keys that this module's docstring lists.

    Returns:
        a check for each key, in their order; of ``overlap``, ``causes`` and ``reported`` one for
        each entry.

    Raises:
        KeyError: there is no such key.
    """
    trace = _WholeTrace(report)
    return [check for key, value in expect.items() for check in _CHECKS[key](trace, value)]


def check_job(report: Report, expect: Mapping[str, Any]) -> list[Check]:
    """Compare the report of all ranks of a job with what is expected of it.

    Args:
        report: of all traces of one job.
        expect: values by the keys that this module's docstring lists for jobs.

    Returns:
        a check for each key, in their order, and one for each straggler.

    Raises:
        KeyError: there is no such key.
    """
    if report.job is None:
        return [Check("files of one job", "no", "yes", passed=False)]
    job = report.job
    return [check for key, value in expect.items() for check in _JOB_CHECKS[key](job, value)]


class _WholeTrace:
    """What a report says of the whole trace."""

    def __init__(self, report: Report) -> None:
        [rank] = ranks_of(report)
        view = rank.main
        self.length_ns = view.length_ns
        self.device: DeviceMetrics = view.window.devices[0]
        self.overlaps = view.overlaps
        self.syncs = view.syncs
        self.links = rank.trace.event_links
        self.findings = view.findings


def _overlap(trace: _WholeTrace, pairs: list[dict[str, Any]]) -> Iterator[Check]:
    for pair in pairs:
        a, b = pair["a"], pair["b"]
        shares = map(_share_of(a, b), trace.overlaps)
        share = next((share for share in shares if share is not None), 0.0)
        yield _within(f"{a} under {b}", share, [pair["least"], pair["most"]])


def _share_of(a: str, b: str) -> Callable[[OverlapMetrics], float | None]:
    """The share of `a` that ran while `b` ran, from the row of that pair."""

    def share(row: OverlapMetrics) -> float | None:
        if (row.a, row.b) == (a, b):
            return row.overlap_ns / row.a_ns
        if (row.b, row.a) == (a, b):
            return row.overlap_ns / row.b_ns
        return None

    return share


def _streams(trace: _WholeTrace, bounds: list[float]) -> Iterator[Check]:
    streams = sorted(trace.device.streams, key=lambda stream: -stream.busy_ns)[:2]
    names = {f"stream:{trace.device.device}/{stream.stream}" for stream in streams}
    rows = [row for row in trace.overlaps if {row.a, row.b} == names]
    share = rows[0].overlap_ns / min(rows[0].a_ns, rows[0].b_ns) if rows else 0.0
    yield _within("two busiest streams at once", share, bounds)


def _busy(trace: _WholeTrace, bounds: list[float]) -> Iterator[Check]:
    yield _within("GPU busy", trace.device.busy_ns / trace.length_ns, bounds)


def _exposed_comm(trace: _WholeTrace, bounds: list[float]) -> Iterator[Check]:
    share = trace.device.exposed_comm_ns / max(1, trace.device.comm_ns)
    yield _within("exposed share of communication", share, bounds)


def _comm(trace: _WholeTrace, bounds: list[float]) -> Iterator[Check]:
    yield _within("communication", trace.device.comm_ns / trace.length_ns, bounds)


def _blocking(trace: _WholeTrace, calls: dict[str, int]) -> Iterator[Check]:
    measured = _calls_by_api(trace)
    yield Check("blocking calls", _listed(measured), _listed(calls), measured == calls)


def _blocking_least(trace: _WholeTrace, calls: dict[str, int]) -> Iterator[Check]:
    measured = _calls_by_api(trace)
    are_enough = all(measured[api] >= count for api, count in calls.items())
    yield Check("blocking calls", _listed(measured), f"at least {_listed(calls)}", are_enough)


def _caused_idle(trace: _WholeTrace, least_us: float) -> Iterator[Check]:
    idle_us = sum(row.caused_idle_ns for row in trace.syncs) / 1000
    quantity = "idle caused by blocking calls"
    yield Check(quantity, f"{idle_us:.0f} us", f"at least {least_us} us", idle_us >= least_us)


def _causes(trace: _WholeTrace, shares: dict[str, float]) -> Iterator[Check]:
    for cause, least in shares.items():
        share = trace.device.bubbles[cause] / max(1, trace.device.idle_ns)
        yield _within(f"idle by {cause}", share, [least, 1])


def _resolved_waits(trace: _WholeTrace, are_resolved: bool) -> Iterator[Check]:
    links = trace.links
    unnamed = links.inferred + links.unresolved
    measured = f"{links.exact} of {links.exact + unnamed}"
    passed = unnamed == 0 if are_resolved else links.exact == 0 and unnamed > 0
    expected = "all" if are_resolved else "none"
    yield Check("stream waits that are named", measured, expected, passed)


def _findings(trace: _WholeTrace, expected: list[list[str]]) -> Iterator[Check]:
    rows = [finding for finding in trace.findings if finding.severity != INFO]
    reported_pairs = sorted({(finding.rule, finding.cause) for finding in rows})
    expected_pairs = sorted((rule, cause) for rule, cause in expected)
    yield Check(
        "findings above info",
        _listed_pairs(reported_pairs),
        _listed_pairs(expected_pairs),
        reported_pairs == expected_pairs,
    )


def _reported(trace: _WholeTrace, functions: dict[str, str | None]) -> Iterator[Check]:
    for rule, function in functions.items():
        seen = [finding.where.function for finding in trace.findings if finding.rule == rule]
        passed = bool(seen) if function is None else function in seen
        yield Check(f"functions of {rule}", _listed_names(seen), function or "any", passed)


def _remedies(trace: _WholeTrace, expected: list[str]) -> Iterator[Check]:
    named = sorted({finding.remedy for finding in trace.findings if finding.remedy is not None})
    quantity = "remedies that are named"
    yield Check(quantity, _listed_names(named), _listed_names(expected), named == sorted(expected))


def _tells(trace: _WholeTrace, expected: str) -> Iterator[Check]:
    told = sorted({x for one in trace.findings for x in (one.rule, one.remedy) if x is not None})
    yield Check("what is told", _listed_names(told), expected, expected in told)


def _matched(job: Job, count: int) -> Iterator[Check]:
    measured = len(job.collectives)
    yield Check("matched operations", str(measured), str(count), measured == count)


def _residual(job: Job, most_us: float) -> Iterator[Check]:
    residual_ns = job.alignment.residual_ns if job.alignment else None
    residual_us = math.inf if residual_ns is None else residual_ns / 1000
    quantity, expected = "residual of the clocks", f"at most {most_us} us"
    yield Check(quantity, f"{residual_us:.1f} us", expected, residual_us <= most_us)


def _offset(job: Job, most_us: float) -> Iterator[Check]:
    clocks = job.alignment.per_rank if job.alignment else ()
    offset_us = max((abs(clock.offset_ns) / 1000 for clock in clocks), default=math.inf)
    quantity, expected = "offset of a clock", f"at most {most_us} us"
    yield Check(quantity, f"{offset_us:.1f} us", expected, offset_us <= most_us)


def _stragglers(job: Job, expected: list[dict[str, Any]]) -> Iterator[Check]:
    by_rank = {straggler.rank: straggler for straggler in job.stragglers}
    wanted = {row["rank"]: row for row in expected}
    quantity, ranks, right = "stragglers", _listed_ranks(by_rank), _listed_ranks(wanted)
    yield Check(quantity, ranks, right, sorted(by_rank) == sorted(wanted))
    for rank in sorted(by_rank.keys() & wanted.keys()):
        straggler, row = by_rank[rank], wanted[rank]
        is_cause = straggler.cause in row["causes"]
        causes = " or ".join(row["causes"])
        yield Check(f"cause of rank {rank}", straggler.cause, causes, is_cause)
        yield _within(f"rank {rank} costs, of a step", straggler.share, row["share"])
        if function := row.get("function"):
            seen = straggler.function
            named = seen or "not named"
            yield Check(f"function of rank {rank}", named, function, seen == function)


def _listed_ranks(ranks: Iterable[int]) -> str:
    """Ranks in words.

    >>> _listed_ranks([1, 0])
    'rank 0, rank 1'
    >>> _listed_ranks([])
    'none'
    """
    return ", ".join(f"rank {rank}" for rank in sorted(ranks)) or "none"


def _pipeline(job: Job, expected: dict[str, Any] | None) -> Iterator[Check]:
    seen = job.pipeline
    measured = _schedule_in_words(seen.schedule, seen.stages, seen.microbatches) if seen else "none"
    names = ("schedule", "stages", "microbatches")
    wanted = _schedule_in_words(*(expected[name] for name in names)) if expected else "none"
    yield Check("pipeline", measured, wanted, measured == wanted)
    if seen is not None and seen.measured_bubble is not None and expected is not None:
        yield _within("bubble", seen.measured_bubble, expected["bubble"])


def _schedule_in_words(schedule: str, stages: int, microbatches: int | None) -> str:
    """What a pipeline is, without figures that vary.

    >>> _schedule_in_words("1f1b", 2, 4)
    '1f1b, 2 stages, 4 microbatches'
    """
    return f"{schedule}, {stages} stages, {microbatches} microbatches"


_JOB_CHECKS: dict[str, Callable[[Job, Any], Iterator[Check]]] = {
    "matched": _matched,
    "residual_us": _residual,
    "offset_us": _offset,
    "stragglers": _stragglers,
    "pipeline": _pipeline,
}


_CHECKS: dict[str, Callable[[_WholeTrace, Any], Iterator[Check]]] = {
    "overlap": _overlap,
    "streams": _streams,
    "busy": _busy,
    "exposed_comm": _exposed_comm,
    "comm": _comm,
    "blocking": _blocking,
    "blocking_least": _blocking_least,
    "caused_idle_us": _caused_idle,
    "causes": _causes,
    "waits_named": _resolved_waits,
    "findings": _findings,
    "reported": _reported,
    "remedies": _remedies,
    "tells": _tells,
}


def _within(quantity: str, share: float, bounds: list[float]) -> Check:
    """A share that must lie between the least and the most.

    >>> _within("GPU busy", 0.958, [0.9, 1])
    Check(quantity='GPU busy', measured='95.8 %', expected='90 to 100 %', passed=True)
    """
    least, most = bounds
    expected = f"{100 * least:g} to {100 * most:g} %"
    return Check(quantity, f"{100 * share:.1f} %", expected, least <= share <= most)


def _calls_by_api(trace: _WholeTrace) -> Counter[str]:
    calls: Counter[str] = Counter()
    for sync in trace.syncs:
        calls[sync.api] += sync.count
    return calls


def _listed_pairs(pairs: list[tuple[str, str]]) -> str:
    """Rules with their causes, in words.

    >>> _listed_pairs([("TL101", "host_sync"), ("TL302", "input")])
    'TL101 host_sync, TL302 input'
    """
    return ", ".join(map(" ".join, pairs)) or "none"


def _listed_names(names: Sequence[str | None]) -> str:
    """Functions in words, where findings name them.

    >>> _listed_names(["collate", None])
    'collate, not named'
    >>> _listed_names([])
    'no finding'
    """
    return ", ".join(name or "not named" for name in names) or "no finding"


def _listed(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {api}" for api, count in sorted(calls.items())) or "none"
