"""Train a compiled ConvNeXt of timm: channels last, bfloat16, fused optimizer, workers."""

import argparse

import timm
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, count):
        self.count = count
        self.images = torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.images[index % 64], index % 100


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=128)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    loader = DataLoader(
        Images(args.batch_size * args.steps),
        args.batch_size,
        num_workers=8,
        pin_memory=device.type == "cuda",
    )
    model = timm.create_model("convnext_tiny", num_classes=100)
    model = torch.compile(model.to(device, memory_format=torch.channels_last))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    for step, (images, labels) in enumerate(loader):
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images.float() / 127.5 - 1), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
