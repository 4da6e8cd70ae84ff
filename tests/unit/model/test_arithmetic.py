"""In which numbers and layouts kernels compute, by names out of real traces."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.build import rows
from tests.build.rows import US
from tracelab.model import arithmetic
from tracelab.model.arithmetic import (
    PEAKS,
    Peak,
    is_float32_product,
    is_float64,
    is_float64_product,
    is_half_product,
    is_layout_change,
    is_of_nchw,
    is_tf32_product,
    products,
    products_without_tf32,
    tf32_speedup,
)

# Kernels of float32 products on an H100, A100, V100 and RTX 4090, cut off behind what tells.
FLOAT32 = (
    "ampere_sgemm_128x64_tn",
    "volta_sgemm_64x64_tn",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(Params)",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x64x8_stage3_warpsize2x2x1_ffma_aligna4",
    "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_stage3",
    "sm80_xmma_gemm_cf32cf32_f32f32_cf32_nt_n_tilesize64x32x8_stage3_warpsize2x2x1_ffma",
    "void sgemm_largek_lds64<true, false, 5, 5, 4, 4, 4, 34>(float*, float const*)",
    "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",
    "void cudnn::winograd_nonfused::winogradForwardOutput4x4<float, float>(Params<float>)",
    "void fft2d_r2c_32x32<float, false, 0u, false>(float2*, float const*, int)",
)
TF32 = (
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_16x3_nt_align4>(Params)",
    "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128",
)
HALF = (
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    "nvjet_hsh_64x8_64x16_4x1_v_bz_TNT",
    "turing_h1688gemm_128x128_ldg8_nn",
    "void gemvNSP_kernel<__half, __half, __half, float, 1, 32, 4, 1024, false>(int)",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI16x16x16x1_SN",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(Params)",
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(Params)",
    "ampere_fp16_s16816gemm_fp16_128x64_ldg8_relu_f2f_stages_32x6_tn",
    "ampere_fp16_sgemm_fp16_64x64_tn",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
)
FLOAT64_PRODUCTS = (
    "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x32_16x4_tn_align1>(Params)",
    "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x128x16_stage3_warpsize2x2x1",
    "volta_dgemm_64x64_nn",
    "void implicit_convolve_dgemm<128, 6, 7, 3, 3, 5, 1, false>(int, int)",
)
FLOAT64 = (
    "void vectorized_elementwise_kernel<2, at::native::CUDAFunctor_add<double>, array>(int)",
    "void (anonymous namespace)::softmax_warp_backward<double, double, double, 8, false>(int)",
    "void reduce_kernel<512, 1, ReduceOp<double, at::native::func_wrapper_t<double> > >(int)",
    "void elementwise_kernel<CUDAFunctor_add<c10::complex<double> > >(int)",
)
# A number of the program's is passed in double precision; the tensors are not.
NOT_FLOAT64 = (
    "void multi_tensor_apply_kernel<Metadata<4>, FusedAdamMathFunctor<float, 4>, double, double>",
    "void elementwise_kernel<nan_to_num_kernel_cuda(TensorIteratorBase&, c10::optional<double>)>",
    "void unrolled_elementwise_kernel<direct_copy_kernel_cuda()::{lambda(double)#1}, 2>(int)",
    "void distribution_elementwise<normal_kernel(TensorBase const&, double, double)>(int)",
)


@pytest.mark.parametrize("name", [*FLOAT32, *TF32, *HALF, *FLOAT64_PRODUCTS])
def test_products(name):
    assert is_float32_product(name) == (name in FLOAT32)
    assert is_tf32_product(name) == (name in TF32)
    assert is_half_product(name) == (name in HALF)
    assert is_float64_product(name) == (name in FLOAT64_PRODUCTS)


@pytest.mark.parametrize("name", [*FLOAT64_PRODUCTS, *FLOAT64, *NOT_FLOAT64, *FLOAT32, *TF32])
def test_double_precision(name):
    assert is_float64(name) == (name in (*FLOAT64_PRODUCTS, *FLOAT64))


@pytest.mark.parametrize(
    ("name", "changes", "is_nchw"),
    [
        ("void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, float>", True, False),
        ("void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false>(int)", True, False),
        ("void cudnn::engines_precompiled::convertTensor_kernel<float, float>", False, False),
        ("sm80_xmma_fprop_implicit_gemm_bf16_nhwckrsc_nchw_tilesize256x64x32", False, False),
        ("void at::native::batch_norm_backward_kernel<c10::BFloat16, float>", False, True),
        ("void batch_norm_backward_elemt_channels_last_kernel<4, float>", False, False),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128>", False, True),
        ("void cudnn::batchnorm_bwtr_nhwc_semiPersist<float, float>", False, False),
        ("void max_pool_backward_nchw<float, float, int>(float const*)", False, True),
    ],
)
def test_layouts(name, changes, is_nchw):
    assert (is_layout_change(name), is_of_nchw(name)) == (changes, is_nchw)


@pytest.mark.parametrize(
    ("gpu", "speedup"),
    [
        ("NVIDIA H100 80GB HBM3", 7.4),
        ("NVIDIA H200", 7.4),
        ("NVIDIA A100-SXM4-40GB", 8),
        ("NVIDIA B200", 13.8),
        ("NVIDIA RTX A4000", 2),
        ("NVIDIA L40S", 2),
        ("NVIDIA GeForce RTX 4090", 1),  # as fast in float32
        ("Tesla V100-SXM2-32GB", 1),  # without TF32
        ("NVIDIA H20", 1),  # not known here
        ("AMD Instinct MI300X", 1),
        ("", 1),
    ],
)
def test_how_much_faster_tf32_is(gpu, speedup):
    assert tf32_speedup(_timeline([("gemm", "aten::mm")], gpu)).tolist() == [speedup]


MATRIX, CONVOLUTION = (FLOAT32[0], "aten::addmm"), (FLOAT32[0], "aten::cudnn_convolution")
MATRIX_TF32, CONVOLUTION_TF32 = (TF32[1], "aten::mm"), (TF32[1], "aten::convolution_backward")


@pytest.mark.parametrize(
    ("ran", "without"),
    [
        ([MATRIX, CONVOLUTION], [True, True]),
        ([MATRIX, MATRIX_TF32], [False, False]),  # it is allowed: cuBLAS chose float32
        ([MATRIX, CONVOLUTION_TF32], [True, False]),  # by default only for convolutions
        ([CONVOLUTION, MATRIX_TF32], [True, False]),
        ([MATRIX, (FLOAT32[0], "aten::_cudnn_rnn"), CONVOLUTION_TF32], [True, False, False]),
        ([(HALF[0], "aten::mm"), MATRIX], [False, True]),
    ],
)
def test_one_product_in_tf32_shows_that_it_is_allowed(ran, without):
    assert products_without_tf32(_timeline(ran, "NVIDIA H100")).tolist() == without


def test_without_an_operator_the_name_says_what_is_a_convolution():
    ran = [(FLOAT32[4], None), (FLOAT32[0], None), (TF32[2], None)]
    without = products_without_tf32(_timeline(ran, "NVIDIA H100")).tolist()
    assert without == [False, True, False]


def _timeline(ran, gpu):
    """Kernels one after another, each launched by an operator."""
    some = []
    for i, (name, operator) in enumerate(ran):
        at = 20 * i * US
        if operator is not None:
            some.append(rows.operator(operator, at, at + 8 * US))
        some.append(rows.launch(at + US, at + 3 * US, i + 1))
        some.append(rows.kernel(at + 10 * US, at + 15 * US, name, correlation=i + 1))
    return rows.timeline(*some, gpu=gpu)


@pytest.mark.parametrize(
    ("test", "name", "expected"),
    [
        ("is_float32_product", "ampere_sgemm_128x64_tn", True),
        ("is_float32_product", "ampere_fp16_sgemm_fp16_64x64_tn", False),
        ("is_tf32_product", "cutlass_80_tensorop_s1688gemm_128x256_16x3_nt_align4", True),
        ("is_tf32_product", "cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1", False),
        ("is_float64", "elementwise_kernel<2, CUDAFunctor_add<double> >", True),
        (
            "is_float64",
            "multi_tensor_apply_kernel<FusedSgdMathFunctor<float, 2>, double, double>",
            False,
        ),
        ("is_float64_product", "cutlass_80_tensorop_d884gemm_64x32_16x4_tn_align1", True),
        ("is_half_product", "nvjet_sm90_tst_64x256_64x5_1x2_h_bz_NNN", True),
        ("is_half_product", "ampere_sgemm_128x64_tn", False),
        (
            "is_elementwise",
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>",
            True,
        ),
        ("is_elementwise", "triton_poi_fused_add_0", False),
        (
            "is_float32_attention",
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80(AttentionKernel::Params)",
            True,
        ),
        (
            "is_float32_attention",
            "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(AttentionKernel::Params)",
            False,
        ),
        ("is_batched_product", "aten::bmm", True),
        ("is_batched_product", "aten::mm", False),
        (
            "is_layout_change",
            "cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>",
            True,
        ),
        (
            "is_of_nchw",
            "void at::native::batch_norm_backward_kernel<c10::BFloat16, float, float, int>",
            True,
        ),
        (
            "is_of_nchw",
            "at::native::batch_norm_backward_reduce_channels_last_kernel<4, float>",
            False,
        ),
        (
            "interpolates_nchw",
            "void at::native::upsample_nearest2d_backward_out_frame<float>",
            True,
        ),
        ("interpolates_nchw", "void at::native::upsample_nearest2d_nhwc_out_frame<float>", False),
    ],
)
def test_examples(test, name, expected):
    assert getattr(arithmetic, test)(name) is expected


SHAPES = '[[[1000,1000],[1000,500]],["c10::Half","c10::Half"],["",""]]'  # 10**9 of them
FLOATS = SHAPES.replace("c10::Half", "float")
PRODUCT = "ampere_fp16_s16816gemm_fp16_128x64_tn"


def _products(*some, gpu="NVIDIA A100-SXM4-40GB", **of_rows):
    """The products among the activities of some rows, each of its launch."""
    timeline = rows.timeline(*some, gpu=gpu, **of_rows)
    return products(timeline, np.arange(len(timeline.event_id)), timeline.launch_id)


def _launched(number, at, name, length, **of_kernel):
    return [
        rows.launch(at, at + 1, number),
        rows.kernel(at + 2, at + 2 + length, name, correlation=number, **of_kernel),
    ]


def test_kernels_of_a_product_share_it_by_their_time():
    """GIVEN 10**9 additions and multiplications by two kernels of 30 and 10 ns, and one that adds
    up their parts
    THEN these have three quarters and one quarter of them, the third none, and so of bytes."""
    found = _products(
        rows.operator("aten::mm", 0, 300, inputs=SHAPES),
        *_launched(1, 10, PRODUCT, 30),
        *_launched(2, 60, PRODUCT, 10),
        *_launched(3, 100, "void splitKreduce_kernel<32>(int)", 40),
    )
    assert found.flops.tolist()[:2] == [750e6, 250e6]
    assert found.moved_bytes.tolist()[:2] == [3e6, 1e6]
    assert np.isnan(found.flops[2])
    assert found.is_product.tolist() == [True, True, False]
    assert found.peak_ns[:2] == pytest.approx([750e6 / 312e3, 250e6 / 312e3])


def test_what_a_product_calls_is_counted_once():
    """GIVEN a product that calls another one, a copy and an operator without shapes
    THEN each kernel that multiplies has that of the innermost one, and the copy has none."""
    found = _products(
        rows.operator("aten::addmm", 0, 500, inputs='[[[9],[9,9],[9,9]],["","float","float"],[]]'),
        rows.operator("aten::mm", 5, 90, inputs=FLOATS),
        *_launched(1, 10, "ampere_sgemm_128x64_tn", 30),
        rows.operator("aten::copy_", 100, 190),
        *_launched(2, 110, "void elementwise_kernel<copy>(int)", 30),
        rows.operator("aten::other", 200, 290),
        *_launched(3, 210, "ampere_sgemm_128x64_tn", 30),
    )
    assert found.flops[[0, 2]].tolist() == [1e9, 2 * 9**3]
    assert np.isnan(found.flops[1])


@pytest.mark.parametrize(
    ("gpu", "name", "inputs", "rate"),
    [
        ("NVIDIA A100-SXM4-40GB", "ampere_sgemm_128x64_tn", FLOATS, 19.5),
        ("NVIDIA A100-SXM4-40GB", TF32[0], FLOATS, 156),
        ("NVIDIA A100-SXM4-40GB", "my_product", FLOATS, 156),  # not to have too large a share
        ("Tesla V100-SXM2-32GB", "my_product", FLOATS, 15.7),
        ("Tesla V100-SXM2-32GB", "my_product", SHAPES.replace("Half", "BFloat16"), None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", PRODUCT, SHAPES, None),
        ("Somebody's GPU", PRODUCT, SHAPES, None),
        ("", PRODUCT, SHAPES, None),
    ],
)
def test_the_peak_is_that_of_the_gpu_and_of_the_number_format(gpu, name, inputs, rate):
    made = rows.operator("aten::mm", 0, 100, inputs=inputs), *_launched(1, 10, name, 30)
    [peak_ns] = _products(*made, gpu=gpu).peak_ns
    assert peak_ns == pytest.approx(np.nan if rate is None else 1e6 / rate, nan_ok=True)


@pytest.mark.parametrize("inputs", ["", "[", "[[],[],[]]", "[1,2,3]", '["a","b","c"]'])
def test_inputs_that_say_nothing(inputs):
    made = rows.operator("aten::mm", 0, 100, inputs=inputs), *_launched(1, 10, PRODUCT, 30)
    found = _products(*made)
    assert found.is_product.all()
    assert np.isnan([found.flops, found.moved_bytes, found.peak_ns]).all()


def test_copies_and_memsets_move_what_they_copy():
    found = _products(rows.copy(0, 10, copied_bytes=4096), rows.kernel(20, 30, "add"))
    assert found.moved_bytes[0] == 4096
    assert np.isnan(found.moved_bytes[1])
    assert np.isnan(found.flops).all()


def test_each_replay_of_a_graph_computes_its_products_again():
    """GIVEN a product of which two replays have a kernel each
    THEN each of them has all of it."""
    timeline = rows.timeline(
        rows.operator("aten::mm", 0, 10, inputs=SHAPES),
        rows.launch(2, 3, 1),
        *_launched(2, 20, PRODUCT, 30),
        *_launched(3, 70, PRODUCT, 15),
    )
    captured = np.full(2, 1)  # the event id of the first launch
    assert products(timeline, np.arange(2), captured).flops.tolist() == [1e9, 1e9]


def test_peaks_are_of_known_formats_and_each_has_a_source():
    text = (Path(arithmetic.__file__).with_name("peaks.toml")).read_text(encoding="utf-8")
    keys = {key for record in tomllib.loads(text).values() for key in record}
    assert keys <= {*Peak.__struct_fields__}
    assert all(peak.source.startswith("https://") for peak in PEAKS.values())
