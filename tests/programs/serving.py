"""Serve as vLLM does with two GPUs: decode by CUDA graphs whose all-reduces NCCL does not make.

    torchrun --nproc-per-node 2 tests/programs/serving.py even|late FOLDER

The model is tensor parallel. Steps are annotated as vLLM annotates them; those that decode replay a
graph with all-reduces of PyTorch's symmetric memory, as others have all-reduces of their own. With
"late" the first rank does work of its own before each of them. Prints what it takes without the
profiler: on two H200 (PyTorch 2.11) 9.8 ms with "late" for 12 decoding steps and 4 others, and 4.8
with "even". The pair in `tests/data/serving` is "late", by an earlier form, `serving_tmp.py`: 10.8
ms, and 6.9 with "even"; its second rank began to record later.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch.profiler import ProfilerActivity, profile, record_function

LAYERS, WIDTH, BATCHES = 6, 2048, (8, 64)
HISTORY = {str(i): list(range(60)) for i in range(40)}


def make(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / WIDTH**0.5


def forward(x, weights, reduce):
    for up, down in weights:
        x = x + reduce(torch.nn.functional.gelu(x @ up) @ down)
    return x


def by_nccl(y):
    dist.all_reduce(y)
    return y


class Decoder:
    """A CUDA graph for one number of requests."""

    def __init__(self, batch, weights):
        self.x = make(batch, WIDTH)
        name = dist.group.WORLD.group_name
        # The graph reads and writes it as long as it is replayed.
        self.shared = symm_mem.empty(batch, WIDTH, device="cuda", dtype=torch.bfloat16)
        symm_mem.rendezvous(self.shared, name)

        def reduce(y):
            self.shared.copy_(y)
            return torch.ops.symm_mem.one_shot_all_reduce(self.shared, "sum", name)

        forward(self.x, weights, reduce)
        torch.cuda.synchronize()
        dist.barrier()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.y = forward(self.x, weights, reduce)

    def run(self):
        self.graph.replay()
        return self.y.argmax(-1)


def serve(weights, decoders, *, is_late):
    """Serve a prompt or two, and then some tokens, for each number of requests."""
    prompt = make(512, WIDTH)

    def step(name, work, *, is_late=False):
        with record_function(name):
            if is_late:
                json.dumps(HISTORY)
            return work().cpu()

    for batch in BATCHES:
        for _ in range(2):
            work = lambda: forward(prompt, weights, by_nccl).argmax(-1)  # noqa: E731
            step("execute_context_1(512)_generation_0(0)", work)
        for _ in range(6):
            name = f"execute_context_0(0)_generation_{batch}({batch})"
            step(name, decoders[batch].run, is_late=is_late)


def main(variant, folder):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    wide = 4 * WIDTH // world
    weights = [(make(WIDTH, wide), make(wide, WIDTH)) for _ in range(LAYERS)]
    decoders = {batch: Decoder(batch, weights) for batch in BATCHES}
    is_late = variant == "late" and rank == 0
    for _ in range(3):
        serve(weights, decoders, is_late=is_late)
    torch.cuda.synchronize()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(10):
        serve(weights, decoders, is_late=is_late)
    torch.cuda.synchronize()
    print(f"{variant}, rank {rank}: {(time.perf_counter() - start) * 100:.3f} ms", flush=True)
    dist.barrier()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, with_stack=True) as profiler:
        serve(weights, decoders, is_late=is_late)
        torch.cuda.synchronize()
    profiler.export_chrome_trace(f"{folder}/serving_{variant}_rank{rank}.pt.trace.json.gz")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
