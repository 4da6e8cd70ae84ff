"""Train a small GPT on random characters, with batches cut out of one long array of tokens."""

import argparse
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.before_attention(x)).split(width, dim=2)
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x, targets):
        places = torch.arange(x.shape[1], device=x.device)
        logits = self.head(self.norm(self.blocks(self.tokens(x) + self.places(places))))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch(data, options, device):
    starts = torch.randint(len(data) - options.length, (options.batch_size,))
    cuts = [data[i : i + options.length + 1].astype(np.int64) for i in starts]
    both = torch.stack([torch.from_numpy(cut) for cut in cuts])
    x, y = both[:, :-1].contiguous(), both[:, 1:].contiguous()
    if device.type == "cuda":
        return (t.pin_memory().to(device, non_blocking=True) for t in (x, y))
    return x, y


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=65)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--log-every", type=int, default=10)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = np.random.default_rng(0).integers(0, options.vocabulary, 1_000_000, dtype=np.uint16)
    model = GPT(
        options.vocabulary, options.length, options.width, options.heads, options.layers
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    mixed = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()
    x, y = get_batch(data, options, device)
    begun = time.time()
    for number in range(options.steps):
        for _ in range(options.accumulate):
            with mixed:
                loss = model(x, y) / options.accumulate
            x, y = get_batch(data, options, device)  # while the GPU computes the forward pass
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if number % options.log_every == 0:
            print(f"{number}: loss {loss.item():.4f}, {time.time() - begun:.1f} s")


if __name__ == "__main__":
    main()
