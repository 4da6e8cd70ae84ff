"""Pretrain a causal language model of genomes, in bfloat16, with rotary positions."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def rotate_half(x):
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


class Rotary:
    def __init__(self, size, base=10000.0):
        self.frequencies = 1.0 / base ** (torch.arange(0, size, 2).float() / size)
        self.length = 0

    def tables(self, length, device):
        if length != self.length:
            positions = torch.arange(length, device=device).float()
            angles = torch.outer(positions, self.frequencies.to(device))
            angles = torch.cat((angles, angles), dim=-1)
            self.cos, self.sin = angles.cos(), angles.sin()
            self.length = length
        return self.cos, self.sin


class Attention(nn.Module):
    def __init__(self, width, heads, keep_dtype):
        super().__init__()
        self.heads = heads
        self.keep_dtype = keep_dtype
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        if self.keep_dtype:
            q, k = q.to(x.dtype), k.to(x.dtype)
        y = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        y = y.transpose(1, 2).reshape(batch, length, width)
        return self.out(y.to(x.dtype))


class Block(nn.Module):
    def __init__(self, width, heads, keep_dtype):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, keep_dtype)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class GenomeModel(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, keep_dtype):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rotary = Rotary(width // heads)
        self.blocks = nn.ModuleList(Block(width, heads, keep_dtype) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        cos, sin = self.rotary.tables(tokens.shape[1], tokens.device)
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=512, help="k-mers")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = GenomeModel(args.vocabulary, args.width, args.heads, args.layers, keep_dtype=args.fixed)
    model = model.to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=2e-4, betas=(0.9, 0.95), fused=device.type == "cuda"
    )
    genome = torch.randint(
        0, args.vocabulary, (64, args.batch_size, args.length + 1), device=device
    )

    for step in range(args.steps):
        tokens = genome[step % len(genome)]
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
