"""Work of the steady steps as a share of what their GPUs could do."""

import pytest

from tests.build.analyses import analysis_of
from tests.build.rows import US, kernel, launch, operator, step

PRODUCT = '[[[1000,1000],[1000,500]],["c10::Half","c10::Half"],["",""]]'  # 10**9 of them


def steady_of(*more, inputs=PRODUCT, gpu="NVIDIA H200", **options):
    """The steady steps of a program that multiplies in one half of each step of 20 us."""
    rows = []
    for number in range(3):
        at, name = 20 * US * number, "gemm"
        rows += [
            step(number, at, at + 20 * US),
            operator("aten::mm", at, at + US, inputs=inputs),
            launch(at, at + 100, number),
            kernel(at + US, at + 11 * US, name, correlation=number),
        ]
    [steady] = analysis_of(*rows, *more, gpu=gpu, **options).report.steady
    return steady


def test_mfu_is_the_time_at_the_peak_as_a_share_of_a_step():
    steady = steady_of()
    assert (steady.flops, steady.flops_known_share) == (10**9, 1)
    assert steady.mfu == pytest.approx(10**9 / 989.4e12 / 20e-6)


def test_of_two_gpus_mfu_is_half_as_much():
    alone = kernel(US, 2 * US, "add", device=1)
    assert steady_of(alone).mfu == pytest.approx(steady_of().mfu / 2)


def test_no_mfu_without_a_peak_or_with_one_step_alone():
    unknown = steady_of(gpu="my GPU")
    assert (unknown.flops, unknown.mfu) == (10**9, None)
    nothing = steady_of(inputs="")
    one = steady_of(step=1)
    for steady in (nothing, one):
        assert (steady.flops, steady.mfu, steady.flops_known_share) == (None, None, None)


def test_no_mfu_where_many_products_are_not_known():
    """GIVEN a product without shapes in each step, as long as the other one."""
    more = []
    for number in range(3):
        at = 20 * US * number + 12 * US
        more += [
            launch(at, at + 100, 10 + number),
            kernel(at + US, at + 11 * US, "other_gemm", stream=8, correlation=10 + number),
        ]
    steady = steady_of(*more)
    assert (steady.flops, steady.mfu, steady.flops_known_share) == (10**9, None, 0.5)
