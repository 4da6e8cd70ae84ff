"""Train CenterNet (ResNet-18) to find products on photos of supermarket shelves."""

import argparse
from dataclasses import dataclass, fields

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transformers import ResNetConfig, ResNetModel

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


class Shelves(Dataset):
    def __init__(self, length, photos, size, classes, boxes=24, stride=4):
        rng = np.random.default_rng(1)
        self.length, self.size, self.classes, self.stride = length, size, classes, stride
        self.photos = torch.randint(0, 256, (photos, 3, size, size), dtype=torch.uint8)
        low, high = size // 32, size // 6
        self.centers = rng.uniform(0.05 * size, 0.95 * size, (photos, boxes, 2))
        self.extents = rng.uniform(low, high, (photos, boxes, 2))
        self.kinds = rng.integers(0, classes, (photos, boxes))

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        index %= len(self.photos)
        image = self.photos[index]
        centers = self.centers[index] / self.stride
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
            centers = centers * [-1, 1] + [self.size / self.stride, 0]
        image = image.float().div_(255).sub_(MEAN).div_(STD)
        return image, *self.targets(centers, self.extents[index] / self.stride, self.kinds[index])

    def targets(self, centers, extents, kinds):
        """A heatmap with a bump per object; its cell, offset and extent."""
        side = self.size // self.stride
        heatmap = np.zeros((self.classes, side, side), np.float32)
        cells = np.clip(centers.astype(int), 0, side - 1)
        for (x, y), extent, kind in zip(cells, extents, kinds):
            radius = max(1, int(extent.min() * 0.3))
            left, right = max(0, x - radius), min(side, x + radius + 1)
            top, bottom = max(0, y - radius), min(side, y + radius + 1)
            dx = np.arange(left, right) - x
            dy = np.arange(top, bottom) - y
            bump = np.exp(-(dx[None] ** 2 + dy[:, None] ** 2) / (2 * (radius / 3 + 0.3) ** 2))
            area = heatmap[kind, top:bottom, left:right]
            np.maximum(area, bump, out=area)
        cell = cells[:, 1] * side + cells[:, 0]
        shape = np.concatenate((centers - cells, extents), axis=1).astype(np.float32)
        return torch.from_numpy(heatmap), torch.from_numpy(cell), torch.from_numpy(shape)


@dataclass
class Batch:
    images: torch.Tensor
    heatmaps: torch.Tensor
    cells: torch.Tensor
    shapes: torch.Tensor

    @classmethod
    def collate(cls, samples):
        return cls(*(torch.stack(column) for column in zip(*samples)))

    def map(self, function):
        return type(self)(*(function(getattr(self, field.name)) for field in fields(self)))

    def to(self, device):
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


class PinnableBatch(Batch):
    def pin_memory(self):
        return self.map(torch.Tensor.pin_memory)


class CenterNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        config = ResNetConfig(
            layer_type="basic", depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512]
        )
        self.backbone = ResNetModel(config)
        layers, before = [], 512
        for width in (256, 128, 64):
            layers += [
                nn.ConvTranspose2d(before, width, 4, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            before = width
        self.neck = nn.Sequential(*layers)
        self.heatmap = self.head(before, classes)
        self.shape = self.head(before, 4)
        nn.init.constant_(self.heatmap[-1].bias, -2.19)

    @staticmethod
    def head(width, outputs):
        return nn.Sequential(
            nn.Conv2d(width, 64, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(64, outputs, 1)
        )

    def forward(self, images):
        x = self.neck(self.backbone(images).last_hidden_state)
        return self.heatmap(x), self.shape(x)


def centernet_loss(heat, shape, batch):
    heat = heat.float()
    prob = heat.sigmoid()
    peaks = (batch.heatmaps == 1).float()
    positive = -F.logsigmoid(heat) * (1 - prob).square() * peaks
    negative = -F.logsigmoid(-heat) * prob.square() * (1 - batch.heatmaps).pow(4) * (1 - peaks)
    focal = (positive + negative).sum() / batch.cells.numel()
    predicted = shape.float().flatten(2).transpose(1, 2)
    index = batch.cells.unsqueeze(-1).expand(-1, -1, predicted.shape[-1])
    return focal + 0.1 * F.l1_loss(predicted.gather(1, index), batch.shapes)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--photos", type=int, default=128)
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = Shelves(args.steps * args.batch_size, args.photos, args.size, args.classes)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        collate_fn=(PinnableBatch if args.fixed else Batch).collate,
        pin_memory=device.type == "cuda",
    )
    model = CenterNet(args.classes).to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=device.type == "cuda")

    for step, batch in enumerate(loader):
        batch = batch.to(device)
        images = batch.images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            heat, shape = model(images)
        loss = centernet_loss(heat, shape, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
