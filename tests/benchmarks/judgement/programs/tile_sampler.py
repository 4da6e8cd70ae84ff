"""Sample texture tiles from a diffusion transformer, for a set that is written to disk."""

import argparse
import math
import zlib

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.scale = nn.Linear(width, 2 * width)

    def forward(self, x, condition):
        batch, length, width = x.shape
        scale1, scale2 = self.scale(condition).unsqueeze(1).chunk(2, dim=-1)
        h = self.norm1(x) * (1 + scale1)
        q, k, v = (
            self.qkv(h).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        )
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.proj(h)
        return x + self.down(F.gelu(self.up(self.norm2(x) * (1 + scale2)), approximate="tanh"))


class Denoiser(nn.Module):
    def __init__(self, size, patch, width, depth, heads, classes):
        super().__init__()
        self.patch = patch
        self.embed = nn.Conv2d(3, width, patch, stride=patch)
        self.position = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 3 * patch * patch)
        frequencies = torch.exp(-math.log(10000) * torch.arange(128) / 128)
        self.register_buffer("frequencies", frequencies)

    def forward(self, x, t, labels):
        size, p = x.shape[-1] // self.patch, self.patch
        angles = t * self.frequencies
        waves = torch.cat((angles.cos(), angles.sin()), dim=-1).to(x.dtype)
        condition = F.silu(self.time(waves) + self.label(labels))
        x = self.embed(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x, condition)
        x = self.out(self.norm(x)).view(-1, size, size, p, p, 3)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(-1, 3, size * p, size * p)


class Sampler:
    """DDIM with classifier-free guidance; one step of it is captured as a CUDA graph."""

    def __init__(self, model, batch, size, classes, rounds, guidance, device):
        self.model, self.guidance, self.rounds, self.device = model, guidance, rounds, device
        betas = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
        alphas = torch.cumprod(1 - betas, 0).float()
        times = torch.linspace(999, 0, rounds).round().long()
        kept = torch.cat((alphas[times], torch.ones(1)))
        # a row per round: time, sqrt(a), sqrt(1 - a), and both for the round that follows
        self.table = torch.stack(
            (times.float(), kept[:-1].sqrt(), (1 - kept[:-1]).sqrt(), kept[1:].sqrt(),
             (1 - kept[1:]).sqrt()), dim=1
        ).to(device)  # fmt: skip
        self.x = torch.zeros(batch, 3, size, size, device=device)
        self.labels = torch.full((2 * batch,), classes, device=device)
        self.row = torch.zeros(5, device=device)
        self.graph = self.capture() if device.type == "cuda" else None

    def advance(self):
        time, signal, noise, next_signal, next_noise = self.row.unbind()
        dtype = self.model.out.weight.dtype
        x = self.x.to(dtype)
        eps = self.model(torch.cat((x, x)), time, self.labels).float()
        wanted, free = eps.chunk(2)
        eps = torch.lerp(free, wanted, self.guidance)
        clean = ((self.x - noise * eps) / signal).clamp(-1, 1)
        self.x.copy_(next_signal * clean + next_noise * eps)

    @torch.no_grad()
    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.row.copy_(self.table[0])
            for _ in range(3):
                self.advance()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.advance()
        return graph

    @torch.no_grad()
    def generate(self, labels):
        self.labels[: len(labels)].copy_(labels)
        self.x.normal_()
        for row in self.table:
            self.row.copy_(row)
            if self.graph is None:
                self.advance()
            else:
                self.graph.replay()
        return self.x.add(1).mul_(127.5).round_().to(torch.uint8)


class Writer:
    """Two buffers on the host: one is filled while the other one is written."""

    def __init__(self, shape, device):
        pin = device.type == "cuda"
        self.buffers = [torch.empty(shape, dtype=torch.uint8, pin_memory=pin) for _ in range(2)]
        self.events = [torch.cuda.Event() if pin else None for _ in range(2)]
        self.count, self.checksum = 0, 0

    def put(self, tiles):
        slot = self.count % 2
        self.buffers[slot].copy_(tiles, non_blocking=True)
        if self.events[slot] is not None:
            self.events[slot].record()
        if self.count:
            self.write(1 - slot)
        self.count += 1

    def write(self, slot):
        if self.events[slot] is not None:
            self.events[slot].synchronize()
        self.checksum = zlib.crc32(self.buffers[slot].numpy(), self.checksum)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--classes", type=int, default=47)
    parser.add_argument("--guidance", type=float, default=3.0)
    parser.add_argument("--fixed", action="store_true")  # for the same interface as its sisters
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = Denoiser(args.size, 4, args.width, args.depth, args.width // 64, args.classes)
    model = model.to(device, dtype).eval()
    model.frequencies = model.frequencies.float()
    sampler = Sampler(
        model, args.batch_size, args.size, args.classes, args.rounds, args.guidance, device
    )
    writer = Writer((args.batch_size, 3, args.size, args.size), device)
    labels = torch.randint(0, args.classes, (64, args.batch_size), device=device)

    for step in range(args.steps):
        tiles = sampler.generate(labels[step % len(labels)])
        writer.put(tiles)
        if step % 100 == 0:
            print(f"step {step} mean brightness {tiles.float().mean().item():.2f}")
    writer.write((writer.count - 1) % 2)
    print(f"{writer.count} batches of tiles, checksum {writer.checksum:08x}")


if __name__ == "__main__":
    main()
