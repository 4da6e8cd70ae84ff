"""Forecast tomorrow's electric load of grid zones from the last week (patch transformer)."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class PatchForecaster(nn.Module):
    """Each zone is a sequence of patches of its own, as in PatchTST."""

    def __init__(self, context, horizon, patch, width, layers):
        super().__init__()
        self.patch = patch
        count = context // patch
        self.embed = nn.Linear(patch, width)
        self.position = nn.Parameter(0.02 * torch.randn(count, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 8, 4 * width, 0.1, F.gelu, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(count * width, horizon)

    def forward(self, history):
        mean = history.mean(dim=1, keepdim=True)
        scale = history.var(dim=1, keepdim=True).add(1e-5).sqrt()
        x = ((history - mean) / scale).transpose(1, 2)
        batch, zones, context = x.shape
        x = x.reshape(batch * zones, context // self.patch, self.patch)
        x = self.embed(x) + self.position
        for block in self.blocks:
            x = block(x)
        forecast = self.head(x.flatten(1)).view(batch, zones, -1).transpose(1, 2)
        return forecast * scale + mean


class Windows:
    def __init__(self, load, context, horizon, seed=0):
        self.load = load
        self.context = context
        self.horizon = horizon
        self.random = np.random.default_rng(seed)

    def sample(self, size):
        last = len(self.load) - self.context - self.horizon
        starts = self.random.integers(0, last, size)
        middles = starts + self.context
        history = [self.load[s:m] for s, m in zip(starts, middles, strict=True)]
        future = [self.load[m : m + self.horizon] for m in middles]
        return history, future


def make_load(hours, zones):
    rng = np.random.default_rng(0)
    t = np.arange(hours)[:, None]
    daily = np.sin(2 * np.pi * t / 24 + rng.uniform(0, 1, zones))
    weekly = np.sin(2 * np.pi * t / 168 + rng.uniform(0, 6, zones))
    trend = np.cumsum(rng.normal(0, 0.01, (hours, zones)), axis=0)
    load = 3 + daily + 0.5 * weekly + trend + rng.normal(0, 0.1, (hours, zones))
    return load.astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--zones", type=int, default=8)
    parser.add_argument("--context", type=int, default=168)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    windows = Windows(make_load(5 * 8760, args.zones), args.context, args.horizon)
    model = PatchForecaster(args.context, args.horizon, 8, args.width, args.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")

    for step in range(args.steps):
        history, future = windows.sample(args.batch_size)
        if args.fixed:
            history = torch.from_numpy(np.stack(history)).to(device)
            future = torch.from_numpy(np.stack(future)).to(device)
        else:
            history = torch.tensor(history, dtype=torch.float32).to(device)
            future = torch.tensor(future, dtype=torch.float32).to(device)
        forecast = model(history)
        loss = F.smooth_l1_loss(forecast, future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
