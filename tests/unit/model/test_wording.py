import pytest

from tracelab.base.names import short_kernel_name
from tracelab.model.program.call_sites import CallSite
from tracelab.model.wording import call_text, describe


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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("item", "`item`"),
        ("Linear", "`Linear`"),
        ("__getitem__", "indexing"),
        ("__imul__", "`*=`"),
        ("__rsub__", "`-`"),
        ("Tensor.__bool__", "a condition"),
        ("__my_own__", "`__my_own__`"),
    ],
)
def test_what_the_source_has_no_name_of_is_told_in_words(name, expected):
    assert call_text(name) == expected
