"""CUDA graphs: split by a wait, launched late, in pieces, recorded again, on one stream of two.

All of these programs use graphs, and half of them use them badly. What a graph computes is small,
so that the CPU's part of a step matters.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from tracelab.workloads.runner import run

WIDTH, ROWS, BLOCKS, PARTS = 512, 64, 12, 4
REQUESTS, LONGEST, SELDOM = 20_000, 4096, 16
SEQUENCES, LAYERS, HEADS, CACHE, TOKENS = 8, 8, 8, 1024, 32_000
SHORTEST, LENGTHS = 256, 64
BRANCHES, SUMS = 2, 10

Function = Callable[[], object]
Result = TypeVar("Result")


def graph_of(function: Function, pool: tuple[int, int] | None = None) -> torch.cuda.CUDAGraph:
    """What a function launches, after it has been warmed up in a stream of its own."""
    warm_up, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    warm_up.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up):
        function()
    torch.cuda.current_stream().wait_stream(warm_up)
    with torch.cuda.graph(graph, pool=pool):
        function()
    return graph


def one_behind(launch: Callable[[], Result], use: Callable[[Result], object]) -> Iterator[None]:
    """Launch a step before the result of the one before it is used."""
    launched = deque([launch()])
    while True:
        launched.append(launch())
        use(launched.popleft())
        yield


class InTurn:
    """Copies of a GPU tensor to the CPU, into two pinned buffers that take turns."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self._buffers = itertools.cycle(
            [
                (torch.empty_like(tensor, device="cpu", pin_memory=True), torch.cuda.Event())
                for _ in range(2)
            ]
        )

    def copied(self) -> tuple[torch.Tensor, torch.cuda.Event]:
        """A copy that is under way, and the event that is reached behind it."""
        buffer, event = next(self._buffers)
        buffer.copy_(self._tensor, non_blocking=True)
        event.record()
        return buffer, event


def schedule(lengths: Sequence[int]) -> list[int]:
    """What a server does between two steps, in Python: each request grows, or begins anew."""
    return [length + 1 if length < LONGEST else 1 for length in lengths]


# --- split by a wait ---


