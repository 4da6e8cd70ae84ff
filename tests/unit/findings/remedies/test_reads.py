"""Values that the host reads, masks and positions: each pitfall, and beside it what is none."""

import pytest

from tests.build.call_trees import (
    LAUNCH,
    READ,
    WAIT,
    condition,
    function,
    item,
    operator,
    positions,
    to_gpu,
)
from tracelab.findings.remedies import REMEDIES

TRAIN, EVALUATE = "train.py(3): train", "train.py(9): evaluate"
PACK = "torch/nn/utils/rnn.py(258): pack_padded_sequence"
SYNCHRONIZE = "torch/cuda/__init__.py(1152): synchronize"
CLOCK = "<built-in function perf_counter>"
PRINT = "torch/_tensor_str.py(408): _str_intern"
ITEM = "<built-in method item of Tensor object at 0x7f>"
FROM_NUMPY = "<built-in method from_numpy of type object at 0x7f>"
TO = "<built-in method to of Tensor object at 0x7f>"
SELECT = operator("aten::select")
LIFT = operator("aten::lift_fresh")
NORM_READ = (operator("aten::linalg_vector_norm", LAUNCH), item())


def moved(copied_bytes=8):
    """A tensor that is copied to the GPU."""
    return operator("aten::to", operator("aten::_to_copy", to_gpu(copied_bytes)))


@pytest.mark.parametrize(
    ("remedy", "nodes", "events"),
    [
        ("print-tensor", [function(PRINT, item(), item())], {PRINT}),
        ("tensor-from-values", [function(TRAIN, moved(), LIFT)], {"aten::to"}),
        (
            "tensor-from-values",
            [function(TRAIN, function(FROM_NUMPY), function(TO, moved()))],
            {"aten::to"},
        ),
        ("normal-checks-scale", [operator("aten::normal", item())], {"aten::normal"}),
        (
            "repeat-interleave-size",
            [operator("aten::repeat_interleave", operator("aten::repeat_interleave", READ))],
            {"aten::repeat_interleave"},
        ),
        ("count-values", [operator("aten::_unique2", READ)], {"aten::_unique2"}),
        ("count-values", [operator("aten::bincount", item())], {"aten::bincount"}),
        (
            "synchronize-for-timing",
            [function(TRAIN, function(SYNCHRONIZE, WAIT), function(CLOCK))],
            {SYNCHRONIZE},
        ),
        ("synchronize", [function(SYNCHRONIZE, WAIT)], {"cudaDeviceSynchronize"}),
        ("tensor-condition", [condition()], {"aten::is_nonzero"}),
        ("tensor-condition", [operator("aten::equal", item())], {"aten::equal"}),
        ("reads-in-loop", [function(TRAIN, NORM_READ * 4)], {"aten::item"}),
        ("scalar-read", [function(ITEM, item())], {"aten::item"}),
        (
            "index-number",
            [operator("aten::index_put_", operator("aten::_index_put_impl_", moved()))],
            {"aten::to"},
        ),
        ("index-on-host", [operator("aten::index", moved(4096), LAUNCH)], {"aten::index"}),
        ("mask-assignment", [operator("aten::index_put_", positions())], {"aten::index_put_"}),
        ("boolean-mask", [operator("aten::index", positions(), LAUNCH)], {"aten::index"}),
        (
            "boolean-mask",
            [operator("aten::masked_select", operator("aten::index", positions()))],
            {"aten::masked_select"},
        ),
        (
            "boolean-mask-backward",
            [operator("IndexBackward0", operator("aten::_index_put_impl_", positions()))],
            {"aten::nonzero"},
        ),
        ("nonzero", [positions()], {"aten::nonzero"}),
        ("nonzero", [operator("aten::where", positions())], {"aten::where"}),
        ("one-hot-classes", [operator("aten::one_hot", item())], {"aten::one_hot"}),
        ("packed-lengths", [function(PACK, moved())], {PACK}),
    ],
)
def test_recognized(recognized, remedy, nodes, events):
    assert recognized(*nodes)[remedy] == events


@pytest.mark.parametrize(
    ("remedy", "nodes"),
    [
        ("print-tensor", [function(PRINT)]),  # of the CPU
        ("tensor-from-values", [function(TRAIN, moved(), SELECT)]),  # a batch is moved
        ("tensor-from-values", [function(TRAIN, moved(1 << 20), LIFT)]),
        ("tensor-from-values", [function(TRAIN, function("len"), function(TO, moved()))]),
        ("tensor-from-values", [function(TRAIN, function(FROM_NUMPY)), function(TO, moved())]),
        ("tensor-from-values", [function(TRAIN, operator("aten::to"), LIFT)]),
        ("normal-checks-scale", [operator("aten::normal_", LAUNCH)]),
        ("repeat-interleave-size", [operator("aten::repeat_interleave", LAUNCH)]),
        ("count-values", [operator("aten::histc", LAUNCH)]),
        ("synchronize-for-timing", [function(TRAIN, function(SYNCHRONIZE, WAIT))]),
        (
            "synchronize-for-timing",
            [function(TRAIN, function(SYNCHRONIZE, WAIT)), function(CLOCK)],
        ),
        ("synchronize", [item()]),
        ("tensor-condition", [operator("aten::is_nonzero", item(LAUNCH))]),
        ("reads-in-loop", [function(TRAIN, NORM_READ * 3)]),
        ("reads-in-loop", [function(TRAIN, (operator("aten::mm", LAUNCH * 5), item()) * 4)]),
        ("reads-in-loop", [function(TRAIN, item() * 2), function(EVALUATE, item() * 2)]),
        ("scalar-read", [condition()]),  # the condition says more
        ("scalar-read", [operator("aten::normal", item())]),
        ("scalar-read", [item(LAUNCH)]),
        ("index-number", [operator("aten::index_put_", LAUNCH)]),  # x[mask] = 3.0
        ("index-number", [moved()]),
        ("index-on-host", [operator("aten::index", LAUNCH)]),
        ("mask-assignment", [operator("aten::masked_fill_", LAUNCH)]),
        ("boolean-mask", [operator("aten::index", LAUNCH)]),
        ("boolean-mask", [operator("aten::index", moved())]),
        ("boolean-mask-backward", [operator("IndexBackward0", operator("aten::index_put_"))]),
        ("nonzero", [operator("aten::index", positions())]),
        ("nonzero", [operator("aten::where", LAUNCH)]),
        ("one-hot-classes", [operator("aten::one_hot", LAUNCH)]),
        ("packed-lengths", [function(PACK, LAUNCH)]),
    ],
)
def test_not_recognized(recognized, remedy, nodes):
    assert remedy not in recognized(*nodes, LAUNCH)


def test_no_mask_is_replaced_by_work_on_everything():
    # 28 masks of a graph network made a step 3.5 times slower that way.
    texts = [fix.text for remedy in REMEDIES if "mask" in remedy.id for fix in remedy.fixes]
    assert not [text for text in texts if "torch.where" in text]
