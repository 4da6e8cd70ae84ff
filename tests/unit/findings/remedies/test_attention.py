"""The remedy of attention that is written by hand: which operators it takes, and which not."""

import pytest

from tests.build.remedy_programs import STEPS, recognized
from tests.build.rows import AUTOGRAD, MAIN, operator

ENGINE = "autograd::engine::evaluate_function: "
HALF = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
PRODUCT, BACK = "aten::matmul", "BmmBackward0"
BATCHED = "aten::bmm"  # under autocast it casts, and calls itself


def calling(*names, gemm=HALF, thread=MAIN):
    """One operator after another; each matrix product first makes a copy."""

    def run(program):
        for i, name in enumerate(names):
            at = 1_000 + 100 * i
            program.add(operator, name, at, at + 90, thread=thread)
            if name in (PRODUCT, BATCHED, ENGINE + BACK, "aten::einsum"):
                program.add(operator, "aten::clone", at + 5, at + 15, thread=thread)
                program.add(operator, "aten::bmm", at + 20, at + 80, thread=thread)
                program.launch(at + 30, at + 40, name=gemm, thread=thread)
            else:
                program.launch(at + 30, at + 40, name="elementwise", thread=thread)

    return run


def nodes(*names):
    return calling(*(ENGINE + name for name in names), thread=AUTOGRAD)


@pytest.mark.parametrize(
    ("run", "found"),
    [
        # The products, too; in each of them a copy and what multiplies.
        (calling(PRODUCT, "aten::to", "aten::div", "aten::masked_fill", "aten::softmax", "aten::to",
                 PRODUCT), 5 + 6),
        (calling("aten::einsum", "aten::mul", "aten::softmax", "aten::dropout", "aten::einsum"),
         3 + 6),
        (calling(BATCHED, "aten::softmax", BATCHED), 1 + 6),
        (calling(PRODUCT, "aten::softmax", PRODUCT, "aten::linear", PRODUCT, "aten::add_",
                 "aten::softmax", PRODUCT), 1 + 6 + 2 + 6),
        (nodes(BACK, "NativeDropoutBackward0", "SoftmaxBackward0", "MaskedFillBackward0", BACK),
         3 + 6),
        (nodes(BACK, "SoftmaxBackward0", "AddBackward0", "AddmmBackward0", BACK), 0),
    ],
)  # fmt: skip
def test_what_is_one(run, found):
    assert recognized(run) == ({"attention-by-hand": STEPS * found} if found else {})


@pytest.mark.parametrize(
    "names",
    [
        (PRODUCT, "aten::softmax", "aten::sum", PRODUCT),  # the weights are used otherwise, too
        (PRODUCT, "aten::tanh", "aten::softmax", PRODUCT),  # a cap that the operator has not
        (PRODUCT, "aten::softmax", "aten::nll_loss"),  # a classifier
        ("aten::linear", "aten::softmax", PRODUCT),  # a router, and its experts
        (PRODUCT, "aten::softmax", PRODUCT, "aten::_scaled_dot_product_attention_math"),
        ("aten::scaled_dot_product_attention",),
    ],
)
def test_what_is_none(names):
    assert recognized(calling(*names)) == {}


def test_products_of_odd_sizes_are_its_own_where_they_are_part_of_it():
    unaligned = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>"
    attention = calling(PRODUCT, "aten::softmax", PRODUCT, gemm=unaligned)
    assert recognized(attention) == {"attention-by-hand": STEPS * 7}
    others = calling(PRODUCT, "aten::relu", PRODUCT, gemm=unaligned)
    assert recognized(others) == {"unaligned-products": STEPS * 2}


def test_only_half_precision():
    names = (PRODUCT, "aten::mul", "aten::softmax", PRODUCT)
    assert recognized(calling(*names, gemm="ampere_sgemm_128x64_tn")) == {}


def test_a_learned_bias_needs_the_scores_gradients():
    def run(program):
        calling(PRODUCT, "aten::add", "aten::softmax", PRODUCT)(program)
        names = (BACK, "SoftmaxBackward0", "AddBackward0", BACK)
        calling(*(ENGINE + name for name in names), thread=AUTOGRAD)(program)
        program.add(operator, "aten::sum", 1_210, 1_220, thread=AUTOGRAD)

    assert recognized(run) == {}


def test_once_is_not_enough():
    run = calling(PRODUCT, "aten::softmax", PRODUCT)
    assert recognized(run, in_steps=(3,)) == {}
