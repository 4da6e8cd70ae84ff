"""Classify land cover in tiles of satellite images with a large vision transformer."""

import argparse

import timm
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __init__(self, length, size, classes, pool=1024):
        self.length = length
        self.tiles = torch.randint(0, 256, (pool, 3, size, size), dtype=torch.uint8)
        self.labels = torch.randint(0, classes, (pool,)).tolist()

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        index = index % len(self.tiles)
        return self.tiles[index], self.labels[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--model", default="vit_large_patch16_224")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=45)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    set_seed(0)
    torch.set_float32_matmul_precision("high")
    accelerator = Accelerator(
        mixed_precision="bf16", dataloader_config=DataLoaderConfiguration(non_blocking=True)
    )
    device = accelerator.device
    with device:
        model = timm.create_model(args.model, img_size=args.size, num_classes=args.classes)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.learning_rate, weight_decay=0.05, fused=device.type == "cuda"
    )
    loader = DataLoader(
        Tiles(args.steps * args.batch_size, args.size, args.classes),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        pin_memory=True,
        prefetch_factor=4 if args.workers else None,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)

    model.train()
    for step, (tiles, labels) in enumerate(loader):
        logits = model(tiles.float().div_(127.5).sub_(1))
        loss = F.cross_entropy(logits, labels, label_smoothing=0.1)
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            accelerator.print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
