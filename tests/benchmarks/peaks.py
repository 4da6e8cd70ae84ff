"""Rates that large products and copies reach on this machine's GPU, beside its maker's peaks.

`python -m tests.benchmarks.peaks` prints a row for each number format, of square products of 8,192
rows, and one of a copy of 2 GiB: the median of ten after three that warm up.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from tracelab.model.arithmetic import peak_of

ROWS, BYTES = 8192, 2**31
WARM_UP, TIMES = 3, 10


def milliseconds(work: Callable[[], object]) -> float:
    """The median time of some work on the GPU."""
    times = []
    for _ in range(WARM_UP + TIMES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[WARM_UP:])


def product(dtype: torch.dtype) -> Callable[[], object]:
    """Multiply two square matrices of a format."""
    left, right = (torch.randn(ROWS, ROWS, device="cuda").to(dtype) for _ in range(2))
    if dtype != torch.float8_e4m3fn:
        return lambda: left @ right
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(left, right.t(), one, one, out_dtype=torch.bfloat16)


def main() -> None:
    """Measure and print."""
    name = torch.cuda.get_device_name()
    peak = peak_of(name)
    print(f"{name}, PyTorch {torch.__version__}")
    rates = {}
    for title, dtype in (
        ("fp64", torch.float64),
        ("fp32", torch.float32),
        ("tf32", torch.float32),
        ("fp16", torch.float16),
        ("bf16", torch.bfloat16),
        ("fp8", torch.float8_e4m3fn),
    ):
        torch.backends.cuda.matmul.allow_tf32 = title == "tf32"
        rates[title] = 2 * ROWS**3 / milliseconds(product(dtype)) / 1e9
    source = torch.empty(BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    rates["memory"] = 2 * BYTES / milliseconds(lambda: target.copy_(source)) / 1e6
    for title, rate in rates.items():
        most = peak and getattr(peak, title)
        share = f"{rate / most:6.1%} of {most:,.1f}" if most else "peak not known"
        print(f"{title:>7} {rate:9,.1f} {'GB/s' if title == 'memory' else 'TFLOP/s':8} {share}")


if __name__ == "__main__":
    main()
