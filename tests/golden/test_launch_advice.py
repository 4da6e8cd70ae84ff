"""What the bundled traces whose launches come late are told to do, each read by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracelab import analyze
from tracelab.base.options import Options

TRACES = Path(__file__).parents[2] / "traces"
COMPILED = '`torch.compile(model, mode="reduce-overhead")`'


@pytest.mark.parametrize(
    ("name", "short", "said"),
    [
        (
            "two_models_pipelined_tiny",
            "Capture a step as a CUDA graph: `with torch.cuda.graph(graph):`",
            ("276 launches (forward, backward, optimizer)", "Nothing in the trace prevents it"),
        ),
        # One kernel has most of the GPU time.
        (
            "two_streams_small",
            f"Capture a step as a CUDA graph: {COMPILED}.",
            ("40 launches",),
        ),
        # empty_cache, boolean masks and pageable copies have findings of their own, before this.
        (
            "train_step_sinful",
            "Capture the part between blocking calls",
            ("Capture what runs between `backward` in sinful",),
        ),
        # Of one rank among two.
        (
            "tensor_parallel_even_rank1",
            f"Capture a step as a CUDA graph: {COMPILED}.",
            ("24 launches",),
        ),
    ],
)
def test_what_is_advised_where_launches_come_late(name, short, said):
    report = analyze(TRACES / f"{name}.pt.trace.json.gz", Options(prices=False))
    [finding] = [x for x in report.findings if x.cause == "launch_bound" and x.remedy is None]
    assert finding.fix_short.startswith(short)
    assert all(text in finding.fix for text in (*said, "Shapes, which are not in the trace"))
    assert finding.edit == "graph"
