"""Remove rain from photographs with a residual U-Net."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class LayerNorm2d(nn.Module):
    """Normalizes the channels of each pixel."""

    def __init__(self, channels, eps=1e-6, fixed=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps, self.fixed = eps, fixed

    def forward(self, x):
        if self.fixed:
            x = x.permute(0, 2, 3, 1)
            x = F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
            return x.permute(0, 3, 1, 2)
        mean = x.mean(1, keepdim=True)
        variance = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ResBlock(nn.Module):
    def __init__(self, channels, fixed):
        super().__init__()
        self.norm1 = LayerNorm2d(channels, fixed=fixed)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = LayerNorm2d(channels, fixed=fixed)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.conv2.weight)

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        return x + self.conv2(F.silu(self.norm2(y)))


class UNet(nn.Module):
    def __init__(self, widths, blocks, fixed):
        super().__init__()

        def stage(width):
            return nn.Sequential(*(ResBlock(width, fixed) for _ in range(blocks)))

        steps = list(zip(widths, widths[1:]))  # noqa: RUF007
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1)
        self.encoders = nn.ModuleList(stage(width) for width in widths[:-1])
        self.downs = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in steps)
        self.middle = stage(widths[-1])
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in steps[::-1])
        self.decoders = nn.ModuleList(stage(width) for width in widths[-2::-1])
        self.out = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, image):
        x, skips = self.stem(image), []
        for encoder, down in zip(self.encoders, self.downs):
            x = encoder(x)
            skips.append(x)
            x = down(x)
        x = self.middle(x)
        for up, decoder in zip(self.ups, self.decoders):
            x = decoder(up(x) + skips.pop())
        return image + self.out(x)


class Rain(nn.Module):
    """Bright streaks, drawn as noise smeared along a few slanted lines."""

    def __init__(self, length=15, slants=4, density=0.006):
        super().__init__()
        kernels = torch.zeros(slants, 1, length, length)
        rows = torch.arange(length)
        for slant in range(slants):
            offset = (rows - length // 2) * (slant - (slants - 1) / 2) / slants
            kernels[slant, 0, rows, (length // 2 + offset.round()).long()] = 1.0
        self.register_buffer("kernels", kernels)
        self.density = density

    @torch.no_grad()
    def forward(self, clean):
        size = (len(clean), 1, clean.shape[2] // 2, clean.shape[3] // 2)
        drops = (torch.rand(size, device=clean.device) < self.density).float()
        streaks = F.conv2d(drops, self.kernels, padding="same").mean(1, keepdim=True)
        streaks = F.interpolate(streaks, scale_factor=2, mode="bilinear", align_corners=False)
        return (clean + 1.5 * streaks).clamp(0, 1)


def charbonnier(restored, clean, eps=1e-3):
    return torch.sqrt((restored - clean).square() + eps**2).mean()


def make_crops(count, size, pin):
    """Smooth random images as 8-bit crops, in host memory."""
    coarse = torch.rand(count, 3, size // 16, size // 16)
    images = F.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=False)
    images = (images.clamp(0, 1) * 255).to(torch.uint8)
    return images.pin_memory() if pin else images


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device.type == "cuda"
    model = UNet(args.widths, args.blocks, args.fixed)
    model = model.to(device, memory_format=torch.channels_last)
    rain = Rain().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=cuda)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    batches = [make_crops(args.batch_size, args.size, cuda) for _ in range(32)]

    for step in range(args.steps):
        clean = batches[step % len(batches)].to(device, non_blocking=True)
        clean = clean.to(dtype=torch.float32, memory_format=torch.channels_last).div_(255)
        rainy = rain(clean)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            restored = model(rainy)
        loss = charbonnier(restored.float(), clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
