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
            "Replay a step as a CUDA graph: 276 launches (forward, backward, optimizer). Use "
            '`torch.cuda.graph` around all of it. `torch.compile(model, mode="reduce-overhead")` '
            "is less work, but captures the forward and backward passes alone, and saves less. "
            "Nothing in the trace prevents it: no blocking call, ",
            "Shapes, which are not in the trace, must not change.",
        ),
        # One kernel has most of the GPU time.
        (
            "two_streams_small",
            f"Replay a step as a CUDA graph: 40 launches. {COMPILED}",
            "Shapes, which are not in the trace, must not change.",
        ),
        # empty_cache, boolean masks and pageable copies have findings of their own, before this.
        (
            "train_step_sinful",
            "Replay what runs between `backward` in sinful (workloads/train_step.py:64) and ",
            "Shapes, which are not in the trace, must not change.",
        ),
        # Of one rank among two.
        (
            "tensor_parallel_even_rank1",
            f"Replay a step as a CUDA graph: 24 launches. {COMPILED}",
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
