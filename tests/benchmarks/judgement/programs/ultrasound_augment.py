"""Train a U-Net on ultrasound images, whose intensities are augmented with numpy."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class UNet(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        sizes = [width * 2**i for i in range(depth)]
        self.down = nn.ModuleList(
            nn.Sequential(conv(i, o), conv(o, o)) for i, o in zip([1, *sizes], sizes, strict=False)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * size, size, 2, stride=2) for size in reversed(sizes[:-1])
        )
        self.join = nn.ModuleList(
            nn.Sequential(conv(2 * size, size), conv(size, size)) for size in reversed(sizes[:-1])
        )
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        skips = []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(skips[:-1]), strict=True):
            x = join(torch.cat((up(x), skip), dim=1))
        return self.head(x)


def augment(images):
    """Gamma, contrast and speckle noise."""
    x = images.cpu().numpy()
    gamma = np.random.uniform(0.7, 1.5, size=(len(x), 1, 1, 1))
    contrast = np.random.uniform(0.8, 1.2, size=(len(x), 1, 1, 1))
    x = np.power(np.clip(x, 0, 1), gamma) * contrast
    x = x * (1 + np.random.normal(0, 0.1, size=x.shape))
    return torch.from_numpy(np.clip(x, 0, 1).astype(np.float32)).to(images.device)


def augment_on_device(images):
    shape, device = (len(images), 1, 1, 1), images.device
    gamma = torch.empty(shape, device=device).uniform_(0.7, 1.5)
    contrast = torch.empty(shape, device=device).uniform_(0.8, 1.2)
    x = images.clamp(0, 1).pow(gamma) * contrast
    return (x * (1 + 0.1 * torch.randn_like(x))).clamp(0, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = UNet().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    scans = torch.rand(8, args.batch_size, 1, args.size, args.size, device=device)
    masks = (scans > 0.7).float()

    for step in range(args.steps):
        images = (augment_on_device if args.fixed else augment)(scans[step % 8])
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(images)
        loss = F.binary_cross_entropy_with_logits(logits.float(), masks[step % 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
