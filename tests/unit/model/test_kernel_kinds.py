"""Which names are communication: real kernel names, from traces and from the libraries' sources."""

import numpy as np
import pytest

from tests.build.files import read
from tests.build.rows import comm, copy, kernel, memset, operator, trace
from tests.checks import with_each
from tests.shared_traces import COMMUNICATION, each_real_trace, path_of
from tracelab.base.errors import UsageError
from tracelab.model.kernel_kinds import (
    Kind,
    classify,
    comm_test,
    copies_pageable_memory,
    copy_direction,
    is_recognised,
    work_of,
)
from tracelab.model.trace import Category

is_comm = comm_test()

COMM_KERNELS = [
    # NCCL and RCCL, old, new and symmetric
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
    "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)",
    "rcclGenericKernel",
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)",
    "mscclKernel_Sum_half_Simple_false",
    "hcclKernel_Generic",
    "xcclKernel_Generic",
    "void xccl::copy_kernel<float>(float*)",
    # DeepEP, as DeepSeek's own trace and as everybody's spell it
    "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16, 8, 2, 16, 24>(int4*, float*)",
    "void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*, long*, float*)",
    "void dpsk::ep::internode::notify_dispatch<false, 8>(int const*, long*, int, int const*)",
    "void dpsk::ep::internode::cached_notify<false>(int, int, int, int, int*, int, int)",
    "void dpsk::ep::cuda::get_dispatch_layout<256, 32, 8>(long const*, int*, int*, int*, bool*)",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*, float*)",
    "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, void*, int*, long*)",
    "dispatch_jit_kernel(hybrid_ep::dispatch_kernel_param_t<unsigned short>)",
    "void hybrid_ep::combine_kernel<8, 4>(hybrid_ep::combine_kernel_param_t)",
    # other expert parallelism: pplx-garden, MORI, TensorRT-LLM
    "void a2a_dispatch_send_kernel<true, 16, 8, long>(unsigned long, unsigned long)",
    "void a2a_combine_recv_kernel<16, 8>(unsigned long)",
    "_ZN4mori3moe25EpDispatchIntraNodeKernelI14__hip_bfloat16EEvNS0_21EpDispatchCombineArgsE",
    "void mori::moe::EpCombineIntraNodeKernel<hip_bfloat16>(mori::moe::EpDispatchCombineArgs)",
    "void mori::shmem::PutKernel(int)",
    "EpDispatchIntraNodeKernel_bf16",
    "EpCombineIntraNodeKernel_bf16",
    "void pplx::send_kernel<16, 8>(unsigned long)",
    "void tensorrt_llm::kernels::moe_comm::moeAllToAllKernel<true>(SendRecvDataInfo)",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<8, false>(int const*)",
    "moeA2ACombineKernel",
    "moeA2APrepareDispatchKernel",
    # NVSHMEM and symmetric memory of PyTorch
    "nvshmemi_transfer_put_signal(nvshmem_team_t)",
    "void nvshmemx_barrier_on_stream_kernel(int)",
    "rocshmem_put_kernel(int)",
    "void (anonymous namespace)::multimem_broadcast_kernel<16>(int)",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
    "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(int)",
    "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, false>(int)",
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(int)",
    "void c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)",
    "c10d::symmetric_memory::exchangeSplitAndOffset(long*, int, int)",
    "exchangeSplitAndOffset(long*, int, int)",
    "put_signal_kernel(unsigned int**, int, int)",
    "wait_signal_kernel(unsigned int**, int, int)",
    "void c10d::intra_node_comm::oneShotAllReduceKernel<8u, true>(c10::BFloat16*, unsigned long)",
    "void c10d::intra_node_comm::hybridCubeMeshAllReduceKernel<true>(c10::BFloat16*)",
    # MSCCL++
    "void mscclpp::executionKernel<__half, mscclpp::LL16Packet>(int, int, __half*)",
    "mscclpp::collective::allreducePacket",
    "mscclpp::collective::allgatherFullmesh2",
    "void allreduceAllpairPacket<(Op)0, __half>(__half*)",
    # vLLM, SGLang, aiter; AMD's names come mangled too
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
    "void sglang::cross_device_reduce_2stage<__nv_bfloat16, 8>(sglang::RankData*)",
    "void aiter::cross_device_reduce_2stage<hip_bfloat16, 8, false>(aiter::RankData*)",
    "_ZN5aiter26cross_device_reduce_2stageI14__hip_bfloat16Li8ELb0EEEvPNS_8RankDataE",
    "_ZN5aiter30allreduce_fusion_kernel_1stageIDF16bLi8EEEvPNS_8RankDataE",
    "void aiter::reduce_scatter_cross_device_store<hip_bfloat16, 8>(aiter::RankData*)",
    "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<__half>>(__half*)",
    # TensorRT-LLM and FlashInfer
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
    "(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8>(int)",
    "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_twoshot_sync<__half, 8>(int)",
    "void moefinalize_allreduce_fusion_kernel_oneshot_lamport<__nv_bfloat16, 8>(int)",
    "void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<(unsigned char)4, float>(int)",
    "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<__nv_bfloat16, float>(int)",
    "void oneshotAllreduceFusionKernel<8, __nv_bfloat16, true>(int)",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8, true, false>(AllReduceParams)",
    "void tensorrt_llm::kernels::reduce_fusion::lamport_style_one_shot_all_reduce_norm_kernel<8>()",
    "void tensorrt_llm::kernels::lowPrecisionTwoShotAllReduceKernel<__half, __nv_fp8_e4m3, 8>()",
    # Transformer Engine
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<8>(int, int, int, int, int, int, int)",
    "void transformer_engine::userbuffers_fp16_sum_inplace_gpu_mc<8>(int)",
    "kuserbuffers_pushrecv(int, int, int, int, int*, int*, int, unsigned long)",
    # anybody's, by the name of the collective alone
    "all_reduce_kernel(float*)",
    "allreduce_kernel(float*)",
    "all_gather_kernel(float*)",
    "allgather_kernel(float*)",
    "reduce_scatter_kernel(float*)",
    "reducescatter_kernel(float*)",
    "all_to_all_kernel(float*)",
    "alltoall_kernel(float*)",
    "all2all_kernel(float*)",
    "oneShotAllReduceKernel",
    "oneShotAllreduceKernel",
    "oneShotAllGatherKernel",
    "oneShotAllgatherKernel",
    "oneShotAllToAllKernel",
    "oneShotAlltoAllKernel",
    "oneShotAlltoallKernel",
    "twoShotReduceScatterKernel",
]

