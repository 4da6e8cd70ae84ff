"""Solve Maxwell's equations in a cavity with a physics informed network."""

import argparse
import itertools
import math

import torch
from torch import nn


class Fields(nn.Module):
    """Electric and magnetic fields (six numbers) at points of space and time."""

    def __init__(self, width, depth, waves=32):
        super().__init__()
        self.register_buffer("waves", torch.randn(4, waves) * math.pi)
        sizes = [2 * waves, *[width] * depth]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.out = nn.Linear(width, 6)

    def forward(self, x, y, z, t):
        phases = torch.cat((x, y, z, t), dim=1) @ self.waves
        h = torch.cat((phases.sin(), phases.cos()), dim=1)
        for layer in self.layers:
            h = torch.tanh(layer(h))
        return self.out(h)


def derivative(field, coordinate):
    return torch.autograd.grad(
        field, coordinate, grad_outputs=torch.ones_like(field), create_graph=True
    )[0]


def gradient(field, coordinates, fixed):
    """Derivatives of one field: by x, y, z, and t."""
    if fixed:
        ones = torch.ones_like(field)
        return torch.autograd.grad(field, coordinates, grad_outputs=ones, create_graph=True)
    return [derivative(field, coordinate) for coordinate in coordinates]


def curl(x, y, z):
    return z[1] - y[2], x[2] - z[0], y[0] - x[1]


def residual(model, coordinates, fixed):
    fields = model(*coordinates).split(1, dim=1)
    rows = [gradient(field, coordinates, fixed) for field in fields]
    electric, magnetic = rows[:3], rows[3:]
    loss = sum(row[i] for i, row in enumerate(electric)).square().mean()
    loss = loss + sum(row[i] for i, row in enumerate(magnetic)).square().mean()
    for row, turn in zip(electric, curl(*magnetic), strict=True):
        loss = loss + (row[3] - turn).square().mean()
    for row, turn in zip(magnetic, curl(*electric), strict=True):
        loss = loss + (row[3] + turn).square().mean()
    return loss


def boundary(model, points):
    """At the walls z = 0 and z = 1 the electric field along the wall is zero."""
    x, y, t = points.split(1, dim=1)
    lower = model(x, y, torch.zeros_like(x), t)
    upper = model(x, y, torch.ones_like(x), t)
    return lower[:, :2].square().mean() + upper[:, :2].square().mean()


def initial(model, points):
    x, y, z = points.split(1, dim=1)
    fields = model(x, y, z, torch.zeros_like(x))
    wave = torch.sin(math.pi * x) * torch.sin(math.pi * z)
    return (fields[:, 1:2] - wave).square().mean() + fields[:, 3:].square().mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--points", type=int, default=16_384)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    model = Fields(args.width, args.depth).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9995)

    for step in range(args.steps):
        inside = torch.rand(args.points, 4, device=device)
        coordinates = [c.requires_grad_() for c in inside.split(1, dim=1)]
        loss = residual(model, coordinates, args.fixed)
        loss = loss + 10 * boundary(model, torch.rand(args.points // 8, 3, device=device))
        loss = loss + 10 * initial(model, torch.rand(args.points // 8, 3, device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
