"""Train a language model with sparse mixtures of experts, written as in Mixtral's first code."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Experts(nn.Module):
    def __init__(self, width, hidden, experts, top):
        super().__init__()
        self.top, self.count = top, experts
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width))
            for _ in range(experts)
        )

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        weights, chosen = torch.topk(F.softmax(self.router(x).float(), dim=-1), self.top)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        expert_mask = F.one_hot(chosen, self.count).permute(2, 1, 0)
        for index, expert in enumerate(self.experts):
            rank, token = torch.where(expert_mask[index])
            y = expert(x[token]) * weights[token, rank, None]
            out.index_add_(0, token, y.to(out.dtype))
        return out.view(shape)


class SortedExperts(Experts):
    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        weights, chosen = torch.topk(F.softmax(self.router(x).float(), dim=-1), self.top)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        order = chosen.flatten().argsort()
        token = order // self.top
        counts = torch.bincount(chosen.flatten(), minlength=self.count).tolist()
        pieces = zip(self.experts, x[token].split(counts), strict=True)
        y = torch.cat([expert(piece) for expert, piece in pieces])
        y = y * weights.flatten()[order].unsqueeze(1)
        out.index_add_(0, token, y.to(out.dtype))
        return out.view(shape)


class Block(nn.Module):
    def __init__(self, width, heads, experts):
        super().__init__()
        self.heads, self.experts = heads, experts
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.experts(self.norm2(x))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    width, kind = 512, SortedExperts if args.fixed else Experts
    model = nn.Sequential(
        nn.Embedding(8192, width),
        *(Block(width, 8, kind(width, 1408, args.experts, 2)) for _ in range(args.layers)),
        nn.LayerNorm(width),
        nn.Linear(width, 8192),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    ids = torch.randint(0, 8192, (16, args.batch_size, args.length + 1), device=device)

    for step in range(args.steps):
        batch = ids[step % len(ids)]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
