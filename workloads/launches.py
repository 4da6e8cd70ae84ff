"""Ways to launch more than is needed, or more slowly, and what to write instead.

The networks are small: what a step takes is the CPU's time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import torch

from tracelab.workloads.runner import run

CELL_WIDTH, TIMES, SEQUENCES = 128, 8, 32
WIDTH, BLOCKS, ROWS = 512, 8, 16
DEEP, DEEP_ROWS = 2, 512
PARTS, PART_ROWS = 4, 32
HEADS, HEAD_WIDTH, ATTENTIONS, LONGEST = 8, 128, 4, 4096
COLLECTED_DEEP, COLLECTED_ROWS, OBJECTS = 4, 32_768, 100_000


def recurrent(*, by_cells: bool) -> Iterator[None]:
    """Train on sequences, with a network that carries a state from each time to the next."""
    cell = torch.nn.LSTMCell(CELL_WIDTH, CELL_WIDTH).cuda()
    layer = torch.nn.LSTM(CELL_WIDTH, CELL_WIDTH).cuda()
    optimizer = torch.optim.AdamW((cell if by_cells else layer).parameters(), fused=True)
    inputs = torch.randn(TIMES, SEQUENCES, CELL_WIDTH, device="cuda")
    zero = torch.zeros(SEQUENCES, CELL_WIDTH, device="cuda")
    while True:
        if by_cells:
            state, outputs = (zero, zero), []
            for time in range(TIMES):  # DEFECT: some launches for each time
                state = cell(inputs[time], state)
                outputs.append(state[0])
            result = torch.stack(outputs)
        else:
            result, _ = layer(inputs)  # FIX: cuDNN takes the whole sequence
        result.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def blocks(*, dtype: torch.dtype) -> torch.nn.Sequential:
    """Layers of next to no work, for inference."""
    made = [
        torch.nn.Sequential(
            torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()
        )
        for _ in range(BLOCKS)
    ]
    return torch.nn.Sequential(*made).to("cuda", dtype).requires_grad_(False)


def inference(*, as_graph: bool) -> Iterator[None]:
    """Run a small network: eagerly (DEFECT), or as one CUDA graph (FIX)."""
    network = blocks(dtype=torch.bfloat16)
    rows = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        graph = graph_of(network, rows) if as_graph else None
        while True:
            if graph is None:
                network(rows)
            else:
                graph.replay()
            yield


def graph_of(network: torch.nn.Module, rows: torch.Tensor) -> torch.cuda.CUDAGraph:
    """What a network does with these rows, after it has been warmed up in a stream of its own."""
    warm_up, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    warm_up.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up):
        network(rows)
    torch.cuda.current_stream().wait_stream(warm_up)
    with torch.cuda.graph(graph):
        network(rows)
    return graph


def mixed_precision(*, is_converted: bool) -> Iterator[None]:
    """Run a network in bfloat16: its weights converted in each step (DEFECT), or once (FIX)."""
    dtype = torch.bfloat16 if is_converted else torch.float32
    network = blocks(dtype=dtype)
    rows = torch.randn(ROWS, WIDTH, device="cuda", dtype=dtype)
    with torch.no_grad():
        while True:
            with torch.autocast("cuda", torch.bfloat16, enabled=not is_converted):
                network(rows)
            yield


def trained(*, finds_anomalies: bool = False) -> Iterator[None]:
    """Train a small network, maybe with a check of each gradient (DEFECT)."""
    torch.autograd.set_detect_anomaly(finds_anomalies)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(DEEP)]
    network = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    rows = torch.randn(DEEP_ROWS, WIDTH, device="cuda")
    while True:
        network(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def accumulated(*, parts: int) -> Iterator[None]:
    """Train on the same rows, in many small parts (DEFECT) or all at once (FIX)."""
    network = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(DEEP)]).cuda()
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    rows = torch.randn(PARTS * PART_ROWS, WIDTH, device="cuda")
    while True:
        for part in rows.chunk(parts):
            (network(part).square().mean() / parts).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def attention(*, with_plans: bool) -> Iterator[None]:
    """Decode a token a step over a growing cache, each of whose lengths cuDNN plans (DEFECT)."""
    torch.backends.cuda.enable_cudnn_sdp(with_plans)
    shape = (1, HEADS, LONGEST, HEAD_WIDTH)
    keys, values = torch.randn(2, *shape, device="cuda", dtype=torch.bfloat16)
    query = torch.randn(1, HEADS, 1, HEAD_WIDTH, device="cuda", dtype=torch.bfloat16)
    for length in range(LONGEST // 2, LONGEST):
        for _ in range(ATTENTIONS):
            query = torch.nn.functional.scaled_dot_product_attention(
                query, keys[:, :, :length], values[:, :, :length]
            )
        yield


def collected(*, frozen: bool) -> Iterator[None]:
    """Collect garbage in each step of a program that has many objects which stay."""
    kept = [[row] for row in range(OBJECTS)]
    network = torch.nn.Sequential(
        *[torch.nn.Linear(WIDTH, WIDTH) for _ in range(COLLECTED_DEEP)]
    ).cuda()
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    rows = torch.randn(COLLECTED_ROWS, WIDTH, device="cuda")
    gc.disable()
    if frozen:
        gc.collect()
        gc.freeze()  # FIX: what is there by now is not looked at again
    while kept:
        network(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        gc.collect()  # DEFECT, unless they are frozen: it walks over all objects
        yield


VARIANTS = {
    "cells": lambda: recurrent(by_cells=True),
    "layer": lambda: recurrent(by_cells=False),
    "eager": lambda: inference(as_graph=False),
    "graph": lambda: inference(as_graph=True),
    "converted_each_step": lambda: mixed_precision(is_converted=False),
    "converted_once": lambda: mixed_precision(is_converted=True),
    "anomalies": lambda: trained(finds_anomalies=True),
    "blocking": trained,
    "no_switches": trained,
    "small_parts": lambda: accumulated(parts=PARTS),
    "one_part": lambda: accumulated(parts=1),
    "planned_lengths": lambda: attention(with_plans=True),
    "no_plans": lambda: attention(with_plans=False),
    "collected": lambda: collected(frozen=False),
    "frozen": lambda: collected(frozen=True),
}

if __name__ == "__main__":
    sys.exit(run("launches", VARIANTS, stacks=True))