OTHER_KERNELS = [
    # Inductor names a kernel after the operators in it
    "triton_poi_fused_all_gather_into_tensor_wait_tensor_0",
    "triton_red_fused_all_reduce_mean_1",
    "triton_per_fused_reduce_scatter_tensor_2",
    "triton_tem_fused_all_gather_into_tensor_mm_3",
    "triton_mm_all_gather_into_tensor_4",
    "triton_bmm_all_gather_into_tensor_5",
    "triton_spl_fused_all_reduce_sum_6",
    "triton_for_fused_all_gather_into_tensor_7",
    "triton_unk_fused_all_reduce_8",
    # what a matrix product fetches its operands by
    "void cutlass::device_kernel<cutlass::distributed::schedules::AllGather1D_TilingCD_RotatingA>",
    "cutlass::device_kernel<cutlass::distributed::schedules::AllGather1D_TilingCD_RotatingA>",
    # the same authors' compute
    "void dpsk::grouped_gemm::sm90_fp8_gemm<128, 128>(dpsk::grouped_gemm::Params)",
    "void aiter::local_device_load_rmsnorm<hip_bfloat16, 512, 2>(aiter::RankSignals)",
    "void aiter::fused_qk_rmsnorm_kernel<hip_bfloat16>(int)",
    "void tensorrt_llm::kernels::moe_comm::moeA2ASanitizeExpertIdsKernel(int*, int)",
    "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)",
    # words inside words
    "void cub::DeviceReduceSingleTileKernel<int>(int)",
    "void cub::detail::reduce::DeviceReduceKernel<float>(float*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "void at::native::vectorized_gather_kernel<16, long>(char*)",
    "void small_reduce_kernel<float>(float*)",
    "void overall_gather_kernel(int*)",
    "void parallel_reduce(float*)",
    "void smallReduceKernel(float*)",
    "synchronize_indices(int*)",
    "hipblaslt_gemm_kernel",
    "Cijk_Ailk_Bljk_HHS_BH_Bias_HAS_SAV_UserArgs_MT128x128x64",
    "membership_kernel",
    "void batched_transpose_32x32_dword(float*)",
    "void keep_dispatch_kernel(int*)",
    "__amd_rocclr_copyBuffer",
    "__amd_rocclr_fillBufferAligned",
    "void onccl(int)",
    "nvjet_tst_128x256_64x4_2x1_v_bz_TNN",
    "",
]


