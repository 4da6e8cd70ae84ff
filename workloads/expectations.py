"""What a capture must show, as the lines of ``traces/manifest.json`` say it, against a report.

An expectation is a JSON object; each of its keys is one check of the whole trace (of one rank):

- ``overlap``: a list of ``{a, b, least, most}``, the share of `a` that ran while `b` ran
- ``streams``: ``[least, most]``, the same of the two busiest streams, as a share of the lesser
- ``busy``: ``[least, most]``, the first device's share of the trace
- ``exposed_comm``: ``[least, most]``, the share of communication that no compute hid
- ``comm``: ``[least, most]``, communication's share of the trace
- ``blocking``: calls by API, all and no others
- ``blocking_least``: calls by API, at least so many
- ``caused_idle_us``: the idle that the blocking calls caused, at least
- ``causes``: cause of idle to its least share of all idle
- ``waits_named``: whether the file names the record of every stream wait, or of none
- ``findings``: rules with a finding that is a warning or worse, each with its cause; no others
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tracelab.findings.finding import INFO
from tracelab.measures.overlap import OverlapMetrics
from tracelab.measures.window_times import DeviceMetrics
from tracelab.report.schema import Report
from tracelab.report.views import ranks_of


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was expected, what was found, and whether that will do."""

    what: str
    found: str
    expected: str
    kept: bool


def check_report(report: Report, expect: Mapping[str, Any]) -> list[Check]:
    """Hold a report of one trace to what is expected of it; KeyError for an unknown key."""
    whole = _Whole(report)
    return [check for key, value in expect.items() for check in _CHECKS[key](whole, value)]


class _Whole:
    """The whole trace of a report."""

    def __init__(self, report: Report) -> None:
        [rank] = ranks_of(report)
        view = rank.main
        self.length_ns = view.length_ns
        self.device: DeviceMetrics = view.window.devices[0]
        self.overlaps = view.overlaps
        self.syncs = view.syncs
        self.links = rank.trace.event_links
        self.findings = view.findings


def _overlap(whole: _Whole, pairs: list[dict[str, Any]]) -> Iterator[Check]:
    for pair in pairs:
        a, b = pair["a"], pair["b"]
        share = next((x for x in map(_share_of(a, b), whole.overlaps) if x is not None), 0.0)
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


def _streams(whole: _Whole, bounds: list[float]) -> Iterator[Check]:
    streams = sorted(whole.device.streams, key=lambda x: -x.busy_ns)[:2]
    names = {f"stream:{whole.device.device}/{x.stream}" for x in streams}
    rows = [x for x in whole.overlaps if {x.a, x.b} == names]
    share = rows[0].overlap_ns / min(rows[0].a_ns, rows[0].b_ns) if rows else 0.0
    yield _within("two busiest streams at once", share, bounds)


def _busy(whole: _Whole, bounds: list[float]) -> Iterator[Check]:
    yield _within("GPU busy", whole.device.busy_ns / whole.length_ns, bounds)


def _exposed_comm(whole: _Whole, bounds: list[float]) -> Iterator[Check]:
    share = whole.device.exposed_comm_ns / max(1, whole.device.comm_ns)
    yield _within("exposed share of communication", share, bounds)


def _comm(whole: _Whole, bounds: list[float]) -> Iterator[Check]:
    yield _within("communication", whole.device.comm_ns / whole.length_ns, bounds)


def _blocking(whole: _Whole, calls: dict[str, int]) -> Iterator[Check]:
    found = _calls(whole)
    yield Check("blocking calls", _listed(found), _listed(calls), found == calls)


def _blocking_least(whole: _Whole, calls: dict[str, int]) -> Iterator[Check]:
    found = _calls(whole)
    enough = all(found[api] >= count for api, count in calls.items())
    yield Check("blocking calls", _listed(found), f"at least {_listed(calls)}", enough)


def _caused_idle(whole: _Whole, least_us: float) -> Iterator[Check]:
    found_us = sum(x.caused_idle_ns for x in whole.syncs) / 1000
    what = "idle caused by blocking calls"
    yield Check(what, f"{found_us:.0f} us", f"at least {least_us} us", found_us >= least_us)


def _causes(whole: _Whole, shares: dict[str, float]) -> Iterator[Check]:
    for cause, least in shares.items():
        share = whole.device.bubbles[cause] / max(1, whole.device.idle_ns)
        yield _within(f"idle by {cause}", share, [least, 1])


def _waits_named(whole: _Whole, named: bool) -> Iterator[Check]:
    links = whole.links
    others = links.inferred + links.unresolved
    found = f"{links.exact} of {links.exact + others}"
    kept = others == 0 if named else links.exact == 0 and others > 0
    yield Check("stream waits that are named", found, "all" if named else "none", kept)


def _findings(whole: _Whole, expected: list[list[str]]) -> Iterator[Check]:
    found = sorted({(x.rule, x.cause) for x in whole.findings if x.severity != INFO})
    wanted = sorted((rule, cause) for rule, cause in expected)
    told, expect = (", ".join(map(" ".join, pairs)) or "none" for pairs in (found, wanted))
    yield Check("findings above info", told, expect, found == wanted)


_CHECKS: dict[str, Callable[[_Whole, Any], Iterator[Check]]] = {
    "overlap": _overlap,
    "streams": _streams,
    "busy": _busy,
    "exposed_comm": _exposed_comm,
    "comm": _comm,
    "blocking": _blocking,
    "blocking_least": _blocking_least,
    "caused_idle_us": _caused_idle,
    "causes": _causes,
    "waits_named": _waits_named,
    "findings": _findings,
}


def _within(what: str, share: float, bounds: list[float]) -> Check:
    least, most = bounds
    expected = f"{100 * least:g} to {100 * most:g} %"
    return Check(what, f"{100 * share:.1f} %", expected, least <= share <= most)


def _calls(whole: _Whole) -> Counter[str]:
    calls: Counter[str] = Counter()
    for sync in whole.syncs:
        calls[sync.api] += sync.count
    return calls


def _listed(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {api}" for api, count in sorted(calls.items())) or "none"
