"""What libraries check, log and choose on the host: each pitfall, and beside it what is none."""

import pytest

from tests.build.call_trees import (
    LAUNCH,
    condition,
    function,
    item,
    operator,
    positions,
)

OPS = "torch/_ops.py(1250): __call__"
NMS = "torchvision/ops/boxes.py(22): nms"
ROI_HEADS = "torchvision/models/detection/roi_heads.py(720): postprocess_detections"
NAN_CHECK = "torchmetrics/aggregation.py(77): _cast_and_nan_check_input"
FORWARD = "transformers/models/gpt2/modeling_gpt2.py(509): forward"
MASK = "transformers/masking_utils.py(410): sdpa_mask"
CHECK = "transformers/masking_utils.py(267): _ignore_causal_mask_sdpa"
OLD_MASK = "transformers/models/qwen2/modeling_qwen2.py(610): _update_causal_mask"
OLD_CHECK = "transformers/modeling_attn_mask_utils.py(243): _ignore_causal_mask_sdpa"
PACKED = "transformers/masking_utils.py(750): find_packed_sequence_indices"
EPOCH = "transformers/trainer.py(1894): _run_epoch"
OLD_EPOCH = "transformers/trainer.py(2300): _inner_training_loop"
TRAINER_LOG = "transformers/trainer.py(2230): _maybe_log_save_evaluate"
SAMPLE = "transformers/generation/utils.py(3122): _sample"
STOP = "transformers/generation/utils.py(392): __call__"
DISTRIBUTION = "torch/distributions/distribution.py(46): __init__"
NORMAL = "torch/distributions/normal.py(55): __init__"
TO_SCALARS = "lightning/fabric/utilities/apply_func.py(120): convert_tensors_to_scalars"
OLD_TO_SCALARS = "lightning_fabric/utilities/apply_func.py(120): convert_tensors_to_scalars"
CACHE = "transformers/cache_utils.py(129): update"
CAT = operator("aten::cat", LAUNCH)
GCN_CONV = "torch_geometric/nn/conv/gcn_conv.py(227): forward"
GCN_NORM = "torch_geometric/nn/conv/gcn_conv.py(45): gcn_norm"


def masked_select():
    return operator("aten::masked_select", positions())


def check(name=CHECK):
    """Whether a mask has padding."""
    return function(name, operator("aten::all", LAUNCH), condition())


def finite():
    return operator("aten::isnan", LAUNCH), condition()


@pytest.mark.parametrize(
    ("remedy", "nodes", "events"),
    [
        ("hf-mask-check", [function(MASK, check())], {"aten::all", "aten::is_nonzero"}),
        (
            "hf-mask-check",
            [function(FORWARD, function(OLD_MASK, check(OLD_CHECK)), operator("aten::mul"))],
            {"aten::all", "aten::is_nonzero"},
        ),
        ("hf-packed-check", [function(PACKED, condition())], {PACKED}),
        ("hf-nan-filter", [function(EPOCH, finite())], {"aten::isnan", "aten::is_nonzero"}),
        ("hf-nan-filter", [function(OLD_EPOCH, finite())], {"aten::isnan", "aten::is_nonzero"}),
        ("hf-trainer-log", [function(TRAINER_LOG, item())], {"aten::item"}),
        (
            "distribution-validation",
            [function(NORMAL, function(DISTRIBUTION, LAUNCH, condition()))],
            {DISTRIBUTION},
        ),
        (
            "gcn-normalization",
            [function(GCN_CONV, function(GCN_NORM, masked_select(), LAUNCH), LAUNCH)],
            {GCN_NORM},
        ),
        (
            "sparse-coalesced-again",
            [operator("aten::_sparse_addmm", operator("aten::_coalesce", LAUNCH), LAUNCH)],
            {"aten::_coalesce"},
        ),
        ("lightning-logging", [function(TO_SCALARS, item())], {TO_SCALARS}),
        ("lightning-logging", [function(OLD_TO_SCALARS, item())], {OLD_TO_SCALARS}),
        (
            "torchmetrics-nan-check",
            [function(NAN_CHECK, finite())],
            {"aten::isnan", "aten::is_nonzero"},
        ),
        (
            "detection-choices",
            [function(ROI_HEADS, operator("aten::where", positions()), item())],
            {"aten::where", "aten::item"},
        ),
        (
            "detection-choices",
            [function(NMS, function(OPS, operator("torchvision::nms", masked_select())))],
            {"torchvision::nms", "aten::masked_select"},
        ),
    ],
)
def test_recognized(recognized, remedy, nodes, events):
    assert recognized(*nodes)[remedy] == events


@pytest.mark.parametrize(
    ("remedy", "nodes"),
    [
        # Some token is padding: the mask is made.
        ("hf-mask-check", [function(MASK, check(), operator("aten::index", LAUNCH))]),
        ("hf-mask-check", [function(MASK, function(CHECK))]),
        ("hf-packed-check", [function(PACKED, operator("aten::cumsum", LAUNCH))]),
        ("hf-nan-filter", [function(EPOCH, function(FORWARD, finite()))]),  # of the model
        ("hf-trainer-log", [function(TRAINER_LOG, LAUNCH)]),
        ("hf-trainer-log", [function(TRAINER_LOG, function("train.py(9): evaluate", item()))]),
        ("distribution-validation", [function(NORMAL, function(DISTRIBUTION))]),
        ("gcn-normalization", [function(GCN_CONV, LAUNCH)]),  # cached
        # Of gradients, which are others in each step
        ("sparse-coalesced-again", [operator("aten::_coalesce", LAUNCH)]),
        ("lightning-logging", [function(TO_SCALARS)]),
        ("torchmetrics-nan-check", [function(NAN_CHECK, LAUNCH)]),
        ("detection-choices", [function(ROI_HEADS, operator("torchvision::nms", LAUNCH))]),
    ],
)
def test_not_recognized(recognized, remedy, nodes):
    assert remedy not in recognized(*nodes, LAUNCH)
