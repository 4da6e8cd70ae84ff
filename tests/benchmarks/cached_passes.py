"""Measure what is left of a pass for one token: the table of the edit `one-token`.

    python tests/benchmarks/cached_passes.py          # on an NVIDIA GPU

Runs layers of a transformer over whole sequences, and over their last token with the keys and
values of the others, and compares the time of each part (products, attention, normalization, ...)
by how long it took over whole sequences. Sequences have 1,024 tokens together at least.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

WIDTHS, BATCHES, LENGTHS = (512, 1024, 2048, 4096), (1, 8, 32, 128), (64, 256, 1024, 2048)
TOKENS = range(1024, 65_537)
HEAD, VOCABULARY, TIMES = 64, 32_000, 3
UP_TO_US = (10, 30, 100)


def parts_of(width: int, dtype: torch.dtype, is_eager: bool) -> dict[str, object]:
    """The parts of a layer, by name: each takes and gives (batch, length, width)."""
    make = {"device": "cuda", "dtype": dtype}
    norm, head = nn.LayerNorm(width, **make), nn.Linear(width, VOCABULARY, bias=False, **make)
    qkv, out = nn.Linear(width, 3 * width, **make), nn.Linear(width, width, **make)
    up, down = nn.Linear(width, 4 * width, **make), nn.Linear(4 * width, width, **make)

    def attend(q, k, v):
        if not is_eager:
            return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        scores = q @ k.transpose(-2, -1) / HEAD**0.5
        if q.shape[2] > 1:
            scores = scores + torch.full(scores.shape[-2:], -1e4, **make).triu(1)
        return scores.softmax(-1) @ v

    return {
        "norm": norm, "qkv": qkv, "attend": attend, "out": out, "add": torch.add, "up": up,
        "gelu": F.gelu, "down": down, "head": head,
    }  # fmt: skip


@torch.inference_mode()
def run(parts, x, memory) -> None:
    """Run one layer and the head; with a memory (2, batch, heads, length, HEAD) for one token."""
    batch, length, width = x.shape

    def part(name, *arguments):
        with record_function(f"part {name}"):
            return parts[name](*arguments)

    y = part("norm", x)
    q, k, v = part("qkv", y).view(batch, length, 3, width // HEAD, HEAD).permute(2, 0, 3, 1, 4)
    with record_function("part attend"):
        if memory is not None:
            memory[0, :, :, -1:], memory[1, :, :, -1:] = k, v
            k, v = memory
        y = parts["attend"](q, k, v)
    y = part("out", y.transpose(1, 2).reshape(batch, length, width))
    x = part("add", x, y)
    part("head", part("add", x, part("down", part("gelu", part("up", part("norm", x))))))


def measure(parts, x, memory) -> dict[str, float]:
    """Us of GPU time of each part, the median of some runs."""
    run(parts, x, memory)
    torch.cuda.synchronize()
    taken = defaultdict(list)
    for _ in range(TIMES):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            run(parts, x, memory)
            torch.cuda.synchronize()
        of_run = defaultdict(float)
        for event in profiler.events():
            if event.name.startswith("part ") and event.device_type.name == "CPU":
                of_run[event.name] += event.device_time_total
        for name, us in of_run.items():
            taken[name].append(us)
    return {name: float(np.median(us)) for name, us in taken.items()}


def main() -> None:
    """Print what is left of parts: by length, and of all of a pass."""
    rows, passes = [], []
    kinds = ((torch.bfloat16, False), (torch.bfloat16, True), (torch.float32, False))
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for width, (dtype, is_eager) in itertools.product(WIDTHS, kinds):
        parts = parts_of(width, dtype, is_eager)
        for batch, length in itertools.product(BATCHES, LENGTHS):
            if batch * length not in TOKENS or (is_eager and batch * length**2 * width > 2**40):
                continue
            make = {"device": "cuda", "dtype": dtype}
            x = torch.randn(batch, length, width, **make)
            memory = torch.randn(2, batch, width // HEAD, length, HEAD, **make)
            whole, cached = measure(parts, x, None), measure(parts, x[:, -1:], memory)
            rows += [(whole[name], cached[name], name) for name in whole]
            passes.append((sum(whole.values()), sum(cached.values())))
            left = " ".join(f"{n[5:]}:{whole[n]:.0f}>{cached[n]:.0f}" for n in whole)
            kind = f"{str(dtype)[6:]}{' by hand' if is_eager else ''}"
            print(f"{width} {kind} {batch} x {length}: {left}", flush=True)
    whole, cached = np.array([row[:2] for row in rows]).T
    bucket = np.searchsorted(UP_TO_US, whole, side="right")
    for number in range(len(UP_TO_US) + 1):
        of_bucket = bucket == number
        left = cached[of_bucket] / whole[of_bucket]
        quantiles = np.quantile(left, (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)).round(3).tolist()
        total = cached[of_bucket].sum() / whole[of_bucket].sum()
        print(f"bucket {number}: {len(left)} parts, {quantiles}, of their sum {total:.3f}")
    left = [b / a for a, b in passes]
    print("passes", len(left), np.quantile(left, (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)).round(3))


if __name__ == "__main__":
    main()
