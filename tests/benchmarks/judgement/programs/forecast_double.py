"""Forecast many time series with an N-BEATS-like network; the data come from numpy."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, past, future, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(past, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.backcast, self.forecast = nn.Linear(width, past), nn.Linear(width, future)

    def forward(self, x):
        h = self.layers(x)
        return x - self.backcast(h), self.forecast(h)


class Forecaster(nn.Module):
    def __init__(self, past, future, width=1024, blocks=6):
        super().__init__()
        self.blocks = nn.ModuleList(Block(past, future, width) for _ in range(blocks))

    def forward(self, x):
        total = 0.0
        for block in self.blocks:
            x, forecast = block(x)
            total = total + forecast
        return total


def make_series(count, length):
    random = np.random.default_rng(0)
    t = np.arange(length)
    periods = random.uniform(8, 64, (count, 1))
    trend = random.normal(0, 0.01, (count, 1)) * t
    return np.sin(2 * np.pi * t / periods) + trend + random.normal(0, 0.1, (count, length))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--past", type=int, default=336)
    parser.add_argument("--future", type=int, default=96)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    series = torch.from_numpy(make_series(args.batch_size * 4, args.past + args.future)).to(device)
    model = Forecaster(args.past, args.future).to(device)
    if args.fixed:
        series = series.float()
    else:
        model = model.double()  # mat1 and mat2 must have the same dtype, but got Double and Float
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=device.type == "cuda")

    for step in range(args.steps):
        rows = torch.randint(0, len(series), (args.batch_size,), device=device)
        batch = series[rows]
        loss = F.l1_loss(model(batch[:, : args.past]), batch[:, args.past :])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