# Each for one part of a name, which no other one has.
KNOWN_COMPUTE = [
    "void at::native::tril_kernel<float, int>(int)",
    "void cub::DeviceHistogramInitKernel<1, int>(int)",
    "void thrust::cuda_cub::core::_kernel_agent<int>(int)",
    "void c10::cuda::zero_kernel(int)",
    "void cutlass_80_tensorop_f16_s16816(int)",
    "void cublasLt::epilogue::impl::globalKernel<8, 32>(int)",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>(float*)",
    "ampere_sgemm_128x64_tn",
    "void gemv2T_kernel_val<int, float>(int)",
    "sm80_xmma_wgrad_tilesize64x64x64",
    "nvjet_tst_128x256_64x4_2x1_v_bz_TNN",
    "void cute::tma_store_kernel<int>(int)",
    "void conv2d_c1_k1_nchw_hw_packed_kernel<float>(int)",
    "void winogradForwardData4x4<float>(int)",
    "void vector_fft<64u, 8u>(int)",
    "void softmax_warp_forward<float>(float*)",
    "void vllm::rms_norm_kernel<float>(float*)",
    "void vllm::paged_attention_v1_kernel<float>(float*)",
    "kernel_unified_attn_3d",
    "void flash_fwd_splitkv_kernel<float>(float*)",
    "void mha_fwd_kernel<128>(int)",
    "void vllm::rotary_kernel<float>(float*)",
    "rope_kernel_neox",
    "unrolled_elementwise_kernel",
    "void small_reduce_kernel<float>(float*)",
    "void transpose_readWrite_kernel<float>(float*)",
    "void embedding_bag_kernel(int)",
    "void fused_dropout_kernel(float*)",
    "void moe::topkGating<8>(float*)",
    "void radixSortKVInPlace<2, 32>(int)",
    "void selective_scan_fwd_kernel<32>(int)",
    "void fused_adam_kernel(float*)",
    "void fused_sgd_kernel(float*)",
    "void multi_tensor_apply_kernel<int>(int)",
    "void kDequantizeBlockwise<float>(float*)",
    "void cast_kernel<float>(float*)",
    "void vllm::act_and_mul_kernel<float>(float*)",
    "void gelu_fwd_kernel(float*)",
    "void silu_and_mul_kernel(float*)",
    "void relu_squared_kernel(float*)",
    "void cross_entropy_loss_kernel(float*)",
    "__amd_rocclr_copyBuffer",
    "__amd_rocclr_fillBufferAligned",
    "void moe_permute_kernel(int)",
    "void index_kernel(int)",
    "void vectorized_gather_kernel<16>(char*)",
    "void scatter_kernel(int)",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x64",
    "SubTensorOpWithScalar1d",
    "void batched_dot_kernel(float*)",
]


@with_each(COMM_KERNELS)
def test_communication(name):
    assert is_comm(name)


@with_each(OTHER_KERNELS)
def test_not_communication(name):
    assert not is_comm(name)


@each_real_trace
def test_in_real_traces_just_the_known_kernels_are_communication(real_trace):
    profile = read(real_trace)
    names = {profile.name_of(i) for i in profile.of_category(Category.KERNEL)}

    assert {name for name in names if is_comm(name)} == {
        name for name in names if name.startswith(COMMUNICATION)
    }


def test_deepseeks_layout_kernel_is_communication_beside_all_other_of_its_library():
    # The reference figure of this trace, 113.440 ms of communication, rests on it.
    profile = read(path_of("deepseek_dualpipe_h800"))
    names = {profile.name_of(i) for i in profile.of_category(Category.KERNEL)}

    libraries = {name.partition("<")[0] for name in names if is_comm(name)}

    assert libraries == {
        "void dpsk::ep::internode::cached_notify",
        "void dpsk::ep::internode::dispatch",
        "void dpsk::ep::internode::notify_dispatch",
        "void dpsk::ep::internode::combine",
        "void dpsk::ep::cuda::get_dispatch_layout",
    }


