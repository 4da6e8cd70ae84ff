"""Edits of how the GPU computes, on a hand-made step whose kernels follow one another closely."""

import pytest

from tests.build import rows
from tests.build.repeated_scenes import scene
from tests.build.rows import US
from tracelab.model.trace import ABSENT
from tracelab.simulate.program import Via

SGEMM, SOFTMAX = "ampere_sgemm_128x64_tn", "softmax"
LAYOUT = "void cudnn::ops::nchwToNhwcKernel<float, float>(int)"
NORM = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int>(int)"
FUSED = "fmha_cutlassB_f32_aligned_64x64_k64_sm80(AttentionBackwardKernel<Sm80, float>::Params)"
UNALIGNED = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>"
BLUESTEIN = "void multi_bluestein_fft<512u, EPT<8u>, 8u, 0u>(int)"
ADDS_ROWS = "void (anonymous namespace)::indexing_backward_kernel<float, 4>(long const*, bool)"
ADD, MUL = (f"void at::native::elementwise_kernel<2, {x}>(int)" for x in ("add", "mul"))
NEAREST = "void at::native::upsample_nearest2d_out_frame<float, &nearest_index>(float const*)"
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
        ("channels-last", (NEAREST, SOFTMAX), [[40, 200], [300, 200], [540, 200]]),
        # Two in a row take as long as one; at most as long as both.
        ("fuse-chains:aten::mm", (ADD, MUL, SOFTMAX), [[15, 15, 200], [100, 100, 200], [200] * 3]),
        ("fuse-chains:aten::mm", (ADD, SOFTMAX, MUL), [[200] * 3] * 3),  # none in a row
        ("usual-kernels:aten::mm", (FUSED, SOFTMAX), [[12, 200], [30, 200], [160, 200]]),
        ("usual-kernels:aten::mm", (UNALIGNED, BLUESTEIN), [[24, 0], [40, 30], [82, 62]]),
        ("usual-kernels:aten::mm", (ADDS_ROWS, SOFTMAX), [[2, 200], [6, 200], [40, 200]]),
        ("one-token:aten::mm", (FUSED, SOFTMAX), [[0.6, 0.6], [4.8, 4.8], [40, 40]]),
    ],
)
def test_what_other_edits_leave(edit, names, expected):
    assert costs_us(running(*names), edit) == expected


def test_short_work_in_double_precision_may_take_longer_in_single():
    assert costs_us(running(ADD64, GEMM64, us=5), "float32") == [[2, 2], [3.5, 4.5], [6.5, 9]]


def test_sparse_gradients_need_no_table():
    # Filled for 100 us, summed up for 30 us; of an optimizer's 2,400 us the table takes 14, 22 or
    # 24 times as long as its fill.
    def of_step(at, number):
        some = [
            rows.operator("aten::embedding_dense_backward", at, at + 20 * US),
            rows.operator("aten::fill_", at + US, at + 5 * US),
            rows.annotation("Optimizer.step#Adam.step", at + 30 * US, at + 40 * US),
        ]
        start = at + 50 * US
        for i, (launched, us) in enumerate(((2, 100), (10, 30), (32, 2_400))):
            some.append(rows.launch(at + launched * US, at + (launched + 2) * US, number + i))
            some.append(rows.kernel(start, start + us * US, correlation=number + i))
            start += (us + 2) * US
        return some

    the_scene = scene(2_600 * US, of_step)
    assert costs_us(the_scene, "sparse-gradients") == [
        [0, 60, 0],
        [0, 105, 200],
        [0, 180, 1_000],
    ]


PRODUCT = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
OF_128 = "void softmax_warp_forward<float, float, float, 7, false, false>(float*)"
OF_1024 = "void softmax_warp_forward<float, float, float, 10, false, false>(float*)"
OF_MORE = "void at::native::cunn_SoftMaxForward<4, float, float, float>(float*)"


def attending(*softmaxes):
    """A step of attentions: each two products of 200 us, and a softmax between them."""

    def of_step(at, number):
        product, some = (PRODUCT, "aten::bmm"), [rows.operator("attend", at, at + 60 * US)]
        kernels = [x for name in softmaxes for x in (product, (name, "aten::_softmax"), product)]
        for i, (name, by) in enumerate(kernels):
            launched, started = at + 10 * i * US, at + (60 + 202 * i) * US
            some += [
                rows.operator(by, launched + US, launched + 8 * US),
                rows.launch(launched + 2 * US, launched + 4 * US, number + i + 1),
                rows.kernel(started, started + 200 * US, name, correlation=number + i + 1),
            ]
        return some

    return scene((70 + 606 * len(softmaxes)) * US, of_step)


@pytest.mark.parametrize(
    ("softmax", "expected"),
    [
        (OF_128, [180, 220, 420]),
        (OF_1024, [70, 110, 240]),
        (OF_MORE, [60, 100, 240]),
        (SOFTMAX, [130, 190, 360]),  # does not say how long: as if of 256
    ],
)
def test_only_the_products_of_an_attention_are_left_of_it(softmax, expected):
    the_scene = attending(softmax)
    assert costs_us(the_scene, "attention:attend") == [[left, 0, left] for left in expected]
    # What the CPU does for the products stays.
    assert the_scene.edited("attention:attend").count == 3
    by_hand_ns = the_scene.program.latency_ns[the_scene.program.via == Via.HOST].sum()
    fused = the_scene.edited("attention:attend").program
    assert 0 < fused.latency_ns[fused.via == Via.HOST].sum() < by_hand_ns


def test_each_attention_has_its_own_length():
    the_scene = attending(OF_128, OF_MORE)
    assert costs_us(the_scene, "attention:attend")[1] == [220, 0, 220, 100, 0, 100]


@pytest.mark.parametrize("edit", ["tf32", "float32", "channels-last", "tf32:aten::conv2d"])
def test_an_edit_that_changes_nothing_counts_nothing(edit):
    the_scene = running(SOFTMAX, SOFTMAX)
    assert the_scene.edited(edit).count == 0
    assert the_scene.step_ns(edit) == the_scene.step_ns()
