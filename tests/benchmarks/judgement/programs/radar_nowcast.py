"""Forecast the next hour of rain radar from the last one with a residual U-Net."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def conv_bn(inputs, outputs, kernel, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        inner = outputs // 2
        self.reduce = conv_bn(inputs, inner, 1)
        self.middle = conv_bn(inner, inner, 3, stride)
        self.expand = conv_bn(inner, outputs, 1)
        self.skip = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = conv_bn(inputs, outputs, 1, stride)

    def forward(self, x):
        y = F.relu(self.reduce(x), inplace=True)
        y = F.relu(self.middle(y), inplace=True)
        return F.relu(self.expand(y) + self.skip(x), inplace=True)


class NowcastNet(nn.Module):
    def __init__(self, frames, horizon, width, blocks):
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.stem = nn.Sequential(conv_bn(frames, width, 7, 2), nn.ReLU(inplace=True))
        self.down = nn.ModuleList()
        for i, (inputs, outputs) in enumerate(zip([width, *widths[:-1]], widths, strict=False)):
            stage = [Bottleneck(inputs, outputs, 1 if i == 0 else 2)]
            stage += [Bottleneck(outputs, outputs) for _ in range(blocks - 1)]
            self.down.append(nn.Sequential(*stage))
        self.up = nn.ModuleList(
            Bottleneck(deep + shallow, shallow)
            for deep, shallow in zip(widths[:0:-1], widths[-2::-1], strict=False)
        )
        self.head = nn.Conv2d(width, horizon, 3, padding=1)

    def forward(self, x):
        x = self.stem(x)
        levels = []
        for stage in self.down:
            x = stage(x)
            levels.append(x)
        x = levels.pop()
        for block in self.up:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = block(torch.cat((x, levels.pop()), dim=1))
        return F.interpolate(self.head(x), scale_factor=2, mode="bilinear")


def make_batch(size, frames, horizon, grid, device):
    """Rain fields that drift eastwards."""
    coarse = torch.rand(size, 1, grid // 16, grid // 16, device=device)
    field = F.interpolate(coarse, size=(grid, grid), mode="bicubic").clamp(min=0.4) - 0.4
    clip = [field.roll(2 * t, dims=3) for t in range(frames + horizon)]
    clip = torch.cat(clip, dim=1) * 10
    clip = torch.log1p(clip + 0.05 * torch.rand_like(clip))
    return clip[:, :frames].contiguous(), clip[:, frames:].contiguous()


def weighted_error(predicted, target):
    weight = 1 + 4 * target.clamp(max=2)
    return (weight * (predicted.float() - target).abs()).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--grid", type=int, default=384)
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--horizon", type=int, default=12)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    model = NowcastNet(args.frames, args.horizon, args.width, args.blocks).to(device)
    batches = [
        make_batch(args.batch_size, args.frames, args.horizon, args.grid, device) for _ in range(6)
    ]
    if args.fixed:
        model = model.to(memory_format=torch.channels_last)
        batches = [(past.to(memory_format=torch.channels_last), future) for past, future in batches]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, weight_decay=0.05, fused=device.type == "cuda"
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=args.steps + 1)

    for step in range(args.steps):
        past, future = batches[step % len(batches)]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            predicted = model(past)
        loss = weighted_error(predicted, future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step} error {loss.item():.4f}")


if __name__ == "__main__":
    main()
