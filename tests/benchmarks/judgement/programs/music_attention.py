"""Train a transformer on sequences of musical events, with an attention written by hand."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

EVENTS = 512


def attend(q, k, v, mask):
    scores = torch.matmul(q, k.transpose(-2, -1)).float() / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return torch.matmul(weights.to(v.dtype), v)


class SelfAttention(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.output = nn.Linear(width, width), nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = attend(q, k, v, mask)
        return self.output(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, fused)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, mask):
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class MusicTransformer(nn.Module):
    def __init__(self, width, heads, layers, length, fused):
        super().__init__()
        self.events, self.places = nn.Embedding(EVENTS, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads, fused) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, EVENTS)
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, events):
        x = self.events(events) + self.places.weight
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = MusicTransformer(512, 8, args.layers, args.length, fused=args.fixed).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    pieces = torch.randint(0, EVENTS, (8, args.batch_size, args.length + 1), device=device)

    for step in range(args.steps):
        events = pieces[step % 8]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(events[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), events[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
