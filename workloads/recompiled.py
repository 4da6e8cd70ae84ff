"""A compiled function that is compiled anew for each length, and one that takes any length.

The compiler's backend is the plain one: what is compiled is the Python, not the kernels. It is
recorded without Python functions, of which the compiler calls some ten thousand each time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from tracelab.workloads.runner import run

WIDTH, SHORTEST, LENGTHS = 64, 256, 1 << 12
MOST_COMPILED = 1 << 14  # more than there are steps: it is not given up


def lengths(*, dynamic: bool) -> Iterator[None]:
    """Each step has a length that the function has not met."""
    torch._dynamo.config.recompile_limit = MOST_COMPILED
    torch._dynamo.config.accumulated_recompile_limit = MOST_COMPILED

    @torch.compile(backend="eager", dynamic=dynamic)
    def call(rows: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            rows = torch.nn.functional.gelu(rows) + rows.mean()
        return rows

    rows = torch.randn(SHORTEST + LENGTHS, WIDTH, device="cuda")
    for length in range(SHORTEST, SHORTEST + LENGTHS):
        call(rows[:length])
        yield


VARIANTS = {
    "each_length": lambda: lengths(dynamic=False),
    "any_length": lambda: lengths(dynamic=True),
}

if __name__ == "__main__":
    sys.exit(run("recompiled", VARIANTS))
