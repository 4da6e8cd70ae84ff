"""What a job takes back of its ranks' findings. Times are in microseconds."""

from dataclasses import replace

import numpy as np
import pytest

from tests.build.parts import Op, part
from tests.unit.findings.rules.test_tl304_straggler import STRAGGLER
from tracelab.findings.finding import Finding, Where
from tracelab.findings.job_findings import find_in_job
from tracelab.job.part import PartSteps
from tracelab.measures.overlap_blockers import OverlapBlocker
from tracelab.model.collectives import Operation
from tracelab.model.program.call_sites import CallSite
from tracelab.model.trace import ABSENT

SITE = CallSite(function="train", file="train.py", line=40, call="all_reduce")
EVENT_WAIT, TRUE_DEPENDENCY = OverlapBlocker.EVENT_WAIT, OverlapBlocker.TRUE_DEPENDENCY


def a_part(*pieces):
    """Two all-reduces, at 100 to 200 us and at 300 to 400, in a steady step of 1 ms.

    Pieces are (operation, start, end, overlap blocker), us.
    """
    times = ((100_000, 200_000), (300_000, 400_000))
    made = part(1, *(Op(Operation.ALL_REDUCE, *x, step=3) for x in times))
    operation, start, end, blocker = (np.array(x) for x in zip(*pieces, strict=True))
    one = np.array([3]), np.array([0]), np.array([1_000_000])
    return replace(
        made,
        sites=(SITE,),
        site_index=np.zeros(2, np.int32),
        kernel_names=("ncclDevKernel_AllReduce(int)",),
        steps=PartSteps(*one, np.array([True])),
        exposed_index=operation,
        exposed_start_ns=1_000 * start,
        exposed_end_ns=1_000 * end,
        exposed_blocker=blocker.astype(np.int8),
    )


def tl202(cause, cost, bound, severity="warning", **where):
    site = {"function": "train", "file": "train.py", "line": 40, "call": "all_reduce"}
    return Finding(
        rule="TL202",
        title="`all_reduce` in train (train.py:40): ncclDevKernel_AllReduce is not overlapped",
        severity=severity,
        rank=1,
        step=None,
        cause=cause,
        cost_ns=1_000 * cost,
        bound_ns=1_000 * bound,
        where=Where(count=2, activity="ncclDevKernel_AllReduce", **{**site, **where}),
        evidence=(1,),
        fix="Wait later.",
    )


def found_of(findings, of_part, *waits):
    wait_ns = np.array([1_000 * x if x != ABSENT else ABSENT for x in waits])
    return find_in_job(findings, [of_part], [wait_ns], (), None, None)


def test_only_the_transfer_of_a_collective_remains():
    # The second one waits for 70 us; of its exposed 80 us, from 320 us on, 30 are transfer.
    of_part = a_part((0, 180, 200, EVENT_WAIT), (1, 320, 400, EVENT_WAIT))

    [found] = found_of([tl202("event_wait", 100, 90)], of_part, 0, 70)

    assert (found.cost_ns, found.bound_ns) == (50_000, 50_000)
    assert found.severity == "warning"


def test_a_bound_that_is_smaller_than_the_transfer_remains():
    of_part = a_part((0, 180, 200, EVENT_WAIT), (1, 320, 400, EVENT_WAIT))

    [found] = found_of([tl202("event_wait", 100, 10)], of_part, 0, 70)

    assert (found.cost_ns, found.bound_ns, found.severity) == (50_000, 10_000, "info")


def test_a_finding_of_which_nothing_remains_goes():
    of_part = a_part((1, 320, 400, EVENT_WAIT))

    assert found_of([tl202("event_wait", 80, 80)], of_part, 0, 100) == ()


def test_a_wait_for_a_peer_is_taken_back():
    of_part = a_part((1, 300, 400, EVENT_WAIT))

    assert found_of([tl202("peer_wait", 90, 0, "info")], of_part, 0, 90) == ()


def test_what_was_no_wait_is_a_transfer(snapshot):
    # It was taken for a wait, or a slow link: all ranks had come after 10 us.
    of_part = a_part((1, 300, 400, TRUE_DEPENDENCY))

    [found] = found_of([tl202("peer_wait", 100, 0, "info")], of_part, 0, 10)

    assert (found.cause, found.cost_ns, found.bound_ns) == ("true_dependency", 90_000, 0)
    assert found.title == snapshot
    assert "compare them" not in found.fix


def test_pieces_with_another_overlap_blocker_are_of_another_finding():
    of_part = a_part((0, 150, 200, TRUE_DEPENDENCY), (1, 320, 400, EVENT_WAIT))
    first, second = tl202("event_wait", 80, 80), tl202("true_dependency", 50, 0, "info")

    found = found_of([first, second], of_part, 60, 70)

    assert {x.cause: x.cost_ns for x in found} == {
        "event_wait": 30_000,
        "true_dependency": 40_000,
    }


@pytest.mark.parametrize("waits", [(0, ABSENT), (ABSENT, ABSENT)])
def test_where_the_wait_is_not_known_a_finding_stays(waits):
    finding = tl202("peer_wait", 90, 0, "info")

    assert found_of([finding], a_part((1, 300, 400, EVENT_WAIT)), *waits) == (
        (finding,) if waits[1] == ABSENT else ()
    )


def test_other_findings_stay():
    finding = replace(tl202("event_wait", 80, 80), rule="TL201")

    assert found_of([finding], a_part((1, 320, 400, EVENT_WAIT)), 100, 100) == (finding,)


def test_findings_at_another_call_site_stay():
    finding = tl202("event_wait", 80, 80, line=41)

    assert found_of([finding], a_part((1, 320, 400, EVENT_WAIT)), 100, 100) == (finding,)


def test_a_straggler_is_sorted_into_the_findings_of_its_rank():
    of_part = a_part((1, 320, 400, EVENT_WAIT))
    small, large = tl202("event_wait", 80, 80), tl202("event_wait", 90_000, 90_000)
    findings = [replace(x, rule="TL201") for x in (large, small)]
    straggler = replace(STRAGGLER, rank=1)

    found = find_in_job(findings, [of_part], [np.zeros(2, np.int64)], [straggler], None, None)

    assert [x.rule for x in found] == ["TL201", "TL304", "TL201"]
