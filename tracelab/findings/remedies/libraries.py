"""What libraries around PyTorch check, log or choose on the host by default."""

from __future__ import annotations

from tracelab.findings.remedies.guards import (
    blocks,
    called_directly,
    every,
    launches,
    made_by,
    outside,
    recurs,
)
from tracelab.findings.remedy import Instead, Remedy

_NAN_CHECK = r"torchmetrics/aggregation\.py\(\d+\): _cast_and_nan_check_input$"
_SPARSE_PRODUCT = r"^aten::(?:_sparse_addmm|_sparse_mm)$"
_DETECTION = r"torchvision/(?:models/detection/\w+|ops/(?:poolers|boxes|_utils))\.py\(\d+\): \w+$"

REMEDIES: tuple[Remedy, ...] = (
    Remedy(
        id="distribution-validation",
        name="checks of arguments in torch.distributions",
        title="`torch.distributions` checks its arguments, and the CPU waits",
        shows="`__init__` or `_validate_sample` of torch/distributions/distribution.py runs "
        "`aten::is_nonzero`, once for each parameter and each `log_prob`.",
        not_when="While you look for values that are not finite.",
        fixes=(
            Instead(
                "Call `torch.distributions.Distribution.set_default_validate_args(False)` at the "
                "start, or pass `validate_args=False` to each distribution."
            ),
        ),
        source="PyTorch documentation: torch.distributions",
        url="https://docs.pytorch.org/docs/stable/distributions.html"
        "#torch.distributions.distribution.Distribution.set_default_validate_args",
        rules=("TL101", "TL102", "TL301"),
        edit="remove:{place}",
        frames=r"torch/distributions/distribution\.py\(\d+\): (?:__init__|_validate_sample)$",
        occurs=every(blocks, recurs),
    ),
    Remedy(
        id="torchmetrics-validation",
        name="checks of predictions and targets in torchmetrics",
        title="torchmetrics checks predictions and targets, and the CPU waits",
        shows="`_multiclass_stat_scores_tensor_validation` or the like runs `aten::_unique2` with "
        "a copy to the CPU, in each update.",
        not_when="Labels whose quality is not known: check one epoch first.",
        fixes=(
            Instead(
                "Pass `validate_args=False` to the metric. Call `metric.update(...)` in the loop, "
                "which does not compute the value of the batch, and `metric.compute()` at the end.",
                short="Pass `validate_args=False` to the metric, and call `metric.update(...)` in "
                "the loop, `metric.compute()` at the end.",
            ),
        ),
        source="torchmetrics documentation: validate_args of each classification metric",
        url="https://lightning.ai/docs/torchmetrics/stable/classification/accuracy.html",
        rules=("TL101", "TL102", "TL301"),
        edit="remove:{place}",
        frames=r"torchmetrics/functional/\w+/\w+\.py\(\d+\): _\w*tensor_validation$",
        occurs=every(launches(1), recurs),
    ),
    Remedy(
        id="torchmetrics-nan-check",
        name="torchmetrics' search for values that are not a number",
        title="torchmetrics checks for values that are not a number, and the CPU waits",
        shows="`_cast_and_nan_check_input` of torchmetrics/aggregation.py runs `aten::is_nonzero`.",
        not_when="Such values occur and must be left out.",
        fixes=(
            Instead(
                'Pass `nan_strategy="disable"` to `MeanMetric` and the like, in a recent '
                "torchmetrics."
            ),
        ),
        source="torchmetrics documentation: MeanMetric",
        url="https://lightning.ai/docs/torchmetrics/stable/aggregation/mean.html",
        rules=("TL101", "TL301"),
        edit="remove:{place}",
        frames=_NAN_CHECK,
        operators=r"^aten::(?:is_nonzero|any|isnan)$",
        occurs=every(made_by(_NAN_CHECK), recurs),
    ),
    Remedy(
        id="lightning-logging",
        name="Lightning's progress bar or log, which read what `self.log` got",
        title="Lightning reads logged values from the GPU, for its progress bar or loggers",
        shows="`convert_tensors_to_scalars` of Lightning calls `.item()` for each name in each "
        "step.",
        not_when="Steps take seconds.",
        fixes=(
            Instead(
                "Log with `prog_bar=False` and `on_step=False, on_epoch=True`, or "
                "`Trainer(log_every_n_steps=50, enable_progress_bar=False)`. A bar of tensors is "
                "read in each step even when it is not drawn.",
                short="Log with `prog_bar=False, on_step=False, on_epoch=True`, or pass "
                "`Trainer(log_every_n_steps=50, enable_progress_bar=False)`.",
            ),
        ),
        source="Lightning issue 21232",
        url="https://github.com/Lightning-AI/pytorch-lightning/issues/21232",
        rules=("TL101",),
        edit="unblock:{place}",
        frames=r"(?:lightning\w*)/.*apply_func\.py\(\d+\): convert_tensors_to_scalars$",
        occurs=every(blocks, recurs),
    ),
    Remedy(
        id="gcn-normalization",
        name="a graph that GCNConv normalizes in each forward pass",
        title="`GCNConv` normalizes the graph anew in each forward pass",
        shows="`gcn_norm` of torch_geometric/nn/conv/gcn_conv.py runs in each step.",
        not_when="The edges, or their weights, are others in each step.",
        fixes=(
            Instead(
                "If the graph is the same in each step, normalize it once: "
                "`GCNConv(..., cached=True)`. If each step has another part of it, or another one "
                "of a data set, normalize before the loop: `T.GCNNorm()` as a transform, then "
                "`GCNConv(..., normalize=False)`, called with `edge_weight`.",
                short="Pass `GCNConv(..., cached=True)` if the graph stays the same. Else "
                "normalize before the loop: `T.GCNNorm()`, and `GCNConv(..., normalize=False)`.",
            ),
        ),
        source="PyTorch Geometric documentation: GCNConv",
        url="https://pytorch-geometric.readthedocs.io/en/latest/generated/"
        "torch_geometric.nn.conv.GCNConv.html",
        rules=("TL301", "TL101", "TL102", "TL409"),
        edit="remove:{place}",
        frames=r"torch_geometric/nn/conv/gcn_conv\.py\(\d+\): gcn_norm$",
        occurs=every(launches(1), recurs),
        is_whole=True,
        needs_same_sizes=True,
    ),
    Remedy(
        id="sparse-coalesced-again",
        name="a sparse matrix that each product sorts anew",
        title="Each product sorts the sparse matrix anew: it is not coalesced",
        shows="`aten::_coalesce` inside a sparse product such as `aten::_sparse_addmm`, in each "
        "step.",
        not_when="The matrix is another one in each step.",
        fixes=(
            Instead(
                "Coalesce the matrix once, before the loop: `matrix = matrix.coalesce()`, or keep "
                "it by rows: `matrix.coalesce().to_sparse_csr()`. Its transpose, which the "
                "backward pass multiplies by, is sorted likewise: with rows, keep it beside the "
                "matrix in an `autograd.Function`, or use the matrix itself if it is symmetric.",
                short="Call `matrix = matrix.coalesce()` once, before the loop, or keep "
                "it by rows: `matrix.coalesce().to_sparse_csr()`.",
            ),
        ),
        source="PyTorch documentation: torch.sparse, uncoalesced tensors",
        url="https://docs.pytorch.org/docs/stable/sparse.html#uncoalesced-sparse-coo-tensors",
        rules=("TL301", "TL101", "TL102", "TL409"),
        edit="remove:{place}",
        operators=r"^aten::_coalesce$",
        occurs=every(outside(_SPARSE_PRODUCT, is_wanted=False), launches(1), recurs),
        is_whole=True,
        needs_same_sizes=True,
    ),
    Remedy(
        id="detection-choices",
        name="boxes that a detection model chooses by their scores",
        title="The detection model reads again and again how many boxes it chose",
        shows="Functions of torchvision/models/detection or torchvision/ops run `aten::nonzero`, "
        "`aten::is_nonzero` or `torchvision::nms` with a copy to the CPU, for each image and "
        "level.",
        not_when="The number of boxes is what the program needs: then put more images into a "
        "batch.",
        fixes=(
            Instead(
                "Give the choices a fixed size: the best k by `topk` and a mask of scores instead "
                "of `torch.where(...)[0]`, one `batched_nms` for all images. Use a recent "
                "torchvision, whose `nms` stays on the GPU. Put more images into a batch.",
                short="Choose a fixed number of boxes: `scores.topk(k)` and a mask of scores, "
                "instead of `torch.where(...)[0]`.",
            ),
        ),
        source="torchvision issue 7412 and pull request 8766",
        url="https://github.com/pytorch/vision/pull/8766",
        rules=("TL101", "TL102"),
        edit="unblock:{place}",
        frames=_DETECTION,
        operators=r"^(?:aten::(?:nonzero|is_nonzero|item|index|masked_select|where|to)|torchvision::nms)$",
        occurs=every(called_directly, made_by(_DETECTION), blocks, recurs),
    ),
)
