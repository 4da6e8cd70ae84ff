"""Train the U-Net of a diffusion model on noisy images with automatic mixed precision."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, inputs, outputs, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.norm2, self.conv2 = (
            nn.GroupNorm(32, outputs),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(t)[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return self.skip(x) + h


class UNet(nn.Module):
    def __init__(self, width=128, multiples=(1, 2, 3), time=512):
        super().__init__()
        self.width = width
        self.embed = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        sizes = [width * m for m in multiples]
        self.down = nn.ModuleList()
        current, skips = width, []
        for size in sizes:
            self.down.append(ResBlock(current, size, time))
            skips.append(size)
            current = size
        self.middle = ResBlock(current, current, time)
        self.up = nn.ModuleList()
        for size in reversed(skips):
            self.up.append(ResBlock(current + size, size, time))
            current = size
        self.last = nn.Sequential(
            nn.GroupNorm(32, current), nn.SiLU(), nn.Conv2d(current, 3, 3, padding=1)
        )

    def forward(self, x, t):
        half = self.width // 2
        rates = torch.exp(-math.log(10_000) * torch.arange(half, device=x.device) / half)
        angles = t[:, None].float() * rates
        t = self.embed(torch.cat((angles.sin(), angles.cos()), dim=-1))
        x, skips = self.first(x), []
        for block in self.down:
            x = block(x, t)
            skips.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, t)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat((x, skips.pop()), dim=1), t)
        return self.last(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = UNet().to(device)
    images = torch.rand(args.batch_size, 3, args.size, args.size, device=device) * 2 - 1
    if args.fixed:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device), dim=0)

    for step in range(args.steps):
        t = torch.randint(0, 1000, (args.batch_size,), device=device)
        noise = torch.randn_like(images)
        a = alphas[t][:, None, None, None]
        noisy = a.sqrt() * images + (1 - a).sqrt() * noise
        with torch.autocast(device.type, dtype=torch.float16):
            loss = F.mse_loss(model(noisy, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
