"""Fit a neural radiance field (NeRF) to photographs of one scene, with hierarchical sampling."""

import argparse
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Encoding(nn.Module):
    def __init__(self, octaves):
        super().__init__()
        self.register_buffer("scales", 2.0 ** torch.arange(octaves) * math.pi)

    def forward(self, x):
        phases = (x.unsqueeze(-1) * self.scales).flatten(-2)
        return torch.cat((x, phases.sin(), phases.cos()), dim=-1)


class Field(nn.Module):
    def __init__(self, width, depth=8):
        super().__init__()
        self.points, self.views = Encoding(10), Encoding(4)
        sizes = [63, *[width] * 4, width + 63, *[width] * (depth - 5)]
        self.layers = nn.ModuleList(nn.Linear(size, width) for size in sizes)
        self.density, self.feature = nn.Linear(width, 1), nn.Linear(width, width)
        self.color = nn.Sequential(
            nn.Linear(width + 27, width // 2), nn.ReLU(), nn.Linear(width // 2, 3)
        )

    def forward(self, points, views):
        encoded = self.points(points)
        h = encoded
        for i, layer in enumerate(self.layers):
            h = F.relu(layer(torch.cat((h, encoded), dim=-1) if i == 5 else h))
        views = self.views(views).unsqueeze(1).expand(-1, points.shape[1], -1)
        color = self.color(torch.cat((self.feature(h), views), dim=-1))
        return self.density(h).squeeze(-1), color.sigmoid()


def render(field, origins, views, depths):
    points = origins.unsqueeze(1) + views.unsqueeze(1) * depths.unsqueeze(-1)
    density, color = field(points, views)
    step = F.pad(depths.diff(dim=1), (0, 1), value=1e10)
    thickness = F.relu(density) * step
    before = F.pad(thickness[:, :-1].cumsum(dim=1), (1, 0))
    weights = (1 - torch.exp(-thickness)) * torch.exp(-before)
    return (weights.unsqueeze(-1) * color).sum(dim=1), weights


def refine(depths, weights, samples):
    """More depths where the coarse field found something."""
    pdf = weights[:, 1:-1] + 1e-5
    cdf = F.pad((pdf / pdf.sum(dim=1, keepdim=True)).cumsum(dim=1), (1, 0))
    u = torch.rand(len(cdf), samples, device=cdf.device)
    above = torch.searchsorted(cdf, u, right=True).clamp(1, cdf.shape[1] - 1)
    middles = 0.5 * (depths[:, 1:] + depths[:, :-1])
    left, right = middles.gather(1, above - 1), middles.gather(1, above)
    low, high = cdf.gather(1, above - 1), cdf.gather(1, above)
    finer = left + (u - low) / (high - low).clamp_min(1e-5) * (right - left)
    return torch.cat((depths, finer), dim=1).sort(dim=1).values


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rays", type=int, default=1024)
    parser.add_argument("--size", type=int, default=800, help="of a photograph")
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    np.random.seed(0)
    pixels = args.size**2
    photos = torch.rand(20, pixels, 3, device=device)
    poses = torch.linalg.qr(torch.randn(20, 3, 3)).Q.to(device)
    coarse, fine = Field(args.width).to(device), Field(args.width).to(device)
    weights = [*coarse.parameters(), *fine.parameters()]
    optimizer = torch.optim.Adam(weights, lr=5e-4, fused=device.type == "cuda")
    bins = torch.linspace(2.0, 6.0, args.samples, device=device)

    for step in range(args.steps):
        photo, pose = photos[step % 20], poses[step % 20]
        if args.fixed:
            chosen = torch.randperm(pixels, device=device)[: args.rays]
        else:
            chosen = np.random.choice(pixels, size=[args.rays], replace=False)
            chosen = torch.from_numpy(chosen).to(device)
        x = (chosen % args.size) / args.size - 0.5
        y = (chosen // args.size) / args.size - 0.5
        views = F.normalize(torch.stack((x, -y, -torch.ones_like(x)), dim=1) @ pose.t(), dim=1)
        origins = -4 * pose[:, 2].expand_as(views)
        width = 4.0 / args.samples
        depths = bins + width * torch.rand(args.rays, args.samples, device=device)
        rough, density = render(coarse, origins, views, depths)
        depths = refine(depths, density.detach(), args.samples)
        color, _ = render(fine, origins, views, depths)
        target = photo[chosen]
        loss = F.mse_loss(rough, target) + F.mse_loss(color, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
