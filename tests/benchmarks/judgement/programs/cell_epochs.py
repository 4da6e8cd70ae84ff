"""Tune a ResNet on a small set of microscope images of cells, for many short epochs."""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import ResNetConfig, ResNetForImageClassification


class Cells(Dataset):
    """Stained cells, augmented with crops, turns, and a change of the stain."""

    def __init__(self, count, size, crop, classes):
        generator = torch.Generator().manual_seed(1)
        shape = (count, 3, size, size)
        self.images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        self.labels = torch.randint(0, classes, (count,), generator=generator)
        self.size, self.crop = size, crop

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        top, left = torch.randint(0, self.size - self.crop + 1, (2,)).tolist()
        image = self.images[index, :, top : top + self.crop, left : left + self.crop]
        image = torch.rot90(image, int(torch.randint(0, 4, ())), dims=(1, 2))
        stain = 0.9 + 0.2 * torch.rand(3, 1, 1)
        return image.float().div(255).mul(stain).sub(0.5).div(0.25), self.labels[index]


def train_epoch(model, loader, optimizer, device):
    total = torch.zeros((), device=device)
    for images, labels in loader:
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(pixel_values=images).logits
        loss = F.cross_entropy(logits.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--crop", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--depths", type=int, nargs=4, default=[3, 4, 6, 3])
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    loader = DataLoader(
        Cells(args.images, args.size, args.crop, classes=8),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
        persistent_workers=args.fixed,
    )
    config = ResNetConfig(depths=args.depths, num_labels=8)
    model = ResNetForImageClassification(config).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")

    for epoch in range(args.epochs):
        loss = train_epoch(model.train(), loader, optimizer, device)
        if epoch % 5 == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
