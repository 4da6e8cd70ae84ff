"""A cache that grows on a GPU that is nearly full, and how the allocator gets its memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from tracelab.workloads.runner import run

SIZE, ROWS = 4096, 256
FIRST_PIECES, MOST_PIECES, LIMIT_PIECES = 1300, 1900, 3928


def cache(*, is_reserved: bool) -> Iterator[None]:
    """Append rows to a cache on a GPU that is nearly full: to a copy of it, or in place.

    Two copies of it fit, three do not: a kept block of the last but one is too small, so that the
    allocator must give it back first.
    """
    matrix = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) / SIZE**0.5
    rows = matrix[:ROWS]
    total = torch.cuda.get_device_properties("cuda").total_memory
    torch.cuda.set_per_process_memory_fraction(LIMIT_PIECES * rows.nbytes / total)
    while True:
        held = rows.repeat(MOST_PIECES if is_reserved else FIRST_PIECES, 1)
        for count in range(FIRST_PIECES, MOST_PIECES):
            new = rows @ matrix
            if is_reserved:
                held[count * ROWS : (count + 1) * ROWS] = new  # FIX
            else:
                held = torch.cat([held, new])  # DEFECT
            yield
        del held
        torch.cuda.empty_cache()


VARIANTS = {
    "full": lambda: cache(is_reserved=False),
    "reserved": lambda: cache(is_reserved=True),
}

if __name__ == "__main__":
    sys.exit(run("memory", VARIANTS, stacks=True))
