"""Train a linear classifier on the features of a frozen ResNet."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import resnet50


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    backbone = resnet50(weights=None)
    backbone.fc = nn.Identity()
    backbone = backbone.to(device, memory_format=torch.channels_last).eval()
    if args.fixed:
        backbone.requires_grad_(False)
    head = nn.Sequential(nn.LayerNorm(2048), nn.Linear(2048, 512), nn.GELU(), nn.Linear(512, 200))
    head = head.to(device)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, fused=device.type == "cuda")
    images = torch.randn(args.batch_size, 3, 224, 224, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 200, (args.batch_size,), device=device)

    for step in range(args.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            features = backbone(images)
            loss = F.cross_entropy(head(features), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
