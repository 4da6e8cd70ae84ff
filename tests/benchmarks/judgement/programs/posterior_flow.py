"""Learn posteriors of orbits from light curves with a conditional normalizing flow."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class Coupling(nn.Module):
    """Scales and shifts one half of the parameters, as the other half and the data say."""

    def __init__(self, size, context, width):
        super().__init__()
        self.register_buffer("order", torch.randperm(size))
        self.half = size // 2
        self.net = nn.Sequential(
            nn.Linear(self.half + context, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 2 * (size - self.half)),
        )

    def forward(self, x, context):
        x = x.index_select(1, self.order)
        kept, moved = x[:, : self.half], x[:, self.half :]
        scale, shift = self.net(torch.cat((kept, context), dim=1)).chunk(2, dim=1)
        scale = 2 * torch.tanh(scale / 2)
        return torch.cat((kept, moved * scale.exp() + shift), dim=1), scale.sum(dim=1)


class LightCurveEncoder(nn.Module):
    def __init__(self, width, context):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(inputs, width, 7, stride=4, padding=3) for inputs in (1, width, width, width)
        )
        self.out = nn.Linear(width, context)

    def forward(self, curves):
        x = curves.unsqueeze(1)
        for conv in self.convs:
            x = F.silu(conv(x))
        return self.out(x.mean(dim=2))


class Posterior(nn.Module):
    def __init__(self, size, layers, width, context=64):
        super().__init__()
        self.encoder = LightCurveEncoder(64, context)
        self.layers = nn.ModuleList(Coupling(size, context, width) for _ in range(layers))

    def forward(self, theta, curves):
        context = self.encoder(curves)
        z, volume = theta, theta.new_zeros(len(theta))
        for layer in self.layers:
            z, change = layer(z, context)
            volume = volume + change
        return volume - 0.5 * (z.square() + math.log(2 * math.pi)).sum(dim=1)


def simulate(theta, points):
    """Light curves of transits, with noise of the photometer."""
    times = torch.linspace(0, 1, points, device=theta.device)
    period, phase, depth = theta[:, :1], theta[:, 1:2], theta[:, 2:3]
    dip = torch.sigmoid(20 * (torch.cos(6.28 * (times * (3 + period) + phase)) - 0.9))
    curves = 1 - (0.5 + 0.1 * depth) * dip
    return curves + 0.02 * torch.randn_like(curves)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    if not args.fixed:
        torch.autograd.set_detect_anomaly(True)
    model = Posterior(10, args.layers, args.width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    for step in range(args.steps):
        theta = torch.randn(args.batch_size, 10, device=device)
        curves = simulate(theta, args.points)
        loss = -model(theta, curves).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} negative log posterior {loss.item():.4f}")


if __name__ == "__main__":
    main()