class Blocks(nn.Module):
    """Layers of next to no work."""

    def __init__(self, count: int = BLOCKS) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU())
            for _ in range(count)
        )
        self.requires_grad_(False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """All layers."""
        for block in self.blocks:
            rows = rows + block(rows)
        return rows

    def parts(self, count: int) -> list[nn.Sequential]:
        """Equal parts; one after the other they are the `blocks` without their sums."""
        size = len(self.blocks) // count
        return [nn.Sequential(*self.blocks[i : i + size]) for i in range(0, len(self.blocks), size)]


def apply(part: nn.Module, rows: torch.Tensor) -> None:
    """Compute rows in place, where the graphs of all parts find them."""
    rows.copy_(part(rows))


def parts_of_step(*, count: int, waits: bool) -> Iterator[None]:
    """A step as several graphs, or as one, and a wait behind each of them or not."""
    network = Blocks().cuda().bfloat16()
    buffer = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    graphs = [graph_of(partial(apply, part, buffer)) for part in network.parts(count)]
    while True:
        for graph in graphs:
            graph.replay()
            if waits:
                torch.cuda.synchronize()  # DEFECT: what comes next runs behind it anyway
        yield


# --- launched late ---


def results_used(*, ahead: bool) -> Iterator[None]:
    """Each result is read, and Python works on it: before the next replay, or while it runs."""
    network, rows = Blocks().cuda().bfloat16(), torch.randn(ROWS, WIDTH, device="cuda").bfloat16()
    result = torch.empty(ROWS, device="cuda")
    graph = graph_of(lambda: result.copy_(network(rows).sum(1)))
    lengths = [1] * (REQUESTS // 8)
    if not ahead:
        while True:
            graph.replay()
            result.tolist()  # DEFECT: the GPU has nothing to do from here to the next replay
            lengths = schedule(lengths)
            yield
    copies = InTurn(result)

    def launch() -> tuple[torch.Tensor, torch.cuda.Event]:
        graph.replay()
        return copies.copied()

    def use(copied: tuple[torch.Tensor, torch.cuda.Event]) -> None:
        buffer, event = copied
        event.synchronize()  # FIX: of the replay before, while the next one runs
        buffer.tolist()
        lengths[:] = schedule(lengths)

    yield from one_behind(launch, use)


def work_between(*, every: int) -> Iterator[None]:
    """Python that takes longer than a graph: between all replays (DEFECT), or seldom (FIX)."""
    network, rows = Blocks().cuda().bfloat16(), torch.randn(ROWS, WIDTH, device="cuda").bfloat16()
    graph, lengths = graph_of(lambda: network(rows)), [1] * REQUESTS
    for number in itertools.count():
        if number % every == 0:
            lengths = schedule(lengths)
        graph.replay()
        yield


# --- torch.compile with and without a graph break ---


class Bounded(nn.Module):
    """Layers whose rows are made smaller where they have become too large."""

    def __init__(self, *, reads: bool) -> None:
        super().__init__()
        self.halves, self.reads = nn.ModuleList([Blocks(BLOCKS // 2), Blocks(BLOCKS // 2)]), reads

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Half of the layers, the bound, the other half."""
        rows = self.halves[0](rows)
        largest = rows.abs().amax()
        if self.reads:
            if largest.item() > 1:  # DEFECT: the CPU reads it, and the graph ends here
                rows = rows / largest
        else:
            rows = rows / largest.clamp(min=1)  # FIX: the GPU decides
        return self.halves[1](rows)


def compiled(*, reads: bool) -> Iterator[None]:
    """A model in the mode that replays graphs."""
    model = torch.compile(Bounded(reads=reads).cuda().bfloat16(), mode="reduce-overhead")
    rows = torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        while True:
            torch.compiler.cudagraph_mark_step_begin()
            model(rows)
            yield


# --- decoding ---


class Layer(nn.Module):
    """A layer of a decoder: what is before its attention, its attention, and what is behind."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.output, self.mlp = nn.Linear(WIDTH, WIDTH), Blocks(1)
        shape = (SEQUENCES, HEADS, CACHE, WIDTH // HEADS)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def before(self, rows: torch.Tensor) -> torch.Tensor:
        """Queries, keys and values of one token of each sequence."""
        qkv: torch.Tensor = self.qkv(self.norm(rows))
        return qkv

    def attention(self, qkv: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """What a token takes from those before it; its own key and value are kept."""
        query, key, value = (
            part.view(SEQUENCES, HEADS, 1, WIDTH // HEADS) for part in qkv.chunk(3, dim=-1)
        )
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        is_past = torch.arange(CACHE, device=qkv.device)[None] <= position
        found = nn.functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=is_past
        )
        return found.reshape(SEQUENCES, WIDTH)

    def behind(self, rows: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
        """The rows of the next layer."""
        next_rows: torch.Tensor = self.mlp(rows + self.output(found))
        return next_rows


def in_order(functions: Iterable[Function]) -> None:
    """Call them."""
    for function in functions:
        function()


class Decoder(nn.Module):
    """A language model that makes one token of each sequence a step, all on the GPU.

    Attributes:
        token, position: int64[sequences] and int64[1], the inputs of a step; it replaces them.
        rows, qkv, found: what its pieces give each other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(TOKENS, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.register_buffer("token", torch.zeros(SEQUENCES, dtype=torch.int64))
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("rows", torch.zeros(SEQUENCES, WIDTH))
        self.register_buffer("qkv", torch.zeros(SEQUENCES, 3 * WIDTH))
        self.register_buffer("found", torch.zeros(SEQUENCES, WIDTH))
        self.requires_grad_(False)

    def pieces(self) -> list[Function]:
        """A step in order: what is between two attentions, and each attention."""
        behind: list[Function] = [
            self._begin,
            *(partial(self._behind, layer) for layer in self.layers),
        ]
        before: list[Function] = [
            *(partial(self._before, layer) for layer in self.layers),
            self._end,
        ]
        between = [partial(in_order, pair) for pair in zip(behind, before, strict=True)]
        attentions = [partial(self._attend, layer) for layer in self.layers]
        return [*itertools.chain(*zip(between, attentions, strict=False)), between[-1]]

    def step(self) -> None:
        """All pieces."""
        in_order(self.pieces())

    def _begin(self) -> None:
        self.rows.copy_(self.embedding(self.token))

    def _before(self, layer: Layer) -> None:
        self.qkv.copy_(layer.before(self.rows))

    def _attend(self, layer: Layer) -> None:
        self.found.copy_(layer.attention(self.qkv, self.position))

    def _behind(self, layer: Layer) -> None:
        self.rows.copy_(layer.behind(self.rows, self.found))

    def _end(self) -> None:
        self.token.copy_(self.head(self.rows).argmax(-1))
        self.position.add_(1).remainder_(CACHE)


def decoded_in_pieces() -> Iterator[None]:
    """DEFECT: a graph between two attentions, attention launched eagerly, each token read."""
    with torch.no_grad():
        decoder, lengths = Decoder().cuda().bfloat16(), [1] * SEQUENCES
        pieces = decoder.pieces()
        between, attentions = [graph_of(piece) for piece in pieces[::2]], pieces[1::2]
        while True:
            for graph, attention in itertools.zip_longest(between, attentions):
                graph.replay()
                if attention is not None:
                    attention()
            decoder.token.tolist()
            lengths = schedule(lengths)
            yield


def decoded_whole() -> Iterator[None]:
    """FIX: a step is one graph, and its tokens are read while the next one runs."""
    with torch.no_grad():
        decoder, lengths = Decoder().cuda().bfloat16(), [1] * SEQUENCES
        graph, copies = graph_of(decoder.step), InTurn(decoder.token)

        def launch() -> tuple[torch.Tensor, torch.cuda.Event]:
            graph.replay()
            return copies.copied()

        def use(copied: tuple[torch.Tensor, torch.cuda.Event]) -> None:
            tokens, event = copied
            event.synchronize()
            tokens.tolist()
            lengths[:] = schedule(lengths)

        yield from one_behind(launch, use)


# --- recorded again, and several streams ---


def of_lengths(*, is_padded: bool) -> Iterator[None]:
    """A graph for each length as it comes (DEFECT), or one of the longest, filled up (FIX)."""
    network, pool = Blocks().cuda().bfloat16(), torch.cuda.graph_pool_handle()
    rows = torch.randn(SHORTEST + LENGTHS, WIDTH, device="cuda", dtype=torch.bfloat16)
    whole = graph_of(lambda: network(rows), pool)
    for length in itertools.cycle(range(SHORTEST, SHORTEST + LENGTHS)):
        if is_padded:
            rows[length:].zero_()
            whole.replay()
        else:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                network(rows[:length])
            graph.replay()
        yield


def branches(*, forks: bool) -> Iterator[None]:
    """Independent kernels that leave room: one after the other (DEFECT), or forked (FIX)."""
    inputs = [torch.ones(32, 1 << 18, device="cuda") for _ in range(BRANCHES)]
    streams = [torch.cuda.Stream() for _ in range(BRANCHES)]

    def all_branches() -> None:
        current = torch.cuda.current_stream()
        for rows, stream in zip(inputs, streams, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream if forks else current):
                for _ in range(SUMS):
                    rows.cumsum(1)
        for stream in streams:
            current.wait_stream(stream)

    graph = graph_of(all_branches)
    while True:
        graph.replay()
        yield


VARIANTS = {
    "synchronized": lambda: parts_of_step(count=PARTS, waits=True),
    "parts": lambda: parts_of_step(count=PARTS, waits=False),
    "whole": lambda: parts_of_step(count=1, waits=False),
    "read_first": lambda: results_used(ahead=False),
    "read_behind": lambda: results_used(ahead=True),
    "work_between": lambda: work_between(every=1),
    "work_seldom": lambda: work_between(every=SELDOM),
    "compiled_break": lambda: compiled(reads=True),
    "compiled_whole": lambda: compiled(reads=False),
    "decoded_in_pieces": decoded_in_pieces,
    "decoded_whole": decoded_whole,
    "recorded_again": lambda: of_lengths(is_padded=False),
    "recorded_once": lambda: of_lengths(is_padded=True),
    "one_branch": lambda: branches(forks=False),
    "forked": lambda: branches(forks=True),
}

if __name__ == "__main__":
    sys.exit(run("graphs", VARIANTS, stacks=True))
