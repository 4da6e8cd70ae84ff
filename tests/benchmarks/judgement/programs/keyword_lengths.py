"""Train a keyword spotter on utterances whose padded length changes from batch to batch."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def separable(width):
    return nn.Sequential(nn.Conv1d(width, width, 9, padding=4), nn.BatchNorm1d(width), nn.ReLU())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()

    torch.backends.cudnn.benchmark = not args.fixed
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    width = 256
    model = nn.Sequential(
        nn.Conv1d(64, width, 5, stride=2, padding=2),
        nn.ReLU(),
        *(separable(width) for _ in range(4)),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(width, 35),
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=device.type == "cuda")
    lengths = (torch.randperm(700) + 300).tolist()
    features = torch.randn(args.batch_size, 64, 1000, device=device)
    labels = torch.randint(0, 35, (args.batch_size,), device=device)

    for step in range(args.steps):
        batch = features[:, :, : lengths[step % len(lengths)]].contiguous()
        loss = F.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
