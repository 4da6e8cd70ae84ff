"""What a recorder costs a training loop while it does not record: time a step, and memory.

    python tests/benchmarks/recorder_overhead.py

The loop is launch bound, so that all that the host does more is seen. Each way runs in a process
of its own, in turns; the figures are medians. On a GPU if there is one, else on the CPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median

WAYS = {
    "plain": "without tracelab",
    "waiting": "hooked, not yet recording",
    "recorded": "hooked, after recording",
}
STEPS_A_BLOCK, BLOCKS = 100, 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.way)))
        return
    found = {way: [] for way in WAYS}
    for _ in range(arguments.rounds):
        for way, figures in found.items():
            command = [sys.executable, __file__, "--way", way]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            figures.append(json.loads(done.stdout.splitlines()[-1]))
    plain_us = median(x["step_us"] for x in found["plain"])
    print(f"{'':28}  us a step  against plain  host MiB  GPU MiB")
    for way, figures in found.items():
        step_us, host, gpu = (
            median(x[key] for x in figures) for key in ("step_us", "host_mib", "gpu_mib")
        )
        ratio = step_us / plain_us - 1
        print(f"{WAYS[way]:28}  {step_us:9.1f}  {ratio:+12.1%}  {host:8.0f}  {gpu:7.0f}")


def measure(way):
    """Run the loop in one of the ways; returns the median time of a step, and the memory."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(64, 64) for _ in range(16)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(8, 64, device=device)

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    if way != "plain":
        from tracelab.record.hooks import watch_optimizer_step
        from tracelab.record.recorder import Recorder

        folder = tempfile.mkdtemp()
        skip = 5 if way == "recorded" else 10**9
        recorder = Recorder(f"{folder}/x.pt.trace.json.gz", skip=skip, stacks=True)
        recorder.__enter__()
        watch_optimizer_step(recorder.step)
    for _ in range(100):
        step()
    if way != "plain":
        assert recorder.done == (way == "recorded")
    times = []
    for _ in range(BLOCKS):
        wait()
        begun = time.perf_counter()
        for _ in range(STEPS_A_BLOCK):
            step()
        wait()
        times.append((time.perf_counter() - begun) / STEPS_A_BLOCK * 1e6)
    return {"step_us": median(times), "host_mib": host_mib(), "gpu_mib": gpu_mib(device)}


def host_mib():
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def gpu_mib(device):
    """Memory in use on the GPU, whoever uses it."""
    import torch

    if device == "cpu":
        return 0.0
    free, total = torch.cuda.mem_get_info()
    return (total - free) / 2**20


if __name__ == "__main__":
    main()
