import pytest

from tracelab.model.call_sites import CallSite
from tracelab.model.wording import describe, short_kernel_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, F>(int, F)", None),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD (Pinned -> Device)"),
        ("Memset (Device)", "Memset (Device)"),
        ("nvjet_sm90_tst_128x64", "nvjet_sm90_tst_128x64"),
        ("<unnamed>", "<unnamed>"),
    ],
)
def test_kernels_have_short_names(name, short):
    assert short_kernel_name(name) == (short or "at::native::vectorized_elementwise_kernel")


def test_the_mark_around_every_collective_is_not_what_was_called():
    assert describe(CallSite(operator="record_param_comms"), "cudaLaunchKernel") == (
        "`cudaLaunchKernel`"
    )
    assert describe(CallSite(operator="c10d::allreduce_"), "cudaLaunchKernel") == (
        "`c10d::allreduce_`"
    )
