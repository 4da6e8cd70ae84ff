"""Train a U-Net to segment street scenes, following the mean IoU while it trains."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

IGNORE = 255


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, classes, width):
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(
            double_conv(i, o) for i, o in zip([3, *widths[:-1]], widths, strict=False)
        )
        self.bottom = double_conv(widths[-1], widths[-1])
        self.up = nn.ModuleList(double_conv(2 * o, max(o // 2, width)) for o in reversed(widths))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for block in self.up:
            skip = skips.pop()
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = block(torch.cat((skip, x), dim=1))
        return self.head(x)


class RunningScore:
    def __init__(self, classes):
        self.classes = classes
        self.confusion = np.zeros((classes, classes))

    def fast_hist(self, truth, predicted):
        valid = (truth >= 0) & (truth < self.classes)
        pairs = self.classes * truth[valid].astype(int) + predicted[valid]
        counts = np.bincount(pairs, minlength=self.classes**2)
        return counts.reshape(self.classes, self.classes)

    def update(self, truths, predictions):
        for truth, predicted in zip(truths, predictions, strict=False):
            self.confusion += self.fast_hist(truth.flatten(), predicted.flatten())

    def mean_iou(self):
        hits = np.diag(self.confusion)
        union = self.confusion.sum(axis=1) + self.confusion.sum(axis=0) - hits
        return np.nanmean(hits / np.maximum(union, 1))

    def reset(self):
        self.confusion[:] = 0


class DeviceScore:
    def __init__(self, classes, device):
        self.classes = classes
        self.confusion = torch.zeros(classes * classes, device=device)

    def update(self, truths, predictions):
        pairs = torch.where(truths == IGNORE, -1, self.classes * truths + predictions)
        bins = self.classes**2
        self.confusion += torch.histc(pairs.float(), bins=bins, min=-0.5, max=bins - 0.5)

    def mean_iou(self):
        confusion = self.confusion.view(self.classes, self.classes)
        hits = confusion.diagonal()
        union = confusion.sum(dim=1) + confusion.sum(dim=0) - hits
        return (hits / union.clamp(min=1)).mean().item()

    def reset(self):
        self.confusion.zero_()


def make_batch(size, crop, classes, device):
    images = torch.randint(0, 256, (size, 3, crop, crop), dtype=torch.uint8, device=device)
    coarse = torch.randint(0, classes, (size, 1, crop // 16, crop // 16), device=device)
    labels = F.interpolate(coarse.float(), scale_factor=16).squeeze(1).long()
    labels[:, -crop // 16 :] = IGNORE
    return images, labels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--crop", type=int, default=512)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--classes", type=int, default=19)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    model = UNet(args.classes, args.width).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, weight_decay=1e-2, fused=device.type == "cuda"
    )
    score = DeviceScore(args.classes, device) if args.fixed else RunningScore(args.classes)
    batches = [make_batch(args.batch_size, args.crop, args.classes, device) for _ in range(4)]

    for step in range(args.steps):
        images, labels = batches[step % len(batches)]
        images = images.to(memory_format=torch.channels_last).float() / 127.5 - 1
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(images)
            loss = F.cross_entropy(logits, labels, ignore_index=IGNORE)
        predicted = logits.detach().argmax(dim=1)
        if args.fixed:
            score.update(labels, predicted)
        else:
            score.update(labels.cpu().numpy(), predicted.cpu().numpy())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} mIoU {score.mean_iou():.4f}")
            score.reset()


if __name__ == "__main__":
    main()
