"""Train a text encoder with T5's relative position bias in every layer."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

BUCKETS, FARTHEST = 32, 128


def relative_buckets(length):
    positions = torch.arange(length)
    relative = positions[None, :] - positions[:, None]
    buckets = (relative > 0).long() * (BUCKETS // 2)
    distance = relative.abs()
    near = BUCKETS // 4
    far = (
        near
        + (
            torch.log(distance.float().clamp(min=1) / near)
            / math.log(FARTHEST / near)
            * (BUCKETS // 2 - near)
        ).long()
    )
    far = far.clamp(max=BUCKETS // 2 - 1)
    return buckets + torch.where(distance < near, distance, far)


class Block(nn.Module):
    def __init__(self, width, heads, length, precomputed):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Embedding(BUCKETS, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("buckets", None, persistent=False)
        if precomputed:
            self.register_buffer("buckets", relative_buckets(length), persistent=False)

    def position_bias(self, x):
        buckets = self.buckets
        if buckets is None:
            buckets = relative_buckets(x.shape[1]).to(x.device)
        return self.bias(buckets).permute(2, 0, 1).unsqueeze(0).to(torch.bfloat16)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.position_bias(x).to(q.dtype))
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    width = 512
    model = nn.Sequential(
        nn.Embedding(8192, width),
        *(Block(width, 8, args.length, args.fixed) for _ in range(args.layers)),
        nn.LayerNorm(width),
        nn.Linear(width, 8192),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    ids = torch.randint(0, 8192, (16, args.batch_size, args.length), device=device)

    for step in range(args.steps):
        batch = ids[step % len(ids)]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
