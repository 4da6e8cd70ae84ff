"""Labels of kernels and copies, of names from traces of many programs, libraries and GPUs."""

import pytest
from hypothesis import given, strategies as st

from tracelab.base.names import kernel_label

ITERATOR = "at::TensorIteratorBase&"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "AllReduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long)", "SendRecv"),
        ("Memcpy HtoD (Pinned -> Device)", "copy H2D"),
        ("Memcpy DtoH (Device -> Pageable)", "copy D2H pageable"),
        ("Memcpy PtoP (Device -> Device)", "copy P2P"),
        ("CopyHostToDevice", "copy H2D"),
        ("Memset (Device)", "memset"),
        ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT", "nvjet 320x128"),
        ("nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_TNN", "nvjet 256x128"),
        ("ampere_sgemm_128x64_nn", "sgemm 128x64"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_relu_f2f_stages_64x3_tn", "gemm 128x128"),
        (
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(cutlass_80_"
            "tensorop_s1688gemm_64x64_32x6_tn_align4::Params)",
            "gemm 64x64",
        ),
        (
            "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize1x1x1_execute_"
            "segment_k_off_kernel__5x_cublas",
            "gemm 128x256",
        ),
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT64x32x64_MI16x16x1_SN", "gemm 64x32"),
        ("igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8_ws1x1", "igemm_bwd 128x64"),
        ("sm80_xmma_dgrad_implicit_gemm_bf16bf16_f32_nhwc_tilesize128x32x64_a", "dgrad 128x32"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_k_64x128x64", "sdpa fprop"),
        ("triton_per_fused_abs_amax_6", "triton abs_amax_6"),
        ("std::enable_if<true, void>::type internal::gemvx::kernel<int, float>(float)", "gemvx"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_add"
            "<float>, at::detail::Array<char*, 2> >(int, at::native::CUDAFunctorOnSelf_add<float>)",
            "elementwise add",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::"
            "native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor"
            "<float> > >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)",
            "elementwise mul",
        ),
        (
            f"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda"
            f"({ITERATOR})::{{lambda()#3}}::operator()() const::{{lambda(float)#1}}, 4>(int)",
            "elementwise copy",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
            f"launch_clamp_scalar({ITERATOR}, c10::Scalar)::{{lambda()#1}}>(int)",
            "elementwise clamp_scalar",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_"
            "wrapper_t<float, at::native::sum_functor<float, float, float>::operator()(at::Tensor"
            "Iterator&)::{lambda(float, float)#1}>, unsigned int, float, 4> >(int)",
            "reduce sum",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::"
            "(anonymous namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::"
            "UnaryOpFunctor<float, 2, 1, 1>, at::native::Sqrt<float> >(int)",
            "foreach sqrt",
        ),
        # What is named well already, and what is no kernel at all.
        ("void (anonymous namespace)::softmax_warp_forward<float, float>(float*)", ""),
        ("void splitKreduce_kernel<32, 16, int, float>(cublasSplitKParams<float>)", ""),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", ""),
        ("vectorized_elementwise_kernel", "elementwise"),
        ("my gemm of 128x64", ""),
        ("ProfilerStep#3", ""),
        ("", ""),
    ],
)
def test_a_label_keeps_what_distinguishes(name, label):
    assert kernel_label(name) == label


@given(
    st.text(
        st.sampled_from("void at::native::elementwise_kernel<Functor_add>(gemm_12x8)"), max_size=80
    )
)
def test_any_name_has_a_label_in_one_line_or_none(name):
    label = kernel_label(name)
    assert len(label) <= len("copy H2D pageable") + len(name)
    assert label == label.strip()
