"""What kernels that only some sizes or operators need become without them: needs an NVIDIA GPU.

    python -m tests.benchmarks.slow_kernels

A row per operator, measured beside one of another size, or in another way, by the time of its
kernels in ``torch.profiler``: what is left of the slow kernels alone, as the rest of the operator
stays. Then the shares left by how long the slow kernel takes: the 5th, 50th and 95th percentile.

- alignment: half-precision products with an odd (or even) size, and the next multiple of 64;
- lengths: Fourier transforms of lengths with a large prime factor, and the next with 2, 3 and 5;
- embedding: gradients of `table[rows]`, and of `F.embedding(rows, table)`;
- index_select: the same, and of `table.index_select(0, rows)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch.profiler import ProfilerActivity, profile

from tracelab.model.arithmetic import (
    adds_up_rows,
    is_bluestein_transform,
    is_unaligned_product,
)

Run = Callable[[], object]
SLOW = {
    "alignment": is_unaligned_product,
    "lengths": is_bluestein_transform,
    "embedding": adds_up_rows,
    "index_select": adds_up_rows,
}
# A gradient of indexing counts if its slow kernel takes so many times as long as all others.
MIN_TIMES_THE_REST = 6
CALLS = 4
UP_TO_US = (10, 30, 100)


def main() -> None:
    print("| kind | sizes | slow kernels, us | others, us | instead, us | left |")
    print("|---|---|---|---|---|---|")
    left: dict[str, list[tuple[float, float]]] = {kind: [] for kind in SLOW}
    for kind, text, slow, instead in cases():
        times, others = kernels_of(slow, SLOW[kind]), kernels_of(instead, SLOW[kind])
        if times[0]:
            share = max(0.0, sum(others) - times[1]) / times[0]
            if SLOW[kind] is not adds_up_rows or times[0] >= MIN_TIMES_THE_REST * times[1]:
                left[kind].append((times[0], share))
            print(f"| {kind} | {text} | {times[0]:.0f} | {times[1]:.0f} | {sum(others):.0f} | "
                  f"{share:.3f} |", flush=True)  # fmt: skip
        else:
            print(f"| {kind} | {text} | none |", flush=True)
    for kind, rows in left.items():
        index = np.searchsorted(UP_TO_US, [us for us, _ in rows], side="right")
        for number in range(len(UP_TO_US) + 1):
            shares = [share for (_, share), i in zip(rows, index, strict=True) if i == number]
            if shares:
                low, middle, high = np.percentile(shares, (5, 50, 95))
                print(f"{kind}, class {number}: {low:.3f} {middle:.3f} {high:.3f} of {len(shares)}")


def kernels_of(run: Run, is_slow: Callable[[str], object]) -> tuple[float, float]:
    """Time of the slow kernels and of all others, us a call."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(CALLS):
            run()
        torch.cuda.synchronize()
    times = [0.0, 0.0]
    for event in profiler.key_averages():
        times[not is_slow(event.key)] += event.self_device_time_total / CALLS
    return times[0], times[1]


def cases() -> Iterator[tuple[str, str, Run, Run]]:
    """The kind, sizes, and both ways of each case."""
    torch.manual_seed(0)
    yield from _products()
    yield from _transforms()
    yield from _gradients()


def _products() -> Iterator[tuple[str, str, Run, Run]]:
    odd = (50257, 32001, 10001, 1001, 50258, 30522)
    for tokens, width, size in product((1024, 4096, 16384), (256, 1024, 4096), odd):
        for form in ("forward", "input", "weight"):
            text = f"{form} {tokens} x {width} x {size}"
            runs = (_product(form, tokens, width, n) for n in (size, -(-size // 64) * 64))
            yield "alignment", text, *runs
    for batch, length in product((32, 256), (127, 255, 577, 1025)):
        runs = (_scores(batch, n) for n in (length, -(-length // 64) * 64))
        yield "alignment", f"scores {batch} x {length}", *runs


def _product(form: str, tokens: int, width: int, size: int) -> Run:
    def run() -> object:
        x = torch.empty(tokens, width, device="cuda", dtype=torch.bfloat16)
        weight = torch.empty(size, width, device="cuda", dtype=torch.bfloat16)
        grad = torch.empty(tokens, size, device="cuda", dtype=torch.bfloat16)
        if form == "forward":
            return x @ weight.T
        return grad @ weight if form == "input" else grad.T @ x

    return run


def _scores(batch: int, length: int) -> Run:
    def run() -> object:
        weights = torch.empty(batch, length, length, device="cuda", dtype=torch.bfloat16)
        values = torch.empty(batch, length, 64, device="cuda", dtype=torch.bfloat16)
        return weights @ values

    return run


def _transforms() -> Iterator[tuple[str, str, Run, Run]]:
    lengths = (1999, 4093, 7999, 15999, 31999, 44101, 95999, 131071)
    for length, samples, is_real in product(lengths, (1 << 20, 1 << 23, 1 << 25), (True, False)):
        batch = samples // length
        runs = (_transform(batch, n, is_real) for n in (length, _smooth(length)))
        text = f"{'rfft and irfft' if is_real else 'fft'} {batch} x {length} ({_smooth(length)})"
        yield "lengths", text, *runs


def _transform(batch: int, length: int, is_real: bool) -> Run:
    def run() -> object:
        dtype = torch.float32 if is_real else torch.complex64
        x = torch.empty(batch, length, device="cuda", dtype=dtype)
        return torch.fft.irfft(torch.fft.rfft(x), n=length) if is_real else torch.fft.fft(x)

    return run


def _smooth(length: int) -> int:
    """The next length whose only prime factors are 2, 3 and 5."""
    while True:
        rest = length
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return length
        length += 1


def _gradients() -> Iterator[tuple[str, str, Run, Run]]:
    rows, widths, counts = (1_000, 30_000, 1_000_000), (16, 64, 256), (16_384, 262_144, 1_048_576)
    for table, width, count, often in product(rows, widths, counts, ("even", "zipf", "sorted")):
        index = torch.randint(0, table, (count,), device="cuda")
        if often == "zipf":
            index = (table * torch.rand(count, device="cuda") ** 6).long()
        if often == "sorted":
            index = index.sort().values
        text = f"{count} of {table} x {width}, {often}"
        for instead in ("embedding", "index_select"):
            runs = (_gradient(table, width, index, way) for way in ("index", instead))
            yield instead, text, *runs


def _gradient(rows: int, width: int, index: torch.Tensor, way: str) -> Run:
    table = torch.zeros(rows, width, device="cuda", requires_grad=True)
    grad = torch.zeros(len(index), width, device="cuda")
    look_up = {
        "index": lambda: table[index],
        "embedding": lambda: F.embedding(index, table),
        "index_select": lambda: table.index_select(0, index),
    }[way]

    def run() -> object:
        return torch.autograd.grad(look_up(), table, grad)

    return run


if __name__ == "__main__":
    main()
