"""What the bundled traces whose launches come late are told to do, each read by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracelab import Options, analyze

TRACES = Path(__file__).parents[2] / "traces"
COMPILED = 'Use `torch.compile(model, mode="reduce-overhead")` or '


@pytest.mark.parametrize(
    ("name", "begins", "ends"),
    [
        (
            "two_models_pipelined_tiny",
            "Nothing in the trace speaks against a CUDA graph of a step: 276 launches (forward, "
            "backward, optimizer), without a blocking call, and the same kernels each time. "
            f"{COMPILED}",
            "whether it fits into memory, a trace does not say.",
        ),
        # One kernel has most of the GPU time.
        (
            "two_streams_small",
            "Nothing in the trace speaks against a CUDA graph of a step: 40 launches, ",
            "Shapes, which are not in the trace, must not change.",
        ),
        # empty_cache, boolean masks and pageable copies have findings of their own.
        (
            "train_step_sinful",
            "More is lost at `empty_cache` in sinful (workloads/train_step.py:70) (23 a step), ",
            "whether it fits into memory, a trace does not say.",
        ),
        # Of one rank among two.
        (
            "tensor_parallel_even_rank0",
            "Nothing in the trace speaks against a CUDA graph of a step: 24 launches, ",
            "Shapes, which are not in the trace, must not change.",
        ),
    ],
)
def test_what_is_advised_where_launches_come_late(name, begins, ends):
    report = analyze(TRACES / f"{name}.pt.trace.json.gz", Options(prices=False))
    [finding] = [x for x in report.findings if x.cause == "launch_bound" and x.remedy is None]
    assert finding.fix.startswith(begins)
    assert finding.fix.endswith(ends)
    assert finding.edit == "graph"
