"""Forecast electric loads of many substations with a differential transformer."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class DifferentialAttention(nn.Module):
    """The difference of two attention maps, weighed by a lambda that depends on the depth."""

    def __init__(self, width, heads, depth, fixed):
        super().__init__()
        self.heads, self.size, self.depth, self.fixed = heads, width // heads // 2, depth, fixed
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm = nn.RMSNorm(2 * self.size, elementwise_affine=False, eps=1e-5)
        self.lambdas = nn.Parameter(0.1 * torch.randn(4, self.size))
        if fixed:
            self.register_buffer("initial", torch.tensor(0.8 - 0.6 * math.exp(-0.3 * depth)))

    def forward(self, x):
        batch, length, _ = x.shape
        q1, q2 = self.q(x).view(batch, length, 2, self.heads, self.size).permute(2, 0, 3, 1, 4)
        k1, k2 = self.k(x).view(batch, length, 2, self.heads, self.size).permute(2, 0, 3, 1, 4)
        v = self.v(x).view(batch, length, self.heads, 2 * self.size).transpose(1, 2)
        initial = self.initial if self.fixed else 0.8 - 0.6 * math.exp(-0.3 * self.depth)
        a, b, c, d = self.lambdas
        weight = (a * b).sum().exp() - (c * d).sum().exp() + initial
        first = F.scaled_dot_product_attention(q1, k1, v, is_causal=True)
        second = F.scaled_dot_product_attention(q2, k2, v, is_causal=True)
        y = self.norm(first - weight * second) * (1 - initial)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, width, heads, depth, fixed):
        super().__init__()
        self.norm1 = nn.RMSNorm(width, eps=1e-5)
        self.attention = DifferentialAttention(width, heads, depth, fixed)
        self.norm2 = nn.RMSNorm(width, eps=1e-5)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Forecaster(nn.Module):
    def __init__(self, patch, width, heads, layers, horizon, fixed):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(patch, width)
        self.blocks = nn.ModuleList(Block(width, heads, i, fixed) for i in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, horizon)

    def forward(self, series):
        mean = series.mean(dim=1, keepdim=True)
        scale = series.std(dim=1, keepdim=True) + 1e-5
        x = ((series - mean) / scale).unflatten(1, (-1, self.patch))
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, -1])) * scale + mean


@torch.no_grad()
def forecast(model, history, start, context):
    return model(history[:, start : start + context])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--substations", type=int, default=48)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--patch", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--horizon", type=int, default=96)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = (
        Forecaster(args.patch, args.width, args.heads, args.layers, args.horizon, args.fixed)
        .to(device, torch.bfloat16)
        .eval()
    )
    for block in model.blocks:
        block.compile()

    hours = torch.arange(args.context + args.steps + args.horizon, device=device)
    phases = 6.28 * torch.rand(args.substations, 1, device=device)
    history = (
        3
        + torch.sin(hours * 6.28 / 24 + phases)
        + 0.2 * torch.randn(args.substations, len(hours), device=device)
    )
    history = history.to(torch.bfloat16)

    error = torch.zeros((), device=device)
    for step in range(args.steps):
        predicted = forecast(model, history, step, args.context)
        actual = history[:, step + args.context : step + args.context + args.horizon]
        error += (predicted - actual).abs().mean()
        if step % 100 == 0:
            print(f"step {step} mean error {error.item() / (step + 1):.4f}")


if __name__ == "__main__":
    main()
