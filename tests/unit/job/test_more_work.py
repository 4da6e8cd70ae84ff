"""What a rank's GPU does more than the others'. Times are in nanoseconds per step."""

import numpy as np
import pytest

from tests.build.jobs import row
from tracelab.job.more_work import more_work
from tracelab.model.program.call_sites import NO_CALL_SITE, CallSite


def kernel(name, total, count, phase="forward", kind="compute"):
    return row(name=name, kind=kind, phase=phase, count=count, total_ns=total)


def operator(name, total, calls, where="forward"):
    return row(name=name, where=where, gpu_ns=total, calls=calls, launches=calls)


def more_work_of(tables, part_index, *sites):
    parts = [
        row(work_sites=tuple(of), work_site_ns=np.array(list(of.values())))
        for of in sites or [{}] * len(tables)
    ]
    return more_work(tables, parts)[part_index]


def tables(*kernels, operators=()):
    return {"kernels": kernels, "operators": operators}


def test_more_calls_are_counted_rather_than_timed():
    # The others wait a lot, so their GPUs run each product faster: 100 rather than 110 ns.
    slow = tables(kernel("gemm", 1_980, 18), operators=[operator("aten::mm", 1_980, 18)])
    other = tables(kernel("gemm", 1_200, 12), operators=[operator("aten::mm", 1_200, 12)])

    more = more_work_of([other, slow, other], 1)

    assert (more.name, more.is_kernel, more.is_slower) == ("aten::mm", False, False)
    assert (more.ratio, more.calls, more.usual_calls, more.excess_ns) == (1.5, 18, 12, 780)


def test_as_many_calls_that_take_longer_in_one_operator_are_more_work_of():
    slow = tables(
        kernel("gemm", 1_800, 12),
        kernel("norm", 600, 6),
        operators=[operator("aten::mm", 1_800, 12, "backward"), operator("aten::norm", 600, 6)],
    )
    other = tables(
        kernel("gemm", 1_200, 12),
        kernel("norm", 600, 6),
        operators=[operator("aten::mm", 1_200, 12, "backward"), operator("aten::norm", 600, 6)],
    )

    more = more_work_of([slow, other], 0)

    assert (more.name, more.phase, more.is_slower) == ("aten::mm", "backward", False)
    assert more.ratio == 1.5


def test_the_same_kernels_each_longer_by_as_much_are_a_slower_gpu():
    slow = tables(kernel("gemm", 1_440, 12), kernel("norm", 714, 6))
    other = tables(kernel("gemm", 1_200, 12), kernel("norm", 600, 6))

    more = more_work_of([slow, other], 0)

    assert more.is_slower
    assert more.ratio == pytest.approx(2_154 / 1_800)


def test_communication_is_no_work():
    slow = tables(
        kernel("nccl", 9_000, 1, kind="comm"),
        kernel("gemm", 100, 1),
        operators=[operator("c10d::allreduce_", 9_000, 1), operator("record_param_comms", 9, 1)],
    )
    other = tables(kernel("gemm", 100, 1))

    assert more_work_of([slow, other], 0) is None


def test_what_only_one_rank_runs_has_no_ratio():
    slow = tables(operators=[operator("aten::sort", 500, 2)])

    assert more_work_of([slow, tables()], 0).ratio == float("inf")


def test_without_operators_kernels_are_named():
    more = more_work_of([tables(kernel("gemm", 300, 3)), tables(kernel("gemm", 100, 1))], 0)

    assert (more.name, more.is_kernel, more.ratio) == ("gemm", True, 3)


def test_a_rank_that_does_less_does_not_do_more():
    assert more_work_of([tables(kernel("gemm", 100, 1)), tables(kernel("gemm", 300, 3))], 0) is None
    assert more_work_of([{}, {}], 0) is None


def test_the_call_site_with_the_excess_is_named():
    loop, head = CallSite(function="train", line=35), CallSite(function="head", line=9)
    slow = tables(operators=[operator("aten::mm", 1_800, 18)])
    other = tables(operators=[operator("aten::mm", 1_200, 12)])

    more = more_work_of([slow, other], 0, {head: 900, loop: 900}, {head: 900, loop: 300})
    spread = more_work_of([slow, other], 0, {head: 900, loop: 900}, {head: 600, loop: 600})

    assert (more.site, spread.site) == (loop, NO_CALL_SITE)
