"""Edits of how the GPU computes, on a hand-made step whose kernels follow one another closely."""

import pytest

from tests.build import rows
from tests.build.repeated_scenes import scene
from tests.build.rows import US
from tracelab.model.trace import ABSENT

SGEMM, SOFTMAX = "ampere_sgemm_128x64_tn", "softmax"
LAYOUT = "void cudnn::ops::nchwToNhwcKernel<float, float>(int)"
NORM = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int>(int)"
ADD64, GEMM64 = "void elementwise<2, CUDAFunctor_add<double> >(int)", "volta_dgemm_64x64_nn"


def running(*names, gpu="NVIDIA H100", us=200, by="aten::mm"):
    """A step of kernels of one length, behind an operator that launches them all."""

    def of_step(at, number):
        some = [rows.operator(by, at, at + 10 * US * len(names))]
        for i, name in enumerate(names):
            launched, started = at + 5 * i * US, at + 50 * US + (us + 2) * i * US
            some.append(rows.launch(launched + US, launched + 3 * US, number + i + 1))
            some.append(rows.kernel(started, started + us * US, name, correlation=number + i + 1))
        return some

    return scene((us + 2) * len(names) * US + 60 * US, of_step, gpu=gpu)


def costs_us(the_scene, edit):
    """What each kernel of the first replayed step takes, us: at least, predicted, at most."""
    edited = the_scene.edited(edit)
    activities = the_scene.program.row != ABSENT
    return [
        [round(us / US, 1) for us in program.cost_ns[activities][:kernels].tolist()]
        for kernels in [int(activities.sum()) // 3]
        for program in (edited.low, edited.program, edited.high)
    ]


@pytest.mark.parametrize(
    ("us", "gpu", "expected"),
    [
        # Long products are 1.9, 4.5 or 8.3 times as fast, but no more than the GPU can be.
        (200, "NVIDIA H100", [27.0, 44.4, 105.3]),
        (200, "NVIDIA RTX A4000", [100.0, 100.0, 105.3]),
        # Short ones 1, 1.3 or 1.8 times.
        (9, "NVIDIA H100", [5.0, 6.9, 9.0]),
    ],
)
def test_what_tf32_leaves_of_a_product(us, gpu, expected):
    the_scene = running(SGEMM, SOFTMAX, us=us, gpu=gpu)
    assert costs_us(the_scene, "tf32") == [[left, us] for left in expected]
    assert the_scene.edited("tf32").count == 3  # steps


def test_convolutions_have_figures_of_their_own():
    # 4.6, 2 or 1 times as fast.
    the_scene = running(SGEMM, by="aten::cudnn_convolution")
    assert costs_us(the_scene, "tf32") == [[43.5], [100.0], [200.0]]


@pytest.mark.parametrize(
    ("edit", "names", "expected"),
    [
        ("float32", (ADD64, GEMM64, SOFTMAX), [[50, 28, 200], [100, 60, 200], [140, 124, 200]]),
        ("channels-last", (LAYOUT, NORM, SOFTMAX), [[0, 50, 200], [0, 80, 200], [200, 200, 200]]),
    ],
)
def test_what_other_edits_leave(edit, names, expected):
    assert costs_us(running(*names), edit) == expected


def test_short_work_in_double_precision_may_take_longer_in_single():
    assert costs_us(running(ADD64, GEMM64, us=5), "float32") == [[2, 2], [3.5, 4.5], [6.5, 9]]


@pytest.mark.parametrize("edit", ["tf32", "float32", "channels-last", "tf32:aten::conv2d"])
def test_an_edit_that_changes_nothing_counts_nothing(edit):
    the_scene = running(SOFTMAX, SOFTMAX)
    assert the_scene.edited(edit).count == 0
    assert the_scene.step_ns(edit) == the_scene.step_ns()