def test_a_users_patterns_add_to_the_known_names():
    added = comm_test(["ring_(send|recv)", "^exchange"])

    assert added("my_ring_send_kernel")
    assert added("exchange_halo")
    assert not added("halo_exchange")
    assert added("ncclDevKernel_Generic")


def test_a_users_pattern_wins_over_what_never_is_communication():
    assert comm_test(["triton_poi_fused_all_gather"])("triton_poi_fused_all_gather_0")


@pytest.mark.parametrize("pattern", ["(", "*", "[a-"])
def test_pattern_that_is_no_regular_expression_is_wrong_usage(pattern):
    with pytest.raises(UsageError, match=r"^`comm_pattern` .* is not a valid regular expression"):
        comm_test([pattern])


def test_kinds_come_from_the_category_first_and_then_from_the_name():
    # A copy and a memset are never communication, whatever they are called.
    rows = trace(
        kernel(0, 1),
        comm(1, 2),
        copy(2, 3, "Memcpy PtoP (Device -> Device)"),
        memset(3, 4),
        operator("nccl:all_reduce", 4, 5),
        copy(5, 6, "ncclDevKernel_AllReduce"),
    )

    kinds = classify(rows, np.array([5, 3, 2, 1, 0]), is_comm)

    assert kinds.tolist() == [Kind.COPY, Kind.MEMSET, Kind.COPY, Kind.COMM, Kind.COMPUTE]


@pytest.mark.parametrize(
    ("name", "direction", "pageable"),
    [
        ("Memcpy HtoD (Pinned -> Device)", "h2d", False),
        ("Memcpy HtoD (Pageable -> Device)", "h2d", True),
        ("Memcpy DtoH (Device -> Pinned)", "d2h", False),
        ("Memcpy DtoH (Device -> Pageable)", "d2h", True),
        ("Memcpy DtoD (Device -> Device)", "d2d", False),
        ("Memcpy PtoP (Device -> Device)", "p2p", False),
        ("Memcpy HtoH (Pinned -> Pinned)", "h2h", False),
        ("Memcpy DtoH (Device -> Host)", "d2h", False),
        ("CopyHostToDevice", "h2d", False),
        ("CopyDeviceToHost", "d2h", False),
        ("CopyDeviceToDevice", "d2d", False),
        ("Memcpy M2D", "h2d", False),
        ("Memcpy H2D", "h2d", False),
        ("Memcpy D2M", "d2h", False),
        ("Memcpy D2H", "d2h", False),
        ("Memcpy D2D", "d2d", False),
        ("Memcpy M2M", "h2h", False),
        ("Memcpy M2H", "h2h", False),
        ("Memcpy H2M", "h2h", False),
        ("Memcpy H2H", "h2h", False),
        ("Memcpy (Unknown)", "", False),
        ("my D2H copy", "", False),
    ],
)
def test_copies(name, direction, pageable):
    assert copy_direction(name) == direction
    assert copies_pageable_memory(name) == pageable


@pytest.mark.parametrize(
    ("name", "recognised"),
    [
        *((name, True) for name in KNOWN_COMPUTE),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>()",
            True,
        ),
        ("triton_poi_fused_add_0", True),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3", False),
        ("my_halo_exchange", False),
        ("tree_broadcast_kernel", False),
    ],
)
def test_names_that_need_no_second_look(name, recognised):
    assert is_recognised(name) == recognised


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("fmha_cutlassB_f32_aligned_64x64_k64_sm80(Params)", "attention"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>", "matrix products"),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "matrix products"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x32x64", "matrix products"),
        ("sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc", "convolutions"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float>", "convolutions"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>", "optimizer"),
        ("void vectorized_layer_norm_kernel<float, float, false>", "normalization"),
        ("void cudnn::bn_bw_1C11_kernel_new<float, float>", "normalization"),
        ("void softmax_warp_forward<float, float>", "softmax and loss"),
        ("void elementwise_kernel<128, 2, direct_copy_kernel_cuda>", "elementwise operations"),
        ("void reduce_kernel<512, 1, ReduceOp<float, sum>>", "reductions"),
        ("my_ring_step", "other kernels"),
    ],
)
def test_what_compute_is_for(name, work):
    assert work_of(name) == work
